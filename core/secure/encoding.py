"""Updates as integers: clipped, put on a grid, rounded at random; and the mean that their sum stands for.

A grid of C / C_int is laid over updates of norm at most C, so that an encoded one has integer norm at most C_int. The
noise's guarantee depends on that bound alone, so it is checked in integers, after the rounding. C is only a scale: it
may change from round to round.

Whether a device takes part must not depend on what it has learned. So every update has an encoding: one with a number
that is not finite is encoded as zeros, a longer one than C is shortened.
"""

import math
from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foltr.core.errors import SettingsError
from foltr.core.secure.coins import Entropy, Words, random_words
from foltr.core.secure.field import to_signed

Integers = NDArray[np.int64]
LEAST_BOUND: Final = 256
_SHRINK: Final = 0.999


def bound_for(dim: int) -> int:
    """Return C_int for updates of so many numbers: max(256, ceil(4 sqrt(d))).

    Rounding adds at most d / 4 to the expected square of the norm, so with this it is at most a 64th of C_int^2.
    """
    return max(LEAST_BOUND, math.isqrt(16 * dim - 1) + 1)


def clip_norm_for(n_interactions: int, learning_rate: float) -> float:
    """Return C = 0.15 sqrt(B) (learning rate / 0.1): about the L2 norm of FPDGD's updates early in training.

    Args:
        n_interactions: B.
        learning_rate: of a step on a device.
    """
    return 0.15 * math.sqrt(n_interactions) * learning_rate / 0.1


def encode_l2(update: ArrayLike, clip_norm: float, bound: int, entropy: Entropy) -> Integers:
    """Return (d,) integers with ||q||_2 <= bound that are the update over clip_norm / bound on average.

    Each number is rounded up with the probability of its fraction. If the result is too long the update is shrunk by a
    thousandth and rounded with the same draws again, until it fits.

    Args:
        update: (d,).
        clip_norm: C, above 0: longer updates are shortened to this L2 norm.
        bound: C_int, at least 1.
        entropy: gives random bytes. The guarantee does not need them, so those of a seed (`seeded_entropy`) will do.
    """
    scaled = _on_grid(update, clip_norm, bound, 2)
    draws = np.frombuffer(entropy(4 * scaled.size), "<u4") / 2.0**32

    def rounded(sizes: NDArray[np.float64]) -> Integers:
        # Conversion truncates, and no sum is negative.
        return (sizes + draws).astype(np.int64)

    return _within(scaled, rounded, lambda found: int(found @ found), bound * bound, 2)


def encode_l1(update: ArrayLike, clip_norm: float, bound: int, entropy: Entropy) -> Integers:
    """Return (d,) integers with ||q||_1 <= bound that are the update over clip_norm / bound on average.

    Systematic rounding: one number drawn from [0, 1) shifts all steps of the running sum of sizes, so that rounding
    changes the L1 norm by less than one in all; rounding each number separately would change it by about sqrt(d) / 2.

    Args:
        update: (d,).
        clip_norm: C, above 0: longer updates are shortened to this L1 norm.
        bound: C_int, at least 1.
        entropy: gives random bytes.
    """
    scaled = _on_grid(update, clip_norm, bound, 1)
    draw = float(random_words(1, entropy)[0] >> np.uint64(11)) / 2.0**53

    def rounded(sizes: NDArray[np.float64]) -> Integers:
        steps = np.floor(np.cumsum(sizes) + draw).astype(np.int64)
        steps[1:] -= steps[:-1].copy()
        return steps

    # A running sum of floating-point numbers may exceed the bound in its last digit.
    return _within(scaled, rounded, lambda found: int(found.sum()), bound, 1)


def decode_mean(total: Words, n_clients: int, clip_norm: float, bound: int) -> NDArray[np.float64]:
    """Return (d,) the mean of the updates whose encodings, with noise or without, add up to this modulo p.

    Args:
        total: (d,), standing for integers around zero.
        n_clients: how many updates are in it.
        clip_norm: C of the encodings.
        bound: C_int, likewise.
    """
    return to_signed(total).astype(np.float64) * (clip_norm / bound / n_clients)


def _on_grid(update: ArrayLike, clip_norm: float, bound: int, power: int) -> NDArray[np.float64]:
    """(d,): the update over the grid's step, its norm at most the bound, up to rounding; L1 or L2 by the power."""
    if not (math.isfinite(clip_norm) and clip_norm > 0.0):
        raise SettingsError(f"clip_norm must be a finite number above 0, not {clip_norm}")
    numbers = np.asarray(update, np.float64)
    largest = max(float(numbers.max(initial=0.0)), -float(numbers.min(initial=0.0)))  # both are NaN if one is
    if largest == 0.0 or not math.isfinite(largest):
        return np.zeros(numbers.size)
    # Over the largest, so that no square exceeds the range of float64; no product of BLAS, which may start threads.
    # From here on in one array: for a large model each new one costs as much as the computation in it.
    direction = numbers / largest
    norm = math.sqrt(np.square(direction).sum()) if power == 2 else float(np.abs(direction).sum())
    scale: float = bound / norm * min(1.0, largest * norm / clip_norm)
    direction *= scale
    return direction


def _within(
    scaled: NDArray[np.float64],
    rounded: Callable[[NDArray[np.float64]], Integers],
    measured: Callable[[Integers], int],
    limit: int,
    power: int,
) -> Integers:
    """Return the rounded numbers with their signs, shrunk until their measure is within the limit.

    Args:
        scaled: (d,).
        rounded: rounds sizes, to zero once they are small enough, so this ends.
        measured: of rounded sizes, their norm to this power.
        limit: of the measure.
        power: of the norm in it.
    """
    sizes = np.abs(scaled)
    while (length := measured(found := rounded(sizes))) > limit:
        # Rounding adds about as much to a shorter one, so the steps needed without rounding are not too many.
        steps = max(1, int(math.log(limit / length) / (power * math.log(_SHRINK))))
        sizes = sizes * _SHRINK**steps
    np.negative(found, out=found, where=scaled < 0.0)
    return found
