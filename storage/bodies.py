"""Bodies of updates: their places, and the statements that read, store and delete them.

Every statement names the part it needs (`foltr.storage.body_parts`); otherwise PostgreSQL searches all parts.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Row, ScalarSelect, Select, and_, bindparam, exists, func, insert, select, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from foltr.storage.body_tables import update_bodies
from foltr.storage.clients import is_client, key_of, select_named
from foltr.storage.database import Database, is_cancelled
from foltr.storage.prepared import Prepared
from foltr.storage.tables import rounds, updates

_OF_BODY = (update_bodies.c.cipher, update_bodies.c.key_fingerprint, update_bodies.c.ticket, update_bodies.c.body)
# How many rounds of a client one statement names.
_ROUNDS_AT_ONCE = 500


def part_of(name: Any, number: Any) -> ScalarSelect[int]:
    """Make the expression for the part that the bodies of a round are in.

    Args:
        name: the federation's name, or a parameter of the statement; ``number`` likewise.
    """
    return select(rounds.c.part).where(rounds.c.federation == name, rounds.c.number == number).scalar_subquery()


def in_round(name: Any, number: Any) -> tuple[ColumnElement[bool], ...]:
    """Make the conditions that a body is of a round."""
    of_round = update_bodies.c.federation == name, update_bodies.c.round == number
    return *of_round, update_bodies.c.part == part_of(name, number)


def is_body_of() -> ColumnElement[bool]:
    """Make the condition that a body is an update's."""
    return and_(*(update_bodies.c[key.name] == key for key in updates.primary_key))


def select_updates(name: Any, number: Any) -> Select[Any]:
    """Select the updates of a round, with client names and bodies; a deleted body is null."""
    with_body = and_(is_body_of(), update_bodies.c.part == part_of(name, number))
    return (
        select_named(updates, *_OF_BODY)
        .outerjoin(update_bodies, with_body)
        .where(updates.c.federation == name, updates.c.round == number)
    )


_CLIENT = key_of(bindparam("of_federation"), bindparam("of_client"), is_client())
_PART = part_of(bindparam("of_federation"), bindparam("of_round"))
INSERT_BODIES = Prepared(
    insert(update_bodies).inline().values(federation=bindparam("of_federation"), client=_CLIENT, part=_PART)
)


async def places_of(connection: AsyncConnection, client: int) -> Sequence[Row[*tuple[Any, ...]]]:
    """List (federation, client, round, update_id, part) of a client's updates, by round, with or without a body."""
    of_round = (rounds.c.federation == updates.c.federation) & (rounds.c.number == updates.c.round)
    answer = await connection.execute(
        select(updates.c.federation, updates.c.client, updates.c.round, updates.c.update_id, rounds.c.part)
        .join_from(updates, rounds, of_round)
        .where(updates.c.client == client)
        .order_by(updates.c.round)
    )
    return answer.all()


def pages_of(
    places: Sequence[Row[*tuple[Any, ...]]], size: int = _ROUNDS_AT_ONCE
) -> Iterator[tuple[ColumnElement[bool], ...]]:
    """Yield conditions on bodies for a client's places, ``size`` at a time, in their order."""
    for start in range(0, len(places), size):
        some = places[start : start + size]
        yield (
            # The whole key, or each page would read all rows of the client.
            update_bodies.c.federation == some[0].federation,
            update_bodies.c.round.in_([place.round for place in some]),
            update_bodies.c.client == some[0].client,
            update_bodies.c.part.in_({place.part for place in some}),
        )


async def count_bodies_of(connection: AsyncConnection, client: int) -> int:
    """Count the stored bodies of a client's updates."""
    n_bodies = 0
    for page in pages_of(await places_of(connection, client)):
        n_bodies += await connection.scalar(select(func.count()).select_from(update_bodies).where(*page)) or 0
    return n_bodies


async def count_orphans(db: Database, limit_s: float) -> int | None:
    """Count the bodies that no statement finds; on PostgreSQL no foreign key prevents them.

    They belong to no update, or are in another part than their round's. None if counting takes longer than ``limit_s``.
    """
    # As one condition: with two, each with its rows, PostgreSQL would look each body up singly.
    in_its_round = (rounds.c.federation == updates.c.federation) & (rounds.c.number == updates.c.round)
    is_found = exists().where(is_body_of(), in_its_round, rounds.c.part == update_bodies.c.part)
    try:
        async with db.reading() as connection:
            await connection.execute(text(f"SET LOCAL statement_timeout = '{limit_s:g}s'"))
            return await connection.scalar(select(func.count()).select_from(update_bodies).where(~is_found))
    except DBAPIError as error:
        if not is_cancelled(error):
            raise
        return None
