"""How long a sum of clients who keep the bound can be: a longer one is discarded, because somebody did not.

The sum of n vectors within the bound C_int is within n C_int, and the noise exceeds its quantile here once in 10^9
sums. A sum shows no more than that: a client may still have sent a vector n times too long.

The quantiles are proven bounds, not estimates. The discrete Gaussian is sub-Gaussian with its variance (Canonne, Kamath
& Steinke 2020, section 2), and so is a sum of such: its squared length has the moments of a chi-squared number at most,
whose tail Laurent & Massart (Annals of Statistics 2000, Lemma 1) bound. Discrete Laplace numbers are differences of
geometric ones, which are exponential ones rounded down.
"""

import math
from typing import Final

import numpy as np
from numpy.typing import NDArray

from foltr.core.secure.mechanisms import MechanismName

_RARITY: Final = math.log(1e9)
_STEPS: Final = 100


def is_plausible(
    total: NDArray[np.int64], mechanism: MechanismName, *, n_clients: int, bound: int, noise: int, noises: float
) -> bool:
    """Whether so many clients who keep the bound, and the noise, can add up to this.

    Args:
        total: (d,), around zero.
        mechanism: decides the norm of the bound: L2 for `gaussian`, L1 for `gamma`.
        n_clients: in the sum.
        bound: C_int.
        noise: the variance, or the scale.
        noises: how many such are in the sum: one of each helper, or n / t if n clients draw it.
    """
    numbers = total.astype(np.float64)
    length = math.sqrt(np.square(numbers).sum()) if mechanism == "gaussian" else float(np.abs(numbers).sum())
    longest = longest_gaussian if mechanism == "gaussian" else longest_laplace
    return length <= n_clients * bound + longest(len(total), noise, noises)


def longest_gaussian(dim: int, variance: int, noises: float) -> float:
    """Return an L2 norm that noise of so many discrete Gaussians in each coordinate exceeds once in 10^9 times."""
    return math.sqrt(noises * variance * (dim + 2.0 * math.sqrt(dim * _RARITY) + 2.0 * _RARITY))


def longest_laplace(dim: int, scale: int, noises: float) -> float:
    """Return an L1 norm that noise of so many discrete Laplace numbers in each coordinate exceeds once in 10^9 times.

    A coordinate is the sum of c of them, c the next whole number. The size of a sum of c continuous ones over their
    scale is a mixture of Gamma(j) for j = 1 to c, so its moments are known and Chernoff's bound follows, the least over
    t < 1 of (d ln E exp(t |S|) + ln 10^9) / t. Rounding down changes each by less than one.
    """
    c = math.ceil(noises)
    shares = [math.comb(c - 1 + k, k) / 2 ** (c - 1 + k) for k in range(c)]

    def bound(t: float) -> float:
        moment = sum(share * (1.0 - t) ** (k - c) for k, share in enumerate(shares))
        return (dim * math.log(moment) + _RARITY) / t

    return scale * min(bound(step / _STEPS) for step in range(1, _STEPS)) + dim * c
