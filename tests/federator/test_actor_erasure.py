"""A client is forgotten: what is erased, who is told what, and how the model is made without it."""

from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
from structlog.testing import capture_logs
from support.unlearning_steps import (
    EAGER,
    KEY,
    N_FEATURES,
    NAMES,
    ROWS,
    THREE,
    ask,
    delta,
    end_step,
    forget,
    notices,
    one_leaves,
    play,
)

from foltr.broker.link import InboundMessage
from foltr.core.erasure.receipt import verify_receipt
from foltr.core.protocol.fields import pack_vector
from foltr.core.protocol.membership import Join
from foltr.core.protocol.orders import OrderAnswer
from foltr.core.protocol.receipts import ReceiptCode, UpdateReceipt
from foltr.core.protocol.topics import ClientTopic
from foltr.federator.round import RoundPolicy
from foltr.storage.erasure.erasures import find_erasure, list_erasures
from foltr.storage.orders import list_orders
from foltr.storage.queries import get_round, list_contributions, list_events, list_rounds


def contents(folder: Path) -> list[bytes]:
    return [file.read_bytes() for file in folder.glob("foltr.sqlite*")]


async def test_who_never_contributed_is_forgotten_at_once(joined):
    """With a receipt of zero rounds that anybody can check, and nothing of its name left."""
    served, devices = await joined()
    await forget(served, devices[2])
    (notice,) = notices(served)
    assert notice.code is ReceiptCode.FORGOTTEN
    receipt = verify_receipt(notice.receipt.decode(), KEY.public)
    assert (receipt.strategy, receipt.n_rounds, receipt.n_updates) == ("none", 0, 0)
    assert receipt.requested_by == "device"
    assert not [event for event in await list_events(served.db, "mail") if event.client_id == "carol"]
    assert served.retained.topics["foltr/v1/mail/clients/carol/status"] is None
    assert served.retained.topics["foltr/v1/mail/clients/carol/forget"] is None


async def test_a_name_that_was_forgotten_is_not_used_again(joined):
    """Not by a join nor by an update; and whoever asks again gets the same receipt."""
    served, devices = await joined()
    await forget(served, devices[2])
    first = notices(served)[0].receipt
    served.receipts.sent.clear()
    served.receive(devices[2], ClientTopic.JOIN, Join(federation="mail", client_id="carol", sdk_version="1"))
    served.update(devices[2], 1, 0, body=delta(ROWS[2]))
    await forget(served, devices[2])
    assert [one.code for one in served.receipts.sent] == ["forgotten"] * 3
    assert notices(served)[0].receipt == first


async def test_it_is_withdrawn_and_forgotten_in_one_transaction(joined, serve, monkeypatch):
    """A federator that dies before it erases has withdrawn nothing either, and does both when it is asked again."""
    served, devices = await joined()
    served.update(devices[2], 1, 0, body=delta(ROWS[2]))
    await served.turn()
    monkeypatch.setattr(served.actor.eraser, "erase", Mock(side_effect=OSError("killed")))
    ask(served, devices[2])
    with pytest.raises(OSError, match="killed"):
        await served.turn()
    assert [row.client_id for row in await list_contributions(served.db, "mail")] == ["carol"]
    again = await serve(THREE, n_features=N_FEATURES, key=KEY, unlearning=EAGER)
    assert list(again.actor.state.current_round.contributions) == ["carol"]
    ask(again, devices[2])
    await again.turn()
    assert [one.code for one in notices(again)] == [ReceiptCode.FORGOTTEN]
    assert await list_contributions(again.db, "mail") == []


async def test_a_round_that_is_filled_as_one_leaves_it_is_completed_without(joined):
    """Who is forgotten goes before the round stops collecting, although both are decided in one batch."""
    served, devices = await joined(RoundPolicy(2, 2, 0.0, 60.0))
    served.update(devices[2], 1, 0, body=delta(ROWS[2]))
    await served.turn()
    ask(served, devices[2])
    for device, row in zip(devices[:2], ROWS[:2], strict=True):
        served.update(device, 1, 0, body=delta(row))
    await served.turn()
    first = await get_round(served.db, "mail", 1)
    assert (first.state, first.n_updates) == ("completed", 2)
    assert {row.client_id for row in await list_contributions(served.db, "mail")} == {"alice", "bob"}


async def test_lost_keys_stop_nobody(joined):
    """What cannot be read is not replayed; the federator goes on, and erases."""
    served, devices = await joined(unlearning=replace(EAGER, may_reset=True))
    await play(served, devices, 1, 0, ROWS)
    for name in NAMES:
        served.db.keys.destroy("mail", name)
    ask(served, devices[2])
    for _ in range(4):
        await served.turn()
    row = await find_erasure(served.db, "mail", served.actor.state.members.pseudonym("carol"))
    assert (row.state, row.key_destroyed) == ("done", False)


async def test_its_name_is_not_written_again(joined):
    """A device that was away and asks to join is told, and no row says who it was."""
    served, devices = await joined()
    await forget(served, devices[2])
    served.receive(devices[2], ClientTopic.JOIN, Join(federation="mail", client_id="carol", sdk_version="1"))
    await served.turn()
    events = await list_events(served.db, "mail")
    assert [event.code for event in events if event.code] == ["forgotten"]
    assert not [event for event in events if event.client_id == "carol" or "carol" in event.detail]


async def test_a_forged_request_is_refused(serve, operator):
    """Another client's signature, or none, erases nobody; an unknown client is told so."""
    served = await serve(THREE, n_features=N_FEATURES, enrolment_key=operator.key.public, key=KEY)
    devices = [operator.enrol(name) for name in NAMES]
    await served.join(devices)
    ask(served, devices[0].but(key=devices[1].key))
    ask(served, devices[0].but(key=None))
    ask(served, operator.enrol("stranger"))
    await served.turn()
    assert sorted(one.code for one in notices(served)) == ["bad_signature", "bad_signature", "unknown_client"]
    assert served.actor.state.members.joined("alice")


async def test_the_operator_may_ask_and_again(serve, operator):
    """Asked once more, the order is answered again and the client told again, and nothing else is done."""
    served = await serve(THREE, n_features=N_FEATURES, enrolment_key=operator.key.public, key=KEY)
    await served.join([operator.enrol(name) for name in NAMES])
    for payload in (
        operator.quarantines("bob", sequence=1).payload,
        operator.forgets("alice", sequence=2).payload,
        operator.forgets("alice", sequence=2).payload,
        operator.forgets("zoe", sequence=3).payload,
    ):
        served.actor.receive(InboundMessage("foltr/v1/mail/operator", payload, retained=False))
    await served.turn()
    assert sorted(one.code for one in notices(served)) == ["forgotten", "forgotten", "unknown_client"]
    receipt = verify_receipt(notices(served)[0].receipt.decode(), KEY.public)
    assert receipt.requested_by == "operator"
    rows = await list_orders(served.db, "mail")
    assert [(row.number, row.outcome, row.code) for row in rows] == [
        (1, "obeyed", None),
        (2, "obeyed", None),
        (3, "refused", "unknown_client"),
    ]
    assert [(row.client_id, row.payload is None) for row in rows] == [("bob", False), (None, True), (None, True)]
    told = [one for one in served.receipts.sent if isinstance(one, OrderAnswer)]
    assert [(one.number, one.reply) for one in told] == [(1, "obeyed"), (2, "obeyed"), (2, "obeyed"), (3, "refused")]


async def test_many_who_ask_at_once_do_not_hold_up_the_others(serve, unsigned):
    """A few are erased in a turn; an update that came behind all requests is answered in the first one."""
    served = await serve(RoundPolicy(9, 20, 60.0, 60.0), n_features=N_FEATURES, key=KEY, unlearning=EAGER)
    leaving = [unsigned(f"leaver-{i}") for i in range(10)]
    stays = unsigned("stays")
    await served.join([*leaving, stays])
    for device in leaving:
        ask(served, device)
    served.update(stays, 1, 0, body=delta(ROWS[0]))
    n_told = []
    for _ in range(3):
        await served.turn()
        n_told.append(len(notices(served)))
    assert n_told == [4, 8, 10]
    updates = [one for one in served.receipts.sent if isinstance(one, UpdateReceipt)]
    assert [(one.client_id, one.code) for one in updates] == [("stays", ReceiptCode.ACCEPTED)]
    assert served.receipts.sent.index(updates[0]) < served.receipts.sent.index(notices(served)[4])


async def test_where_an_erasure_takes_long_a_turn_has_one(serve, unsigned, monkeypatch):
    """By how long the last one took: the others are answered in between."""
    served = await serve(RoundPolicy(9, 20, 60.0, 60.0), n_features=N_FEATURES, key=KEY, unlearning=EAGER)
    leaving = [unsigned(f"leaver-{i}") for i in range(6)]
    await served.join(leaving)
    store = served.actor._store  # noqa: SLF001 (only the database is slow)
    erase = store.erase_client

    async def slowly(request):
        served.clock.at += 0.2
        return await erase(request)

    monkeypatch.setattr(store, "erase_client", slowly)
    for device in leaving:
        ask(served, device)
    n_told = []
    for _ in range(3):
        await served.turn()
        n_told.append(len(notices(served)))
    assert n_told == [4, 5, 6]


async def test_nobody_else_waits_for_an_erasure(joined, monkeypatch):
    """What is stored of the others in the same turn is answered before anything is erased."""
    served, devices = await joined()
    erase, told_before = served.actor.eraser.erase, []

    async def noting(wanted):
        told_before.extend(one.client_id for one in served.receipts.sent if isinstance(one, UpdateReceipt))
        return await erase(wanted)

    monkeypatch.setattr(served.actor.eraser, "erase", noting)
    ask(served, devices[2])
    served.update(devices[0], 1, 0, body=delta(ROWS[0]))
    served.receipts.sent.clear()
    await served.turn()
    assert told_before == ["alice"]
    assert [one.code for one in notices(served)] == ["forgotten"]


async def test_no_bytes_of_it_are_left(joined, tmp_path: Path):
    """Neither its name nor its update is in the database's files, and its key is gone."""
    served, devices = await one_leaves(joined)
    await end_step(served, devices[:2], [1.0, 0, 0, 0])
    await served.actor.close()
    assert await served.db.vacuum()
    for content in contents(tmp_path):
        assert b"carol" not in content
        assert pack_vector(ROWS[2]) not in content
    assert served.db.keys.find("mail", "carol") is None
    assert served.db.keys.find("mail", "alice") is not None
    assert len(await list_rounds(served.db, "mail")) == 3


@pytest.mark.parametrize("is_restarted", [True, False])
async def test_a_key_that_is_back_goes_again(joined, serve, is_restarted):
    """A copy of the keys was put back: it goes when somebody asks again, or the federator starts while one waits."""
    served, devices = await joined()
    await play(served, devices, 1, 0, ROWS)
    path = next(
        file
        for file in served.db.keys.folder.rglob("*")
        if file.is_file() and file.read_bytes() == served.db.keys.find("mail", "carol")
    )
    copy = path.read_bytes()
    with capture_logs() as lines:
        await forget(served, devices[2])
        assert not path.exists()
        path.write_bytes(copy)
        if is_restarted:
            await serve(THREE, n_features=N_FEATURES, key=KEY, unlearning=EAGER)
        else:
            ask(served, devices[2])
            await served.turn()
    assert not path.exists()
    assert [line["event"] for line in lines].count("client_erased") == 1
    (row,) = await list_erasures(served.db, "mail")
    assert row.key_destroyed


async def test_a_key_of_another_database_stays(joined):
    """Whoever was forgotten in one may be a client in the other, whose keys are in the same folder."""
    served, devices = await one_leaves(joined)
    other = served.db.keys.key("mail", "carol")
    await forget(served, devices[2])
    assert served.db.keys.find("mail", "carol") == other
