"""Exponentials and tanh of many numbers at a time, which numba takes one by one."""

import math

import numpy as np
from numpy.typing import NDArray

from foltr.core.numerics.compiled import compiled_instead_of

_LARGEST = 708.0
_LOG2_E = 1.4426950408889634
# log 2 in two parts, of which the first has so few digits that its product with an exponent is exact.
_LOG_2_HIGH, _LOG_2_LOW = 0.693147180369123816490, 1.90821492927058770002e-10
# Adding it to a number rounds that to an integer, and leaves the integer in the lowest bits.
_ROUNDS = 6755399441055744.0


def _exponentials_whole(values: NDArray[np.floating], origin: float) -> NDArray[np.float64]:
    return np.exp(np.clip(values.astype(np.float64) - origin, -_LARGEST, _LARGEST))


@compiled_instead_of(_exponentials_whole)
def exponentials(values: NDArray[np.floating], origin: float) -> NDArray[np.float64]:
    """Return (n,) exp(value - origin) in float64, NaN of NaN; differences beyond 708, its end, count as 708.

    exp(x) = 2^k exp(r), with k the nearest integer of x / log 2, and r at most half of log 2 in size, of which the
    Taylor series of degree 13 is exact to float64. A loop without calls and branches, a processor does for several
    numbers at a time.
    """
    results, rounded = np.empty(values.shape[0], np.float64), np.empty(values.shape[0], np.float64)
    for i in range(values.shape[0]):
        x = float(values[i]) - origin
        x = min(x, _LARGEST)
        x = max(x, -_LARGEST)
        rounded[i] = x * _LOG2_E + _ROUNDS
        k = rounded[i] - _ROUNDS
        r = (x - k * _LOG_2_HIGH) - k * _LOG_2_LOW
        p = 1.0 / 6227020800.0
        p = p * r + 1.0 / 479001600.0
        p = p * r + 1.0 / 39916800.0
        p = p * r + 1.0 / 3628800.0
        p = p * r + 1.0 / 362880.0
        p = p * r + 1.0 / 40320.0
        p = p * r + 1.0 / 5040.0
        p = p * r + 1.0 / 720.0
        p = p * r + 1.0 / 120.0
        p = p * r + 1.0 / 24.0
        p = p * r + 1.0 / 6.0
        p = p * r + 0.5
        p = p * r + 1.0
        results[i] = p * r + 1.0
    # 2^k is a multiplication of a float by an addition to its exponent.
    bits, exponents = results.view(np.int64), rounded.view(np.int64)
    for i in range(values.shape[0]):
        bits[i] += exponents[i] << 52
    return results


_LOG2_E_32, _LOG_2_HIGH_32, _LOG_2_LOW_32 = np.float32(1.44269504), np.float32(0.693359375), np.float32(-2.1219444e-4)
_ROUNDS_32, _LARGEST_32 = np.float32(12582912.0), np.float32(80.0)
_TAYLOR_32 = tuple(np.float32(1.0 / math.factorial(i)) for i in range(8))
_BITS_32 = np.int32(23)


def _take_tanh_whole(values: NDArray[np.float32], results: NDArray[np.float32]) -> None:
    np.tanh(values, out=results)


@compiled_instead_of(_take_tanh_whole)
def take_tanh(values: NDArray[np.float32], results: NDArray[np.float32]) -> None:
    """Write tanh of each number (n, m) to ``results``, which may be the same array; to 1.2e-7, NaN of NaN.

    tanh(x) = (1 - e) / (1 + e) with e = exp(-2 x) for x >= 0, as in `exponentials`. Both in C order.
    """
    flat, written = values.reshape(values.size), results.reshape(results.size)
    e, rounded = np.empty(flat.size, np.float32), np.empty(flat.size, np.float32)
    one = np.float32(1.0)
    for i in range(flat.size):
        x = max(np.float32(-2.0) * abs(flat[i]), -_LARGEST_32)
        rounded[i] = x * _LOG2_E_32 + _ROUNDS_32
        k = rounded[i] - _ROUNDS_32
        r = (x - k * _LOG_2_HIGH_32) - k * _LOG_2_LOW_32
        p = r * _TAYLOR_32[7] + _TAYLOR_32[6]
        p = p * r + _TAYLOR_32[5]
        p = p * r + _TAYLOR_32[4]
        p = p * r + _TAYLOR_32[3]
        p = p * r + _TAYLOR_32[2]
        p = p * r + one
        e[i] = p * r + one
    bits, exponents = e.view(np.int32), rounded.view(np.int32)
    for i in range(flat.size):
        bits[i] += exponents[i] << _BITS_32
    # Quotients of single numbers would be checked for zeros, one at a time.
    quotients = (one - e) / (one + e)
    for i in range(flat.size):
        written[i] = -quotients[i] if flat[i] < 0 else quotients[i]
