"""Noise of secure sums that is correlated across rounds, so that much of it cancels in the model.

A model is the sum of all rounds' mean updates, so it carries the sum of all rounds' noise. Independent noise adds up.
The matrix mechanism instead writes the prefix sums as A = (A C^-1) C and adds noise z to C x: released updates are
x + C^-1 z, and later rounds subtract a part of earlier noise (Denisov et al., "Improved differential privacy for SGD
via optimal private linear operators on adaptive streams", NeurIPS 2022; for helpers who compute a secure sum: "The
distributed matrix mechanism", arXiv 2410.16161).

C is lower triangular and Toeplitz. Its first column has the first p coefficients of (1 - x)^(-1/2), so that with all of
them C is the square root of A: "Banded square root matrix factorization" (Kalinin & Lampert, arXiv 2405.13763). The
band p is chosen for the smallest error.

A client's turns are b rounds apart, and it has k of them. Its vectors are at most B long, so the sum of k columns of C
bounds what it changes in C x: all entries are at least 0, and vectors of one direction are the worst. With p <= b these
columns do not overlap, and the square is k times the square of one column.

Accounted for is Gaussian noise of real numbers; what is released is rounded afterwards, which costs nothing. Unlike
`foltr.core.secure.noise` it is drawn in floating point: good for a simulation, which protects nobody.
"""

import hashlib
import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
# More rounds change the chosen band little, and the search takes longer.
_MOST_ROUNDS_COMPARED: Final = 4096
_LONGEST_BAND: Final = 1024


@dataclass(frozen=True)
class Correlation:
    """How noise is correlated, and what that costs.

    Attributes:
        band: p, the number of rounds whose noise depends on one another directly; 1: independent noise.
        squared_sensitivity: what k turns change in C x, squared, for vectors of length 1. Independent: k.
        spread: variance of the noise in a released sum, over that of z. Independent: 1.
        error: root mean square of the noise in the models of all rounds, for vectors of length 1 and rho = 1/2.
    """

    band: int
    squared_sensitivity: float
    spread: float
    error: float


def square_root_column(band: int) -> Floats:
    """Return (p,) the first coefficients of (1 - x)^(-1/2): 1, 1/2, 3/8, 5/16 ..."""
    steps = np.arange(1, band, dtype=np.float64)
    return np.concatenate([[1.0], np.cumprod((2.0 * steps - 1.0) / (2.0 * steps))])


def inverse_column(column: Floats, rounds: int) -> Floats:
    """Return (rounds,) the first column of C^-1 for the first column of C, which begins with 1."""
    inverse = np.zeros(rounds)
    inverse[0] = 1.0
    for row in range(1, rounds):
        terms = min(row, len(column) - 1)
        inverse[row] = -(column[1 : terms + 1] @ inverse[row - terms : row][::-1])
    return inverse


def squared_sensitivity(column: Floats, rounds: int, period: int, turns: int) -> float:
    """Return the largest square of what a client's turns change in C x, for vectors of length 1.

    Later columns are the first one cut off at the end, so a client that begins in the first round changes most.

    Args:
        column: (p,) first column of C, no entry below 0 or above an earlier one.
        rounds: n.
        period: b, rounds from one turn to the next.
        turns: k.
    """
    changed = np.zeros(rounds)
    for start in range(0, min(rounds, turns * period), period):
        length = min(len(column), rounds - start)
        changed[start : start + length] += column[:length]
    return float(changed @ changed)


@lru_cache(maxsize=64)
def best_correlation(rounds: int, period: int, turns: int) -> Correlation:
    """Return the band of the smallest error for a client's turns. A band of 1 is among those compared.

    Args:
        rounds: n.
        period: b, rounds from one turn to the next.
        turns: k.
    """
    longest = min(rounds, _LONGEST_BAND)
    bands = {min(2**power, longest) for power in range(longest.bit_length() + 1)} | {min(period, longest)}
    return min((_correlation(band, rounds, period, turns) for band in sorted(bands)), key=lambda one: one.error)


def _correlation(band: int, rounds: int, period: int, turns: int) -> Correlation:
    column = square_root_column(band)
    sensitivity = squared_sensitivity(column, rounds, period, turns)
    inverse = inverse_column(column, min(rounds, _MOST_ROUNDS_COMPARED))
    in_models = np.cumsum(np.square(np.cumsum(inverse)))
    error = math.sqrt(sensitivity * float(in_models.mean()))
    return Correlation(band, sensitivity, float(inverse @ inverse), error)


@dataclass
class CorrelatedNoise:
    """The noise of one helper in one sequence of sums, C^-1 z, round by round.

    All draws follow from the seed and the round, so a simulation that is resumed computes them again.

    Attributes:
        seed: of this helper's noise.
        band: p.
        variance: of z.
    """

    seed: bytes
    band: int
    variance: int
    _rows: list[Floats] = field(default_factory=list, init=False)
    _round: int = field(default=0, init=False)

    def of_round(self, number: int, size: int) -> NDArray[np.int64]:
        """Return (size,) the noise of a round, rounded to whole numbers.

        Args:
            number: of the round, from 1, never below that of an earlier call.
            size: the same in each call.
        """
        if number < self._round:
            raise ValueError(f"round {number} is before round {self._round}, whose noise was drawn already")
        column = square_root_column(self.band)[1:]
        while self._round < number:
            self._round += 1
            row = self._draw(self._round, size)
            for weight, earlier in zip(column, self._rows, strict=False):
                row -= weight * earlier
            self._rows = [row, *self._rows][: max(1, self.band - 1)]
        return np.rint(self._rows[0]).astype(np.int64)

    def _draw(self, number: int, size: int) -> Floats:
        drawn = hashlib.sha256(b"%b %d" % (self.seed, number)).digest()
        rng = np.random.default_rng(np.frombuffer(drawn, np.uint32))
        return rng.standard_normal(size) * math.sqrt(self.variance)
