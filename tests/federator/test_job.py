"""When a step of an unlearning job is over, and how a job comes from the first request to its swap."""

import math
from copy import deepcopy
from dataclasses import replace
from itertools import product

import pytest

from foltr.core.errors import ProtocolViolationError
from foltr.core.protocol.fields import pack_vector
from foltr.core.protocol.states import Strategy
from foltr.core.protocol.updates import DenseDelta, UnlearningUpdate
from foltr.core.unlearning.schedule import ReplayProgress
from foltr.federator.job import (
    TRANSITIONS,
    Contribution,
    JobAction,
    JobEvent,
    MissedStepAction,
    Phase,
    Unlearning,
    UnlearningPolicy,
    UnlearningStep,
)


def test_a_job_begins_once_the_first_has_waited_or_enough_wait():
    """Never sooner than the limit of swaps allows; a time that is still to come holds nothing up."""
    for n_waiting, oldest_at, swapped_at, begins_at in [
        (1, 900.0, None, 1900.0),
        (2, 900.0, None, 1900.0),
        (3, 900.0, None, 1000.0),
        (3, 900.0, 990.0, 1090.0),
        (1, 900.0, 990.0, 1900.0),
        (1, 50.0, 990.0, 1090.0),
        (1, 5000.0, None, 1000.0),
        (3, 900.0, 5000.0, 1000.0),
    ]:
        policy = UnlearningPolicy(every_s=1000.0, after=3, swap_every_s=100.0)
        assert policy.begins_at(1000.0, n_waiting, oldest_at, swapped_at) == begins_at, n_waiting


def step(awaited=("a", "b"), least=1, lasts_s=10.0) -> UnlearningStep:
    asked = {name: Contribution(1.0, 5) for name in ("a", "b", "c")}
    return UnlearningStep(1, 2, 7, 4, asked, set(awaited), least, 100.0, 100.0 + lasts_s)


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
    assert one.accept(answer("a"))
    assert not one.accept(answer("a"))
    assert not one.accept(answer("d"))
    assert not one.accept(answer("b", job=2))
    assert not one.accept(answer("b", number=1))
    assert one.coverage == 1 / 4  # the fourth has left


def test_a_step_is_over_when_those_who_are_there_have_answered():
    """Or at its deadline with what there is; without any answer it is missed. Who is away is not waited for."""
    one = step()
    assert not one.is_over(109.0)
    assert one.is_missed(110.0)
    one.accept(answer("a"))
    assert not one.is_over(109.0)
    assert one.is_over(110.0)
    one.accept(answer("b"))
    assert one.is_over(101.0)
    assert one.wake_at() == 100.0
    without_anybody = step(awaited=())
    assert not without_anybody.is_over(105.0)
    without_anybody.accept(answer("c"))
    assert without_anybody.is_over(105.0)


def test_too_few_answers_make_no_model():
    """As few as a live round would not take; where fewer are asked, all of them."""
    one = step(least=2)
    one.accept(answer("a"))
    assert not one.is_over(110.0)
    assert one.is_missed(110.0)
    one.accept(answer("c"))
    assert one.is_over(110.0)
    few = step(awaited=("a",), least=9)
    few.accept(answer("a"))
    few.leave_out("b")
    few.leave_out("c")
    assert few.is_over(101.0)


def test_who_was_erased_has_said_nothing():
    """Its answer goes with it, and it is not waited for."""
    one = step()
    one.accept(answer("a"))
    one.leave_out("a")
    assert one.answers == {}
    assert not one.accept(answer("a"))
    one.accept(answer("b"))
    assert one.is_over(101.0)


POLICY = UnlearningPolicy(every_s=5.0, swap_every_s=0.0, step_s=10.0, patience_s=30.0)
COURSE = ReplayProgress(interval=1, horizon=9)


def gathering() -> Unlearning:
    work = Unlearning(POLICY)
    work.gather(105.0)
    return work


def held() -> Unlearning:
    work = gathering()
    work.hold()
    return work


def between_steps() -> Unlearning:
    work = gathering()
    work.begin(COURSE, [7, 8], n_clients=2)
    return work


def asking(**options) -> Unlearning:
    work = between_steps()
    work.ask(COURSE, [8], step(**options))
    return work


def paused() -> Unlearning:
    work = asking()
    work.pause()
    return work


def caught_up() -> Unlearning:
    work = between_steps()
    work.catch_up()
    return work


IN_PHASE = {
    Phase.IDLE: lambda: Unlearning(POLICY),
    Phase.GATHERING: gathering,
    Phase.HELD: held,
    Phase.BETWEEN_STEPS: between_steps,
    Phase.ASKING: asking,
    Phase.PAUSED: paused,
    Phase.CAUGHT_UP: caught_up,
}
EVENTS = {
    JobEvent.NOBODY_WAITS: lambda work: work.call_off(),
    JobEvent.RESET_HELD: lambda work: work.hold(),
    JobEvent.RESET_ALLOWED: lambda work: work.allow(),
    JobEvent.JOB_BEGUN: lambda work: work.begin(COURSE, [7], 1),
    JobEvent.JOB_RESUMED: lambda work: work.resume(COURSE, 1),
    JobEvent.STEP_ANNOUNCED: lambda work: work.ask(COURSE, [8], step()),
    JobEvent.STEP_MISSED: lambda work: work.miss(110.0, any_online=True),
    JobEvent.STEP_COMMITTED: lambda work: work.end_step(COURSE.past(7), [8]),
    JobEvent.PATIENCE_ENDED: lambda work: work.pause(),
    JobEvent.ROUNDS_EXHAUSTED: lambda work: work.catch_up(),
    JobEvent.COVERAGE_TOO_LOW: lambda work: work.give_up(110.0),
    JobEvent.MODEL_REPLACED: lambda work: work.replace_model(),
}


def test_an_event_is_allowed_or_changes_nothing():
    """Each in each phase, by the table."""
    for phase, event in product(IN_PHASE, EVENTS):
        work = IN_PHASE[phase]()
        assert work.phase is phase
        before = deepcopy(work)
        if (following := TRANSITIONS.get((phase, event))) is None:
            with pytest.raises(ProtocolViolationError, match=f"unlearning is {phase}"):
                EVENTS[event](work)
            assert work == before, (phase, event)
        else:
            EVENTS[event](work)
            assert work.phase is following, (phase, event)
        assert (work.step is not None) == (work.phase is Phase.ASKING), (phase, event)


def test_requests_during_a_job_are_gathered_after_it():
    """A newer request before it begins may put it off or bring it forward."""
    for phase, make in IN_PHASE.items():
        work = make()
        before = deepcopy(work)
        work.gather(120.0)
        if phase in (Phase.IDLE, Phase.GATHERING):
            assert (work.phase, work.wake_at()) == (Phase.GATHERING, 120.0)
        else:
            assert work == before, phase


def test_what_is_due_and_when_to_look_again():
    """Nothing is due before `wake_at`, and something is at it."""
    for phase, now, due, wake_at in [
        (Phase.IDLE, 1e9, None, math.inf),
        (Phase.GATHERING, 104.9, None, 105.0),
        (Phase.GATHERING, 105.0, JobAction.BEGIN, 105.0),
        (Phase.HELD, 1e9, None, math.inf),
        (Phase.BETWEEN_STEPS, 0.0, JobAction.NEXT_STEP, 0.0),
        (Phase.ASKING, 109.9, None, 110.0),
        (Phase.ASKING, 110.0, JobAction.MISSED_STEP, 110.0),
        (Phase.PAUSED, 1e9, None, math.inf),
        (Phase.CAUGHT_UP, 1e9, None, math.inf),
    ]:
        work = IN_PHASE[phase]()
        assert (work.due(now), work.wake_at()) == (due, wake_at), phase


def test_busy_is_all_but_waiting_for_devices():
    """A federation that stops after its last round waits for a job, but not for one that waits for devices."""
    assert {phase for phase, of in IN_PHASE.items() if not of().is_busy} == {Phase.IDLE, Phase.PAUSED}


def test_a_step_with_enough_answers_is_due_to_end():
    """At once when all have answered; what answers no open step is taken by nobody."""
    work = asking(awaited=("a",))
    assert work.accept(answer("a"))
    assert work.due(101.0) is JobAction.END_STEP
    work.end_step(COURSE.past(7), [8])
    assert (work.step, work.course.last, work.ahead, work.due(0.0)) == (None, 7, [8], JobAction.NEXT_STEP)
    assert not work.accept(answer("b"))


def test_who_keeps_silent_is_awaited_no_more_until_it_answers():
    """Whoever was online and let a deadline pass; an answer to a later step takes it off the list."""
    work = asking(awaited=("a", "b"), lasts_s=5400.0)
    for at in (5500.0, 10_900.0):
        assert work.miss(at, any_online=True) is MissedStepAction.ASK_AGAIN
        assert work.open_step.closes_at == at + 5400.0, "as long as before: where devices come hourly, less is none"
    assert work.silent == {"a", "b"}
    work.accept(answer("a"))
    work.end_step(COURSE.past(7), [8])
    assert work.silent == {"b"}
    work.forget("b")
    assert work.silent == set()


def test_who_is_forgotten_takes_the_known_rounds_along():
    """One of them may have been its own alone: those that are left are listed again."""
    work = asking()
    work.forget("a")
    assert (work.step.asked.keys(), work.ahead) == ({"b", "c"}, ())


def test_a_step_is_passed_over_at_its_third_miss_while_members_are_online():
    """Others have more to say to other rounds."""
    work = asking()
    found = [work.miss(at, any_online=True) for at in (110.0, 120.0, 130.0)]
    assert found == [MissedStepAction.ASK_AGAIN, MissedStepAction.ASK_AGAIN, MissedStepAction.PASS_OVER]


def test_a_job_pauses_once_nobody_was_online_for_as_long_as_patience():
    """It counts from when the step was asked; a member in between begins it anew, and so does the next step."""
    work = asking()
    found = [work.miss(at, any_online=False) for at in (110.0, 120.0, 130.0)]
    assert found == [MissedStepAction.ASK_AGAIN, MissedStepAction.ASK_AGAIN, MissedStepAction.PAUSE]
    back = asking()
    assert [back.miss(110.0, any_online=False), back.miss(120.0, any_online=True)] == [MissedStepAction.ASK_AGAIN] * 2
    back.open_step.n_missed = 0
    assert back.miss(130.0, any_online=False) is MissedStepAction.ASK_AGAIN
    assert back.alone_since == 120.0
    impatient = replace(asking(), policy=UnlearningPolicy(step_s=10.0, patience_s=0.0))
    assert impatient.miss(110.0, any_online=False) is MissedStepAction.PAUSE


def test_a_job_that_covered_too_little_makes_way_for_one_that_begins_at_once():
    """Learning anew is always enough, and so is a job without steps."""
    policy = UnlearningPolicy(min_coverage=0.5)
    assert policy.objection(Strategy.ROLLBACK, 0.49) == "coverage 0.49 is below 0.5"
    assert policy.objection(Strategy.ROLLBACK, 0.5) is None
    assert policy.objection(Strategy.ROLLBACK, None) is None
    assert policy.objection(Strategy.RELEARN, 0.0) is None
    assert policy.objection(Strategy.FED_ERASER, 0.49) is not None
    work = between_steps()
    work.give_up(200.0)
    assert work.due(200.0) is JobAction.BEGIN
