"""What a batch of messages amounts to: rows, events and receipts, in order, and when to stop."""

from collections import Counter

import pytest
from support.intake_decisions import OPENED, backlog, end_round, members

from foltr.broker.buffer import RefusalCause, RefusedSender
from foltr.broker.link import InboundMessage
from foltr.core.methods.bodies import BodySpec
from foltr.core.protocol.client_selection import ticket
from foltr.core.protocol.orders import OrderAnswer
from foltr.core.protocol.receipts import ReceiptCode, UpdateReceipt
from foltr.core.protocol.signing import SigningKey
from foltr.core.protocol.states import AbandonReason, Pacing
from foltr.core.protocol.topics import ClientTopic, Topics
from foltr.federator import engine
from foltr.federator.clock import to_datetime
from foltr.federator.deciding.refusals import answer_turned_away
from foltr.federator.deciding.state import FederationState
from foltr.federator.deciding.withdrawal import take_back_round
from foltr.federator.engine import Backlog, Timed
from foltr.federator.plan import FederationPlan
from foltr.federator.reading import UpdateLimits, read_message
from foltr.federator.round import RoundPolicy
from foltr.storage.records import StoredUpdate

POLICY = RoundPolicy(min_clients=2, max_clients=2, min_time_s=0.0, max_time_s=60.0)


def state_of(operator, policy=POLICY, **plan):
    state = FederationState(FederationPlan("mail", 1, policy, enrolment_key=operator.key.public, **plan))
    state.selection_seed = b"s" * 32
    state.round, _ = state.open_round(1, 0, OPENED)
    return state


@pytest.fixture
def state(operator):
    return state_of(operator)


def decide(state, *readings, at=OPENED + 1, stored=None):
    """The decisions, and how many messages were taken."""
    decisions, rest = engine.decide(state, backlog(*readings, at=at, stored=stored), at)
    return decisions, len(readings) - len(rest.messages)


def codes(decisions):
    return [receipt.code.value for receipt in decisions.receipts if not isinstance(receipt, OrderAnswer)]


def events(decisions):
    return [(event.kind, event.code and str(event.code), event.client_id, event.n) for event in decisions.events]


def test_messages_are_decided_in_order(state, operator):
    """Each sees what those before it did; the receipts come in the same order."""
    a = operator.enrol("a")
    decisions, n_taken = decide(
        state, a.updates(), a.joins(2), a.updates(), a.updates(), a.leaves(5), a.updates(), a.joins(7)
    )
    assert n_taken == 7
    assert codes(decisions) == [
        *("unknown_client", "joined", "accepted", "duplicate", "left", "unknown_client", "joined")
    ]
    assert [change.kind for change in decisions.membership] == ["joined", "left", "joined"]
    assert [change.sequence for change in decisions.membership] == [2, 5, 7]
    (update,) = decisions.updates
    assert (update.round, update.client_id, update.base_version, update.n_interactions) == (1, "a", 0, 1)
    assert update.received_at == to_datetime(OPENED + 1)


def test_an_update_counts_by_when_it_arrived(state, operator):
    """Not by when there was time to look at it."""
    a, b = members(state, operator, "a", "b")
    timed = [Timed(a.updates(), OPENED + 59.9), Timed(b.updates(), OPENED + 60.0)]
    decisions, _ = engine.decide(state, Backlog(timed), OPENED + 70)
    assert codes(decisions) == ["accepted", "late"]
    assert decisions.updates[0].received_at == to_datetime(OPENED + 59.9)


def test_an_update_on_a_model_of_other_weights_is_stale(state, operator):
    """The version may be of before the database was restored; the number alone does not tell."""
    a, b = members(state, operator, "a", "b")
    state.add_model_hashes({0: b"h" * 16})
    right, wrong = (
        a.says(ClientTopic.UPDATES, device.update().model_copy(update={"client_id": "a", "base_hash": named}), 3)
        for device, named in ((a, b"h" * 16), (b, b"g" * 16))
    )
    decisions, _ = decide(state, wrong, right)
    assert codes(decisions) == ["stale", "accepted"]
    assert "other weights" in decisions.receipts[0].detail


def test_the_hashes_that_are_known_are_those_an_update_may_name(state):
    """The newest, as many as the staleness limit allows, and the base of the round that is shown."""
    state.add_model_hashes({version: bytes([version]) * 16 for version in range(5)})
    assert sorted(state.model_hashes) == [0, 1, 2, 3, 4]
    end_round(state, 7)
    state.add_model_hashes({7: bytes(16)})
    assert sorted(state.model_hashes) == [7]


def test_it_stops_when_the_round_is_full(state, operator):
    """What is left belongs to the round that follows: nobody is told that a round is over before it is."""
    a, b, c = members(state, operator, "a", "b", "c")
    batch = [a.updates(), b.updates(), c.updates(), c.leaves(9)]
    decisions, n_taken = decide(state, *batch)
    assert (codes(decisions), n_taken) == (["accepted", "accepted"], 2)
    assert state.fills_round(OPENED + 1)
    assert state.members.joined("c")
    end_round(state)
    decisions, n_taken = decide(state, *batch[n_taken:])
    assert (codes(decisions), n_taken) == (["late", "left"], 2)


def test_with_a_buffer_no_refusal_is_told_that_the_next_round_would_undo(operator):
    """What the next filling would take is not learned again, and counts if it begins where what counts ends."""
    policy = RoundPolicy(2, 2, 0.0, 60.0, pacing=Pacing.BUFFERED, staleness_limit=1)
    state = state_of(operator, policy)
    a, b = members(state, operator, "a", "b")
    newer, beside = a.updates(update_id="1" * 32, after=100), a.updates(update_id="2" * 32)
    decisions, _ = decide(state, a.updates(), newer, a.updates())
    assert codes(decisions) == ["accepted", "busy", "duplicate"]
    decisions, _ = decide(state, b.updates(), at=OPENED + 61)
    assert codes(decisions) == ["busy"]
    decide(state, b.updates())
    end_round(state)
    decisions, _ = decide(state, beside, newer)
    assert codes(decisions) == ["overlaps", "accepted"]
    assert [receipt.counted_through for receipt in decisions.receipts] == [100, 200]


def test_after_the_last_buffer_late_is_not_final(operator):
    """The federation may be given more rounds; what was told late would be trained again, and the copy count, too."""
    policy = RoundPolicy(1, 1, 0.0, 60.0, pacing=Pacing.BUFFERED, staleness_limit=1)
    state = state_of(operator, policy, stop_after_round=1)
    a, b = members(state, operator, "a", "b")
    decide(state, a.updates())
    state.round.stop_collecting()
    state.round.complete()
    state.advance_to(None, 1)
    decisions, _ = decide(state, b.updates())
    assert codes(decisions) == ["busy"]


def test_what_was_taken_back_with_its_round_is_no_duplicate(state, operator):
    """A copy of it counts nowhere, and says so, with the watermark; what it covers may count in another."""
    (a,) = members(state, operator, "a")
    decide(state, a.updates(1))
    abandoned = state.round
    following, _ = state.next_round(0, OPENED + 60)
    abandoned.abandon(AbandonReason.TOO_FEW_CLIENTS)
    (notice,) = take_back_round(state, abandoned)
    state.advance_to(following, 0)
    assert (notice.update_id, notice.code, notice.counted_through) == ("0" * 32, "round_abandoned", 0)
    stored = {("a", "0" * 32): StoredUpdate(1, counts=False)}
    decisions, _ = decide(state, a.updates(1), a.updates(2, update_id="1" * 32), stored=stored)
    assert codes(decisions) == ["round_abandoned", "accepted"]
    assert [receipt.counted_through for receipt in decisions.receipts] == [0, 100]


def test_every_answer_has_the_mark(state, operator):
    """Whatever the code, also where nothing could be read; None where the name is nobody's."""
    (a,) = members(state, operator, "a")
    limits = UpdateLimits(BodySpec("dense", dim=1, n_values=1), max_interactions=100)
    junk = [
        read_message(Topics("mail"), limits, InboundMessage(Topics("mail").client(name, topic), b"junk", False))
        for name in ("a", "stranger")
        for topic in (ClientTopic.UPDATES, ClientTopic.JOIN)
    ]
    decisions, _ = decide(state, a.updates(), *junk, a.joins(2), a.updates(3, update_id="1" * 32), a.leaves(3))
    assert [receipt.counted_through for receipt in decisions.receipts] == [100, 100, 100, None, None, 100, 100, 100]


def test_after_the_last_round_everybody_is_answered(operator):
    """Updates are late or of an abandoned round, joins and leaves are taken, and an order finds no round."""
    state = state_of(operator, stop_after_round=1)
    (a,) = members(state, operator, "a")
    decide(state, a.updates())
    state.round.abandon(AbandonReason.TOO_FEW_CLIENTS)
    assert state.next_round(0, OPENED + 60) == (None, None)
    state.advance_to(None, 0)
    later = a.updates(update_id="1" * 32)
    b = operator.enrol("b")
    decisions, n_taken = decide(
        state, later, a.updates(), b.joins(), b.updates(), a.leaves(9), operator.orders(1, 30.0, 1)
    )
    assert n_taken == 6
    assert codes(decisions) == ["already_contributed", "round_abandoned", "joined", "late", "left"]
    assert ("order_refused", "unknown_round", None, 1) in events(decisions)
    assert decisions.deadline is None


def test_equal_events_become_one_that_counts(state, operator):
    """A flood is a number, not a million rows; the others keep their own row."""
    a, b = members(state, operator, "a", "b")
    stale = [a.updates(base=7, update_id=f"{i:032x}") for i in range(50)]
    decisions, _ = decide(state, *stale, b.updates(base=7), a.updates(number=2))
    assert events(decisions) == [
        ("update_rejected", "stale", "a", 50),
        ("update_rejected", "stale", "b", 1),
        ("update_rejected", "unknown_round", "a", 1),
    ]
    assert len(decisions.receipts) == 52


def test_membership_is_news_once(state, operator):
    """A join at every connection is no event; coming, leaving and coming back are."""
    a = operator.enrol("a")
    decisions, _ = decide(state, a.joins(1), a.joins(2), a.status(True, 3), a.status(False, 4), a.leaves(5))
    assert [kind for kind, *_ in events(decisions)] == ["client_joined", "client_offline", "client_left"]
    assert [change.kind for change in decisions.membership] == ["joined", "joined", "online", "offline", "left"]
    assert codes(decisions) == ["joined", "joined", "left"]


def test_a_forged_update_is_answered_by_its_digest(state, operator):
    """Named by its id, its owner would drop the genuine one for it."""
    (a,) = members(state, operator, "a")
    forged = a.but(key=SigningKey.generate()).updates()
    decisions, _ = decide(state, forged, a.updates())
    refused, accepted = decisions.receipts
    assert (refused.code, refused.update_id) == (ReceiptCode.BAD_SIGNATURE, None)
    assert refused.payload_digest == forged.digest
    assert (accepted.code, accepted.update_id) == (ReceiptCode.ACCEPTED, "0" * 32)
    assert events(decisions) == [("update_rejected", "bad_signature", "a", 1)]


def test_a_join_or_leave_is_answered_by_its_bytes(state, operator):
    """So that a device can tell whether it is about a message of its own; replayed says what to rise above."""
    (a,) = members(state, operator, "a")
    taken = a.joins(9), a.leaves(10)
    decisions, _ = decide(state, *taken)
    assert [(receipt.code.value, receipt.payload_digest) for receipt in decisions.receipts] == [
        ("joined", taken[0].digest),
        ("left", taken[1].digest),
    ]
    refused = a.joins(9), a.but(key=None).joins(11), a.but(enrolment=None).joins(12), a.leaves(9)
    decisions, _ = decide(state, *refused)
    answers = [(receipt.code.value, receipt.payload_digest, receipt.newest_sequence) for receipt in decisions.receipts]
    assert answers == [
        ("replayed", refused[0].digest, 10),
        ("bad_signature", refused[1].digest, None),
        ("not_enrolled", refused[2].digest, None),
        ("replayed", refused[3].digest, 10),
    ]
    assert Counter(kind for kind, *_ in events(decisions)) == {"message_refused": 3}
    assert decisions.membership == []


def test_a_refused_status_is_an_event_without_an_answer(state, operator):
    """Nobody waits for one, and a stale last will is everyday life."""
    (a,) = members(state, operator, "a")
    decide(state, a.status(True, 10))
    decisions, _ = decide(state, a.status(False, 9), a.but(key=None).status(False, 11), a.status(True, 10))
    assert decisions.receipts == []
    assert events(decisions) == [("message_refused", "replayed", "a", 1), ("message_refused", "bad_signature", "a", 1)]
    assert list(state.members.present(OPENED)) == ["a"]


def turned_away(sender, n_messages, retry_after_s=2.5):
    return RefusedSender(sender, n_messages, RefusalCause.RATE, retry_after_s)


def test_members_that_were_turned_away_are_told_when_to_come_back(state, operator):
    """Strangers are not: their name may be anybody's. One event says how much it was."""
    members(state, operator, "a", "b", "c")
    decisions, _ = decide(state)
    senders = [turned_away("a", 3), turned_away("?17", 90), turned_away("nobody", 5), turned_away("b", 1, 60.0)]
    # A rate of a message in many days is a setting; a receipt that no device reads would be no answer.
    senders.append(turned_away("c", 1, 1e6))
    answer_turned_away(state, senders, 120, OPENED + 1, decisions)
    assert [(receipt.client_id, receipt.code.value, receipt.retry_after_s) for receipt in decisions.receipts] == [
        ("a", "busy", 2.5),
        ("b", "busy", 60.0),
        ("c", "busy", 86_400),
    ]
    assert UpdateReceipt.model_validate(decisions.receipts[-1].model_dump()) == decisions.receipts[-1]
    assert all(receipt.update_id is None for receipt in decisions.receipts)
    (event,) = decisions.events
    assert (event.kind, event.code, event.client_id) == ("intake_full", "busy", None)
    assert event.detail == "120 messages were dropped; most from unknown clients: 90 (rate)"


def test_a_round_asks_so_many_of_those_online(operator):
    """The lowest tickets among the members online when it opens; who is away is not waited for."""
    policy = RoundPolicy(2, 4, 0.0, 60.0, over_selection=0.5)
    state = state_of(operator, policy)
    devices = members(state, operator, *(f"client-{i:02d}" for i in range(20)))
    decide(state, *(device.status(False, 2) for device in devices[:5]), devices[5].leaves(2))
    online = [device.client_id for device in devices[6:]]
    opened, row = state.open_round(2, 0, OPENED)
    asked = [name for name in online if opened.selection.includes(name)]
    assert asked == sorted(sorted(online, key=lambda name: ticket(opened.selection.seed, name))[:6])
    assert (row.n_selected, row.n_eligible) == (6, 14)
    assert (row.selection_seed, row.selection_cutoff) == (opened.selection.seed, opened.selection.cutoff)


def test_a_flood_under_many_names_makes_few_rows(state, operator):
    """Every refusal is counted; from some number on, one row stands for whoever else there was."""
    strangers = [operator.enrol(f"stranger-{i}") for i in range(300)]
    decisions, _ = decide(state, *(stranger.updates() for stranger in strangers))
    rows = decisions.events
    assert len(rows) < 60
    assert sum(row.n for row in rows) == 300
    (rest,) = [row for row in rows if row.client_id is None]
    assert rest.detail.startswith("many clients")
    assert Counter(codes(decisions)) == {"unknown_client": 300}
