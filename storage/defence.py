"""What an aggregation rule remembers of clients: one row each, so that forgetting a client deletes its row.

What it remembers of all clients together is in the row of its model or unlearning job. Callers see both as one: bytes
for `foltr.core.aggregation.client_records`, with the clients' names. This memory is stored for the newest model, and
for each model from unlearning, so that later rounds can be replayed. For the anchor only the shared part is kept.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any, TypeVar

from sqlalchemy import Integer, bindparam, delete, insert, literal, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from foltr.core.aggregation.client_records import has_all_records, join_records, split_records, with_progress_of
from foltr.core.errors import DataError
from foltr.core.protocol.states import Membership
from foltr.storage.aggregation_tables import defence_records
from foltr.storage.clients import find_keys
from foltr.storage.database import Database, insert_into
from foltr.storage.erasure_records import UnlearningJobRow
from foltr.storage.model_tables import models
from foltr.storage.prepared import Prepared
from foltr.storage.records import ModelRow
from foltr.storage.schema import OF_FEDERATION
from foltr.storage.tables import clients

ROUNDS = 0
"""Replaces a job's number: the memory of rounds, after the newest model."""

Remembering = TypeVar("Remembering", ModelRow, UnlearningJobRow)

_WHICH = ("one", "another", "a_third")
_WITH_MEMORY = Prepared(
    select(models.c.version).where(
        models.c.federation == OF_FEDERATION,
        models.c.version.in_([bindparam(which, type_=Integer) for which in _WHICH]),
        models.c.defence_state.is_not(None),
    )
)


@dataclass(frozen=True, slots=True)
class _Stored:
    client: int
    record: bytes


async def store_defence(connection: AsyncConnection, name: str, job: int, memory: bytes | None) -> bytes | None:
    """Replace the stored record of each client, within a transaction.

    Clients forgotten since the memory was made are left out: the model may have been made of their updates meanwhile.

    Args:
        job: the unlearning job's number, or `ROUNDS`.

    Returns:
        what the row of the model or of the job should hold.
    """
    stored = await _load(connection, name, job)
    if memory is None:
        await _delete(connection, name, job, [known.client for known in stored.values()])
        return None
    shared, records = split_records(memory)
    gone = [known.client for client_id, known in stored.items() if client_id not in records]
    await _delete(connection, name, job, gone)
    keys = {client_id: known.client for client_id, known in stored.items()}
    new = records.keys() - stored.keys()
    keys |= await find_keys(connection, name, new, clients.c.membership != Membership.FORGOTTEN)
    changed = [
        {"federation": name, "job": job, "client": keys[client_id], "record": record}
        for client_id, record in records.items()
        if client_id in keys and (client_id not in stored or stored[client_id].record != record)
    ]
    if changed:
        put = insert_into(connection, defence_records)
        put = put.on_conflict_do_update(
            index_elements=["federation", "job", "client"], set_={"record": put.excluded.record}
        )
        await connection.execute(put, changed)
    return shared


async def forget_defence(
    connection: AsyncConnection, name: str, versions: Collection[int | None], keep: int | None
) -> bool:
    """Delete, within a transaction, the shared memory of models that are no longer the newest.

    Kept for every model it would grow without end: 4 bytes a weight. A model from unlearning keeps it, because the
    earlier rounds that could rebuild it are withdrawn. The anchor keeps it, because the newest model may restart from
    there.

    Args:
        versions: whose memory may be deleted, three at most.
        keep: the anchor.

    Returns:
        whether any of these had it.
    """
    parameters = dict(zip_longest(_WHICH, {each for each in versions if each is not None}))
    rows = await _WITH_MEMORY.fetch_all(connection, {"of_federation": name, **parameters})
    held = {row["version"] for row in rows}
    if forgotten := held - {keep}:
        await connection.execute(
            update(models)
            .where(models.c.federation == name, models.c.version.in_(forgotten), models.c.unlearning_job.is_(None))
            .values(defence_state=None)
        )
    return bool(held)


async def begin_defence(connection: AsyncConnection, name: str, job: int) -> bytes | None:
    """Copy what the rounds remember of clients to a new job, within the transaction that creates it.

    So excluded clients are excluded from its steps as well. The steps begin without progress.

    Returns:
        what the row of the job should hold.
    """
    newest = select(models.c.defence_state).where(models.c.federation == name).order_by(models.c.version.desc())
    shared: bytes | None = await connection.scalar(newest.limit(1))
    if shared is None:
        return None
    await _copy_rounds(connection, name, job)
    return with_progress_of(shared, None)


async def keep_defence(connection: AsyncConnection, name: str, job: int) -> None:
    """Keep the rounds' memory when a job's model is put in service, within that transaction.

    It replaces the memory of the job's steps, so that later rounds can be replayed from there. Memory of withdrawn
    models is deleted, since nothing can be replayed from them.
    """
    withdrawn = select(models.c.unlearning_job).where(
        models.c.federation == name, models.c.withdrawn_at.is_not(None), models.c.unlearning_job.is_not(None)
    )
    of_federation = defence_records.c.federation == name
    await connection.execute(delete(defence_records).where(of_federation, defence_records.c.job.in_(withdrawn)))
    await delete_defence(connection, name, job)
    await _copy_rounds(connection, name, job)


async def kept_defence(db: Database, name: str, version: int) -> bytes | None:
    """Read what the rule remembered when a model from unlearning was put in service; None if nothing.

    Raises:
        DataError: it is incomplete: a client in it has been erased since.
    """
    async with db.reading() as connection:
        which = models.c.federation == name, models.c.version == version
        stored = (await connection.execute(select(models.c.unlearning_job, models.c.defence_state).where(*which))).one()
        if stored.defence_state is None:
            return None
        records = await _records(connection, name, stored.unlearning_job)
    if not has_all_records(stored.defence_state, records):
        raise DataError(f"what it had been given with model {version} is not whole, as clients were erased")
    return join_records(stored.defence_state, records)


async def with_defence(connection: AsyncConnection, row: Remembering, job: int) -> Remembering:
    """Return the row of a model or job with the clients' records added to its rule's memory.

    Args:
        job: the job's number, or that of the job that made the model; `ROUNDS` for other models and the newest.
    """
    if row.defence_state is None:
        return row
    records = await _records(connection, row.federation, job)
    return replace(row, defence_state=join_records(row.defence_state, records))


async def delete_defence(connection: AsyncConnection, name: str, job: int) -> None:
    """Delete a job's memory of clients, within the transaction that closes the job."""
    await connection.execute(
        delete(defence_records).where(defence_records.c.federation == name, defence_records.c.job == job)
    )


async def _load(connection: AsyncConnection, name: str, job: int) -> dict[str, _Stored]:
    rows = await connection.execute(
        select(clients.c.client_id, defence_records.c.client, defence_records.c.record)
        .join_from(defence_records, clients, clients.c.id == defence_records.c.client)
        .where(defence_records.c.federation == name, defence_records.c.job == job)
    )
    return {row.client_id: _Stored(row.client, row.record) for row in rows}


async def _records(connection: AsyncConnection, name: str, job: int) -> dict[str, bytes]:
    return {client_id: known.record for client_id, known in (await _load(connection, name, job)).items()}


async def _copy_rounds(connection: AsyncConnection, name: str, job: int) -> None:
    of_rounds = (defence_records.c.federation == name) & (defence_records.c.job == ROUNDS)
    of_job = select(defence_records.c.federation, literal(job), defence_records.c.client, defence_records.c.record)
    columns = ["federation", "job", "client", "record"]
    await connection.execute(insert(defence_records).from_select(columns, of_job.where(of_rounds)))


async def _delete(connection: AsyncConnection, name: str, job: int, gone: Collection[int]) -> None:
    if gone:
        key: dict[str, Any] = {"of_federation": name, "of_job": job}
        await connection.execute(
            delete(defence_records)
            .where(defence_records.c.federation == bindparam("of_federation"))
            .where(defence_records.c.job == bindparam("of_job"), defence_records.c.client == bindparam("of_client")),
            [key | {"of_client": client} for client in gone],
        )
