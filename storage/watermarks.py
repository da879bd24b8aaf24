"""The watermarks of clients in SQL: each says which of its client's interactions count.

An update covers the interactions above its client's watermark (``covers_after``) up to ``covers_through``, and moves
the watermark there in the transaction that stores it. Withdrawing the update sets the watermark back in the same way.
So no interaction is in two updates that count, even if one is delivered twice or the federator changes.
"""

import json
from collections.abc import Collection, Sequence

from sqlalchemy import ColumnElement, delete, func, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from foltr.core.errors import ProtocolViolationError
from foltr.storage.bodies import in_round
from foltr.storage.body_tables import update_bodies
from foltr.storage.clients import key_of
from foltr.storage.prepared import Prepared
from foltr.storage.records import NewUpdate
from foltr.storage.tables import clients, updates

# One statement for any number of clients: the watermarks come as one JSON array, joined as a table. In SQLite a CROSS
# JOIN fixes the order, left side first; else it would read the whole array for each client.
_MOVE_MARKS = {
    "sqlite": Prepared(
        text("""
        UPDATE clients SET counted_through = moved.through
        FROM (
            SELECT c.id AS client, json_extract(wanted.value, '$[2]') AS through
            FROM json_each(:watermarks) AS wanted
            CROSS JOIN clients AS c ON c.federation = :name
                AND c.client_id = json_extract(wanted.value, '$[0]')
                AND c.joined_at IS NOT NULL
                AND c.counted_through = json_extract(wanted.value, '$[1]')
            LIMIT -1
        ) AS moved
        WHERE clients.id = moved.client
    """)
    ),
    "postgresql": Prepared(
        text("""
        UPDATE clients SET counted_through = CAST(moved.value ->> 2 AS bigint)
        FROM json_array_elements(CAST(:watermarks AS json)) AS moved (value)
        WHERE clients.federation = :name
            AND clients.client_id = moved.value ->> 0
            AND clients.joined_at IS NOT NULL
            AND clients.counted_through = CAST(moved.value ->> 1 AS bigint)
    """)
    ),
}


async def move_watermarks(connection: AsyncConnection, name: str, new: Sequence[NewUpdate]) -> None:
    """Move the watermark of each update's client from the update's beginning to its end.

    Raises:
        ProtocolViolationError: a client's watermark is elsewhere, so interactions would count twice, or never.
    """
    watermarks = [(item.client_id, item.covers_after, item.covers_through) for item in new]
    if not watermarks:
        return
    parameters = {"name": name, "watermarks": json.dumps(watermarks)}
    n_moved = await _MOVE_MARKS[connection.dialect.name].execute(connection, parameters)
    _require(n_moved, len(watermarks), f"updates of {name!r} begin at their clients' watermarks")


async def withdraw_updates(connection: AsyncConnection, name: str, withdrawn: Collection[tuple[int, str]]) -> None:
    """Delete updates, each (round, client_id), and set their clients' watermarks back to their beginnings.

    Raises:
        ProtocolViolationError: another update is the client's newest that counts.
    """
    for number, client_id in withdrawn:
        withdrawn_update = (updates.c.round == number) & (updates.c.client == key_of(name, client_id))
        await _set_back(connection, name, withdrawn_update, 1)
        of_client = update_bodies.c.client == key_of(name, client_id)
        await connection.execute(delete(update_bodies).where(*in_round(name, number), of_client))
        await connection.execute(delete(updates).where(updates.c.federation == name, withdrawn_update))


async def take_back_round(connection: AsyncConnection, name: str, number: int) -> None:
    """Make no update of a round count, and set their clients' watermarks back to their beginnings.

    Raises:
        ProtocolViolationError: another update is the client's newest that counts.
    """
    counting = (updates.c.federation == name) & (updates.c.round == number) & updates.c.covers_after.is_not(None)
    n_counting = await connection.scalar(select(func.count()).select_from(updates).where(counting)) or 0
    if not n_counting:
        return
    await _set_back(connection, name, updates.c.round == number, n_counting)
    await connection.execute(update(updates).where(counting).values(covers_after=None, covers_through=None))


async def _set_back(connection: AsyncConnection, name: str, which: ColumnElement[bool], n_clients: int) -> None:
    newest = (
        select(updates.c.covers_after)
        .where(updates.c.federation == name, which)
        .where(updates.c.client == clients.c.id, updates.c.covers_through == clients.c.counted_through)
    )
    of_these = select(updates.c.client).where(updates.c.federation == name, which)
    moved = await connection.execute(
        update(clients)
        .where(clients.c.id.in_(of_these), newest.exists())
        .values(counted_through=newest.scalar_subquery())
    )
    _require(moved.rowcount, n_clients, f"what is taken back is the newest that counts of its clients in {name!r}")


def _require(n_moved: int, n_expected: int, promise: str) -> None:
    if n_moved != n_expected:
        raise ProtocolViolationError(f"{promise}: not so for {n_expected - n_moved} of {n_expected}")
