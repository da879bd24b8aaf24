"""The standing of the newest model against the anchor is what the votes of the clients come to.

A vote weighs as many updates as its client has sent of late, since a name costs less than an update: who takes a new
name for every vote has no more votes for it. Only a majority of the updates of all who vote or could vote decides: who
sends fewer than half of them, whatever it says and whatever it is called, can neither have a model taken back nor have
the anchor moved by its votes alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

VOTE_ROUNDS = 50
"""Who has sent no update in so many completed rounds does not vote."""
LEAST_VOTERS = 4
"""Of fewer clients nobody can say who is honest, as in `foltr.aggregation.adaptive`."""


class Verdict(StrEnum):
    """What becomes of the newest model and of the anchor."""

    KEEP = "keep"
    TAKE_BACK = "take_back"
    MOVE_ANCHOR = "move_anchor"


@dataclass(frozen=True)
class Standing:
    """A count of the clients' newest votes on the present anchor.

    Attributes:
        n_voters: all clients that could vote, those without an opinion too.
        n_updates: that these have sent in the last `VOTE_ROUNDS` completed rounds.
        n_worse: of them, the updates of those who find the newest model worse than the anchor.
        n_better: likewise, better.
    """

    n_voters: int
    n_updates: int
    n_worse: int
    n_better: int

    @property
    def in_words(self) -> str:
        """Say whose votes are how many."""
        by = f"{self.n_voters} clients by their {self.n_updates} updates"
        return f"of {by}, {self.n_worse} found it worse and {self.n_better} better"

    @property
    def verdict(self) -> Verdict:
        """TAKE_BACK or MOVE_ANCHOR where more than half of the updates say so, of `LEAST_VOTERS` clients or more."""
        if self.n_voters >= LEAST_VOTERS:
            if 2 * self.n_worse > self.n_updates:
                return Verdict.TAKE_BACK
            if 2 * self.n_better > self.n_updates:
                return Verdict.MOVE_ANCHOR
        return Verdict.KEEP


def standing_of(newest_votes: Mapping[str, int], n_updates: Mapping[str, int]) -> Standing:
    """Return the count of these votes.

    Args:
        newest_votes: by client, of everybody that could vote: below 0 worse, above 0 better, 0 none
            (`foltr.learning.comparison.Opinion`).
        n_updates: of each of them, in the last `VOTE_ROUNDS` completed rounds, at least 1.
    """
    worse = sum(n_updates[name] for name, vote in newest_votes.items() if vote < 0)
    better = sum(n_updates[name] for name, vote in newest_votes.items() if vote > 0)
    return Standing(len(newest_votes), sum(n_updates[name] for name in newest_votes), worse, better)
