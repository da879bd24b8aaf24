"""How long updates are kept: their bodies are deleted, all but those that unlearning replays."""

from dataclasses import dataclass

from sqlalchemy import and_, delete, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from foltr.storage.body_parts import is_kept
from foltr.storage.body_tables import body_parts, update_bodies
from foltr.storage.database import Database
from foltr.storage.erasure_tables import stored_rounds
from foltr.storage.federations import fenced_transaction
from foltr.storage.tables import rounds

# Keeps a call short even if nothing is left to delete: it skips at most so many rounds, and reads at most so many.
_ROUNDS_PASSED = 1000
_ROUNDS_AT_ONCE = 50


@dataclass(frozen=True, slots=True)
class RetentionStep:
    """What one call has done.

    Attributes:
        n_deleted: how many bodies it deleted.
        next_round: where the next call must begin; the end, once nothing is left to do.
    """

    n_deleted: int
    next_round: int


async def delete_old_bodies(
    db: Database, name: str, epoch: int, before_round: int, interval: int, *, first_round: int = 1, limit: int = 500
) -> RetentionStep:
    """Delete bodies of the updates of closed rounds from ``first_round`` to the one before ``before_round``.

    Every ``interval``-th round (1, 1 + interval, ...) keeps its bodies if it made a model: unlearning replays them. All
    rounds keep the facts about each update: its row, its fate, the counts. One call is at most one short transaction;
    call it until ``next_round`` is ``before_round``. First call `foltr.storage.body_parts.drop_old_part`, which says up
    to which round to delete row by row.

    Args:
        limit: deletes at most so many bodies, and reads at most as many rows, except those of one round.

    Raises:
        WriterFencedError: another federator has taken over.
        ValueError: ``interval`` or ``limit`` is below 1.
    """
    if interval < 1 or limit < 1:
        raise ValueError(f"interval {interval}, limit {limit}: both are at least 1")
    end = min(before_round, first_round + _ROUNDS_PASSED)
    if first_round >= end:
        return RetentionStep(0, before_round)
    async with db.reading() as connection:
        places, following = await _rounds_to_clear(connection, name, first_round, end, interval, limit)
        these = (
            update_bodies.c.federation == name,
            update_bodies.c.round.in_(list(places)),
            update_bodies.c.part.in_(set(places.values())),
        )
        answer = await connection.execute(
            select(update_bodies.c.round, update_bodies.c.client)
            .where(*these)
            .order_by(update_bodies.c.round, update_bodies.c.client)
            .limit(limit)
        )
        bodies = answer.all()
    if not bodies:
        return RetentionStep(0, following)
    last, client = bodies[-1]
    of_last = and_(update_bodies.c.round == last, update_bodies.c.client <= client)
    async with fenced_transaction(db, name, epoch) as connection:
        deleted = await connection.execute(
            delete(update_bodies).where(*these, or_(update_bodies.c.round < last, of_last))
        )
        await connection.execute(
            delete(stored_rounds).where(
                stored_rounds.c.federation == name, stored_rounds.c.round.in_({number for number, _ in bodies})
            )
        )
    return RetentionStep(int(deleted.rowcount), last if len(bodies) == limit else following)


async def _rounds_to_clear(
    connection: AsyncConnection, name: str, first: int, end: int, interval: int, limit: int
) -> tuple[dict[int, int], int]:
    """Find the first rounds from ``first`` on whose bodies go, with ``limit`` updates, or one round of them.

    Each comes with the part of its bodies; also returns the first round not read.
    """
    dropped = select(body_parts.c.part).where(body_parts.c.federation == name, body_parts.c.dropped_at.is_not(None))
    answer = await connection.execute(
        select(rounds.c.number, rounds.c.part, rounds.c.n_updates)
        .where(rounds.c.federation == name, rounds.c.number >= first, rounds.c.number < end)
        .where(rounds.c.closed_at.is_not(None), ~is_kept(interval), rounds.c.part.not_in(dropped))
        .order_by(rounds.c.number)
        .limit(_ROUNDS_AT_ONCE)
    )
    places: dict[int, int] = {}
    n_updates = 0
    for number, part, n in answer:
        n_updates += n
        if places and n_updates > limit:
            return places, number
        places[number] = part
    return places, end if len(places) < _ROUNDS_AT_ONCE else number + 1
