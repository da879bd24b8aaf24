"""The standing of the newest model against the anchor is what the votes of the clients come to.

Only a majority of all clients that vote or could vote decides, so that fewer than half of them, whatever they say, can
neither have a model taken back nor have the anchor moved by their votes alone.
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
        n_worse: of them, who finds the newest model worse than the anchor.
        n_better: likewise, better.
    """

    n_voters: int
    n_worse: int
    n_better: int

    @property
    def verdict(self) -> Verdict:
        """TAKE_BACK or MOVE_ANCHOR where more than half of the voters say so, at least `LEAST_VOTERS` of them."""
        if self.n_voters >= LEAST_VOTERS:
            if 2 * self.n_worse > self.n_voters:
                return Verdict.TAKE_BACK
            if 2 * self.n_better > self.n_voters:
                return Verdict.MOVE_ANCHOR
        return Verdict.KEEP


def standing_of(newest_votes: Mapping[str, int]) -> Standing:
    """Return the count of these votes.

    Args:
        newest_votes: by client, of everybody that could vote: below 0 worse, above 0 better, 0 none
            (`foltr.learning.comparison.Opinion`).
    """
    votes = newest_votes.values()
    return Standing(len(votes), sum(vote < 0 for vote in votes), sum(vote > 0 for vote in votes))
