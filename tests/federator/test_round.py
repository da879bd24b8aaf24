"""The round's state machine: what counts, when a round ends, and that nothing else happens."""

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from foltr.core.errors import ProtocolViolationError
from foltr.core.protocol.receipts import ReceiptCode
from foltr.core.protocol.states import AbandonReason, RoundState
from foltr.federator.round import (
    TRANSITIONS,
    Abandon,
    Aggregate,
    Record,
    RecordedUpdate,
    Reject,
    Round,
    RoundEvent,
    RoundPolicy,
    UpdateHeader,
)
from foltr.storage.records import StoredUpdate

OPENED = 1_000.0
# Its staleness limit is for buffers alone.
POLICY = RoundPolicy(min_clients=2, max_clients=3, min_time_s=10.0, max_time_s=60.0, staleness_limit=9)


def opened(policy=POLICY, number=5, base_version=4):
    return Round.open(number, base_version, policy, OPENED)


def offer(client="a", update=None, number=5, base=4, after=0):
    return UpdateHeader(client, update or f"update-of-{client}", number, base, after, after + 5)


def recorded(*clients):
    return {client: RecordedUpdate(f"update-of-{client}", 0) for client in clients}


def with_contributions(n, policy=POLICY):
    round_ = opened(policy)
    for i in range(n):
        assert isinstance(round_.decide(offer(f"client-{i}"), OPENED, counted_through=0), Record)
    return round_


def code(decision):
    return decision.code if isinstance(decision, Reject) else "recorded"


EVENTS = {
    RoundEvent.UPDATE_RECORDED: lambda round_: round_.move(RoundEvent.UPDATE_RECORDED),
    RoundEvent.UPDATE_WITHDRAWN: lambda round_: round_.move(RoundEvent.UPDATE_WITHDRAWN),
    RoundEvent.DEADLINE_SET: lambda round_: round_.set_deadline(30.0),
    RoundEvent.RESTARTED: lambda round_: round_.restart(30.0),
    RoundEvent.QUORUM_REACHED: Round.stop_collecting,
    RoundEvent.TICKETS_COLLECTED: lambda round_: round_.move(RoundEvent.TICKETS_COLLECTED),
    RoundEvent.SETS_FIXED: lambda round_: round_.move(RoundEvent.SETS_FIXED),
    RoundEvent.SUMS_OPENED: lambda round_: round_.move(RoundEvent.SUMS_OPENED),
    RoundEvent.SUMS_FAILED: lambda round_: round_.abandon(AbandonReason.HELPERS_SILENT),
    RoundEvent.DEADLINE_MISSED: lambda round_: round_.abandon(AbandonReason.NO_UPDATES),
    RoundEvent.MODEL_COMMITTED: Round.complete,
    RoundEvent.MODEL_REPLACED: lambda round_: round_.abandon(AbandonReason.UNLEARNED),
    RoundEvent.AGGREGATION_FAILED: lambda round_: round_.abandon(AbandonReason.AGGREGATION_FAILED),
}


def test_an_event_moves_the_round_or_raises_and_changes_nothing():
    """Each pair of a state and an event is in the table, or it is a violation without effect."""
    for state, event in product(RoundState, RoundEvent):
        round_ = replace(with_contributions(2), state=state)
        before = replace(round_, contributions=dict(round_.contributions))
        if (following := TRANSITIONS.get((state, event))) is not None:
            EVENTS[event](round_)
            assert round_.state is following, (state, event)
            continue
        with pytest.raises(ProtocolViolationError, match=state.value):
            EVENTS[event](round_)
        assert round_ == before, (state, event)


def test_every_state_can_be_left_or_is_an_end():
    """From every state some end is reached: no round is for ever."""
    ends = {RoundState.COMPLETED, RoundState.ABANDONED}
    assert not [state for state, _ in TRANSITIONS if state in ends]
    reaches_end = set(ends)
    for _ in RoundState:
        reaches_end |= {state for (state, _), following in TRANSITIONS.items() if following in reaches_end}
    assert reaches_end == set(RoundState)


COUNTING, TAKEN_BACK = (StoredUpdate(4, counts=True), StoredUpdate(4, counts=False))


def test_decisions():
    """One row for each way an update can arrive; only a recorded one changes the round."""
    for offered, after_s, stored, expected, case in [
        (offer("new"), 1, None, "recorded", "accepted"),
        (offer("new"), 59.999, None, "recorded", "just before the deadline"),
        (offer("client-0"), 1, None, "duplicate", "same update again"),
        (offer("client-0"), 61, None, "duplicate", "same update again after the deadline"),
        (offer("client-0", "other"), 1, None, "already_contributed", "second update of a client"),
        (offer("client-0", "other"), 61, None, "already_contributed", "second one, too late"),
        (offer("new", number=4), 1, None, "late", "an earlier round"),
        (offer("client-0", "other", number=4), 1, None, "late", "earlier round of a contributor"),
        (offer("new", number=4), 1, COUNTING, "duplicate", "stored in an earlier round"),
        (offer("new"), 1, COUNTING, "duplicate", "stored in this round, not in memory"),
        (offer("client-0", "other", number=3), 1, COUNTING, "duplicate", "stored earlier, contributor now"),
        (offer("new", number=4), 1, TAKEN_BACK, "round_abandoned", "stored, and counts no more"),
        (offer("new", after=5), 1, None, "overlaps", "above the watermark"),
        (offer("new", number=4, after=5), 1, None, "late", "above the watermark, an earlier round"),
        (offer("client-0", after=5), 1, None, "duplicate", "same update again, above the watermark"),
        (offer("new", number=6), 1, None, "unknown_round", "a later round"),
        (offer("client-0", "other", number=6), 1, None, "unknown_round", "later, of a contributor"),
        (offer("new", base=3), 1, None, "stale", "an older model"),
        (offer("new", base=5), 1, None, "stale", "a model that does not exist yet"),
        (offer("new"), 60, None, "late", "at the deadline"),
        (offer("new"), 61, None, "late", "after the deadline"),
        (offer("new", base=3), 61, None, "late", "after the deadline and stale"),
    ]:
        round_ = with_contributions(1)
        before = dict(round_.contributions)
        assert code(round_.decide(offered, OPENED + after_s, stored=stored, counted_through=0)) == expected, case
        gained = {offered.client_id: RecordedUpdate(offered.update_id, 0)} if expected == "recorded" else {}
        assert round_.contributions == before | gained, case
        assert round_.state is RoundState.COLLECTING, case


def test_a_decided_round_stays_decided():
    """Once it no longer collects, nothing enters; what is in it counts once, and not at all where it was abandoned."""
    for state in [RoundState.AGGREGATING, RoundState.COMPLETED, RoundState.ABANDONED]:
        round_ = replace(with_contributions(1), state=state)
        assert code(round_.decide(offer("new"), OPENED, counted_through=0)) == "late", state
        again = "round_abandoned" if state is RoundState.ABANDONED else "duplicate"
        assert code(round_.decide(offer("client-0"), OPENED, counted_through=0)) == again, state
        assert list(round_.contributions) == ["client-0"], state


def test_quorum_and_deadline():
    """With enough after min_time, also when full. At the deadline: whatever there is, or the reason why not."""
    for n_updates, after_s, expected, case in [
        (0, 0, None, "nothing yet"),
        (0, 59.999, None, "nothing, just before the deadline"),
        (0, 60, Abandon(AbandonReason.NO_UPDATES), "nothing at the deadline"),
        (1, 60, Abandon(AbandonReason.TOO_FEW_CLIENTS), "too few at the deadline"),
        (1, 59.999, None, "too few before the deadline"),
        (2, 0, None, "enough, but too early"),
        (2, 9.999, None, "enough, just before min_time"),
        (2, 10, Aggregate(), "enough at min_time"),
        (2, 60, Aggregate(), "enough at the deadline"),
        (2, 1e6, Aggregate(), "enough, seen long after the deadline"),
        (3, 9.999, None, "full, just before min_time"),
        (3, 10, Aggregate(), "full at min_time"),
    ]:
        assert with_contributions(n_updates).next_step(OPENED + after_s) == expected, case


def test_an_ended_round_has_no_next_step():
    """Aggregating is due until it is done; after the end nothing is."""
    round_ = with_contributions(2)
    round_.stop_collecting()
    assert round_.next_step(OPENED) == Aggregate()
    round_.complete()
    assert round_.next_step(OPENED + 1e6) is None


# Times are multiples of 1/4 so that sums are exact and the two ways of stepping can be compared.
quarters = st.integers(0, 80).map(lambda n: n / 4)


@st.composite
def policies(draw):
    clients = sorted((draw(st.integers(1, 5)), draw(st.integers(1, 5))))
    times = sorted((draw(quarters), draw(quarters.filter(bool))))
    return RoundPolicy(clients[0], clients[1], times[0], times[1], fills=draw(st.booleans()))


def run(policy, arrivals, wake_times):
    """Step at the arrivals and at ``wake_times(round_, now)``; returns when and how the round ended, and with whom."""
    round_ = opened(policy)
    pending, now = sorted(arrivals), OPENED
    for _ in range(10_000):
        while pending and OPENED + pending[0][0] <= now:
            _, client = pending.pop(0)
            round_.decide(offer(f"client-{client}"), now, counted_through=0)
        step = round_.next_step(now)
        if step is not None:
            return now - OPENED, step, round_.contributions
        following = wake_times(round_, now)
        assert following > now, "woken for nothing: the actor would spin"
        now = min(following, OPENED + pending[0][0]) if pending else following
    raise AssertionError("the round does not end")


@settings(derandomize=True)
@given(policies(), st.lists(st.tuples(quarters, st.integers(0, 7)), max_size=10))
def test_waking_when_told_is_as_good_as_looking_always(policy, arrivals):
    """`wake_at` is never too late (nor so early that it spins): the round ends at the same time, alike."""
    at_every_instant = run(policy, arrivals, lambda _, now: now + 0.25)
    assert run(policy, arrivals, lambda round_, _: round_.wake_at()) == at_every_instant


@settings(derandomize=True)
@given(policies(), st.integers(0, 5), quarters)
def test_no_step_becomes_due_before_wake_at(policy, n_clients, age):
    """Whatever a round holds, also just after a restart: before `wake_at` there is nothing to do."""
    contributions = {f"client-{i}": RecordedUpdate(f"update-{i}", 0) for i in range(min(n_clients, policy.max_clients))}
    round_ = replace(opened(policy), contributions=contributions)
    if round_.next_step(OPENED + age) is not None:
        assert round_.wake_at() <= OPENED + age


def resumed(now, *, state=RoundState.COLLECTING, contributions=None, grace_s=5.0, policy=POLICY):
    return Round.resume(
        5,
        4,
        policy,
        opened_at=OPENED,
        closes_at=OPENED + policy.max_time_s,
        state=state,
        contributions=contributions or {},
        now=now,
        grace_s=grace_s,
    )


def test_a_resumed_round_stays_open_for_the_grace():
    """A deadline that passed while the federator was down is moved, so that waiting updates still count."""
    back = OPENED + 500
    round_ = resumed(back, contributions=recorded("a"))
    assert round_.next_step(back) is None
    assert round_.wake_at() == back + 5
    assert code(round_.decide(offer("b"), back + 4.9, counted_through=0)) == "recorded"
    assert code(round_.decide(offer("c"), back + 5, counted_through=0)) == "late"
    assert resumed(back).next_step(back + 5) == Abandon(AbandonReason.NO_UPDATES)


def test_the_grace_never_shortens_a_round():
    """A restart early in the round leaves the deadline where it was."""
    assert resumed(OPENED + 1).closes_at == OPENED + 60


def test_a_resumed_round_that_was_decided_is_aggregated():
    """No update enters between the decision and the model, restart or not."""
    round_ = resumed(OPENED + 500, state=RoundState.AGGREGATING, contributions=recorded("a", "b"))
    assert code(round_.decide(offer("c"), OPENED + 500, counted_through=0)) == "late"
    assert round_.next_step(OPENED + 500) == Aggregate()
    assert round_.wake_at() <= OPENED + 500


class AnyOffers(RuleBasedStateMachine):
    """Offers, withdrawals and orders in any order, at any time, with restarts in between, against a model kept here."""

    @initialize(policy=policies())
    def start(self, policy):
        self.policy = policy
        self.now = OPENED
        self.round = opened(policy)
        self.accepted: dict[str, str] = {}

    @rule(
        client=st.integers(0, 6).map("client-{}".format),
        update=st.integers(0, 3).map("update-{}".format),
        number=st.sampled_from([4, 5, 5, 5, 6]),
        base=st.sampled_from([3, 4, 4, 4]),
    )
    def offer_an_update(self, client, update, number, base):
        collecting = self.round.state is RoundState.COLLECTING and self.now < self.round.closes_at
        before = dict(self.round.contributions)
        decision = self.round.decide(
            UpdateHeader(client, update, number, base, after=0, through=5), self.now, counted_through=0
        )
        if isinstance(decision, Record):
            assert (number, base) == (5, 4)
            assert collecting
            assert client not in before
            self.accepted[client] = RecordedUpdate(update, 0)
        else:
            assert self.round.contributions == before
            assert (decision.code is ReceiptCode.DUPLICATE) == (self.accepted.get(client) == RecordedUpdate(update, 0))

    @rule(seconds=quarters)
    def time_passes(self, seconds):
        self.now += seconds

    @precondition(lambda self: self.round.state is RoundState.COLLECTING)
    @rule(grace_s=quarters)
    def restart(self, grace_s):
        self.round = Round.resume(
            5,
            4,
            self.policy,
            opened_at=self.round.opened_at,
            closes_at=self.round.closes_at,
            state=self.round.state,
            contributions=self.accepted,
            now=self.now,
            grace_s=grace_s,
        )

    @rule(client=st.integers(0, 6).map("client-{}".format))
    def withdraw(self, client):
        was_in = self.round.state is RoundState.COLLECTING and client in self.accepted
        assert self.round.withdraw(client) == (self.accepted.pop(client) if was_in else None)

    @precondition(lambda self: self.round.state is RoundState.COLLECTING)
    @rule(max_time_s=quarters.filter(bool))
    def order_a_deadline(self, max_time_s):
        self.round.set_deadline(max_time_s)
        self.policy = self.round.policy

    @rule()
    def take_the_next_step(self):
        match self.round.next_step(self.now):
            case Aggregate() if self.round.state is RoundState.COLLECTING:
                assert len(self.accepted) >= self.policy.min_clients
                self.round.stop_collecting()
            case Aggregate():
                self.round.complete()
            case Abandon(reason):
                assert len(self.accepted) < self.policy.min_clients
                self.round.abandon(reason)

    @invariant()
    def what_was_accepted_is_in(self):
        assert self.round.contributions == self.accepted
        assert len(self.accepted) <= self.policy.max_clients


AnyOffers.TestCase.settings = settings(stateful_step_count=30, derandomize=True)
TestAnyOffers = AnyOffers.TestCase
