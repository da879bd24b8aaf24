"""A client is forgotten: what is erased, who is told what, and how the model is made without it."""

from dataclasses import replace
from pathlib import Path

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
from foltr.storage.queries import list_events, list_rounds


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


async def test_a_forgotten_name_is_not_used_or_written_again(joined):
    """A device that was away and asks to join is told, with its receipt if it asks, and no row says who it was."""
    served, devices = await joined()
    await forget(served, devices[2])
    first = notices(served)[0].receipt
    for topic in ("join", "updates", "leave", "unlearning", "chunks"):
        served.actor.receive(InboundMessage(f"foltr/v1/mail/clients/carol/{topic}", b"junk", retained=False))
    await served.turn()
    served.receipts.sent.clear()
    served.receive(devices[2], ClientTopic.JOIN, Join(federation="mail", client_id="carol", sdk_version="1"))
    await forget(served, devices[2])
    assert [one.code for one in served.receipts.sent] == ["forgotten"] * 2
    assert notices(served)[0].receipt == first
    events = await list_events(served.db, "mail")
    assert {event.code for event in events if event.code} == {"forgotten", "malformed"}
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


async def test_many_who_ask_at_once_do_not_hold_up_the_others(serve, unsigned, monkeypatch):
    """An update behind all requests is answered first; a turn erases a few, and one where the last one took long."""
    served = await serve(RoundPolicy(9, 20, 60.0, 60.0), n_features=N_FEATURES, key=KEY, unlearning=EAGER)
    leaving, stays = [unsigned(f"leaver-{i}") for i in range(10)], unsigned("stays")
    await served.join([*leaving, stays])
    store = served.actor._store  # noqa: SLF001 (only the database is slow)
    erase, takes_s = store.erase_client, iter([0.0] * 7 + [0.2] * 3)

    async def erase_slowly(request):
        served.clock.at += next(takes_s)
        return await erase(request)

    monkeypatch.setattr(store, "erase_client", erase_slowly)
    for device in leaving:
        ask(served, device)
    served.update(stays, 1, 0, body=delta(ROWS[0]))
    n_told = []
    for _ in range(4):
        await served.turn()
        n_told.append(len(notices(served)))
    assert n_told == [4, 8, 9, 10]
    (update,) = [one for one in served.receipts.sent if isinstance(one, UpdateReceipt)]
    assert (update.client_id, update.code) == ("stays", ReceiptCode.ACCEPTED)
    assert served.receipts.sent[0] is update, "it was answered before anything was erased"


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
