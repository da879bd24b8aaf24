"""What a device does next: no I/O, no clock, every awkward order of events."""

import random
from itertools import pairwise, product

import pytest
from support.federator_by_hand import announced, round_on

from foltr.core.protocol.announcements import Selection
from foltr.core.protocol.client_selection import HIGHEST_TICKET, round_seed, ticket
from foltr.core.protocol.fields import pack_vector, payload_digest
from foltr.core.protocol.receipts import DeviceReaction, MembershipReceipt, ReceiptCode, UpdateReceipt
from foltr.edge_client.participation import ANSWER_TIME_S, FIRST_RESEND_S, RESEND_LIMIT_S, Outgoing, Participation
from foltr.edge_client.store.bounds import PendingUpdate

CLIENT = "device-7"
ID, OTHER_ID = "a" * 32, "b" * 32
PENDING = PendingUpdate(ID, 4, 0, 5, b"payload")
NOW = 1_000.0
LONGEST = 1.25  # times the pause: a fleet does not resend in step


def participation(pending=None):
    return Participation(CLIENT, pending, random.Random(1))  # noqa: S311 (repeatable, no secret)


def model(version=3, weights=(0.0,)):
    return announced(version, weights)


def round_announced(number=4, *, is_open=True, base_version=3, selection=None):
    return round_on(number, base_version, pack_vector([0.0]), is_open=is_open, selection=selection)


def update_receipt(code, update_id=ID, retry_after_s=None, payload=None, missing=None):
    return UpdateReceipt(
        federation="mail",
        client_id=CLIENT,
        update_id=update_id,
        payload_digest=None if payload is None else payload_digest(payload),
        code=code,
        retry_after_s=retry_after_s,
        missing=missing,
    )


def membership_receipt(code):
    return MembershipReceipt(federation="mail", client_id=CLIENT, code=code)


def joined(pending=None):
    device = participation(pending)
    device.begin_connection(NOW)
    assert device.due(NOW) == [Outgoing.JOIN]
    device.receive_membership_receipt(membership_receipt(ReceiptCode.JOINED), NOW)
    return device


def sending_times(device, n):
    """When the next ``n`` things are sent, looking only when told to."""
    times, now = [], NOW
    while len(times) < n:
        now = max(now, device.next_due_at())
        times += [now] * len(device.due(now))
    return times


def connecting():
    device = participation()
    device.begin_connection(NOW)
    return device


@pytest.mark.parametrize("make", [connecting, lambda: joined(PENDING)], ids=["join", "update"])
def test_what_is_unanswered_is_sent_at_once_and_again_with_growing_pauses(make):
    """For weeks; the pauses double up to a limit, so a federation without federator stays quiet."""
    times = sending_times(make(), 10_000)
    assert times[0] == NOW
    for i, (before, after) in enumerate(pairwise(times)):
        pause = min(RESEND_LIMIT_S, FIRST_RESEND_S * 2 ** min(i, 20))
        assert 0.75 * pause <= after - before <= LONGEST * pause


def test_a_fleet_does_not_resend_in_step():
    """Two devices that start together do not stay together."""
    times = []
    for seed in range(20):
        device = Participation(CLIENT, None, random.Random(seed))  # noqa: S311 (repeatable, no secret)
        device.begin_connection(NOW)
        times.append(sending_times(device, 3)[-1])
    assert len(set(times)) == 20


def test_an_update_waits_for_the_join():
    """Before that is answered it would be refused as that of an unknown client; a second answer sends nothing again."""
    device = participation(PENDING)
    device.begin_connection(NOW)
    assert device.due(NOW) == [Outgoing.JOIN]
    assert Outgoing.UPDATE not in device.due(NOW + 1e6)
    device.receive_membership_receipt(membership_receipt(ReceiptCode.JOINED), NOW + 1)
    assert device.next_due_at() <= NOW + 1
    assert device.due(NOW + 1) == [Outgoing.UPDATE]
    device.receive_membership_receipt(membership_receipt(ReceiptCode.JOINED), NOW + 1.1)
    assert device.due(NOW + 1.1) == []


def test_a_refused_join_is_tried_again_later():
    """The reason may go away, e.g. with newer software; the pauses keep growing meanwhile."""
    for code in set(ReceiptCode) - {ReceiptCode.JOINED, ReceiptCode.LEFT}:
        device = connecting()
        device.due(NOW)
        due_at = device.next_due_at()
        device.receive_membership_receipt(membership_receipt(code), NOW)
        assert not device.joined, code
        assert device.next_due_at() == due_at > NOW


def test_a_new_connection_resends_at_once():
    """The broker may be another one, the federator too: hello again, then the same update, without a pause."""
    device = joined(PENDING)
    for _ in range(6):
        device.due(device.next_due_at())
    device.begin_connection(NOW + 50)
    assert device.due(NOW + 50) == [Outgoing.JOIN]
    device.receive_membership_receipt(membership_receipt(ReceiptCode.JOINED), NOW + 50)
    assert device.due(NOW + 50) == [Outgoing.UPDATE]
    assert device.pending == PENDING
    device.left = True
    device.begin_connection(NOW + 60)
    assert (device.due(NOW + 1e6), device.next_due_at()) == ([], float("inf"))


def test_a_round_announcement_brings_a_resend_forward():
    """A federator is there: what is unanswered need not wait for its long pause, but an answer gets its time."""
    for device, outgoing in ((joined(PENDING), Outgoing.UPDATE), (connecting(), Outgoing.JOIN)):
        sent_at = sending_times(device, 8)[-1]
        device.receive_round(round_announced(), sent_at + 0.5)
        assert device.due(sent_at + 0.5) == []
        assert device.next_due_at() == sent_at + ANSWER_TIME_S
        assert device.due(sent_at + ANSWER_TIME_S) == [outgoing]


def test_a_receipt_leads_to_its_reaction():
    """An update is answered for good or not; it stays pending until that is stored. A membership code says nothing."""
    for code in ReceiptCode:
        device = joined(PENDING)
        device.due(NOW)
        settles = device.receive_update_receipt(update_receipt(code), NOW + 1)
        assert settles == (code.reaction is DeviceReaction.SETTLE), code
        assert device.pending == PENDING
        assert code.reaction is None or device.joined != code.joins_first, code


def test_a_receipt_that_is_not_of_this_update_is_ignored():
    """Late, twice, or after a restart: of another update, of none, or without a name of its id or its bytes."""
    for code in ReceiptCode:
        device = joined(PENDING)
        device.due(NOW)
        due_at = device.next_due_at()
        assert not device.receive_update_receipt(update_receipt(code, OTHER_ID), NOW + 1), code
        assert (device.pending, device.joined, device.next_due_at()) == (PENDING, True, due_at)
        without = joined()
        assert not without.receive_update_receipt(update_receipt(code), NOW), code
        assert without.joined
        assert not device.receive_update_receipt(update_receipt(code, None), NOW), code
        assert not device.receive_update_receipt(update_receipt(code, None, payload=b"junk"), NOW), code
        assert device.pending == PENDING


def test_another_version_is_asked_again_ever_more_rarely():
    """Once one of the two is upgraded, the same bytes may be taken; until then there is no hurry."""
    device = joined(PENDING)
    times = sending_times(device, 8)
    refusal = update_receipt(ReceiptCode.UNSUPPORTED_VERSION, None, payload=PENDING.payload)
    assert not device.receive_update_receipt(refusal, times[-1] + 1)
    assert device.pending == PENDING
    assert device.next_due_at() > times[-1] + 0.7 * RESEND_LIMIT_S


def test_an_answer_that_could_not_be_stored_is_asked_for_again():
    """After a pause; without a pending update there is nothing to ask."""
    device = joined(PENDING)
    device.due(NOW)
    device.retry_later(NOW)
    assert device.next_due_at() == NOW + FIRST_RESEND_S
    device.end_pending(may_try_again=False)
    device.retry_later(NOW)
    assert device.next_due_at() == float("inf")


@pytest.mark.parametrize("update_id", [ID, None], ids=["named", "unnamed"])
@pytest.mark.parametrize("pause_s", [60.0, None])
def test_busy_says_when_to_come_back(update_id, pause_s):
    """Not before the pause, not in step with the others, and no announcement, which all of them hear, overrules it."""
    device = joined(PENDING)
    device.due(NOW)
    device.receive_update_receipt(update_receipt(ReceiptCode.BUSY, update_id, retry_after_s=pause_s), NOW)
    pause_s = pause_s or FIRST_RESEND_S
    device.receive_round(round_announced(), NOW + 0.5 * pause_s)
    assert device.pending == PENDING
    assert NOW + pause_s <= device.next_due_at() <= NOW + 1.5 * pause_s
    assert device.due(NOW + 0.99 * pause_s) == []
    assert device.due(NOW + 1.5 * pause_s) == [Outgoing.UPDATE]


def test_may_contribute():
    """Only with an open round, its base model, nothing pending, and no update for this round settled already."""
    for case in product([True, False], repeat=6):
        has_model, has_round, is_open, right_base, has_pending, is_settled = case
        device = participation(PENDING if is_settled or has_pending else None)
        if has_model:
            device.receive_model(model(3 if right_base else 2))
        if has_round:
            device.receive_round(round_announced(is_open=is_open), NOW)
        if is_settled:
            device.end_pending(may_try_again=False)
            if has_pending:
                device.contribute(PendingUpdate(OTHER_ID, 4, 5, 9, b""), NOW)
        expected = has_model and has_round and is_open and right_base and not has_pending and not is_settled
        assert device.may_contribute() == expected, case


def test_a_settled_round_gets_no_second_update_but_another_one_does():
    """One in which nothing was decided may be tried again; rounds of a restored database are others, of any number."""
    device = joined(PENDING)
    device.receive_model(model())
    device.receive_round(round_announced(4), NOW)
    device.end_pending(may_try_again=True)
    assert device.may_contribute()
    device.pending = PENDING
    device.end_pending(may_try_again=False)
    assert not device.may_contribute()
    for number in (5, 2):
        device.receive_round(round_announced(number), NOW)
        assert device.may_contribute()
    device.receive_round(round_announced(4), NOW)
    device.forget_rounds()
    assert device.may_contribute()


def asked_up_to(cutoff, first_seed=b"s" * 32):
    return Selection(first_seed=first_seed, cutoff=cutoff, n_selected=1, n_eligible=9)


def test_a_device_that_was_not_asked_makes_no_update():
    """It works its ticket out by itself, from the federation's first seed and the number of the round."""
    mine = ticket(round_seed(b"s" * 32, 4), CLIENT)
    below = (int.from_bytes(mine, "big") - 1).to_bytes(8, "big")
    device = joined()
    device.receive_model(model())
    for cutoff, expected in ((mine, True), (below, False), (HIGHEST_TICKET, True), (bytes(8), False)):
        device.receive_round(round_announced(4, selection=asked_up_to(cutoff)), NOW)
        assert device.may_contribute() == expected
    # One that waits was made when this device was asked, and may count already.
    device.contribute(PENDING, NOW)
    assert device.due(NOW) == [Outgoing.UPDATE]


def test_a_new_update_is_sent_at_once():
    """Once joined there is nothing to wait for, whatever the pauses of the one before."""
    device = joined(PENDING)
    sending_times(device, 8)
    device.end_pending(may_try_again=False)
    device.contribute(PendingUpdate(OTHER_ID, 5, 5, 9, b""), NOW + 7)
    assert device.next_due_at() == NOW + 7
    assert device.due(NOW + 7) == [Outgoing.UPDATE]


def test_the_same_model_again_is_no_news():
    """A retained announcement comes with every connection; training goes on."""
    device = participation()
    assert device.receive_model(model(3))
    assert not device.receive_model(model(3))
    assert device.receive_model(model(4))
    assert device.receive_model(model(4, weights=(1.0,))), "same version, other weights: a restored federation"


def test_another_federator_is_asked_for_the_mark():
    """After a later epoch it joins again, within a second, and sends no update before that is answered."""
    device = joined(PENDING)
    for epoch in (7, 7):
        device.receive_round(round_announced(), NOW + 1)
        device.note_epoch(epoch, NOW + 1)
    assert device.joined
    device.receive_round(round_announced(), NOW + 200)
    device.note_epoch(8, NOW + 200)
    assert not device.joined
    assert NOW + 200 <= device.next_due_at() <= NOW + 201
    assert device.due(NOW + 201) == [Outgoing.JOIN]


def test_who_asked_to_be_forgotten_and_may_not_joins_another_federator():
    """It sends nothing while it asks; refused, it goes on, and a restored database may not know its enrolment."""
    device = joined(PENDING)
    device.note_epoch(7, NOW + 1)
    device.left = True  # as long as it asks
    device.note_epoch(8, NOW + 200)
    assert device.due(NOW + 201) == []
    device.left = False
    assert device.due(NOW + 201) == [Outgoing.JOIN]


@pytest.mark.parametrize("is_paid_for", [False, True])
def test_a_round_that_begins_anew_may_be_contributed_to_again(is_paid_for):
    """It has counted nothing, and may be the only one there will be. Under a policy a refused update is paid for."""
    device = joined()
    device.receive_model(model())
    first = round_announced()
    device.receive_round(first, NOW)
    device.policy = object() if is_paid_for else None  # any policy
    device.pending = PENDING
    device.end_pending(may_try_again=False)
    device.policy = None
    assert not device.may_contribute()
    device.receive_round(first.model_copy(update={"closes_at": 90.0}), NOW)
    assert not device.may_contribute(), "a later deadline is no other round"
    device.receive_round(first.model_copy(update={"opened_at": 30.0, "closes_at": 90.0}), NOW)
    assert device.may_contribute() is not is_paid_for


def offering():
    """A member whose update was offered at ``NOW``."""
    device = joined(PENDING)
    assert device.due(NOW) == [Outgoing.UPDATE]
    return device


def told_missing(device, missing, now):
    device.receive_update_receipt(update_receipt(ReceiptCode.INCOMPLETE, missing=missing), now)


def test_the_chunks_asked_for_are_sent_at_once():
    """Once; who sent them offers the update again if nothing more is heard."""
    device = offering()
    told_missing(device, [0, 2, 5], NOW + 1)
    assert device.due(NOW + 1) == [Outgoing.CHUNKS]
    assert device.pop_missing() == [0, 2, 5]
    assert device.pop_missing() == []
    assert device.due(NOW + 1) == []
    assert device.due(NOW + 1 + LONGEST * FIRST_RESEND_S) == [Outgoing.UPDATE]


def test_pauses_grow_only_without_progress():
    """A federator that keeps nothing of what is sent must not be sent it without end."""
    device, now, pauses = offering(), NOW, []
    for n in (9, 6, 3, 2):
        now += 0.1
        told_missing(device, list(range(n)), now)
        assert device.due(now) == [Outgoing.CHUNKS]
    for _ in range(4):
        told_missing(device, [0, 1], now + 0.1)
        pauses.append(device.next_due_at() - now)
        now = device.next_due_at()
        assert device.due(now) == [Outgoing.CHUNKS]
    assert all(pause >= 0.75 * FIRST_RESEND_S * 2**i for i, pause in enumerate(pauses))


def test_what_was_missing_is_asked_again():
    """It may have changed after `busy`, over a new connection, whose federator has none, and with another update."""
    device = offering()
    told_missing(device, [0, 1], NOW + 1)
    device.receive_update_receipt(update_receipt(ReceiptCode.BUSY, retry_after_s=10.0), NOW + 1)
    assert device.due(NOW + 10) == []
    assert device.due(NOW + 16) == [Outgoing.UPDATE]
    told_missing(device, [0, 1], NOW + 17)
    device.begin_connection(NOW + 18)
    device.receive_membership_receipt(membership_receipt(ReceiptCode.JOINED), NOW + 18)
    assert Outgoing.UPDATE in device.due(NOW + 18)
    assert device.missing == []
    told_missing(device, [0, 1], NOW + 19)
    assert device.due(NOW + 19) == [Outgoing.CHUNKS]
    assert device.receive_update_receipt(update_receipt(ReceiptCode.LATE), NOW + 20)
    device.end_pending(may_try_again=False)
    device.contribute(PendingUpdate(OTHER_ID, 5, 5, 9, b"other"), NOW + 21)
    assert device.due(NOW + 21) == [Outgoing.UPDATE]
