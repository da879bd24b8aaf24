"""Erasing a client: everything that is stored of it goes, and what proves it stays."""

import dataclasses
import hashlib
import json
from datetime import datetime

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from support.deaths import dying_at

from foltr.core.erasure.audit import check_chain
from foltr.core.errors import DataError, ProtocolViolationError
from foltr.core.failpoints import Failpoint
from foltr.core.protocol.states import OrderOutcome
from foltr.storage.erasure.audit_log import stream_audit
from foltr.storage.erasure.client_rows import rows_of
from foltr.storage.erasure.erasures import is_named, list_erasures, unreadable_clients
from foltr.storage.models import list_models
from foltr.storage.queries import erased_updates, get_round, list_contributions, list_events
from foltr.storage.records import Batch, NewEvent, NewOrder
from foltr.storage.tables import clients

C = "63".rjust(32, "0")
LATER = datetime.fromisoformat("2026-01-02T03:05:00Z")


def named(rows: dict, client_id: str) -> list[str]:
    """The tables where a value is the client's name, or holds it as a word."""
    return sorted(
        table
        for table, found in rows.items()
        if any(client_id in str(value).replace("'", " ").split() for row in found for value in row)
    )


async def test_nothing_of_the_client_is_left_but_its_tombstone(learned) -> None:
    """Its updates, fates and events go, and all of its row but the name; everybody else's stay as they were."""
    late = NewEvent(LATER, "update_rejected", "", "late", "c", 5)
    await learned.commit(Batch(events=[late, dataclasses.replace(late, client_id="a")]))
    before = await learned.dump()
    assert named(before, "c") == ["clients", "events", "update_bodies", "update_fates", "updates"]
    assert await rows_of(learned.db, "web", "b") == {"clients": 1, "updates": 4, "update_bodies": 4, "update_fates": 3}
    digest = await learned.digest_of("c")

    row = await learned.erase("c")

    after = await learned.dump()
    assert named(after, "c") == ["clients", "erasures"]
    assert await rows_of(learned.db, "web", "c") == {"clients": 1, "erasures": 1}
    assert await rows_of(learned.db, "web", "nobody") == {}
    for table in ("events", "update_bodies", "update_fates", "updates"):
        assert after[table] == [found for found in before[table] if "c" not in found]
    assert after["clients"][:2] == before["clients"][:2]
    key = before["clients"][2][0]
    kept = {"id": key, "federation": "web", "client_id": "c", "membership": "forgotten", "last_seen_at": row.erased_at}
    (left,) = after["clients"][2:]
    assert {column.name: value for column, value in zip(clients.columns, left, strict=True) if value} == kept
    assert (row.n_rounds, row.n_updates, row.n_events, row.first_round) == (2, 3, 1, 2)
    assert row.erased_digest == digest
    assert (row.state, row.client_id, row.pseudonym, row.key_destroyed, row.told) == ("erased", "c", C, False, False)
    assert await learned.find_erasure(C) == row
    assert await list_erasures(learned.db, "web") == [row]
    assert await learned.forgotten_pseudonyms() == {C}
    # Those that are left can be read, and the closed round says what was in it.
    assert await learned.sent(2) == {"a": b"a in 2", "b": b"b in 2"}
    assert (await get_round(learned.db, "web", 2)).n_updates == 2
    assert [found[12] for found in after["rounds"]] == [2, 3, 1, 3, None]
    # By pseudonym, with counts and the digest, in a chain.
    (entry,) = [entry async for entry in stream_audit(learned.db, "web")]
    assert check_chain([entry]) == 1
    assert (entry.kind, entry.at) == ("client_erased", row.erased_at)
    assert entry.body == {
        "pseudonym": C, "requested_by": "device", "requested_at": row.requested_at.isoformat(),
        "n_rounds": 2, "n_updates": 3, "n_events": 1, "erased_digest": row.erased_digest,
    }  # fmt: skip


async def test_models_that_hold_its_updates_are_tainted(learned) -> None:
    """From the first round that it was in on, as each model is made from the one before; they still serve."""

    async def tainted() -> dict[int, datetime | None]:
        return {model.version: model.tainted_at for model in await list_models(learned.db, "web") if model.weights}

    row = await learned.erase("c")
    assert await tainted() == {0: None, 1: None, 2: row.erased_at, 3: row.erased_at}
    other = await learned.erase("a", erased_at=row.requested_at)
    assert await tainted() == {0: None, 1: other.erased_at, 2: row.erased_at, 3: row.erased_at}


async def test_erased_again_nothing_changes(learned) -> None:
    """The answer to a commit may be lost, and a device asks until it is answered: the first request counts."""
    told = NewEvent(LATER, "client_erased", json.dumps({"who": C}))
    row = await learned.erase("c", events=[told])
    much_later = LATER.replace(year=2030)
    async with learned.unchanged():
        assert await learned.erase("c", requested_by="operator", erased_at=much_later, events=[told]) == row
    assert [event.detail for event in await list_events(learned.db, "web", kind="client_erased")] == [told.detail]
    before = await learned.dump()
    order = NewOrder(1, "forget_client", None, bytes(32), OrderOutcome.OBEYED, row.erased_at)
    await learned.erase("c", order=order)
    after = await learned.dump()
    assert await learned.standing_orders(0) == [order]
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
    assert await learned.waiting_erasures() == []
    receipts = []

    def sign(erasure, outcome, entry) -> str:
        receipts.append((erasure, outcome, entry))
        return "the receipt"

    done = await learned.complete_erasure(row.pseudonym, row.erased_at, sign)
    assert (done.state, done.receipt, done.audit_seq) == ("done", "the receipt", 2)
    ((erasure, outcome, entry),) = receipts
    assert erasure == dataclasses.replace(done, receipt=None)
    assert (outcome.strategy, outcome.rounds_replayed, outcome.model_after) == ("none", 0, None)
    assert entry == [found async for found in stream_audit(learned.db, "web")][-1]
    assert await learned.complete_erasure(row.pseudonym, row.erased_at, sign) == done
    assert len(receipts) == 1


async def test_one_that_is_in_models_waits_for_a_job(learned) -> None:
    """Once its key is destroyed. Without a job it is never done."""
    row = await learned.erase("c")
    assert (await learned.unfinished_erasures(), await learned.waiting_erasures()) == ([row], [])
    for _ in range(2):
        waits = await learned.note_key_destroyed(C)
    assert waits == dataclasses.replace(row, state="waiting", key_destroyed=True)
    assert await learned.waiting_erasures() == [waits]
    with pytest.raises(ProtocolViolationError, match="has 2 rounds to unlearn"):
        await learned.complete_erasure(C, row.erased_at, lambda *_: None)
    without_keys = await learned.erase("a")
    waits = await learned.note_key_destroyed(without_keys.pseudonym, destroyed=False)
    assert (waits.state, waits.key_destroyed) == ("waiting", False)


async def test_its_name_stays_until_its_device_was_told(learned) -> None:
    """Or until nobody expects the device any more; a key that may not be destroyed needs the name longer."""
    row = await learned.erase("c")
    for _ in range(2):
        await learned.note_told(C)
    assert await learned.find_erasure(C) == dataclasses.replace(row, told=True)
    told = await learned.note_key_destroyed(C)
    assert (told.client_id, told.state) == (None, "waiting")
    assert named(await learned.dump(), "c") == []
    assert await learned.unfinished_erasures() == []

    later, much_later = await learned.erase("a"), LATER.replace(year=2030)
    assert await learned.drop_untold_names(much_later) == 0
    await learned.note_key_destroyed(later.pseudonym)
    assert await learned.drop_untold_names(later.erased_at) == 0
    assert await learned.drop_untold_names(much_later) == 1
    assert named(await learned.dump(), "a") == []
    assert await learned.unfinished_erasures() == []


async def test_a_stranger_that_joins_keeps_its_row(learned) -> None:
    """What was refused of it is its own from then on; a part of its name, or its name elsewhere, is not it."""
    await learned.commit(Batch(events=[NewEvent(LATER, "message_refused", "", "not_enrolled", "knocker")]))
    assert await learned.is_named("knocker")
    assert not await learned.is_named("knock")
    assert not await is_named(learned.db, "other", "knocker")
    refused = (await learned.dump())["clients"][-1]
    await learned.join("knocker")
    joined = (await learned.dump())["clients"][-1]
    assert (refused[0], refused[2:4]) == (joined[0], ("knocker", "stranger"))
    assert joined[2:4] == ("knocker", "joined")
    assert (await learned.erase("knocker")).n_events == 1
    assert await list_events(learned.db, "web") == []


async def test_it_is_erased_in_its_federation_alone(learned) -> None:
    """The same name elsewhere is another client."""
    other = type(learned)(learned.db, "other")
    await other.create_federation(3, "linear", learned.weights, learned.at(0))
    await other.claim_federation(0.0)
    await other.join("c")
    await learned.erase("c")
    assert [client.client_id for client in await other.load_clients()] == ["c"]
    assert await other.forgotten_pseudonyms() == set()


async def test_after_a_restored_backup_the_missing_keys_tell_who_was_erased(learned) -> None:
    """Nothing of them can be read, and they are erased again."""
    assert await unreadable_clients(learned.db, "web") == []
    learned.db.keys.destroy("web", "c")
    assert await unreadable_clients(learned.db, "web") == ["c"]
    with pytest.raises(DataError, match="update c5 of round 5"):
        await learned.sent(5)
    await learned.erase_with_key("c")
    assert await unreadable_clients(learned.db, "web") == []
    assert {row.client_id for row in await list_contributions(learned.db, "web")} == {"a", "b"}
    learned.db.keys = None
    assert await unreadable_clients(learned.db, "web") == []


async def test_a_forgotten_client_has_no_row_to_come_back_to(learned) -> None:
    """A redelivered update of it is refused by the tables themselves."""
    await learned.erase("c")
    for _ in range(2):
        async with learned.refuses(match="begin at their clients' watermarks"):
            await learned.send("c", number=5)
        # Its row is there until its device was told, and then it is not.
        await learned.note_key_destroyed(C)
        await learned.note_told(C)
        assert named(await learned.dump(), "c") == []
    with pytest.raises(DBAPIError):
        await learned.write(text("UPDATE erasures SET pseudonym = 'c'"))


async def test_a_federator_that_dies_in_the_middle_has_erased_nothing(learned) -> None:
    """What goes at once is one transaction, which ends with the failpoint; not even the deletion is counted."""
    async with learned.unchanged():
        with dying_at(Failpoint.IN_ERASURE_TRANSACTION, "storage.erasure.erasures"):
            await learned.erase("c")
    assert (await learned.erase("c")).n_updates == 3


async def test_rounds_that_lost_updates_are_known(learned) -> None:
    """Closed ones alone, abandoned ones too, of those that were asked for; who they were of is not."""
    await learned.send("b", number=5)
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
        await learned.erase(client_id, erased_at=learned.at(60 * minutes))
    found, before = [], None
    while page := await list_erasures(learned.db, "web", 1, before=before):
        found += page
        before = page[0].pseudonym
    assert found == (await list_erasures(learned.db, "web"))[::-1]
    assert [row.client_id for row in found] == ["c", "b", "a"]
