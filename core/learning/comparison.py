"""One device's comparison of the newest global model with an older one, the anchor.

*Test then learn*: each list with clicks is first scored by both models, and only then learned from. Neither model was
trained on it, so no lists need be held back for the comparison and it costs no clicks. From each list it takes the
difference of the two models' leads (`foltr.core.learning.agreement.preference_lead`), weighted by the weight of the
list's preferences. Evidence fades with each further list, since the newest model changes every round; only sums are
kept.
"""

import math
from enum import IntEnum
from typing import NamedTuple

COMPARISON_DECAY = 0.995
"""What a list weighs after the next: two hundred lists are remembered. With fewer, noisy clicks on a ruined model would
not be beyond chance for every honest user, as needed if four of ten lie."""
FEWEST_LISTS = 20.0
"""With fewer lists, in effect, a comparison has no opinion."""
VOTES_BEYOND = 2.0
"""It has an opinion if the mean is so many standard errors from 0."""


class Opinion(IntEnum):
    """A device's opinion of the newest model, from its user's clicks: the vote it sends."""

    WORSE = -1
    NONE = 0
    BETTER = 1


class Comparison(NamedTuple):
    """A comparison begins empty and takes one list at a time; another anchor begins a new one.

    With w_i the weight of list i, d_i its difference and f_i = `COMPARISON_DECAY` to the power of the number of lists
    since, each attribute is a sum over lists.

    Attributes:
        n_lists: of f_i: how many lists there are in effect.
        weight: of f_i w_i.
        difference: of f_i w_i d_i.
        square_weight: of f_i^2 w_i^2.
        square_difference: of f_i^2 w_i^2 d_i.
        square_difference_square: of f_i^2 w_i^2 d_i^2.
    """

    n_lists: float = 0.0
    weight: float = 0.0
    difference: float = 0.0
    square_weight: float = 0.0
    square_difference: float = 0.0
    square_difference_square: float = 0.0

    def with_list(self, newest: float, anchor: float, weight: float) -> "Comparison":
        """Return the comparison after one more list; a list without a preference changes nothing.

        Args:
            newest: the newest model's `foltr.core.learning.agreement.preference_lead` with the list, in [-1, 1].
            anchor: the anchor's, likewise.
            weight: of the list's preferences, `foltr.core.learning.agreement.Preferences.total`; at least 0.
        """
        if weight <= 0.0:
            return self
        gained, by = newest - anchor, COMPARISON_DECAY
        return Comparison(
            n_lists=by * self.n_lists + 1.0,
            weight=by * self.weight + weight,
            difference=by * self.difference + weight * gained,
            square_weight=by**2 * self.square_weight + weight**2,
            square_difference=by**2 * self.square_difference + weight**2 * gained,
            square_difference_square=by**2 * self.square_difference_square + weight**2 * gained**2,
        )

    @property
    def mean(self) -> float:
        """How much farther the newest model leads, in [-2, 2]; 0 without a list."""
        return self.difference / self.weight if self.weight > 0.0 else 0.0

    @property
    def standard_error(self) -> float:
        """Of the mean, over lists; infinite for fewer than two.

        The mean is a ratio of sums, D = sum f_i w_i d_i / sum f_i w_i; by linearisation its variance is
        n / (n - 1) * sum (f_i w_i (d_i - D))^2 / (sum f_i w_i)^2 (Cochran, Sampling Techniques, 1977, Section 6).
        """
        if self.n_lists <= 1.0:
            return math.inf
        residuals = (
            self.square_difference_square - 2 * self.mean * self.square_difference + self.mean**2 * self.square_weight
        )
        # Rounding may make the sum negative if all differences are equal.
        return math.sqrt(self.n_lists / (self.n_lists - 1.0) * max(0.0, residuals)) / self.weight

    @property
    def opinion(self) -> Opinion:
        """WORSE or BETTER with enough lists and a mean beyond chance, else NONE."""
        if self.n_lists < FEWEST_LISTS or abs(self.mean) <= VOTES_BEYOND * self.standard_error:
            return Opinion.NONE
        return Opinion.WORSE if self.mean < 0.0 else Opinion.BETTER
