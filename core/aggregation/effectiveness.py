"""How well the ranker does, by what updates say of the lists that their users were shown; and when it does worse.

A round's evaluations add up to three numbers, in secure sums with noise in them. The mean reward of a round is compared
with the rounds before it: a model that users are served worse by than by the ones before shows in every round that
trains from it. One round says little, as does a weekend: three must say so, each by more than chance, and all three
together beyond doubt.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, variance
from typing import Final

LEAST_EVALUATIONS: Final = 4
"""A round with fewer is passed over, as in `foltr.core.aggregation.standing`."""
JUDGED_ROUNDS: Final = 3
MOST_REFERENCE_ROUNDS: Final = 20
LEAST_REFERENCE_ROUNDS: Final = 5
JUDGED_WINDOW: Final = JUDGED_ROUNDS + MOST_REFERENCE_ROUNDS
_EACH_BEYOND: Final = 2.0
_TOGETHER_BEYOND: Final = 4.0


@dataclass(frozen=True, slots=True)
class RoundEvaluation:
    """What the evaluations of a round's secure sums add up to, with the helpers' noise.

    Attributes:
        n_updates: in its sums.
        clicked, reward, base_reward: sums over them of what `foltr.core.protocol.evaluations.Evaluation` has.
        deviation: standard deviation of the noise in each of the three, in updates.
    """

    n_updates: int
    clicked: float
    reward: float
    base_reward: float
    deviation: float


@dataclass(frozen=True, slots=True)
class RoundReward:
    """The mean reward of a round's updates.

    Attributes:
        base_version: the model that the round trained from.
        n_updates: that say how it does.
        standard_error: of the mean, over updates, with the noise of helpers.
    """

    base_version: int
    n_updates: int
    mean: float
    standard_error: float


def reward_of_updates(base_version: int, n_updates: int, total: float, total_of_squares: float) -> RoundReward:
    """Return the mean of a round whose updates are seen one by one; of fewer than two the error is infinite."""
    mean = total / n_updates if n_updates else 0.0
    if n_updates < 2:
        return RoundReward(base_version, n_updates, mean, math.inf)
    # By rounding the sum may fall below 0 where all are alike.
    spread = max(0.0, total_of_squares - n_updates * mean**2) / (n_updates - 1)
    return RoundReward(base_version, n_updates, mean, math.sqrt(spread / n_updates))


def reward_of_sums(base_version: int, evaluation: RoundEvaluation) -> RoundReward:
    """Return the mean of a round whose updates nobody sees.

    Behind its masks a device says 1 or 0, at random with the mean that it is to be (`foltr.core.secure`): a sum of such
    has the variance of a binomial at most, whatever the devices' own means are.
    """
    n, mean = evaluation.n_updates, evaluation.reward / evaluation.n_updates
    inside = min(1.0, max(0.0, mean))
    drawn = inside * (1.0 - inside) / n
    return RoundReward(base_version, n, mean, math.sqrt(drawn + (evaluation.deviation / n) ** 2))


@dataclass(frozen=True, slots=True)
class Decline:
    """The last rounds' rewards are below those before them, beyond chance.

    Attributes:
        base_version: the model that is to be served again.
        mean: of the last `JUDGED_ROUNDS` rounds.
        reference, standard_error: the mean of the rounds before them, and the error of the difference.
        n_reference: how many these are.
    """

    base_version: int
    mean: float
    reference: float
    standard_error: float
    n_reference: int

    @property
    def in_words(self) -> str:
        """Say by how much, and how sure that is."""
        fallen = (self.reference - self.mean) / self.standard_error if self.standard_error else math.inf
        return (
            f"mean reward {self.mean:.3f} in the last {JUDGED_ROUNDS} rounds, {self.reference:.3f} in the "
            f"{self.n_reference} before: {fallen:.1f} standard errors less"
        )


def decline_in(rewards: Sequence[RoundReward]) -> Decline | None:
    """Return how far the last rounds are below those before them; None where that may be chance, or they are too few.

    A round's own error is what its updates say, or how far the reference's rounds lie apart if that is more: users of
    one day are not those of another. The model to serve again is the one that the fifth round before the last three
    trained from, and not the first before them: users click on lists that are some rounds old by the time that an
    update tells of them.

    Args:
        rewards: of completed rounds since a model was last put in the place of others, the oldest first.
    """
    counted = [each for each in rewards if each.n_updates >= LEAST_EVALUATIONS][-JUDGED_WINDOW:]
    before, last = counted[:-JUDGED_ROUNDS], counted[-JUDGED_ROUNDS:]
    if len(before) < LEAST_REFERENCE_ROUNDS:
        return None
    reference, apart = fmean(each.mean for each in before), variance(each.mean for each in before)
    of_reference = max(apart, fmean(each.standard_error**2 for each in before)) / len(before)
    spreads = [max(apart, each.standard_error**2) for each in last]
    if not all(
        reference - each.mean > _EACH_BEYOND * math.sqrt(spread + of_reference)
        for each, spread in zip(last, spreads, strict=True)
    ):
        return None
    mean = fmean(each.mean for each in last)
    error = math.sqrt(fmean(spreads) / len(last) + of_reference)
    # All alike to the last digit: any fall is beyond chance.
    if reference - mean <= _TOGETHER_BEYOND * error:
        return None
    return Decline(before[-LEAST_REFERENCE_ROUNDS].base_version, mean, reference, error, len(before))
