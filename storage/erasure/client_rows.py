"""Where a client's data is in the database, and how it is deleted.

Most functions are parts of the transaction that erases a client (`foltr.storage.erasure.erasures`).
"""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import Row, Table, delete, exists, func, select, tuple_, update
from sqlalchemy.ext.asyncio import AsyncConnection

from foltr.core.erasure.digests import NOTHING_DIGESTED, digest_with
from foltr.core.errors import ProtocolViolationError
from foltr.core.protocol.codec import open_envelope
from foltr.core.protocol.fields import MAX_CHUNKED_BYTES
from foltr.core.protocol.roster import Roster
from foltr.core.protocol.states import Membership, RoundState
from foltr.storage.aggregation_tables import defence_records, update_fates
from foltr.storage.bodies import count_bodies_of
from foltr.storage.body_tables import update_bodies
from foltr.storage.clients import key_of
from foltr.storage.database import Database
from foltr.storage.erasure_tables import erasures, stored_rounds
from foltr.storage.order_tables import orders
from foltr.storage.sum_rows import delete_sums_with, is_in_sum
from foltr.storage.tables import clients, events, federations, rounds, updates

NAMING_TABLES = (clients.name, orders.name)
"""The tables with names in their rows, until a client is forgotten: its own, and signed orders about it."""
_OF_CLIENTS = (updates, update_fates, events, defence_records, orders, erasures)
# How many updates' bytes are in memory at once.
_PAGE = 64
# With large updates a transaction deletes fewer rows than it may, since others wait for it.
_BYTES_AT_ONCE = 4 * 1024 * 1024
# An erased client has few rows left, if any.
_LEFT_AT_ONCE = 500


async def rounds_of(connection: AsyncConnection, name: str, client: int) -> Sequence[Row[*tuple[Any, ...]]]:
    """Find (round, state, model_version, is_in_sum) of each round with an update of the client, by round.

    Raises:
        ProtocolViolationError: one of them is aggregating, or helpers are computing its sum.
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


async def delete_newest_of(
    connection: AsyncConnection, name: str, client: int, digest: str, limit: int
) -> tuple[str, bool]:
    """Delete a client's rows from every table but ``clients``: at most ``limit`` newest updates first.

    Returns:
        ``digest`` extended by the stored bytes of these updates, the newest first and withdrawn ones last; retention
        may have deleted some bytes. And whether no row is left.
    """
    newest = await _newest_rounds_of(connection, client, limit)
    numbers = list(_first_of(newest))
    digest = await _delete_bodies(connection, name, client, digest, numbers)
    if numbers:
        await delete_sums_with(connection, name, client, numbers)
        await _leave_out_its_own_rounds(connection, name, client, numbers)
        its = updates.c.federation == name, updates.c.client == client
        await connection.execute(delete(updates).where(*its, updates.c.round.in_(numbers)))
    n_left = limit - len(newest)
    for table in (update_fates, events):
        if n_left > 0:
            n_left -= await _delete_some(connection, table, client, n_left)
    return digest, n_left > 0 and len(numbers) == len(newest)


async def _delete_bodies(
    connection: AsyncConnection, name: str, client: int, digest: str, numbers: Sequence[int]
) -> str:
    """Delete the bodies of a client's updates in these rounds; return the digest extended by them, in this order."""
    found = await connection.execute(
        select(rounds.c.number, rounds.c.part).where(rounds.c.federation == name, rounds.c.number.in_(numbers))
    )
    part_of = {row.number: row.part for row in found}
    for start in range(0, len(numbers), _PAGE):
        page = numbers[start : start + _PAGE]
        # With the whole key, or each page would read all rows of the client, in every part.
        its = update_bodies.c.federation == name, update_bodies.c.client == client
        of_page = update_bodies.c.round.in_(page), update_bodies.c.part.in_({part_of[number] for number in page})
        rows = await connection.execute(select(update_bodies.c.round, update_bodies.c.body).where(*its, *of_page))
        bodies = {row.round: row.body for row in rows}
        digest = digest_with(digest, (bodies[number] for number in page if number in bodies))
        await connection.execute(delete(update_bodies).where(*its, *of_page))
    return digest


def _first_of(newest: Sequence[Row[*tuple[Any, ...]]]) -> Iterator[int]:
    """The first rounds whose bytes fit a transaction, at least one."""
    n_bytes = 0
    for row in newest:
        n_bytes += row.n_bytes
        if n_bytes > _BYTES_AT_ONCE and row is not newest[0]:
            return
        yield row.round


async def _newest_rounds_of(connection: AsyncConnection, client: int, limit: int) -> Sequence[Row[*tuple[Any, ...]]]:
    """Find (round, n_bytes) of a client's newest updates, by the key in this order.

    The update in an open round is the newest. Updates withdrawn with their round cover nothing, and come last.
    """
    its = select(updates.c.round, updates.c.n_bytes).where(updates.c.client == client)
    counting = its.where(updates.c.covers_after.is_not(None)).order_by(updates.c.covers_after.desc())
    newest = (await connection.execute(counting.limit(limit))).all()
    if len(newest) < limit:
        taken_back = its.where(updates.c.covers_after.is_(None)).order_by(updates.c.round.desc())
        newest = [*newest, *(await connection.execute(taken_back.limit(limit - len(newest)))).all()]
    return newest


async def _delete_some(connection: AsyncConnection, table: Table, client: int, limit: int) -> int:
    """Delete at most so many of a client's rows of a table; return how many."""
    key = list(table.primary_key.columns)
    some = select(*key).where(table.c.client == client).limit(limit)
    deleted = await connection.execute(delete(table).where(tuple_(*key).in_(some)))
    return int(deleted.rowcount)


async def count_rows_of(connection: AsyncConnection, client: int, table: Table) -> int:
    """Count a client's rows of a table."""
    return int(await connection.scalar(select(func.count()).where(table.c.client == client)) or 0)


async def delete_mentions(connection: AsyncConnection, client: int) -> None:
    """Delete signed orders about a client and what the rule remembers of it.

    An order keeps its number and outcome, so that it is not carried out twice, but not its signed bytes.
    """
    await connection.execute(update(orders).where(orders.c.client == client).values(client=None, payload=None))
    await connection.execute(delete(defence_records).where(defence_records.c.client == client))


async def _leave_out_its_own_rounds(
    connection: AsyncConnection, name: str, client: int, numbers: Sequence[int]
) -> None:
    """Exclude from unlearning those of these rounds in which only this client has an update."""
    has_others = exists().where(
        updates.c.federation == name, updates.c.round == stored_rounds.c.round, updates.c.client != client
    )
    await connection.execute(
        delete(stored_rounds).where(stored_rounds.c.federation == name, stored_rounds.c.round.in_(numbers), ~has_others)
    )


async def clear_except_name(connection: AsyncConnection, client: int, at: datetime) -> None:
    """Clear a client's row except for its name, which is needed to notify its device."""
    blank: dict[str, Any] = {column.name: None for column in clients.columns if column.nullable}
    blank |= {column.name: 0 for column in clients.columns if column.server_default is not None}
    blank |= {"membership": Membership.FORGOTTEN, "online": False, "last_seen_at": at}
    await connection.execute(update(clients).where(clients.c.id == client).values(blank))


async def delete_client(connection: AsyncConnection, name: str, client: int) -> None:
    """Delete a forgotten client's row with its name, and everything stored of it since."""
    await delete_mentions(connection, client)
    is_last = False
    while not is_last:
        _, is_last = await delete_newest_of(connection, name, client, NOTHING_DIGESTED, _LEFT_AT_ONCE)
    await connection.execute(update(erasures).where(erasures.c.client == client).values(client=None))
    await connection.execute(delete(clients).where(clients.c.id == client))


async def rows_of(db: Database, name: str, client_id: str) -> dict[str, int]:
    """Count a client's rows in each table; tables without any are left out.

    A forgotten client has one in ``clients`` and ``erasures`` until its device is notified. ``federations`` counts one
    if the operator's newest roster names the client as revoked.

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
        # The federator verified its signature before storing it.
        voided = open_envelope(roster, MAX_CHUNKED_BYTES).read(Roster).revoked
        n_rows[federations.name] = sum(revocation.client_id == client_id for revocation in voided)
    return {table: n for table, n in n_rows.items() if n}
