"""The two pacing policies, withdrawn updates, and the operator's deadline: what the round decides on each."""

import math
from dataclasses import replace

from foltr.core.protocol.client_selection import cutoff, round_seed
from foltr.core.protocol.states import WITHDRAWABLE, AbandonReason, Pacing, RoundState
from foltr.federator.round import (
    Abandon,
    Aggregate,
    Record,
    RecordedUpdate,
    Reject,
    Round,
    RoundPolicy,
    SelectedClients,
    UpdateHeader,
)
from foltr.storage.records import StoredUpdate

OPENED = 1_000.0
POLICY = RoundPolicy(min_clients=2, max_clients=3, min_time_s=10.0, max_time_s=60.0)
BUFFERED = replace(POLICY, pacing=Pacing.BUFFERED, staleness_limit=2)
NAMES = [f"client-{i}" for i in range(10)]
SEED = round_seed(b"s" * 32, 5)


def opened(policy=POLICY, selection=None, base_version=4):
    return Round.open(5, base_version, policy, OPENED, selection)


def offer(client="a", number=5, base=4, update=None):
    return UpdateHeader(client, update or f"update-of-{client}", number, base, after=0, through=5)


def code(decision):
    return decision.code.value if isinstance(decision, Reject) else "recorded"


def filled(n, policy=POLICY):
    round_ = opened(policy)
    for client in NAMES[:n]:
        assert isinstance(round_.decide(offer(client), OPENED, counted_through=0), Record)
    return round_


def selection(n):
    return SelectedClients(SEED, cutoff(SEED, NAMES, n), n, len(NAMES))


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
    round_ = opened(replace(POLICY, max_clients=10), selection(4))
    decisions = {client: code(round_.decide(offer(client), OPENED, counted_through=0)) for client in NAMES}
    assert sorted(decisions.values()) == ["not_selected"] * 6 + ["recorded"] * 4
    assert set(round_.contributions) == {client for client in NAMES if round_.selection.includes(client)}


def test_why_an_update_of_the_others_does_not_count():
    """That this very update counted, or its round is another one, matters more than who was asked."""
    round_ = opened(selection=selection(4))
    other = next(client for client in NAMES if not round_.selection.includes(client))
    assert (
        code(round_.decide(offer(other), OPENED, stored=StoredUpdate(3, counts=True), counted_through=0)) == "duplicate"
    )
    assert code(round_.decide(offer(other, number=4), OPENED, counted_through=0)) == "late"
    assert code(round_.decide(offer(other, number=6), OPENED, counted_through=0)) == "unknown_round"
    assert code(round_.decide(offer(other, base=3), OPENED, counted_through=0)) == "not_selected"
    assert code(round_.decide(offer(other), OPENED + 61, counted_through=0)) == "not_selected"


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
        round_ = opened(replace(BUFFERED, staleness_limit=limit))
        decision = round_.decide(offer(number=number, base=base), OPENED, counted_through=0)
        assert decision == expected if isinstance(expected, Record) else code(decision) == expected, case


def test_a_full_round_waits_for_its_least_time():
    """Without one it ends at once; and what comes then is not squeezed in."""
    for policy, ends_at in ((BUFFERED, OPENED + 10), (replace(BUFFERED, min_time_s=0.0), OPENED)):
        round_ = filled(3, policy)
        assert round_.full
        assert round_.wake_at() == ends_at
        assert round_.next_step(math.nextafter(ends_at, 0.0)) is None
        assert code(round_.decide(offer("late"), OPENED, counted_through=0)) == "late"
        assert len(round_.contributions) == 3
        assert round_.next_step(ends_at) == Aggregate()


def test_a_target_is_waited_for_until_the_deadline():
    """The quorum does not end such a round early, nor does the target before the least time."""
    target = replace(POLICY, fills=True)
    for n_updates, ends_after_s in ((2, 60), (3, 10)):
        round_ = filled(n_updates, target)
        assert round_.wake_at() == OPENED + ends_after_s
        assert round_.next_step(OPENED + ends_after_s) == Aggregate()


def test_a_withdrawn_update_counts_no_more():
    """A full round has a place again; one that lost its quorum waits for another update until its deadline."""
    round_ = filled(3)
    assert round_.withdraw("client-0")
    assert list(round_.contributions) == ["client-1", "client-2"]
    assert not round_.full
    assert code(round_.decide(offer("new"), OPENED, counted_through=0)) == "recorded"
    assert round_.full
    for name in ("client-1", "new"):
        assert round_.next_step(OPENED + 10) == Aggregate()
        round_.withdraw(name)
    assert round_.next_step(OPENED + 10) is None
    assert round_.wake_at() == OPENED + 60
    assert round_.next_step(OPENED + 60) == Abandon(AbandonReason.TOO_FEW_CLIENTS)


def test_a_decided_round_gives_nothing_back():
    """Its updates may be in a model already; a revocation comes too late for it."""
    for state in sorted(set(RoundState) - set(WITHDRAWABLE)):
        round_ = replace(filled(2), state=state)
        assert not round_.withdraw("client-0"), state
        assert len(round_.contributions) == 2, state


def test_a_deadline_is_counted_from_the_opening():
    """Whenever the order comes, also to make the round longer."""
    round_ = opened()
    round_.set_deadline(20.0)
    assert (round_.closes_at, round_.wake_at()) == (OPENED + 20, OPENED + 20)
    assert code(round_.decide(offer("a"), OPENED + 19.9, counted_through=0)) == "recorded"
    assert code(round_.decide(offer("b"), OPENED + 20, counted_through=0)) == "late"
    round_.set_deadline(200.0)
    assert code(round_.decide(offer("b"), OPENED + 199, counted_through=0)) == "recorded"
    assert round_.policy == replace(POLICY, max_time_s=200.0)


def test_the_minimum_time_follows_a_shorter_deadline():
    """With a quorum the round does not wait longer than it may last."""
    round_ = filled(2)
    round_.set_deadline(4.0)
    assert round_.policy.min_time_s == 4.0
    assert round_.next_step(OPENED + 3.9) is None
    assert round_.next_step(OPENED + 4) == Aggregate()
    round_.set_deadline(100.0)
    assert round_.policy.min_time_s == 4.0, "what was ordered is not guessed back"


def test_a_deadline_in_the_past_ends_the_round_now():
    """What has arrived decides how."""
    for n_updates, step in [
        (0, Abandon(AbandonReason.NO_UPDATES)),
        (1, Abandon(AbandonReason.TOO_FEW_CLIENTS)),
        (2, Aggregate()),
    ]:
        round_ = filled(n_updates)
        round_.set_deadline(5.0)
        assert round_.next_step(OPENED + 30) == step, n_updates
        assert round_.wake_at() <= OPENED + 30, n_updates
        assert code(round_.decide(offer("new"), OPENED + 30, counted_through=0)) == "late", n_updates


def resumed(policy, *, selection=None, contributions=None):
    times = {"opened_at": OPENED, "closes_at": OPENED + policy.max_time_s, "now": OPENED + 1, "grace_s": 0.0}
    return Round.resume(
        5, 4, policy, state=RoundState.COLLECTING, contributions=contributions or {}, selection=selection, **times
    )


def test_a_resumed_buffer_goes_on_filling():
    """Its policy, and what is in it already."""
    round_ = resumed(BUFFERED, contributions={name: RecordedUpdate(f"update-of-{name}", 0) for name in "ab"})
    assert round_.decide(offer("c", number=3, base=2), OPENED + 1, counted_through=0) == Record(staleness=2)
    assert round_.full


def test_a_resumed_round_keeps_the_ordered_deadline():
    """As far as the grace allows, and with the minimum time that came with it."""
    ordered = filled(2)
    ordered.set_deadline(4.0)
    round_ = resumed(ordered.policy, contributions=ordered.contributions)
    assert (round_.closes_at, round_.next_step(OPENED + 4)) == (OPENED + 4, Aggregate())
