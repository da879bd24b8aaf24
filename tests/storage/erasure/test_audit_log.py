"""The audit log: a chain, whatever is between two entries, and one for each federation."""

import pytest
from sqlalchemy import text

from foltr.core.erasure.audit import check_chain
from foltr.core.errors import DataError
from foltr.storage.erasure.audit_log import append_audit, find_audit_entry, stream_audit
from foltr.storage.federations import create_federation, fenced_transaction


async def append(stored, n: int) -> None:
    for number in range(n):
        async with fenced_transaction(stored.db, "web", stored.epoch) as connection:
            at = stored.at(101)
            await append_audit(connection, "web", at, "client_erased", {"n": number, "share": 0.1, "of": ["é", None]})


async def chain(stored, batch: int = 500):
    return [entry async for entry in stream_audit(stored.db, "web", batch)]


@pytest.mark.parametrize("batch", [1, 3, 500])
async def test_entries_come_back_as_the_chain_they_were_written_as(stored, batch: int) -> None:
    """Moments to the microsecond, bodies as they were: the hashes are over them."""
    await append(stored, 7)
    entries = await chain(stored, batch)
    assert check_chain(entries) == 7
    assert [entry.body["n"] for entry in entries] == list(range(7))
    assert entries[0].at == stored.at(101)


async def test_each_federation_has_its_own(stored) -> None:
    """Entries of another one are not between them; one is found by its number, and without it the newest."""
    assert await stored.audit_entry() is None
    await append(stored, 2)
    await create_federation(stored.db, "other", 3, "linear", stored.weights, stored.at(101))
    async with stored.db.transaction() as connection:
        entry = await append_audit(connection, "other", stored.at(101), "job_started", {})
    assert entry.seq == 1
    await append(stored, 1)
    entries = await chain(stored)
    assert check_chain(entries) == 3
    assert [await stored.audit_entry(), await stored.audit_entry(2)] == [entries[2], entries[1]]
    assert await stored.audit_entry(4) is None
    assert await find_audit_entry(stored.db, "other", 2) is None


@pytest.mark.parametrize(
    "forged",
    [
        "UPDATE audit_log SET body = '{}' WHERE seq = 2",
        "UPDATE audit_log SET kind = 'nothing' WHERE seq = 2",
        "UPDATE audit_log SET at = '2020-01-01 00:00:00' WHERE seq = 2",
        "UPDATE audit_log SET seq = 9 WHERE seq = 2",
        "DELETE FROM audit_log WHERE seq = 2",
    ],
)
async def test_whoever_writes_the_table_by_hand_is_found_out(stored, forged: str) -> None:
    """The first entry that is wrong is named."""
    await append(stored, 3)
    async with stored.db.transaction() as connection:
        await connection.execute(text(forged))
    with pytest.raises(DataError, match="entry 2"):
        check_chain(await chain(stored))


async def test_what_is_rolled_back_is_not_in_it(stored) -> None:
    """An entry is of the transaction that it tells of."""
    await append(stored, 1)
    async with stored.db.engine.connect() as connection:
        await append_audit(connection, "web", stored.at(101), "job_started", {})
        await connection.rollback()
    await append(stored, 1)
    assert [entry.kind for entry in await chain(stored)] == ["client_erased", "client_erased"]
