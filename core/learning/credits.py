"""Credits of interleaved lists: a bet on them, and what the clients of a federation found together.

An interleaved list credits the model or the base (`foltr.core.learning.gate`): 1 / (1-based turn of the coin that
decided it), above 0 for the model. If the model is no better, each credit is as likely the one as the other.

Each client's credits may be a lie, so those of all are pooled such that a tenth of the clients, at least one, cannot
make them speak for the model. Nor can they silence them: each counts in both directions no more than an honest client.

In secure sums nobody sees single clients: each adds a number from -1 to 1 to its round's sum, which has the helpers'
noise. So a tenth of the round's clients is assumed to claim 1 each, and is subtracted (`summed`).
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

OPENS_AT = 100.0
"""A gate opens once a stake on the model has grown so many times, by the own credits or by those of all clients."""
STAKES = (0.15, 0.3, 0.6, 1.2)
"""The stakes of a bet, in equal parts: small ones win if the model is slightly better, large ones soon if by far."""
LIARS = 0.1
"""The share of clients, rounded up, that cannot make pooled or summed credits speak for the model."""
_LARGEST_EXPONENT = 700.0  # exp of a larger number overflows


class Credits(NamedTuple):
    """The credits of some lists.

    Attributes:
        total: their sum.
        squares: the sum of their squares: the variance of the total if the model is no better.
    """

    total: float = 0.0
    squares: float = 0.0

    @property
    def score(self) -> float:
        """Return by how many standard errors they exceed 0, the mean of equal orders; 0 without any."""
        return self.total / math.sqrt(self.squares) if self.squares else 0.0

    @property
    def growth(self) -> float:
        """Return how many times a stake on the model has grown by the credits; 1 without any.

        If the model is no better it grows by no more than chance: a stake s on a credit of weight w changes by
        exp(s w - (s w)^2 / 2) or exp(-s w - (s w)^2 / 2), which is below 1 on average (Hoeffding's lemma).
        """
        gains = (stake * self.total - stake**2 * self.squares / 2 for stake in STAKES)
        return math.fsum(math.exp(min(gain, _LARGEST_EXPONENT)) for gain in gains) / len(STAKES)


class CreditSum(NamedTuple):
    """The credits in a round's secure sums.

    Attributes:
        n_updates: in its sums.
        credit_total: what they add up to, each from -1 to 1, with the noise.
        credit_deviation: standard deviation of the noise.
    """

    n_updates: int
    credit_total: float
    credit_deviation: float


def summed(rounds: Sequence[CreditSum]) -> Credits:
    """Return what secure sums say of the model, each in its standard errors, until they have opened gates.

    If the model is no better, and at most a tenth of each round's clients lie, a round's total exceeds that tenth by 0
    on average at most. Its variance is at most one for each client (Hoeffding's lemma) and that of the noise, whose
    moments are those of a Gaussian or less (Canonne, Kamath and Steinke, "The Discrete Gaussian for Differential
    Privacy", NeurIPS 2020). So `Credits.growth` is a bet as it is on single lists, and by Ville's inequality its
    highest value is `OPENS_AT` once in 100 federations at most. What has opened gates stays: once they are open they
    interleave few lists, and sums below the tenth say nothing against the model.

    Args:
        rounds: of one line of models, in order.
    """
    so_far = Credits()
    for each in rounds:
        excess = each.credit_total - math.ceil(LIARS * each.n_updates)
        error = math.sqrt(each.n_updates + each.credit_deviation**2)
        so_far = Credits(so_far.total + excess / error, so_far.squares + 1.0)
        if so_far.growth >= OPENS_AT:
            break
    return so_far


def pooled(totals: NDArray[np.float64], squares: NDArray[np.float64]) -> Credits:
    """Return the credits of all clients together, without those of the most favourable tenth.

    With at most that many liars the total is no larger than that of the honest clients, except that a client counts
    against the model by no more than the best of the rest counts for it; and a client with many lists counts like the
    first client after the tenth with the most.

    Args:
        totals, squares: (clients,) of each one's lists.
    """
    n_dropped = math.ceil(LIARS * len(totals))
    if n_dropped >= len(totals):
        return Credits()
    most = np.sort(squares)[-1 - n_dropped]
    # Squares do not depend on whom a list credits, so a weight by them favours neither.
    weights = np.divide(most, squares, out=np.ones_like(squares), where=squares > most)
    ordered = np.sort(totals * weights)
    kept, dropped = ordered[:-n_dropped], ordered[-n_dropped:]
    lowest = -kept[-1] if kept[-1] > 0.0 else -np.inf
    total = np.maximum(kept, lowest).sum() + np.minimum(dropped, 0.0).sum()
    return Credits(float(total), float(np.minimum(squares, most).sum()))
