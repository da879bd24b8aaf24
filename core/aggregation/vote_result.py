"""The standing of the newest model against the anchor: the result of the clients' votes.

A vote weighs as many updates as its client has sent lately, since a name costs less than an update: a new name for
every vote gains no votes. Only a majority of the updates of all who vote or could vote decides. So clients with fewer
than half of the updates can neither have a model rolled back nor move the anchor by their votes alone.

With votes in secure sums nobody sees single votes, and each round has a noisy tally. A vote counts as long as its
update's round does, and a majority decides once it exceeds the noise clearly. The evaluations in the same updates
(`RoundEvaluation`) decide nothing; they are shown.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import accumulate
from typing import Final

VOTE_ROUNDS = 50
"""A client without an update in so many completed rounds does not vote."""
LEAST_VOTERS = 4
"""Among fewer clients nobody can say who is honest, as in `foltr.core.aggregation.adaptive`."""
LEAST_TALLIES: Final = 5
"""Tallies of fewer rounds say little: most of one round's clients may be hostile by chance."""
_SURE: Final = 4.0
"""Noise exceeds so many standard deviations once in 30,000 times."""
_PRECISE: Final = 0.02
"""As a share of all updates: older rounds are not needed once the deviation is below this without them."""


class Verdict(StrEnum):
    """What happens to the newest model and the anchor."""

    KEEP = "keep"
    TAKE_BACK = "take_back"
    MOVE_ANCHOR = "move_anchor"


@dataclass(frozen=True)
class VoteResult:
    """A count of the clients' votes on the present anchor: the newest of each client, or noisy tallies of rounds.

    Attributes:
        n_voters: all clients that could vote, including those without an opinion; with tallies at least so many.
        n_updates: their updates in the rounds that count.
        n_worse: updates of clients that find the newest model worse than the anchor.
        n_better: likewise, better.
        deviation: standard deviation of the noise in each of the last two, in updates.
        n_tallies: how many rounds' tallies were added up; None: votes were counted one by one.
    """

    n_voters: int
    n_updates: int
    n_worse: float
    n_better: float
    deviation: float = 0.0
    n_tallies: int | None = None

    @property
    def in_words(self) -> str:
        """Describe the votes and who gave them."""
        if self.n_tallies is None:
            by = f"{self.n_voters} clients by their {self.n_updates} updates"
            return f"of {by}, {self.n_worse} found it worse and {self.n_better} better"
        rounds = "1 round" if self.n_tallies == 1 else f"{self.n_tallies} rounds"
        noise = f"each with noise of standard deviation {self.deviation:.0f} in it"
        found = f"{round(self.n_worse)} found it worse and {round(self.n_better)} better"
        return f"of {self.n_updates} updates in {rounds}, {found}, {noise}"

    @property
    def verdict(self) -> Verdict:
        """TAKE_BACK or MOVE_ANCHOR if more than half of the updates say so, of `LEAST_VOTERS` clients or more.

        Tallies must cover `LEAST_TALLIES` rounds or more, and exceed half by four standard deviations of the noise.
        """
        enough = self.n_tallies is None or self.n_tallies >= LEAST_TALLIES
        if self.n_voters >= LEAST_VOTERS and enough:
            noise = _SURE * self.deviation
            if 2 * (self.n_worse - noise) > self.n_updates:
                return Verdict.TAKE_BACK
            if 2 * (self.n_better - noise) > self.n_updates:
                return Verdict.MOVE_ANCHOR
        return Verdict.KEEP


@dataclass(frozen=True, slots=True)
class RoundTally:
    """The sum of the votes in a round's secure sums, with the helpers' noise.

    Attributes:
        n_updates: in its sums.
        worse: votes for worse among them.
        better: likewise, better.
        deviation: standard deviation of the noise in each of the two, in votes.
    """

    n_updates: int
    worse: float
    better: float
    deviation: float


@dataclass(frozen=True, slots=True)
class RoundEvaluation:
    """The sum of the evaluations in a round's secure sums, with the helpers' noise.

    Attributes:
        n_updates: in its sums.
        clicked, reward, base_reward: sums over them of the fields of `foltr.core.protocol.evaluations.Evaluation`.
        deviation: standard deviation of the noise in each of the three, in updates.
        credit_total: likewise of their credits, each from -1 to 1; None if the policy has none.
        credit_deviation: of the noise in it.
    """

    n_updates: int
    clicked: float
    reward: float
    base_reward: float
    deviation: float
    credit_total: float | None = None
    credit_deviation: float | None = None


def result_of_tallies(tallies: Sequence[RoundTally]) -> VoteResult:
    """Return the standing from the newest of these tallies.

    Counts as few, from `LEAST_TALLIES` to `VOTE_ROUNDS`, as make the noise small enough; if it never is, all.

    Args:
        tallies: of completed rounds on one anchor, the newest first.
    """
    there = tallies[:VOTE_ROUNDS]
    updates = accumulate(each.n_updates for each in there)
    variances = accumulate(each.deviation**2 for each in there)
    sums = zip(updates, variances, strict=True)
    precise = (n for n, (sent, variance) in enumerate(sums, 1) if math.sqrt(variance) <= _PRECISE * sent)
    counted = there[: next((n for n in precise if n >= LEAST_TALLIES), len(there))]
    return VoteResult(
        max((each.n_updates for each in counted), default=0),
        sum(each.n_updates for each in counted),
        math.fsum(each.worse for each in counted),
        math.fsum(each.better for each in counted),
        math.sqrt(math.fsum(each.deviation**2 for each in counted)),
        len(counted),
    )


def result_of_votes(newest_votes: Mapping[str, int], n_updates: Mapping[str, int]) -> VoteResult:
    """Return the count of these votes.

    Args:
        newest_votes: by client, of all that could vote: below 0 worse, above 0 better, 0 none
            (`foltr.core.learning.comparison.Opinion`).
        n_updates: of each of them, in the last `VOTE_ROUNDS` completed rounds, at least 1.
    """
    worse = sum(n_updates[name] for name, vote in newest_votes.items() if vote < 0)
    better = sum(n_updates[name] for name, vote in newest_votes.items() if vote > 0)
    return VoteResult(len(newest_votes), sum(n_updates[name] for name in newest_votes), worse, better)
