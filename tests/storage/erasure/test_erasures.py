"""Erasing a client: everything that is stored of it goes, and what proves it stays."""

import dataclasses
import hashlib
import json
from datetime import datetime, timedelta

import pytest
from sqlalchemy import insert
from sqlalchemy.exc import DBAPIError
from support.deaths import dying_at

from foltr.core.erasure.audit import check_chain
from foltr.core.errors import DataError, ProtocolViolationError
from foltr.core.failpoints import Failpoint
from foltr.core.protocol.states import OrderOutcome
from foltr.storage.arrivals import commit_batch, load_clients
from foltr.storage.body_tables import update_bodies
from foltr.storage.clients import key_of
from foltr.storage.erasure.audit_log import stream_audit
from foltr.storage.erasure.erasures import (
    complete_erasure,
    drop_untold_names,
    find_erasure,
    forgotten_pseudonyms,
    is_named,
    list_erasures,
    note_key_destroyed,
    note_told,
    unfinished_erasures,
    unreadable_clients,
    waiting_erasures,
)
from foltr.storage.errors import WriterFencedError
from foltr.storage.federations import claim_federation, create_federation
from foltr.storage.models import list_models
from foltr.storage.order_tables import orders
from foltr.storage.orders import standing_orders
from foltr.storage.queries import erased_updates, get_round, list_contributions, list_events
from foltr.storage.records import Batch, MembershipChange, NewEvent, NewOrder
from foltr.storage.rounds import stream_updates
from foltr.storage.tables import clients

A, C = "61".rjust(32, "0"), "63".rjust(32, "0")


def no_receipt(*_: object) -> None:
    """A federator without a key signs nothing."""


def named(rows: dict, client_id: str) -> list[str]:
    """The tables where a value is the client's name, or holds it as a word."""
    return sorted(
        table
        for table, found in rows.items()
        if any(client_id in str(value).replace("'", " ").split() for row in found for value in row)
    )


async def test_nothing_of_the_client_is_left_but_its_tombstone(learned) -> None:
    """Its updates, fates and events go, and all of its row but the name; everybody else's stay as they were."""
    late = NewEvent(datetime.fromisoformat("2026-01-02T03:05:00Z"), "update_rejected", "", "late", "c", 5)
    await learned.commit(Batch(events=[late, dataclasses.replace(late, client_id="a")]))
    before = await learned.dump()
    assert named(before, "c") == ["clients", "events", "update_bodies", "update_fates", "updates"]
    body = list(update_bodies.columns).index(update_bodies.c.body)
    stored = [row[body] for row in before["update_bodies"] if row[2] == "c"]

    row = await learned.erase("c")

    after = await learned.dump()
    assert named(after, "c") == ["clients", "erasures"]
    for table in ("events", "update_bodies", "update_fates", "updates"):
        assert after[table] == [found for found in before[table] if "c" not in found]
    assert after["clients"][:2] == before["clients"][:2]
    key = before["clients"][2][0]
    kept = {"id": key, "federation": "web", "client_id": "c", "membership": "forgotten", "last_seen_at": row.erased_at}
    (left,) = after["clients"][2:]
    assert {column.name: value for column, value in zip(clients.columns, left, strict=True) if value} == kept
    assert (row.n_rounds, row.n_updates, row.n_events, row.first_round) == (2, 3, 1, 2)
    digest = hashlib.sha256().digest()
    for sent in reversed(stored):  # the newest first
        digest = hashlib.sha256(digest + hashlib.sha256(sent).digest()).digest()
    assert row.erased_digest == digest.hex()
    assert (row.state, row.client_id, row.pseudonym, row.key_destroyed, row.told) == ("erased", "c", C, False, False)
    assert await find_erasure(learned.db, "web", C) == row
    assert await list_erasures(learned.db, "web") == [row]
    assert await forgotten_pseudonyms(learned.db, "web") == {C}
    # Those that are left can be read, and the closed round says what was in it.
    assert [found.body async for found in stream_updates(learned.db, "web", 2)] == [b"a in 2", b"b in 2"]
    closed = await get_round(learned.db, "web", 2)
    assert closed.n_updates == 2
    assert [found[12] for found in after["rounds"]] == [2, 3, 1, 3, None]


async def test_the_audit_log_says_what_was_erased(learned) -> None:
    """By pseudonym, with counts and the digest, in a chain."""
    row = await learned.erase("c")
    (entry,) = [entry async for entry in stream_audit(learned.db, "web")]
    assert check_chain([entry]) == 1
    assert (entry.kind, entry.at) == ("client_erased", row.erased_at)
    assert entry.body == {
        "pseudonym": C, "requested_by": "device", "requested_at": row.requested_at.isoformat(),
        "n_rounds": 2, "n_updates": 3, "n_events": 0, "erased_digest": row.erased_digest,
    }  # fmt: skip


async def test_models_that_hold_its_updates_are_tainted(learned) -> None:
    """From the first round that it was in on, as each model is made from the one before; they still serve."""
    row = await learned.erase("c")
    tainted = {model.version: model.tainted_at for model in await list_models(learned.db, "web")}
    assert tainted == {0: None, 1: None, 2: row.erased_at, 3: row.erased_at}
    assert all(len(model.weights) == 12 for model in await list_models(learned.db, "web"))
    other = await learned.erase("a", erased_at=row.completed_at or row.requested_at)
    tainted = {model.version: model.tainted_at for model in await list_models(learned.db, "web")}
    assert tainted == {0: None, 1: other.erased_at, 2: row.erased_at, 3: row.erased_at}


async def test_erased_again_nothing_changes(learned) -> None:
    """The answer to a commit may be lost, and a device asks until it is answered: the first request counts."""
    row = await learned.erase("c")
    before = await learned.dump()
    again = await learned.erase("c", requested_by="operator", erased_at=row.erased_at.replace(year=2030))
    assert again == row
    assert await learned.dump() == before
    order = NewOrder(1, "forget_client", None, bytes(32), OrderOutcome.OBEYED, row.erased_at)
    await learned.erase("c", order=order)
    after = await learned.dump()
    assert (await standing_orders(learned.db, "web", 0)) == [order]
    assert after | {"federations": [], "orders": []} == before | {"federations": [], "orders": []}


@pytest.mark.parametrize("client_id", ["idle", "stranger"])
async def test_a_client_that_never_contributed_is_done_at_once(learned, client_id: str) -> None:
    """Whether it joined or not: its name is not used again, and there is nothing to unlearn."""
    await learned.join("idle")
    row = await learned.erase_with_key(client_id)
    assert (row.state, row.n_rounds, row.n_updates, row.first_round) == ("erased", 0, 0, None)
    assert row.erased_digest == hashlib.sha256().hexdigest()
    assert row.key_destroyed
    assert [model.tainted_at for model in await list_models(learned.db, "web")] == [None] * 4
    assert await waiting_erasures(learned.db, "web") == []
    receipts = []

    def sign(erasure, outcome, entry) -> str:
        receipts.append((erasure, outcome, entry))
        return "the receipt"

    done = await complete_erasure(learned.db, "web", learned.epoch, row.pseudonym, row.erased_at, sign)
    assert (done.state, done.receipt, done.audit_seq) == ("done", "the receipt", 2)
    ((erasure, outcome, entry),) = receipts
    assert erasure == dataclasses.replace(done, receipt=None)
    assert (outcome.strategy, outcome.rounds_replayed, outcome.model_after) == ("none", 0, None)
    assert entry == [found async for found in stream_audit(learned.db, "web")][-1]
    assert await complete_erasure(learned.db, "web", learned.epoch, row.pseudonym, row.erased_at, sign) == done
    assert len(receipts) == 1


async def test_an_update_that_made_no_model_leaves_nothing_to_unlearn(sealed) -> None:
    """In the open round it is withdrawn; there is no model to taint."""
    await sealed.join("a", "b")
    await sealed.open(1)
    await sealed.commit(Batch(updates=[sealed.update("a"), sealed.update("b")]))
    row = await sealed.erase_with_key("a")
    assert (row.state, row.n_rounds, row.n_updates) == ("erased", 0, 1)
    assert [found.client_id async for found in stream_updates(sealed.db, "web", 1)] == ["b"]


async def test_one_that_is_in_models_waits_for_a_job(learned) -> None:
    """Once its key is destroyed. Without a job it is never done."""
    row = await learned.erase("c")
    assert await unfinished_erasures(learned.db, "web") == [row]
    assert await waiting_erasures(learned.db, "web") == []
    for _ in range(2):
        waits = await note_key_destroyed(learned.db, "web", learned.epoch, C)
    assert waits == dataclasses.replace(row, state="waiting", key_destroyed=True)
    assert await waiting_erasures(learned.db, "web") == [waits]
    with pytest.raises(ProtocolViolationError, match="has 2 rounds to unlearn"):
        await complete_erasure(learned.db, "web", learned.epoch, C, row.erased_at, no_receipt)
    without_keys = await learned.erase("a")
    waits = await note_key_destroyed(learned.db, "web", learned.epoch, without_keys.pseudonym, destroyed=False)
    assert (waits.state, waits.key_destroyed) == ("waiting", False)


async def test_its_name_stays_until_its_device_was_told(learned) -> None:
    """Or until nobody expects the device any more; a key that may not be destroyed needs the name longer."""
    row = await learned.erase("c")
    for _ in range(2):
        await note_told(learned.db, "web", learned.epoch, C)
    told = await find_erasure(learned.db, "web", C)
    assert told == dataclasses.replace(row, told=True)
    told = await note_key_destroyed(learned.db, "web", learned.epoch, C)
    assert (told.client_id, told.state) == (None, "waiting")
    assert named(await learned.dump(), "c") == []
    assert await unfinished_erasures(learned.db, "web") == []

    later = await learned.erase("a")
    assert await drop_untold_names(learned.db, "web", learned.epoch, later.erased_at.replace(year=2030)) == 0
    await note_key_destroyed(learned.db, "web", learned.epoch, later.pseudonym)
    assert await drop_untold_names(learned.db, "web", learned.epoch, later.erased_at) == 0
    assert await drop_untold_names(learned.db, "web", learned.epoch, later.erased_at.replace(year=2030)) == 1
    assert named(await learned.dump(), "a") == []
    assert await unfinished_erasures(learned.db, "web") == []


async def test_one_that_only_events_name_is_erased(learned) -> None:
    """It never was a client; its events are counted, and those of others stay."""
    moment = datetime.fromisoformat("2026-01-02T03:05:00Z")
    refused = NewEvent(moment, "message_refused", "join: the join shows no enrolment", "not_enrolled", "knocker")
    assert not await is_named(learned.db, "web", "knocker")
    await learned.commit(Batch(events=[refused, dataclasses.replace(refused, client_id="a")]))
    assert await is_named(learned.db, "web", "knocker")
    assert not await is_named(learned.db, "web", "knock")
    assert not await is_named(learned.db, "other", "knocker")
    assert not await is_named(learned.db, "web", "a")
    assert "knocker" not in {client.client_id for client in await load_clients(learned.db, "web")}
    await learned.commit(Batch(events=[dataclasses.replace(refused, n=7)]))
    row = await learned.erase("knocker", requested_by="operator")
    assert (row.state, row.n_rounds, row.n_updates, row.n_events, row.first_round) == ("erased", 0, 0, 2, None)
    assert [event.client_id for event in await list_events(learned.db, "web")] == ["a"]
    (entry,) = [entry async for entry in stream_audit(learned.db, "web")]
    assert (entry.kind, entry.body["n_events"]) == ("client_erased", 2)
    assert not await is_named(learned.db, "web", "knocker")
    await complete_erasure(learned.db, "web", learned.epoch, row.pseudonym, row.erased_at, no_receipt)
    await note_told(learned.db, "web", learned.epoch, row.pseudonym)
    assert named(await learned.dump(), "knocker") == []


async def test_a_stranger_that_joins_keeps_its_row(learned) -> None:
    """What was refused of it is its own from then on; while it is a stranger no list of clients has it."""
    moment = datetime.fromisoformat("2026-01-02T03:05:00Z")
    await learned.commit(Batch(events=[NewEvent(moment, "message_refused", "", "not_enrolled", "knocker")]))
    refused = (await learned.dump())["clients"][-1]
    await learned.join("knocker")
    joined = (await learned.dump())["clients"][-1]
    assert (refused[0], refused[2:4]) == (joined[0], ("knocker", "stranger"))
    assert joined[2:4] == ("knocker", "joined")
    assert await learned.erase("knocker") is not None
    assert await list_events(learned.db, "web") == []


async def test_what_was_ordered_about_it_is_taken_out_of_the_order(learned) -> None:
    """Its number and its outcome stay, so that it is obeyed no second time."""
    order = {
        "federation": "web", "number": 1, "kind": "quarantine", "payload": b"signed: c", "digest": bytes(32),
        "outcome": "obeyed", "detail": "", "at": datetime.fromisoformat("2026-01-02T03:05:00Z"),
    }  # fmt: skip
    async with learned.db.transaction() as connection:
        await connection.execute(insert(orders).values(client=key_of("web", "c"), **order))
        await connection.execute(insert(orders).values(client=key_of("web", "a"), **(order | {"number": 2})))
    await learned.erase("c")
    one, two = (await learned.dump())["orders"]
    assert one == ("web", 1, "quarantine", None, bytes(32), "obeyed", None, "", None, order["at"])
    assert (two[3], two[8]) == (b"signed: c", "a")


async def test_only_the_writer_erases_and_only_in_its_federation(learned) -> None:
    """A fenced federator erases nothing; the same name elsewhere is another client."""
    await create_federation(learned.db, "other", 3, "linear", learned.weights, learned.opening(1).opened_at)
    epoch = await claim_federation(learned.db, "other", 0.0)
    joined = Batch(membership=[MembershipChange("c", "joined", learned.opening(1).opened_at)])
    await commit_batch(learned.db, "other", epoch, joined)
    await learned.erase("c")
    assert [client.client_id for client in await load_clients(learned.db, "other")] == ["c"]
    assert await forgotten_pseudonyms(learned.db, "other") == set()
    await claim_federation(learned.db, "web", 0.0)
    with pytest.raises(WriterFencedError):
        await learned.erase("a")


async def test_after_a_restored_backup_the_missing_keys_tell_who_was_erased(learned) -> None:
    """Nothing of them can be read, and they are erased again."""
    assert await unreadable_clients(learned.db, "web") == []
    learned.db.keys.destroy("web", "c")
    assert await unreadable_clients(learned.db, "web") == ["c"]
    with pytest.raises(DataError, match="update c5 of round 5"):
        [row async for row in stream_updates(learned.db, "web", 5)]
    await learned.erase_with_key("c")
    assert await unreadable_clients(learned.db, "web") == []
    assert {row.client_id for row in await list_contributions(learned.db, "web")} == {"a", "b"}
    learned.db.keys = None
    assert await unreadable_clients(learned.db, "web") == []


async def test_a_forgotten_client_has_no_row_to_come_back_to(learned) -> None:
    """A redelivered update of it is refused by the tables themselves."""
    await learned.erase("c")
    before = await learned.dump()
    for _ in range(2):
        with pytest.raises(ProtocolViolationError, match="begin at their clients' watermarks"):
            await learned.commit(Batch(updates=[learned.update("c", "c5", 5)]))
        assert await learned.dump() == before
        # Its row is there until its device was told, and then it is not.
        await note_key_destroyed(learned.db, "web", learned.epoch, C)
        await note_told(learned.db, "web", learned.epoch, C)
        before = await learned.dump()
        assert named(before, "c") == []
    with pytest.raises(DBAPIError):
        async with learned.db.transaction() as connection:
            await connection.exec_driver_sql("UPDATE erasures SET pseudonym = 'c'")


async def test_events_told_with_an_erasure_are_stored_once(learned) -> None:
    """They are of the same transaction, and name the pseudonym."""
    told = NewEvent(datetime.fromisoformat("2026-01-02T03:05:00Z"), "client_erased", json.dumps({"who": C}))
    for _ in range(2):
        await learned.erase("c", events=[told])
    assert [event.detail for event in await list_events(learned.db, "web", kind="client_erased")] == [told.detail]


async def test_a_federator_that_dies_in_the_middle_has_erased_nothing(learned) -> None:
    """What goes at once is one transaction, which ends with the failpoint."""
    before = await learned.dump()
    with dying_at(Failpoint.IN_ERASURE_TRANSACTION, "storage.erasure.erasures"):
        await learned.erase("c")
    assert await learned.dump() == before
    assert (await learned.erase("c")).n_updates == 3


async def test_rounds_that_lost_updates_are_known(learned) -> None:
    """Closed ones alone, abandoned ones too, of those that were asked for; who they were of is not."""
    await learned.commit(Batch(updates=[learned.update("b", "b5", 5)]))
    assert await erased_updates(learned.db, "web", 1, 5) == {}
    await learned.erase("c")
    assert await erased_updates(learned.db, "web", 1, 5) == {2: 1, 4: 1}
    await learned.erase("b")
    assert await erased_updates(learned.db, "web", 1, 5) == {1: 1, 2: 2, 3: 1, 4: 2}
    assert await erased_updates(learned.db, "web", 2, 3) == {2: 2, 3: 1}
    assert await erased_updates(learned.db, "elsewhere", 1, 5) == {}


async def test_erasures_are_listed_page_by_page(learned) -> None:
    """Also those of one moment: before each comes the next by its pseudonym."""
    for client_id, minutes in (("a", 0), ("b", 0), ("c", 3)):
        erased_at = learned.request(client_id).erased_at + timedelta(minutes=minutes)
        await learned.erase(client_id, erased_at=erased_at)
    found, before = [], None
    while page := await list_erasures(learned.db, "web", 1, before=before):
        found += page
        before = page[0].pseudonym
    assert found == (await list_erasures(learned.db, "web"))[::-1]
    assert [row.client_id for row in found] == ["c", "b", "a"]
