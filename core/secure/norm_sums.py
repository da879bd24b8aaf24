"""The two sums over all numbers of a device that take a verifier of norm proofs most of its time.

Each has two sources: a loop if numba is installed, and whole arrays without it. Both are exact, so they are equal.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from foltr.core.numerics.compiled import compiled, compiled_instead_of
from foltr.core.secure.coins import Words
from foltr.core.secure.field import CARRY, HALF, LOW, P, add, multiply, sum_of

_ZERO: Final = np.uint64(0)
_WORDS_AT_A_TIME: Final = 8192
_GROUPS_AT_A_TIME: Final = 64
"""So that the temporary arrays stay in the processor's cache."""


@compiled
def product_of(left: np.uint64, right: np.uint64) -> np.uint64:
    """Return the product modulo p of two numbers below p, as `foltr.core.secure.field.multiply`."""
    left_low, left_high = left & LOW, left >> HALF
    right_low, right_high = right & LOW, right >> HALF
    low = left_low * right_low
    first = left_low * right_high + (low >> HALF)
    second = left_high * right_low + (first & LOW)
    high = left_high * right_high + (first >> HALF) + (second >> HALF)
    low = (second << HALF) | (low & LOW)
    fourth, third = high >> HALF, high & LOW
    rest = low - fourth
    if low < fourth:
        rest -= CARRY
    third = (third << HALF) - third
    product = rest + third
    if product < third:
        product += CARRY
    if product >= P:
        product -= P
    return product


def _combine_arrays(weights: Words, rows: Words) -> Words:
    total = np.zeros(rows.shape[1], np.uint64)
    at_a_time = max(1, _WORDS_AT_A_TIME // rows.shape[1])
    for start in range(0, len(rows), at_a_time):
        part = rows[start : start + at_a_time]
        factors = np.broadcast_to(weights[start : start + at_a_time, np.newaxis], part.shape)
        total = add(total, sum_of(multiply(part, factors).T))
    return total


@compiled_instead_of(_combine_arrays)
def combine(weights: Words, rows: Words) -> Words:
    """Return (m,) the sum modulo p of rows, each times its weight.

    Args:
        weights: (n,) below p.
        rows: (n, m) below p.
    """
    total = np.zeros(rows.shape[1], np.uint64)
    for i in range(rows.shape[0]):
        for j in range(rows.shape[1]):
            product = product_of(weights[i], rows[i, j])
            added = total[j] + product
            if added < product:  # for 2^64; the sum was at most 2p - 2
                added += CARRY
            elif added >= P:
                added -= P
            total[j] = added
    return total


def _sum_halves_of_arrays(words: Words, bits: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Uses complex numbers to sum both halves in one step: their sums are integers below 2^53, and so exact.

    Each sum begins at minus the total and ends at most at the total, so 2^21 halves of 32 bits fit.
    """
    n_groups, _, n_rows = bits.shape
    at_a_time = min(_GROUPS_AT_A_TIME, n_groups)
    halves = np.zeros((n_groups * 8, 1), np.complex128)
    halves.real[: words.size, 0], halves.imag[: words.size, 0] = words & LOW, words >> HALF
    grouped, total = halves.reshape(n_groups, 8, 1), np.full(n_rows, -halves.sum())
    # Allocated once: new arrays of this size come from the system page by page, which takes longer than the work.
    tables = np.zeros((at_a_time, 256), np.complex128)
    starts = 256 * np.arange(at_a_time)[:, np.newaxis, np.newaxis]
    places, chosen = np.empty((at_a_time, 2, n_rows), np.int64), np.empty((at_a_time, 2, n_rows), np.complex128)
    for start in range(0, n_groups, at_a_time):
        part = slice(start, start + at_a_time)
        n = len(bits[part])
        for k in range(8):
            np.add(tables[:n, : 1 << k], grouped[part, k], out=tables[:n, 1 << k : 2 << k])
        np.add(bits[part], starts[:n], out=places[:n])
        tables.reshape(-1).take(places[:n], out=chosen[:n], mode="clip")  # unlike "raise", without a temporary array
        total += chosen[:n].sum(axis=(0, 1))
    return total.view(np.float64).astype(np.int64).reshape(n_rows, 2)


@compiled_instead_of(_sum_halves_of_arrays)
def sum_halves(words: Words, bits: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return (n_rows, 2) the sums of the low and of the high halves of words, each times -1, 0 or 1.

    A table has the sums of all choices of eight words, so eight coefficients take one step.

    Args:
        words: (n,), n at most 2^21.
        bits: (n_groups, 2, n_rows), with at least n / 8 groups: the coefficient of the word 8g + k in row j is the sum
            of bit k of (g, 0, j) and of (g, 1, j), less 1.
    """
    n_groups, _, n_rows = bits.shape
    total = np.zeros((n_rows, 2), np.int64)
    low, high = np.zeros(256, np.int64), np.zeros(256, np.int64)
    for group in range(n_groups):
        for k in range(8):
            word = words[8 * group + k] if 8 * group + k < words.shape[0] else _ZERO
            for i in range(1 << k):
                low[(1 << k) + i] = low[i] + np.int64(word & LOW)
                high[(1 << k) + i] = high[i] + np.int64(word >> HALF)
        for row in range(n_rows):
            first, second = bits[group, 0, row], bits[group, 1, row]
            total[row, 0] += low[first] + low[second] - low[255]
            total[row, 1] += high[first] + high[second] - high[255]
    return total
