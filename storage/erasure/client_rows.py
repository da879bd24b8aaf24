"""What of a client is where in the database, and how it is deleted.

Most functions are parts of the transaction that erases a client (`storage.erasure.erasures`).
"""

import hashlib
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Row, delete, exists, func, select, tuple_, update
from sqlalchemy.ext.asyncio import AsyncConnection

from foltr.errors import ProtocolViolationError
from foltr.protocol.codec import open_envelope
from foltr.protocol.fields import MAX_CHUNKED_BYTES
from foltr.protocol.roster import Roster
from foltr.protocol.states import Membership, RoundState
from storage.aggregation_tables import defence_records, update_fates
from storage.bodies import count_bodies_of, delete_bodies_of, pages_of, places_of
from storage.body_tables import update_bodies
from storage.clients import key_of
from storage.database import Database
from storage.erasure.tables import erasures, stored_rounds
from storage.order_tables import orders
from storage.sum_rows import delete_sums_with, is_in_sum
from storage.tables import clients, events, federations, rounds, updates

NAMING_TABLES = (clients.name, orders.name)
"""Whose rows hold names: a client's own, and in what was signed orders about it, until it is forgotten."""
_OF_CLIENTS = (updates, update_fates, events, defence_records, orders, erasures)
# So many updates' bytes are in memory at once.
_PAGE = 64


async def rounds_of(connection: AsyncConnection, name: str, client: int) -> Sequence[Row[*tuple[Any, ...]]]:
    """Find (round, state, model_version, is_in_sum) of each round with an update of the client, by round.

    Raises:
        ProtocolViolationError: one of them is aggregating, or helpers are asked for its sum.
    """
    answer = await connection.execute(
        select(updates.c.round, rounds.c.state, rounds.c.model_version, is_in_sum().label("is_in_sum"))
        .join(rounds, (rounds.c.federation == updates.c.federation) & (rounds.c.number == updates.c.round))
        .where(updates.c.client == client)
        .order_by(updates.c.round)
    )
    rows = answer.all()
    decided = RoundState.OPENING, RoundState.AGGREGATING
    if busy := [row for row in rows if row.state in decided]:
        raise ProtocolViolationError(
            f"round {busy[0].round} of {name!r} is {busy[0].state} with an update of a client to erase"
        )
    return rows


async def digest_of(connection: AsyncConnection, client: int) -> str:
    """Compute SHA-256, in hex, over the client's updates as they are stored, in order of rounds.

    Those that retention deleted have no bytes.
    """
    digest = hashlib.sha256()
    for page in pages_of(await places_of(connection, client), _PAGE):
        bodies = select(update_bodies.c.body).where(*page).order_by(update_bodies.c.round)
        for body in await connection.scalars(bodies):
            digest.update(body)
    return digest.hexdigest()


async def delete_rows_of(connection: AsyncConnection, client: int) -> dict[str, int]:
    """Delete a client's rows of every table but its own, and the sums that it is in; say how many rows of each.

    An order that was about it keeps its number and its outcome, so that it is not obeyed a second time, but not what
    was signed.
    """
    await delete_sums_with(connection, client)
    await _leave_out_its_own_rounds(connection, client)
    await delete_bodies_of(connection, client)
    await connection.execute(update(orders).where(orders.c.client == client).values(client=None, payload=None))
    deleted = {}
    for table in (update_fates, updates, events, defence_records):
        answer = await connection.execute(delete(table).where(table.c.client == client))
        deleted[table.name] = int(answer.rowcount)
    return deleted


async def _leave_out_its_own_rounds(connection: AsyncConnection, client: int) -> None:
    """Take the rounds that nobody else has an update in from those that unlearning can go through."""
    other = updates.alias()
    has_others = exists().where(
        other.c.federation == updates.c.federation, other.c.round == updates.c.round, other.c.client != client
    )
    alone = select(updates.c.federation, updates.c.round).where(updates.c.client == client, ~has_others)
    await connection.execute(
        delete(stored_rounds).where(tuple_(stored_rounds.c.federation, stored_rounds.c.round).in_(alone))
    )


async def leave_only_the_name(connection: AsyncConnection, client: int, at: datetime) -> None:
    """Take everything but its name out of a client's own row: its device is to be told still."""
    blank: dict[str, Any] = {column.name: None for column in clients.columns if column.nullable}
    blank |= {column.name: 0 for column in clients.columns if column.server_default is not None}
    blank |= {"membership": Membership.FORGOTTEN, "online": False, "last_seen_at": at}
    await connection.execute(update(clients).where(clients.c.id == client).values(blank))


async def delete_client(connection: AsyncConnection, client: int) -> None:
    """Delete a forgotten client's row, and its name with it; whatever was stored of it since goes, too."""
    await delete_rows_of(connection, client)
    await connection.execute(update(erasures).where(erasures.c.client == client).values(client=None))
    await connection.execute(delete(clients).where(clients.c.id == client))


async def rows_of(db: Database, name: str, client_id: str) -> dict[str, int]:
    """Count the rows of each table that are a client's; tables without any are left out.

    ``clients`` and ``erasures`` have one of a forgotten client until its device was told, and ``federations`` one that
    names a client whose enrolment the operator's newest roster voids.

    Raises:
        MessageError: the stored roster cannot be read.
    """
    n_rows: dict[str, int] = {}
    async with db.reading() as connection:
        key = key_of(name, client_id)
        for column in (clients.c.id, *(table.c.client for table in _OF_CLIENTS)):
            counted = await connection.execute(select(func.count()).where(column == key))
            n_rows[column.table.name] = counted.scalar_one()
        if (client := await connection.scalar(select(key))) is not None:
            n_rows[update_bodies.name] = await count_bodies_of(connection, client)
        roster = await connection.scalar(select(federations.c.roster).where(federations.c.name == name))
    if roster is not None:
        # The federator has checked whose it is before it stored it.
        voided = open_envelope(roster, MAX_CHUNKED_BYTES).read(Roster).revoked
        n_rows[federations.name] = sum(revocation.client_id == client_id for revocation in voided)
    return {table: n for table, n in n_rows.items() if n}
