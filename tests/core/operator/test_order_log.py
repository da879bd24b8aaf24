"""The log of orders: on disk before anything is sent, in order, and above what the federator knows."""

import pytest

from foltr.core.errors import SettingsError
from foltr.core.operator.order_log import OrderLog
from foltr.core.protocol import orders
from foltr.core.protocol.codec import encode
from foltr.core.protocol.signing import SigningKey

KEY = SigningKey.generate()


def deadline(seconds):
    return orders.SetDeadline(federation="mail", round=1, max_time_s=float(seconds))


def answered(signed, reply=orders.OrderReply.OBEYED):
    answer = orders.OrderAnswer(federation="mail", number=signed.number, digest=signed.digest, reply=reply, newest=1)
    return encode(answer, "topic", 1, KEY)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "orders"


def opened(folder):
    return OrderLog(folder, "mail", KEY)


def told(log):
    return [(signed.number, signed.order.max_time_s) for signed in log.unanswered()]


def test_what_is_written_is_there_when_the_folder_is_opened_again(folder):
    """Numbered from one on; an answer ends the waiting, and the first one stands."""
    log = opened(folder)
    first, _ = log.write(deadline(1)), log.write(deadline(2))
    assert told(opened(folder)) == [(1, 1), (2, 2)]
    log.record_answer(1, answered(first))
    log.record_answer(1, answered(first, orders.OrderReply.REFUSED))
    again = opened(folder)
    assert (told(again), again.newest) == ([(2, 2)], 2)
    assert [entry.answer and str(entry.answer.reply) for entry in again.entries()] == ["obeyed", None]
    assert again.write(deadline(3)).number == 3


def test_orders_go_above_others_in_the_sequence_in_which_they_were_given(folder):
    """Also those that had numbers above already; the numbers in between are lost."""
    log = opened(folder)
    log.record_answer(1, answered(log.write(deadline(1))))
    for seconds in (2, 3, 4):
        log.write(deadline(seconds))
    assert log.renumber(2, 3) == {4: 6, 3: 5, 2: 4}
    for again in (log, opened(folder)):
        assert told(again) == [(4, 2), (5, 3), (6, 4)]
        assert again.lost() == [range(2, 4)]


@pytest.mark.parametrize("n_renamed", [0, 1, 2])
def test_a_renumbering_that_is_interrupted_gives_no_order_two_numbers(folder, interrupted, n_renamed):
    """Each has its old number or its new one, and is read as signed under that."""
    log = opened(folder)
    for seconds in (1, 2, 3):
        log.write(deadline(seconds))
    with interrupted(n_renamed, log, name="get"), pytest.raises(KeyboardInterrupt):
        log.renumber(1, 5)
    again = opened(folder)
    assert sorted(seconds for _, seconds in told(again)) == [1, 2, 3]
    numbers = {int(path.stem) for path in folder.iterdir()}
    assert [signed.number for signed in again.unanswered()] == sorted(numbers)


def test_a_lost_number_is_filled_with_an_order_that_asks_for_nothing(folder):
    """Nor is a reset that was answered given again: the job of that number may be another after a restore."""
    log = opened(folder)
    log.write(deadline(1))
    log.renumber(1, 2)
    assert log.order_or_void(2).order == orders.VoidOrder(federation="mail")
    assert log.order_or_void(3).order == deadline(1)
    reset = log.write(orders.AllowReset(federation="mail", job=1))
    assert log.order_or_void(4) == reset
    log.record_answer(4, answered(reset))
    for again in (log, opened(folder)):
        assert again.order_or_void(4).order == orders.VoidOrder(federation="mail", replaces=reset.digest)


def test_a_forgotten_name_leaves_orders_that_stand_for_the_others(folder):
    log, tombstone = opened(folder), bytes(range(16))
    quarantine = log.write(orders.QuarantineClient(federation="mail", client_id="device-7", reason="x"))
    log.write(orders.QuarantineClient(federation="mail", client_id="device-8", reason="x"))
    forget = log.write(orders.ForgetClient(federation="mail", client_id="device-7", serial=4))
    log.redact_client("device-7", bytes(32), tombstone)
    void, other, stands = (signed.order for signed in opened(folder).after(0))
    assert void == orders.VoidOrder(federation="mail", replaces=quarantine.digest)
    assert other.client_id == "device-8"
    assert stands == orders.ForgetTombstone(
        federation="mail", salt=bytes(32), tombstone=tombstone, serial=4, replaces=forget.digest
    )
    assert not [path for path in folder.iterdir() if b"device-7" in path.read_bytes()]


@pytest.mark.parametrize("content", [b"", b"junk"])
def test_a_damaged_order_is_said(folder, content):
    log = opened(folder)
    log.write(deadline(1))
    (folder / "00000001.order").write_bytes(content)
    with pytest.raises(SettingsError, match=r"00000001\.order is damaged .*backup"):
        opened(folder).unanswered()
