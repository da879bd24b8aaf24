"""A client of whom much is stored is erased a few rows at a time: nobody reads the rest, and nothing else differs."""

from datetime import timedelta

import pytest
from support.deaths import dying_at

from foltr.core.errors import ProtocolViolationError
from foltr.core.failpoints import Failpoint
from foltr.storage.erasure import client_rows
from foltr.storage.erasure.audit_log import stream_audit
from foltr.storage.erasure.client_rows import rows_of
from foltr.storage.models import list_models
from foltr.storage.records import Batch, NewEvent
from foltr.storage.rounds import count_updates
from foltr.storage.tables import updates

C = "63".rjust(32, "0")


async def erase_in_parts(learned, limit: int) -> list:
    """The erasure after each transaction, the last of which leaves no rows."""
    request = learned.request("c")
    rows = [await learned.erase_client(request, limit)]
    while rows[-1].state == "erasing":
        assert len(rows) < 20, "it does not end"
        moment = request.erased_at + timedelta(seconds=len(rows))
        rows.append(await learned.erase_more(C, moment, limit))
    return rows


async def with_all(learned) -> None:
    """The client, which has an update in the open round, has an event, too."""
    refused = NewEvent(learned.at(100), "update_rejected", "", "late", "c", 5)
    await learned.commit(Batch(events=[refused]))


@pytest.mark.parametrize("limit", [1, 2, 3])
async def test_in_parts_it_comes_to_the_same(learned, limit: int) -> None:
    """Counts, digest, audit entry and what is left of everybody are those of an erasure at once, but for its moment."""
    await with_all(learned)
    digest = await learned.digest_of("c")
    rows = await erase_in_parts(learned, limit)
    assert [row.state for row in rows] == ["erasing"] * (len(rows) - 1) + ["erased"]
    assert len(rows) > 2
    assert {(row.n_rounds, row.n_updates, row.n_events, row.first_round) for row in rows} == {(2, 3, 1, 2)}
    assert [list(await learned.sent(number)) for number in (2, 4)] == [["a", "b"]] * 2
    assert rows[-1].erased_digest == digest
    (entry,) = [entry async for entry in stream_audit(learned.db, "web")]
    assert (entry.at, entry.body["erased_digest"]) == (rows[-1].erased_at, rows[-1].erased_digest)
    assert await rows_of(learned.db, "web", "c") == {"clients": 1, "erasures": 1}


async def test_large_updates_go_fewer_at_a_time(learned, monkeypatch) -> None:
    """One at least, and in the end all."""
    monkeypatch.setattr(client_rows, "_BYTES_AT_ONCE", 1)
    states = [row.state for row in await erase_in_parts(learned, 200)]
    assert states == ["erasing", "erasing", "erased"]
    assert await rows_of(learned.db, "web", "c") == {"clients": 1, "erasures": 1}


async def test_from_the_first_part_on_nobody_reads_the_client(learned) -> None:
    """Its update has left the open round, no round that is read has it, models are tainted, and its name is kept."""
    await with_all(learned)
    row = await learned.erase_client(learned.request("c"), 1)
    assert row.state == "erasing"
    with pytest.raises(ProtocolViolationError):
        await learned.complete_erasure(row.pseudonym, row.erased_at, lambda *_: None)
    opened = await learned.load_open_round()
    assert "c" not in [update.client_id for update in opened[1]]
    assert (await rows_of(learned.db, "web", "c"))["updates"] == 2
    assert list(await learned.sent(2)) == ["a", "b"]
    assert [model.version for model in await list_models(learned.db, "web") if model.tainted_at] == [2, 3]
    assert await learned.unfinished_erasures() == [row]
    assert [entry async for entry in stream_audit(learned.db, "web")] == []
    # A device that was told, or that is not there for a month, does not take the name from who deletes the rest.
    await learned.note_told(C)
    assert await learned.drop_untold_names(row.erased_at + timedelta(days=60)) == 0
    assert (await learned.find_erasure(C)).client_id == "c"


async def test_rows_that_are_left_to_delete_count_for_nothing(learned) -> None:
    """Else a replay would find another model than the stored one, and a job wait for what nobody has taught."""
    await learned.erase_client(learned.request("c"), 1)
    assert (await rows_of(learned.db, "web", "c"))["updates"] == 2
    assert await count_updates(learned.db, "web", 2) == (2, 2)
    for name in ("a", "b"):
        await learned.erase_client(learned.request(name), 1)
        assert (await rows_of(learned.db, "web", name))["updates"] > 0
    assert await learned.hold_reset(1, learned.at(101)) is None


async def test_erased_again_meanwhile_and_afterwards_nothing_changes(learned) -> None:
    """A request is answered with how far it is, and a part that is asked for too often deletes nothing."""
    row = await learned.erase_client(learned.request("c"), 1)
    async with learned.unchanged():
        assert await learned.erase("c") == row
    *_, last = await erase_in_parts(learned, 1)
    assert last.state == "erased"
    async with learned.unchanged():
        assert await learned.erase_more(C, last.erased_at) == last


async def test_a_part_in_which_it_dies_is_done_again(learned) -> None:
    """Each part is one transaction: the digest and the rows it is of go together."""
    await with_all(learned)
    row = await learned.erase_client(learned.request("c"), 1)
    async with learned.unchanged():
        with dying_at(Failpoint.IN_ERASURE_TRANSACTION, "storage.erasure.erasures"):
            await learned.erase_more(C, row.erased_at, 1)
    *_, last = await erase_in_parts(learned, 1)
    assert last.state == "erased"
    assert "c" not in [found[2] for found in (await learned.dump())[updates.name]]
