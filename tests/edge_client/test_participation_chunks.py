"""An update too large for one message: offered, and sent in parts for as long as they become fewer."""

import random

from foltr.core.protocol.receipts import MembershipReceipt, ReceiptCode, UpdateReceipt
from foltr.edge_client.participation import FIRST_RESEND_S, Outgoing, Participation
from foltr.edge_client.store.bounds import PendingUpdate

CLIENT, ID, NOW = "device-7", "a" * 32, 1_000.0
LONGEST = 1.25


def receipt(code, missing=None, retry_after_s=None):
    return UpdateReceipt(
        federation="mail", client_id=CLIENT, update_id=ID, code=code, missing=missing, retry_after_s=retry_after_s
    )


def offering():
    """A member whose update was offered at ``NOW``."""
    device = Participation(CLIENT, PendingUpdate(ID, 4, 0, 5, b"payload"), random.Random(1))  # noqa: S311
    device.begin_connection(NOW)
    device.due(NOW)
    joined = MembershipReceipt(federation="mail", client_id=CLIENT, code=ReceiptCode.JOINED)
    device.receive_membership_receipt(joined, NOW)
    assert device.due(NOW) == [Outgoing.UPDATE]
    return device


def told_missing(device, missing, now):
    device.receive_update_receipt(receipt(ReceiptCode.INCOMPLETE, missing), now)


def test_the_chunks_asked_for_are_sent_at_once():
    """Once; who sent them offers the update again if nothing more is heard."""
    device = offering()
    told_missing(device, [0, 2, 5], NOW + 1)
    assert device.due(NOW + 1) == [Outgoing.CHUNKS]
    assert device.pop_missing() == [0, 2, 5]
    assert device.pop_missing() == []
    assert device.due(NOW + 1) == []
    assert device.due(NOW + 1 + LONGEST * FIRST_RESEND_S) == [Outgoing.UPDATE]


def test_as_long_as_they_become_fewer_there_is_no_pause():
    """Each answer that shows progress is followed at once."""
    device, now = offering(), NOW
    for n in (9, 6, 3, 1):
        now += 0.1
        told_missing(device, list(range(n)), now)
        assert device.due(now) == [Outgoing.CHUNKS]
        device.pop_missing()


def test_without_progress_the_pauses_grow():
    """A federator that keeps nothing of what is sent must not be sent it without end."""
    device, now, pauses = offering(), NOW + 0.1, []
    told_missing(device, [0, 1], now)
    assert device.due(now) == [Outgoing.CHUNKS]
    for _ in range(4):
        told_missing(device, [0, 1], now + 0.1)
        pauses.append(device.next_due_at() - now)
        now = device.next_due_at()
        assert device.due(now) == [Outgoing.CHUNKS]
    assert all(pause >= 0.75 * FIRST_RESEND_S * 2**i for i, pause in enumerate(pauses))


def test_after_busy_the_update_is_offered_again():
    """What is missing may have changed by then."""
    device = offering()
    told_missing(device, [0, 1], NOW + 1)
    device.receive_update_receipt(receipt(ReceiptCode.BUSY, retry_after_s=10.0), NOW + 1)
    assert device.due(NOW + 10) == []
    assert device.due(NOW + 16) == [Outgoing.UPDATE]


def test_a_new_connection_offers_again():
    """Another federator may answer it, which has none of the chunks."""
    device = offering()
    told_missing(device, [0, 1], NOW + 1)
    device.begin_connection(NOW + 2)
    device.receive_membership_receipt(
        MembershipReceipt(federation="mail", client_id=CLIENT, code=ReceiptCode.JOINED), NOW + 2
    )
    assert Outgoing.UPDATE in device.due(NOW + 2)
    assert device.missing == []
    told_missing(device, [0, 1], NOW + 3)
    assert device.due(NOW + 3) == [Outgoing.CHUNKS]


def test_the_next_update_starts_from_its_offer():
    """What was missing of the one before says nothing."""
    device = offering()
    told_missing(device, [0, 1], NOW + 1)
    assert device.receive_update_receipt(receipt(ReceiptCode.LATE), NOW + 2)
    device.end_pending(may_try_again=False)
    device.contribute(PendingUpdate("b" * 32, 5, 5, 9, b"other"), NOW + 3)
    assert device.due(NOW + 3) == [Outgoing.UPDATE]
