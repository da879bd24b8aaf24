"""What of a client is where in the database, and how it is taken out: the parts of the transaction that erases it."""

import hashlib
import re
from collections.abc import Sequence
from typing import Any

from sqlalchemy import Row, Table, delete, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from foltr.errors import ProtocolViolationError
from foltr.robust.records import without_client
from storage.erasure_tables import unlearning_jobs
from storage.schema import DETAIL_MAX
from storage.tables import clients, events, models, rounds, updates

# So many updates' bytes are in memory at once.
_PAGE = 64


async def rounds_of(connection: AsyncConnection, name: str, client_id: str) -> Sequence[Row[*tuple[Any, ...]]]:
    """(round, state, model_version) of each round with an update of the client, by round.

    Raises:
        ProtocolViolationError: one of them is aggregating.
    """
    found = await connection.execute(
        select(updates.c.round, rounds.c.state, rounds.c.model_version)
        .join(rounds, (rounds.c.federation == updates.c.federation) & (rounds.c.number == updates.c.round))
        .where(updates.c.federation == name, updates.c.client_id == client_id)
        .order_by(updates.c.round)
    )
    rows = found.all()
    if busy := [row.round for row in rows if row.state == "aggregating"]:
        raise ProtocolViolationError(f"round {busy[0]} of {name!r} is aggregating with an update of a client to erase")
    return rows


async def digest_of(connection: AsyncConnection, name: str, client_id: str, numbers: Sequence[int]) -> str:
    """SHA-256 over the client's updates as they are stored, in order of rounds, in hex; thinned ones have no bytes."""
    digest = hashlib.sha256()
    for start in range(0, len(numbers), _PAGE):
        bodies = await connection.scalars(
            select(updates.c.body)
            .where(updates.c.federation == name, updates.c.client_id == client_id, updates.c.body.is_not(None))
            .where(updates.c.round.in_(numbers[start : start + _PAGE]))
            .order_by(updates.c.round)
        )
        for body in bodies:
            digest.update(body)
    return digest.hexdigest()


async def delete_rows_of(connection: AsyncConnection, table: Table, name: str, client_id: str) -> int:
    """Delete a client's rows of a table; how many."""
    deleted = await connection.execute(delete(table).where(table.c.federation == name, table.c.client_id == client_id))
    return int(deleted.rowcount)


async def take_out_name(connection: AsyncConnection, name: str, client_id: str, pseudonym: str) -> None:
    """Put the pseudonym in the place of the name where words about others hold it.

    Only whole names: the name ``a`` is not in ``a-1``.
    """
    whole = re.compile(rf"(?<![A-Za-z0-9_.-]){re.escape(client_id)}(?![A-Za-z0-9_-]|\.[A-Za-z0-9])")
    for table, key, words in (
        (events, events.c.id, events.c.detail),
        (clients, clients.c.client_id, clients.c.quarantine_reason),
    ):
        found = await connection.execute(
            select(key, words).where(table.c.federation == name, words.contains(client_id, autoescape=True))
        )
        for identity, told in found.all():
            if whole.search(told) is not None:
                await connection.execute(
                    update(table)
                    .where(table.c.federation == name, key == identity)
                    .values({words: whole.sub(pseudonym, told)[:DETAIL_MAX]})
                )


async def take_out_record(connection: AsyncConnection, name: str, client_id: str) -> None:
    """Let the rule of aggregation forget what it remembers of the client."""
    for table, key in ((models, models.c.version), (unlearning_jobs, unlearning_jobs.c.number)):
        found = await connection.execute(
            select(key, table.c.defence_state).where(table.c.federation == name, table.c.defence_state.is_not(None))
        )
        for identity, stored in found.all():
            left = without_client(stored, client_id)
            if left != stored:
                await connection.execute(
                    update(table).where(table.c.federation == name, key == identity).values(defence_state=left)
                )
