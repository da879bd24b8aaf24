"""A gate lets lists come from the model only while the clicks do not show that the application's order is better.

The application's order is the base. A gate is closed, and the base shown, until the model has earned better; it is
open, and the model's list shown, until the model does worse. The user's own clicks decide both; the first opening may
also be decided by the clicks of all users of the federation, because one user's take long.

It uses two comparisons, each for its strength:

- *Interleaved*: some lists are drafted from both orders by turns (team draft, Radlinski, Kurup and Joachims, CIKM
  2008), and the last click credits the order that contributed the document: the more, the higher up. If clicks do not
  depend on documents both gain the same on average, at every position. It detects small differences, and opens the
  gate, by a test that may look after each credit: it bets on the model, and the gate opens once the stake has grown a
  hundredfold. Against a model that is no better that happens to one user in a hundred at most, however long one waits
  (Ville's inequality; Ramdas, Grunwald, Vovk and Shafer, "Game-Theoretic Statistics and Safe Anytime-Valid Inference",
  Statistical Science 2023).
- *Lists as shown*: the rewards of the model's newest lists, a list's first click as a reciprocal rank, are compared
  with those of the base. It needs more lists for small differences, but soon notices what interleaving detects slowly:
  a model so bad that nobody clicks any more. It only closes the gate.

*Shared*: what all clients' interleaved lists found, pooled (`foltr.core.learning.credits`), is evidence that the model
is better on average. A user may differ. So it opens a gate only once, after enough lists of the base to compare the
model's with, and unless the user's own credits speak against the model; own clicks close it as ever, and after that
only they open it.

Once the gate is open evidence fades, because the model changes each round. While it is closed few lists are
interleaved, since a model may be far worse; half of them once it looks no worse, and all once it looks better, so that
users have half of the gain long before the gate opens; hardly any once it is known to be worse, or while the base is so
good that a mixed list has little to gain and much to lose. Such a gate is a safe
exploration as in Jagerman, Markov and de Rijke ("Safe Exploration for Optimizing Contextual Bandits", TOIS 2020), by a
test.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from foltr.core.learning.credits import OPENS_AT, Credits
from foltr.core.learning.rewards import first_click_reward

CREDIT_DECAY = 0.99
"""What a credit weighs after the next while the gate is open: a hundred interleaved lists are remembered."""
BASE_DECAY = 0.99
"""What a list of the base weighs after the next of the base."""
MODEL_DECAY = 0.93
"""What a list of the model weighs after the next of the model: the newest fourteen count, and so the newest models."""
FEWEST_CREDITS = 10.0
"""With fewer interleaved lists with a credit, in effect, a report says nothing of them."""
FEWEST_BASE_LISTS = 40.0
"""And with so many lists of the base, in effect, or a model that is worse for this user would show late."""
SHARED_PROMISING_FROM = -0.5
SHARED_LIKELY_ABOVE = 0.5
"""All clients' credits say that the model looks no worse, or better, from so many standard errors on."""
OBJECTS_BELOW = -1.0
"""And unless the own credits are below 0 by so many standard errors."""
CLOSES_BELOW = -2.0
"""It closes if they are below 0 by so many standard errors."""
WORSE_BY = 2.0
"""It closes if the model's lists had less reward than the base's by so many standard errors of the difference."""
FEWEST_LISTS = 6.0
"""With fewer lists of each the two are not compared."""
SHARE_WARY = 0.05
"""The share of interleaved lists while nothing speaks for the model, and as a check while the gate is open."""
SHARE_DISMISSED = 0.01
"""The share while the gate is closed and the credits say that the model is worse, or the base is good and they say
nothing for the model."""
GOOD_BASE_ABOVE = 0.65
"""A base is good if its lists have more reward on average, with `FEWEST_LISTS` of them."""
DISMISSED_BELOW = -2.0
"""They say so if they are below 0 by so many standard errors, unless they are few."""
SHARE_PROMISING = 0.5
"""The share while the gate is closed and the model looks no worse."""
SHARE_LIKELY = 1.0
"""The share while the gate is closed and the credits exceed 0 by a standard error."""
FEWEST_PROMISING = 4.0
"""The fewest credits for that, in effect."""
FEWEST_PROMISING_OF_GOOD = 8.0
"""The same beside a good base, where mixing half of the lists by chance costs the user most."""
_Z = 1.96  # standard errors of an interval of 95 %
_LEAST_VARIANCE = 0.02  # of a reciprocal rank: a few equal ones are no certainty


class Source(StrEnum):
    """The source of a list's order."""

    BASE = "base"
    MODEL = "model"
    INTERLEAVED = "interleaved"

    def __repr__(self) -> str:
        return repr(self.value)  # so that a list prints readably


class Interval(NamedTuple):
    """An estimate, and the 95 % interval around it."""

    estimate: float
    low: float
    high: float


class FadingMean(NamedTuple):
    """A mean of numbers, the newest of which weigh most: the i-th newest weighs ``decay ** i`` times its own weight.

    Attributes:
        weight, weight_squares: sums of the weights, and of their squares.
        total, squares: weighted sums of the numbers, and of their squares.
    """

    weight: float = 0.0
    weight_squares: float = 0.0
    total: float = 0.0
    squares: float = 0.0

    def with_next(self, number: float, decay: float, weight: float = 1.0) -> "FadingMean":
        """Return the mean with one more number; earlier ones weigh less if ``decay`` is below 1."""
        return FadingMean(
            self.weight * decay + weight,
            self.weight_squares * decay * decay + weight * weight,
            self.total * decay + weight * number,
            self.squares * decay + weight * number * number,
        )

    def replacing(self, number: float, by: float, n_since: int, decay: float) -> "FadingMean":
        """Return the mean with another number in place of one, after which ``n_since`` more were added.

        Unchanged if that one is no longer in it, because the mean began again since.
        """
        weight = decay**n_since
        # With n numbers the weight is (1 - decay**n) / (1 - decay); the number is in it if n > n_since.
        if 1.0 - (1.0 - decay) * self.weight > weight * (1.0 + decay) / 2:
            return self
        return self._replace(
            total=self.total + weight * (by - number), squares=self.squares + weight * (by * by - number * number)
        )

    @property
    def mean(self) -> float:
        """Return the mean; 0 without numbers."""
        return self.total / self.weight if self.weight else 0.0

    @property
    def variance(self) -> float:
        """Return the variance of one number."""
        return self.squares / self.weight - self.mean**2 if self.weight else 0.0

    @property
    def share_of_variance(self) -> float:
        """Return the variance of the mean, in variances of one number; infinite without numbers."""
        return self.weight_squares / self.weight**2 if self.weight else float("inf")


class ShownCount(NamedTuple):
    """The rewards of one source's lists, for readers; it does not fade.

    Attributes:
        lists: recorded ones.
        clicked: those with a click.
        reciprocal_ranks: sum over lists of 1 / (1-based position of the first click); 0 for a list without any.
    """

    lists: int = 0
    clicked: int = 0
    reciprocal_ranks: float = 0.0

    @property
    def click_through_rate(self) -> float:
        return self.clicked / self.lists if self.lists else 0.0

    @property
    def mean_reciprocal_rank(self) -> float:
        return self.reciprocal_ranks / self.lists if self.lists else 0.0


_NO_NUMBERS = FadingMean()
_NONE_SHOWN = ShownCount()


@dataclass(frozen=True)
class Gate:
    """A gate and all its evidence; `with_list` makes the next one.

    Attributes:
        is_open: lists come from the model.
        credits: of interleaved lists that told the two apart: 1 to the model, -1 to the base.
        of_base, of_model: reciprocal ranks of the first click on each one's lists; the model's since the gate opened.
        counts: by source, all lists ever.
        shared: the credits of all clients, pooled; not the device's own, and not stored with them.
    """

    is_open: bool = False
    credits: FadingMean = _NO_NUMBERS
    of_base: FadingMean = _NO_NUMBERS
    of_model: FadingMean = _NO_NUMBERS
    counts: Mapping[Source, ShownCount] = field(default_factory=dict)
    shared: Credits = field(default=Credits(), compare=False)

    def __post_init__(self) -> None:
        # A reader of the gate must not change the device's own.
        object.__setattr__(self, "counts", MappingProxyType(dict(self.counts)))

    def count(self, source: Source) -> ShownCount:
        return self.counts.get(source, _NONE_SHOWN)

    @property
    def share_interleaved(self) -> float:
        """Return how many of the next lists should be interleaved."""
        if self.is_open:
            return SHARE_WARY
        by_own, score = self._share_by_own, self.shared.score
        # The more favourable tenth is not in them: if the model is no better they are a little below 0.
        says_nothing = not self.shared.squares or score < SHARED_PROMISING_FROM
        if self._is_dismissed or self._was_open or says_nothing:
            return by_own
        is_likely = score > SHARED_LIKELY_ABOVE
        if self.credits.total < 0.0 and not is_likely:
            return by_own
        share = max(by_own, SHARE_LIKELY if is_likely else SHARE_PROMISING)
        # If all were interleaved there would be no lists of the base, without which the gate does not open.
        return min(share, SHARE_PROMISING) if self.of_base.weight < FEWEST_BASE_LISTS else share

    @property
    def _share_by_own(self) -> float:
        if self._are_few_credits or self.credits.total < 0.0:
            return SHARE_DISMISSED if self._is_dismissed or self._has_good_base else SHARE_WARY
        return SHARE_LIKELY if self.credit_score > 1.0 else SHARE_PROMISING

    @property
    def _are_few_credits(self) -> bool:
        fewest = FEWEST_PROMISING_OF_GOOD if self._has_good_base else FEWEST_PROMISING
        return self.credits.share_of_variance * fewest > 1.0

    @property
    def _is_dismissed(self) -> bool:
        return not self._are_few_credits and self.credit_score < DISMISSED_BELOW

    @property
    def _has_good_base(self) -> bool:
        return self.of_base.weight >= FEWEST_LISTS and self.of_base.mean > GOOD_BASE_ABOVE

    @property
    def _was_open(self) -> bool:
        return self.count(Source.MODEL).lists > 0

    @property
    def is_opened_by_shared(self) -> bool:
        """Whether the credits of all clients open it, if it is closed."""
        return (
            not self._was_open
            and self.of_base.weight >= FEWEST_BASE_LISTS
            and self.credit_score >= OBJECTS_BELOW
            and self.shared.growth >= OPENS_AT
        )

    @property
    def credit_score(self) -> float:
        """Return by how many standard errors the credits exceed 0, their mean if both orders are equally good."""
        return self._own.score

    @property
    def growth(self) -> float:
        """Return how many times a stake on the model has grown by the own credits; 1 without any."""
        return self._own.growth

    @property
    def _own(self) -> Credits:
        return Credits(self.credits.total, self.credits.weight_squares)

    @property
    def model_score(self) -> float:
        """Return by how many standard errors the model's lists had more reward than the base's; 0 for too few lists."""
        difference, error = self._reward_difference or (0.0, 1.0)
        return difference / error

    @property
    def _reward_difference(self) -> tuple[float, float] | None:
        """The reward of the model's newest lists minus that of the base's, and its standard error."""
        if min(self.of_base.weight, self.of_model.weight) < FEWEST_LISTS:
            return None
        base = max(self.of_base.variance, _LEAST_VARIANCE)
        model = max(self.of_model.variance, base)  # the model's few lists may be alike by chance
        error = math.sqrt(base * self.of_base.share_of_variance + model * self.of_model.share_of_variance)
        return self.of_model.mean - self.of_base.mean, error

    @property
    def reward_difference(self) -> Interval | None:
        """Return by how much the model's newest lists have more reward than the base's; None for too few lists."""
        if self._reward_difference is None:
            return None
        difference, error = self._reward_difference
        return Interval(difference, difference - _Z * error, difference + _Z * error)

    @property
    def preference(self) -> Interval | None:
        """Return the share of interleaved lists with a credit that credit the model; None for too few lists.

        The newest weigh most. It is 0.5 if both orders are equally good. The interval is Wilson's.
        """
        if self.credits.weight < FEWEST_CREDITS:
            return None
        share, n = (1.0 + self.credits.mean) / 2, 1.0 / self.credits.share_of_variance
        centre = (share + _Z**2 / (2 * n)) / (1 + _Z**2 / n)
        half = _Z * math.sqrt(share * (1 - share) / n + _Z**2 / (4 * n**2)) / (1 + _Z**2 / n)
        return Interval(share, max(0.0, centre - half), min(1.0, centre + half))


def source_of_next(gate: Gate, rng: np.random.Generator) -> Source:
    """Draw the source of the next list, given a model for it; uses one random number."""
    if rng.random() < gate.share_interleaved:
        return Source.INTERLEAVED
    return Source.MODEL if gate.is_open else Source.BASE


def with_list(gate: Gate, source: Source, clicks: NDArray[np.bool_], to_credit: NDArray[np.int8] | None = None) -> Gate:
    """Return the gate after one more list that was shown.

    An interleaved list credits the order whose document was clicked last.

    Args:
        clicks: (shown,) bool.
        to_credit: (shown,) of an interleaved list, see `interleaving_credits`.
    """
    reciprocal = first_click_reward(clicks)
    before = gate.count(source)
    counted = ShownCount(before.lists + 1, before.clicked + (reciprocal > 0.0), before.reciprocal_ranks + reciprocal)
    counts = {**gate.counts, source: counted}
    if source is Source.BASE:
        of_base = gate.of_base.with_next(reciprocal, BASE_DECAY)
        return _opened_if_better(replace(gate, of_base=of_base, counts=counts))
    if source is Source.MODEL:
        of_model = gate.of_model.with_next(reciprocal, MODEL_DECAY)
        return _after_list_of_model(replace(gate, of_model=of_model, counts=counts))
    return _with_credit(replace(gate, counts=counts), credit_of(clicks, to_credit))


def with_more_clicks(
    gate: Gate,
    source: Source,
    clicks: tuple[NDArray[np.bool_], NDArray[np.bool_]],
    n_since: int,
    to_credit: NDArray[np.int8] | None = None,
) -> Gate:
    """Return the gate after more clicks on a list that `with_list` has counted.

    The list's reward is corrected. A credit that it has given stays, because the clicks came in that order.

    Args:
        clicks: (shown,) bool each, before and now.
        n_since: how many lists of this source were counted after it.
    """
    before, now = map(first_click_reward, clicks)
    count = gate.count(source)
    clicked = count.clicked + (now > 0.0 == before)
    # Rounding must not make it more than one for each clicked list.
    counted = ShownCount(count.lists, clicked, min(count.reciprocal_ranks + now - before, clicked))
    counts = {**gate.counts, source: counted}
    if source is Source.BASE:
        return replace(gate, of_base=gate.of_base.replacing(before, now, n_since, BASE_DECAY), counts=counts)
    if source is Source.MODEL:
        of_model = gate.of_model.replacing(before, now, n_since, MODEL_DECAY)
        return _after_list_of_model(replace(gate, of_model=of_model, counts=counts))
    gate = replace(gate, counts=counts)
    return gate if credit_of(clicks[0], to_credit) else _with_credit(gate, credit_of(clicks[1], to_credit))


def interleaving_credits(
    by_model: NDArray[np.bool_], base: NDArray[np.int64], model: NDArray[np.int64]
) -> NDArray[np.int8]:
    """Return (shown,) which order a click at each position of an interleaved list credits: 1 the model, -1 the base.

    0 for documents that both orders begin with, in the same places: a click there shows nothing.

    Args:
        by_model: (shown,) whether the model's turn added the document at each position.
        base, model: at least the (shown,) best of both orders.
    """
    to_credit = np.where(by_model, np.int8(1), np.int8(-1))
    differs = base[: len(by_model)] != model[: len(by_model)]
    to_credit[: np.argmax(differs) if differs.any() else None] = 0
    return to_credit


def credit_of(clicks: NDArray[np.bool_], to_credit: NDArray[np.int8] | None) -> float:
    """Return the credit of an interleaved list's last click: above 0 for the model, below for the base; 0 for neither.

    A coin decided each two positions; a credit by the i-th coin is 1 / i.

    Args:
        clicks: (shown,) bool.
        to_credit: (shown,), see `interleaving_credits`; None of other lists.
    """
    if to_credit is None or not clicks.any():
        return 0.0
    last = int(clicks.nonzero()[0][-1])
    return float(to_credit[last]) / (1 + last // 2)


def _with_credit(gate: Gate, credit: float) -> Gate:
    if credit:
        # A stake must not forget its losses.
        decay = CREDIT_DECAY if gate.is_open else 1.0
        gate = replace(gate, credits=gate.credits.with_next(math.copysign(1.0, credit), decay, abs(credit)))
    gate = _opened_if_better(gate)
    return _closed(gate) if credit and gate.is_open and gate.credit_score < CLOSES_BELOW else gate


def _opened_if_better(gate: Gate) -> Gate:
    """Open the gate if the credits say that the model is better."""
    if gate.is_open or not (gate.growth >= OPENS_AT or gate.is_opened_by_shared):
        return gate
    return replace(gate, is_open=True, of_model=_NO_NUMBERS)


def _after_list_of_model(gate: Gate) -> Gate:
    """Close the gate if the model's lists have less reward."""
    return _closed(gate) if gate.is_open and gate.model_score < -WORSE_BY else gate


def _closed(gate: Gate) -> Gate:
    """Return the gate closed, without the credits that opened it: they were for another model."""
    return replace(gate, is_open=False, credits=_NO_NUMBERS, of_model=_NO_NUMBERS)
