"""Shares that add up to discrete Laplace noise: differences of two negative binomial (Pólya) numbers.

The discrete Laplace distribution with alpha = exp(-1 / s) is infinitely divisible: if t clients each add X - Y with X,
Y ~ NB(1/t, 1 - alpha), the sum of the t differences is discrete Laplace of scale s. The seed's gamma noise (Wang et
al., ICTIR 2021, Equations 15 and 16) is the same in real numbers; in integers: Goryczka & Xiong, "A comprehensive
comparison of multiparty secure additions with differential privacy" (IEEE TDSC 2017). More shares than t only add
noise; fewer than t are too little, and a sum does not show it.

A share alone is nearly bare, zero in most coordinates: it protects only if nobody sees less than the sum. And shares of
clients that reveal their draws count as missing.
"""

import os
from decimal import Context, Decimal
from functools import lru_cache
from itertools import count
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from foltr.core.errors import SettingsError
from foltr.core.secure.coins import Entropy, Words, random_words

PRECISION_BITS: Final = 96
"""The table's cumulative probabilities are within 2^-96 of the distribution's."""
LARGEST_SCALE: Final = 2**16
"""The largest scale of shares: the table has up to 80 entries for each unit of the scale."""

# Each of at most 2^23 steps rounds once, so far more than 96 bits are right at the end.
_WORKING_BITS: Final = 256
_DECIMALS: Final = Context(prec=100)


class PolyaTable(NamedTuple):
    """The cumulative probabilities of one negative binomial distribution, as 96 binary digits.

    Attributes:
        high: (m,) the first 64 digits of P(X <= k), ascending.
        low: (m,) the 32 digits behind them.
    """

    high: Words
    low: NDArray[np.uint32]


def draw_polya_share(size: int, scale: int, n_shares: int, entropy: Entropy = os.urandom) -> NDArray[np.int64]:
    """Return (size,) integers, one share of noise: the sum of n_shares such is discrete Laplace of this scale.

    Args:
        size: how many.
        scale: s as a whole number, from 1 to `LARGEST_SCALE`.
        n_shares: t, at least 1.
        entropy: gives random bytes.
    """
    table = polya_table(scale, n_shares)
    return draw_from(table, size, entropy) - draw_from(table, size, entropy)


@lru_cache(maxsize=4)
def polya_table(scale: int, n_shares: int) -> PolyaTable:
    """Tabulate NB(1/t, 1 - alpha): P(0) = (1 - alpha)^(1/t), P(k + 1) = P(k) alpha (k + 1/t) / (k + 1).

    It ends once the rest is below 2^-97: from there on the probabilities fall at least by alpha each, so the rest is at
    most P(k) alpha / (1 - alpha), and 1 / (1 - alpha) is at most s + 1.
    """
    if not 1 <= scale <= LARGEST_SCALE:
        raise SettingsError(f"scale must be from 1 to {LARGEST_SCALE} where clients draw the noise, not {scale}")
    if n_shares < 1:
        raise SettingsError(f"n_shares must be at least 1, not {n_shares}")
    alpha = _DECIMALS.exp(_DECIMALS.divide(Decimal(-1), Decimal(scale)))
    first = _DECIMALS.power(_DECIMALS.subtract(Decimal(1), alpha), _DECIMALS.divide(Decimal(1), Decimal(n_shares)))
    alpha_bits, probability = _binary(alpha), _binary(first)
    total, cumulative, enough = 0, [], 2 ** (_WORKING_BITS - PRECISION_BITS - 1)
    for k in count():
        total += probability
        cumulative.append(total >> (_WORKING_BITS - PRECISION_BITS))
        if probability * (scale + 1) < enough:
            break
        probability = (probability * alpha_bits * (k * n_shares + 1) >> _WORKING_BITS) // (n_shares * (k + 1))
    high = np.array([entry >> 32 for entry in cumulative], np.uint64)
    return PolyaTable(high, np.array([entry & 0xFFFFFFFF for entry in cumulative], np.uint32))


def draw_from(table: PolyaTable, size: int, entropy: Entropy) -> NDArray[np.int64]:
    """Return (size,) numbers by inversion: how many of the table's entries a uniform 96-bit number has reached.

    The first 64 bits decide unless they equal those of an entry; then 32 more are drawn.
    """
    drawn = random_words(size, entropy)
    found = np.searchsorted(table.high, drawn, side="left")
    tied = table.high[np.minimum(found, table.high.size - 1)] == drawn
    for i in np.flatnonzero(tied).tolist():
        end = np.searchsorted(table.high, drawn[i], side="right")
        more = int.from_bytes(entropy(4), "little")
        found[i] += np.count_nonzero(table.low[found[i] : end] <= more)
    return found.astype(np.int64)


def _binary(value: Decimal) -> int:
    return int(_DECIMALS.multiply(value, Decimal(2**_WORKING_BITS)))
