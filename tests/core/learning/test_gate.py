"""A gate shows the model's lists only while clicks do not say that the application's own order is better."""

from dataclasses import replace

import numpy as np
import pytest

from foltr.core.learning.credits import OPENS_AT, STAKES, Credits
from foltr.core.learning.gate import (
    FEWEST_BASE_LISTS,
    FEWEST_CREDITS,
    SHARE_DISMISSED,
    SHARE_LIKELY,
    SHARE_PROMISING,
    SHARE_WARY,
    FadingMean,
    Gate,
    ShownCount,
    Source,
    interleaving_credits,
    source_of_next,
    with_list,
    with_more_clicks,
)

BETTER = Credits(25.0, 40.0)
WORSE = Credits(-20.0, 40.0)
FIRST = np.array([True, False, False])
THIRD = np.array([False, False, True])
NONE = np.zeros(3, np.bool_)


def after(gate: Gate, n: int, source: Source, clicks: np.ndarray, credit: int = 0) -> Gate:
    for _ in range(n):
        gate = with_list(gate, source, clicks, np.full(3, credit, np.int8))
    return gate


def opened() -> Gate:
    gate = after(Gate(), 40, Source.BASE, FIRST)
    return after(gate, 20, Source.INTERLEAVED, FIRST, credit=1)


def test_a_gate_is_closed_until_interleaved_lists_speak_for_the_model() -> None:
    rng = np.random.default_rng(1)
    assert Source.MODEL not in {source_of_next(Gate(), rng) for _ in range(1000)}
    assert not after(Gate(), 5, Source.INTERLEAVED, FIRST, credit=1).is_open
    assert not after(Gate(), 10, Source.INTERLEAVED, THIRD, credit=1).is_open, "lower clicks weigh less"
    assert after(Gate(), 20, Source.INTERLEAVED, FIRST, credit=1).is_open
    assert Source.MODEL in {source_of_next(opened(), rng) for _ in range(100)}
    gate = after(opened(), 30, Source.INTERLEAVED, FIRST, credit=-1)
    assert not gate.is_open
    assert gate.credits == FadingMean() or gate.credits.total < 0.0, "those that opened it were another model's"


def test_at_most_one_gate_in_a_hundred_ever_opens_for_a_model_that_is_no_better() -> None:
    """Ten thousand users with two thousand credits each, of all weights, looked at after every one of them."""
    rng = np.random.default_rng(2)
    total, squares, growth = np.zeros(10_000), np.zeros(10_000), np.zeros(10_000)
    opened_ones = np.zeros(10_000, np.bool_)
    for _ in range(2000):
        weight = 1.0 / rng.integers(1, 6, 10_000)
        total += rng.choice([-1.0, 1.0], 10_000) * weight
        squares += weight**2
        growth = np.mean([np.exp(stake * total - stake**2 * squares / 2) for stake in STAKES], axis=0)
        opened_ones |= growth >= OPENS_AT
    assert 0 < opened_ones.sum() <= 100
    assert Gate(credits=FadingMean(9.0, squares[0], total[0], 9.0)).growth == pytest.approx(growth[0])


def test_a_gate_opens_for_a_model_that_is_better_and_the_sooner_the_better_it_is() -> None:
    """The median, and nine in ten of forty gates, by how many of a hundred mixed lists favour the model."""
    needed = {}
    for share in (0.7, 0.9):
        rng, counts = np.random.default_rng(5), []
        for _ in range(40):
            gate, n = Gate(), 0
            while not gate.is_open and n < 500:
                credit = 1 if rng.random() < share else -1
                gate, n = after(gate, 1, Source.INTERLEAVED, FIRST, credit=credit), n + 1
            counts.append(n)
        needed[share] = np.quantile(counts, [0.5, 0.9])
    assert (needed[0.7] <= [80.0, 200.0]).all()
    assert (needed[0.9] <= [25.0, 40.0]).all()


@pytest.mark.parametrize(("clicks", "at_most"), [(NONE, 10), (THIRD, 12)])
def test_an_open_gate_closes_within_few_lists_once_the_models_bring_no_or_late_clicks(
    clicks: np.ndarray, at_most: int
) -> None:
    """A model so bad that nobody clicks gives interleaving nothing to tell; the lists as shown tell it."""
    gate, n = after(opened(), 5, Source.MODEL, FIRST), 0
    while gate.is_open and n < 100:
        gate, n = with_list(gate, Source.MODEL, clicks), n + 1
    assert n <= at_most
    assert gate.credits == FadingMean(), "the credits were an earlier model's"


def test_an_open_gate_stays_open_while_the_models_lists_bring_as_much() -> None:
    """Where both bring the same, which is where it does not matter, half of the gates are open after 300 lists."""
    rng, n_open = np.random.default_rng(3), 0
    for _ in range(50):
        gate = Gate()
        for _ in range(60):
            gate = with_list(gate, Source.BASE, rng.permutation(FIRST))
        gate = replace(gate, is_open=True)
        for _ in range(300):
            gate = with_list(gate, Source.MODEL, rng.permutation(FIRST))
        n_open += gate.is_open
    assert n_open >= 25


def test_more_lists_are_interleaved_once_the_model_looks_no_worse_and_fewer_once_it_is() -> None:
    assert Gate().share_interleaved == SHARE_WARY
    assert after(Gate(), 5, Source.INTERLEAVED, FIRST, credit=1).share_interleaved == SHARE_LIKELY
    alike = after(after(Gate(), 2, Source.INTERLEAVED, FIRST, credit=1), 2, Source.INTERLEAVED, FIRST, credit=-1)
    assert alike.share_interleaved == SHARE_PROMISING
    hardly_worse = after(after(Gate(), 2, Source.INTERLEAVED, FIRST, credit=1), 4, Source.INTERLEAVED, FIRST, credit=-1)
    assert hardly_worse.share_interleaved == SHARE_WARY
    assert opened().share_interleaved == SHARE_WARY
    assert after(Gate(), 30, Source.INTERLEAVED, FIRST, credit=-1).share_interleaved == SHARE_DISMISSED


def told(of_all: Credits, gate: Gate | None = None) -> Gate:
    return replace(gate or Gate(), shared=of_all)


def test_all_clients_credits_open_a_gate_that_has_lists_of_the_base_to_compare_with() -> None:
    """Unless its own credits speak against the model."""
    assert (told(BETTER).shared.growth > OPENS_AT) is (told(WORSE).shared.growth < 1.0) is True
    assert not after(told(BETTER), int(FEWEST_BASE_LISTS), Source.BASE, FIRST).is_open, "the oldest weigh less"
    assert after(told(BETTER), 80, Source.BASE, FIRST).is_open
    assert not after(told(WORSE), 80, Source.BASE, FIRST).is_open
    assert not after(told(Credits(6.0, 40.0)), 80, Source.BASE, FIRST).is_open
    objecting = after(Gate(), 3, Source.INTERLEAVED, FIRST, credit=-1)
    assert not after(told(BETTER, objecting), 80, Source.BASE, FIRST).is_open


def test_a_gate_that_was_closed_is_opened_by_own_clicks_only() -> None:
    """Others' clicks show it the model once; a user whom it does not suit is out as soon as ever."""
    gate, n = after(told(BETTER), 80, Source.BASE, FIRST), 0
    while gate.is_open and n < 100:
        gate, n = with_list(gate, Source.MODEL, NONE), n + 1
    assert n <= 12
    gate = after(gate, 80, Source.BASE, FIRST)
    assert (gate.is_open, gate.share_interleaved) == (False, SHARE_DISMISSED), "beside a good base"
    assert after(gate, 20, Source.INTERLEAVED, FIRST, credit=1).is_open


def test_more_lists_are_interleaved_if_all_clients_credits_speak_for_the_model() -> None:
    """And less than all while lists of the base are missing."""
    shares = [told(of_all).share_interleaved for of_all in (Credits(), WORSE, BETTER)]
    assert shares == [SHARE_WARY, SHARE_WARY, SHARE_PROMISING]
    with_base = after(Gate(), 80, Source.BASE, THIRD)
    shares = [told(Credits(total, 4.0), with_base).share_interleaved for total in (-1.1, 0.0, 1.1)]
    assert shares == [SHARE_WARY, SHARE_PROMISING, SHARE_LIKELY]
    dismissed = after(with_base, 30, Source.INTERLEAVED, FIRST, credit=-1)
    assert told(BETTER, dismissed).share_interleaved == SHARE_DISMISSED
    hardly_worse = after(after(with_base, 2, Source.INTERLEAVED, FIRST, credit=1), 4, Source.INTERLEAVED, FIRST, -1)
    shares = [told(Credits(total, 4.0), hardly_worse).share_interleaved for total in (0.0, 1.1)]
    assert shares == [SHARE_WARY, SHARE_LIKELY], "the own credits come first"


def test_few_lists_are_interleaved_beside_a_good_base_until_the_credits_say_more() -> None:
    """A mixed list costs its user more than beside a weak one, and four credits may favour any model by chance."""
    good, weak = (after(Gate(), 80, Source.BASE, clicks) for clicks in (FIRST, THIRD))
    assert [gate.share_interleaved for gate in (good, weak)] == [SHARE_DISMISSED, SHARE_WARY]
    liked = [after(good, n, Source.INTERLEAVED, FIRST, credit=1).share_interleaved for n in (4, 8)]
    assert liked == [SHARE_DISMISSED, SHARE_LIKELY]
    shares = [told(Credits(total, 4.0), good).share_interleaved for total in (-1.1, 0.0, 1.1)]
    assert shares == [SHARE_DISMISSED, SHARE_PROMISING, SHARE_LIKELY], "other users' credits are no chance of one"


def test_counts_are_of_all_lists_by_source() -> None:
    """A fading mean is the weighted one; a gate that was handed out cannot be changed."""
    gate = after(after(Gate(), 3, Source.BASE, THIRD), 1, Source.BASE, NONE)
    count = gate.count(Source.BASE)
    assert (count.lists, count.clicked) == (4, 3)
    assert count.click_through_rate == 3 / 4
    assert count.mean_reciprocal_rank == pytest.approx((1 / 3 + 1 / 3 + 1 / 3 + 0) / 4)
    assert gate.count(Source.MODEL).click_through_rate == 0.0
    mean = FadingMean()
    for number in (1.0, 0.0, 1.0):
        mean = mean.with_next(number, 0.5)
    assert mean.mean == pytest.approx((0.25 * 1 + 0.5 * 0 + 1 * 1) / 1.75)
    assert mean.share_of_variance == pytest.approx((0.0625 + 0.25 + 1) / 1.75**2)
    assert FadingMean().mean == 0.0
    assert after(Gate(), int(FEWEST_CREDITS), Source.BASE, FIRST).model_score == 0.0
    made_of = {Source.BASE: ShownCount(1, 1, 1.0)}
    gate = Gate(counts=made_of)
    made_of.clear()
    with pytest.raises(TypeError):
        gate.counts[Source.BASE] = ShownCount()
    assert gate.counts == {Source.BASE: ShownCount(1, 1, 1.0)}
    assert gate == Gate(counts=gate.counts)


def test_a_click_on_what_both_orders_begin_with_tells_nothing() -> None:
    base, model = np.array([4, 1, 2]), np.array([4, 2, 1])
    by_model = np.array([True, True, False])
    assert interleaving_credits(by_model, base, model).tolist() == [0, 1, -1]
    assert interleaving_credits(by_model, base, base).tolist() == [0, 0, 0]
    to_credit = interleaving_credits(by_model, base, model)
    assert with_list(Gate(), Source.INTERLEAVED, FIRST, to_credit).credits == FadingMean()
    last_of_all = with_list(Gate(), Source.INTERLEAVED, np.array([True, True, True]), to_credit)
    assert last_of_all.credits == with_list(Gate(), Source.INTERLEAVED, THIRD, to_credit).credits
    assert (last_of_all.credits.mean, last_of_all.credits.weight) == (-1.0, 0.5)


@pytest.mark.parametrize("source", [Source.BASE, Source.MODEL])
def test_clicks_that_come_later_make_the_gate_that_they_would_have_made_at_once(source: Source) -> None:
    """Also after other lists, and from a list that nobody had clicked on."""
    start = after(after(Gate(is_open=True), 20, Source.BASE, THIRD), 9, Source.MODEL, FIRST)
    for first in (NONE, THIRD):
        at_once = after(with_list(start, source, FIRST), 3, source, THIRD)
        later = after(with_list(start, source, first), 3, source, THIRD)
        later = with_more_clicks(later, source, (first, FIRST), 3)
        assert list(later.count(source)) == pytest.approx(list(at_once.count(source)))
        assert later.is_open
        for mean, expected in ((later.of_base, at_once.of_base), (later.of_model, at_once.of_model)):
            assert list(mean) == pytest.approx(list(expected))


def test_a_click_on_a_list_from_before_the_gate_closed_changes_no_mean_that_began_again() -> None:
    """It is counted, for readers. An interleaved list gives one credit, by the first clicks that tell orders apart."""
    closed = after(with_list(opened(), Source.MODEL, NONE), 20, Source.MODEL, NONE)
    assert not closed.is_open
    n_since = closed.count(Source.MODEL).lists - 1
    clicked = with_more_clicks(closed, Source.MODEL, (NONE, FIRST), n_since)
    assert clicked.of_model == closed.of_model
    assert clicked.count(Source.MODEL).clicked == 1
    to_credit = np.array([1, 0, -1], np.int8)
    gate = with_list(Gate(), Source.INTERLEAVED, NONE, to_credit)
    assert gate.credits == FadingMean()
    gate = with_more_clicks(gate, Source.INTERLEAVED, (NONE, FIRST), 0, to_credit)
    assert (gate.credits.weight, gate.credits.total) == (1.0, 1.0)
    again = with_more_clicks(gate, Source.INTERLEAVED, (FIRST, FIRST | THIRD), 0, to_credit)
    assert again.credits == gate.credits
    assert again.count(Source.INTERLEAVED) == ShownCount(1, 1, 1.0)
