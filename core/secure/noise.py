"""Noise in integers: the discrete Gaussian and the discrete Laplace distribution, drawn exactly and many at a time.

Canonne, Kamath & Steinke, "The discrete Gaussian for differential privacy" (NeurIPS 2020), Algorithms 2 and 3, with
every step taken for a whole array. Each coordinate of a sum gets one such number; `foltr.core.secure.accounting` has
their guarantee, and `foltr.core.secure.polya` the shares that add up to the discrete Laplace distribution.
"""

import math
import os
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from foltr.core.errors import SettingsError
from foltr.core.secure.coins import (
    LARGEST_DENOMINATOR,
    Entropy,
    binary_digits,
    draw_geometric,
    flip_exponential,
    random_bits,
    uniform_below,
)

Integers = NDArray[np.int64]
LARGEST_SCALE = LARGEST_DENOMINATOR
"""The largest scale of the discrete Laplace distribution."""
LARGEST_VARIANCE = 2**50
"""The largest variance of the discrete Gaussian distribution: the computation stays within 64 bits."""


def draw_gaussian(size: int, variance: int, entropy: Entropy = os.urandom) -> Integers:
    """Return (size,) integers x with probabilities proportional to exp(-x^2 / (2 variance)).

    Candidates are discrete Laplace of scale t = floor(sigma) + 1, and one is kept with probability exp(-(|x| - variance
    / t)^2 / (2 variance)): the quotient of the two distributions, up to a factor.

    Args:
        size: how many.
        variance: sigma^2 as a whole number, from 1 to `LARGEST_VARIANCE`; the drawn numbers' variance is at most this.
        entropy: gives random bytes.
    """
    _check("variance", variance, LARGEST_VARIANCE)
    scale = math.isqrt(variance) + 1

    def candidates(n: int) -> Integers:
        drawn = draw_laplace(n, scale, entropy)
        # (|x| - variance / t)^2 / (2 variance) as a fraction with one common denominator.
        roots = (np.abs(drawn) * scale - variance).astype(object)
        return drawn[_flip_exponentials(roots**2, 2 * variance * scale * scale, entropy)]

    return _take(size, candidates, of_each=0.7)


def draw_laplace(size: int, scale: int, entropy: Entropy = os.urandom) -> Integers:
    """Return (size,) integers x with probabilities proportional to exp(-|x| / scale).

    |x| = u + scale * v has a uniform u below the scale that is kept with probability exp(-u / scale), and a v that is
    geometric; a negative zero is drawn again, since zero would come up twice as often.

    Args:
        size: how many.
        scale: s as a whole number, from 1 to `LARGEST_SCALE`.
        entropy: gives random bytes.
    """
    _check("scale", scale, LARGEST_SCALE)

    def candidates(n: int) -> Integers:
        offsets = uniform_below(scale, n, entropy)
        digits = binary_digits(offsets, scale)
        offsets = offsets[flip_exponential(digits, lambda i: (int(offsets[i]), scale), entropy)]
        sizes = offsets.astype(np.int64) + scale * draw_geometric(offsets.size, entropy)
        negative = random_bits(sizes.size, entropy)
        return np.where(negative, -sizes, sizes)[~negative | (sizes > 0)]

    return _take(size, candidates, of_each=0.6)


def _flip_exponentials(numerators: NDArray[np.object_], denominator: int, entropy: Entropy) -> NDArray[np.bool_]:
    """Return (n,) coins with probability exp(-x_i) for fractions x_i of any size: the whole part is a run of exp(-1).

    The integers are Python's, since with usual variances they have some 50 bits and up to 200 with large ones.
    """
    wholes = numerators // denominator
    rests = numerators - wholes * denominator
    digits = ((rests << 64) // denominator).astype(np.uint64)
    heads = flip_exponential(digits, lambda i: (int(rests[i]), denominator), entropy)
    above = np.flatnonzero(heads & (wholes > 0))
    heads[above] = draw_geometric(above.size, entropy) >= wholes[above]
    return heads


def _take(size: int, candidates: Callable[[int], Integers], of_each: float) -> Integers:
    """Return the first ``size`` accepted numbers; about a share ``of_each`` of the candidates is accepted."""
    kept: list[Integers] = []
    missing = size
    while missing > 0:
        kept.append(candidates(int(missing / of_each) + 8)[:missing])
        missing -= kept[-1].size
    return np.concatenate(kept) if kept else np.empty(0, np.int64)


def _check(name: str, value: int, largest: int) -> None:
    if not 1 <= value <= largest:
        raise SettingsError(f"{name} must be from 1 to {largest}, not {value}")
