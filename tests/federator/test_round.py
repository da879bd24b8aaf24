"""The round's state machine in tables; tests/simulation/test_round_stateful.py has it against a simpler account."""

from dataclasses import replace
from itertools import product

import pytest

from foltr.core.errors import ProtocolViolationError
from foltr.core.protocol.client_selection import cutoff, round_seed
from foltr.core.protocol.states import WITHDRAWABLE, AbandonReason, Pacing, RoundState
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
    SelectedClients,
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
    decided = with_contributions(2)
    decided.stop_collecting()
    assert (decided.next_step(OPENED), decided.wake_at()) == (Aggregate(), OPENED), "due until it is done"


def test_over_selection_asks_more_than_are_needed():
    """Some never answer; fractions are rounded up, and None asks all."""
    for over_selection, max_clients, n_wanted in [
        (None, 3, None),
        (0.0, 3, 3),
        (0.5, 3, 5),
        (0.5, 4, 6),
        (1.0, 1, 2),
        (0.001, 3, 4),
    ]:
        assert RoundPolicy(max_clients=max_clients, over_selection=over_selection).n_wanted == n_wanted, over_selection


def test_a_round_takes_updates_of_those_it_asked():
    """Exactly so many of the eligible, and the others are told that the round asked others."""
    names, seed = [f"client-{i}" for i in range(10)], round_seed(b"s" * 32, 5)
    selection = SelectedClients(seed, cutoff(seed, names, 4), 4, len(names))
    round_ = Round.open(5, 4, replace(POLICY, max_clients=10), OPENED, selection)
    decisions = {client: code(round_.decide(offer(client), OPENED, counted_through=0)) for client in names}
    assert sorted(decisions.values()) == ["not_selected"] * 6 + ["recorded"] * 4
    assert set(round_.contributions) == {client for client in names if selection.includes(client)}


def test_a_buffer_takes_stragglers_up_to_a_limit():
    """How old is counted in models, not in rounds, and told with what is recorded."""
    for limit, number, base, expected, case in [
        (2, 5, 4, Record(staleness=0), "up to date"),
        (2, 4, 4, Record(staleness=0), "an abandoned round's, same model"),
        (2, 4, 3, Record(staleness=1), "one model behind"),
        (2, 3, 2, Record(staleness=2), "at the limit"),
        (2, 5, 2, Record(staleness=2), "made for this round on an older model"),
        (2, 2, 1, "stale", "beyond the limit"),
        (2, 0, 0, "stale", "far beyond"),
        (2, 5, 5, "stale", "on a model that is not there yet"),
        (2, 6, 4, "unknown_round", "for a round that is not there yet"),
        (2, 6, 5, "unknown_round", "the next round and its model"),
        (0, 4, 4, Record(staleness=0), "no limit but the newest model"),
        (0, 4, 3, "stale", "another model than the newest"),
    ]:
        round_ = opened(replace(POLICY, pacing=Pacing.BUFFERED, staleness_limit=limit))
        decision = round_.decide(offer(number=number, base=base), OPENED, counted_through=0)
        assert decision == expected if isinstance(expected, Record) else code(decision) == expected, case


def test_a_target_is_waited_for_until_the_deadline():
    """The quorum does not end such a round early, nor does the target before the least time."""
    target = replace(POLICY, fills=True)
    for n_updates, ends_after_s in ((2, 60), (3, 10)):
        round_ = with_contributions(n_updates, target)
        assert round_.wake_at() == OPENED + ends_after_s
        assert round_.next_step(OPENED + ends_after_s) == Aggregate()


def test_a_decided_round_gives_nothing_back():
    """Its updates may be in a model already; a revocation comes too late for it."""
    for state in sorted(set(RoundState) - set(WITHDRAWABLE)):
        round_ = replace(with_contributions(2), state=state)
        assert not round_.withdraw("client-0"), state
        assert len(round_.contributions) == 2, state
