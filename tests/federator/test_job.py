"""Which rounds a job goes through, and when one of its steps is over."""

import pytest

from federator.job import (
    LEAST_STEPS,
    Contribution,
    UnlearningPolicy,
    UnlearningStep,
    n_rounds_ahead,
    next_round,
)
from foltr.errors import SettingsError
from foltr.protocol.fields import pack_vector
from foltr.protocol.states import Strategy
from foltr.protocol.updates import DenseDelta, UnlearningUpdate


@pytest.mark.parametrize(
    ("stored", "interval", "gone_through"),
    [
        (range(1, 12), 5, [1, 6, 11]),
        (range(1, 4), 1, [1, 2, 3]),
        ([1, 2, 9, 10, 11], 3, [1, 9]),
        # Thinned already: nothing more is passed over.
        ([1, 11, 21, 25, 26], 10, [1, 11, 21]),
        ([], 3, []),
    ],
)
def test_rounds_are_so_far_apart_by_number(stored, interval, gone_through):
    """One after the other, and as many as were foretold."""
    found, after = [], None
    while (number := next_round(stored, after, interval)) is not None:
        found.append(number)
        after = number
    assert found == gone_through
    assert n_rounds_ahead(stored, None, interval) == len(found)


@pytest.mark.parametrize(("n_stored", "interval"), [(0, 1), (99, 1), (250, 2), (1_000, 10), (9_999, 10)])
def test_a_job_has_a_hundred_steps_where_history_allows(n_stored, interval):
    """Ten rounds apart only from a thousand on; retraining leaves none out."""
    policy = UnlearningPolicy(interval=10)
    assert policy.interval_of(Strategy.ROLLBACK, n_stored) == interval
    assert policy.interval_of(Strategy.RETRAIN, n_stored) == 1
    assert n_stored < LEAST_STEPS or n_stored // interval >= LEAST_STEPS


def test_devices_are_asked_for_three_fifths():
    """As the thesis' three of five; a setting says otherwise, and retraining asks for all."""
    assert [UnlearningPolicy().n_asked(Strategy.ROLLBACK, n) for n in (1, 2, 5, 100)] == [1, 1, 3, 60]
    assert UnlearningPolicy(local_interactions=2).n_asked(Strategy.FED_ERASER, 5) == 2
    assert UnlearningPolicy(local_interactions=2).n_asked(Strategy.RETRAIN, 5) == 5


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"strategy": "amnesia"}, "unlearning_strategy"),
        ({"interval": 0}, "unlearning_interval"),
        ({"local_interactions": 0}, "unlearning_interactions"),
        ({"min_coverage": 1.5}, "unlearning_min_coverage"),
        ({"step_s": 0.0}, "unlearning_step_s"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(values, said):
    """The setting and what it may be."""
    with pytest.raises(SettingsError, match=said):
        UnlearningPolicy(**values)


def step(awaited=("a", "b"), least=1) -> UnlearningStep:
    asked = {name: Contribution(1.0, 5) for name in ("a", "b", "c")}
    return UnlearningStep(1, 2, 7, 4, asked, set(awaited), least, 100.0, 110.0)


def answer(client_id, job=1, number=2) -> UnlearningUpdate:
    return UnlearningUpdate(
        federation="mail",
        client_id=client_id,
        job=job,
        step=number,
        n_interactions=1,
        body=DenseDelta(dim=1, values=pack_vector([1.0])),
    )


def test_only_the_first_answer_of_those_who_were_asked_counts():
    """Nobody answers for another step, twice, or without having been in the round."""
    one = step()
    assert one.take(answer("a"))
    assert not one.take(answer("a"))
    assert not one.take(answer("d"))
    assert not one.take(answer("b", job=2))
    assert not one.take(answer("b", number=1))
    assert one.coverage == 1 / 4  # the fourth has left


def test_a_step_is_over_when_those_who_are_there_have_answered():
    """Or at its deadline with what there is; without any answer it is missed."""
    one = step()
    assert not one.is_over(109.0)
    assert one.is_missed(110.0)
    one.take(answer("a"))
    assert not one.is_over(109.0)
    assert one.is_over(110.0)
    one.take(answer("b"))
    assert one.is_over(101.0)
    assert one.wake_at() == 100.0


def test_who_is_away_is_not_waited_for_but_may_answer():
    """Nobody is there: it waits for the first one, and for nobody after."""
    one = step(awaited=())
    assert not one.is_over(105.0)
    one.take(answer("c"))
    assert one.is_over(105.0)


def test_too_few_answers_make_no_model():
    """As few as a live round would not take; where fewer are asked, all of them."""
    one = step(least=2)
    one.take(answer("a"))
    assert not one.is_over(110.0)
    assert one.is_missed(110.0)
    one.take(answer("c"))
    assert one.is_over(110.0)
    few = step(awaited=("a",), least=9)
    few.take(answer("a"))
    few.forget("b")
    few.forget("c")
    assert few.is_over(101.0)


def test_who_was_erased_has_said_nothing():
    """Its answer goes with it, and it is not waited for."""
    one = step()
    one.take(answer("a"))
    one.forget("a")
    assert one.answers == {}
    assert not one.take(answer("a"))
    one.take(answer("b"))
    assert one.is_over(101.0)
