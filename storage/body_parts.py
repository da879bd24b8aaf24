"""Parts of the table of bodies on PostgreSQL: made ahead of their rounds, and dropped with all their bodies.

Dropping a table takes milliseconds at any size, and leaves nothing to vacuum. Rounds that unlearning keeps are always
in part 0, whose bodies are deleted row by row; so are rounds whose part was not made in time.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import ColumnElement, ScalarSelect, delete, exists, func, insert, select, text, update
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from foltr.core.failpoints import Failpoint, failpoint
from foltr.core.protocol.states import RoundState
from foltr.storage.bodies import in_round
from foltr.storage.body_tables import ROW_BY_ROW, body_parts, update_bodies
from foltr.storage.database import Database, is_lock_timeout, lacks_right
from foltr.storage.erasure_tables import stored_rounds
from foltr.storage.errors import PartsRefusedError
from foltr.storage.federations import fenced_transaction
from foltr.storage.schema import INTEGER_MAX
from foltr.storage.tables import rounds

# A session that waits for a lock on the table of bodies blocks all sessions after it.
LOCK_TIMEOUT_MS: Final = 100


@dataclass(frozen=True, slots=True)
class DropStep:
    """What one call has done.

    Attributes:
        n_updates: how many updates the rounds had whose bodies it dropped.
        n_moved: how many bodies of a kept round it moved, so that its part can be dropped.
        rows_before: once nothing is left to drop, delete bodies of rounds before this one row by row: the requested
            round, or the first of a part that can be dropped once more of its rounds are old.
        is_delayed: whether another session was in the way, such as a backup: nothing is dropped; try again later.
    """

    n_updates: int = 0
    n_moved: int = 0
    rows_before: int | None = None
    is_delayed: bool = False


def part_for(name: Any, number: Any) -> ScalarSelect[int]:
    """Make the expression for the part that will hold the bodies of a round about to open.

    Args:
        name: the federation's name, or a parameter of the statement; ``number`` likewise.
    """
    block = (
        select(body_parts.c.part)
        .where(body_parts.c.federation == name, body_parts.c.dropped_at.is_(None))
        .where(body_parts.c.first_round <= number, body_parts.c.last_round >= number)
        .where((number - 1) % body_parts.c.interval != 0)
    )
    return select(func.coalesce(block.scalar_subquery(), ROW_BY_ROW)).scalar_subquery()


def is_kept(interval: int) -> ColumnElement[bool]:
    """Make the condition that retention keeps a round's bodies because unlearning replays them."""
    return ((rounds.c.number - 1) % interval == 0) & (rounds.c.state == RoundState.COMPLETED)


async def prepare_part(db: Database, name: str, epoch: int, open_round: int, n_rounds: int, interval: int) -> int:
    """Make sure that a part exists for rounds after the open one; return the last round with a part.

    Does nothing on SQLite, which needs no parts.

    Args:
        n_rounds: rounds in a part; a new part is made when half as many are left.
        interval: retention keeps every so many rounds one.

    Raises:
        PartsRefusedError: the database's user may not make parts: it does not own the tables.
        WriterFencedError: another federator has taken over.
    """
    if db.dialect == "sqlite":
        return INTEGER_MAX
    newest = select(func.max(body_parts.c.last_round)).where(body_parts.c.federation == name)
    async with db.reading() as connection:
        last: int = await connection.scalar(newest) or 0
    if last - open_round > n_rounds // 2:
        return last
    first = max(last, open_round) + 1
    block = {"federation": name, "first_round": first, "last_round": first + n_rounds - 1, "interval": interval}
    try:
        async with _briefly_locking(db, name, epoch) as connection:
            part = await connection.scalar(insert(body_parts).values(block).returning(body_parts.c.part))
            # Creating it as a partition would lock the whole table; attaching it does not.
            await connection.execute(text(f"CREATE TABLE update_bodies_{part} (LIKE update_bodies INCLUDING ALL)"))
            attach = f"ALTER TABLE update_bodies ATTACH PARTITION update_bodies_{part} FOR VALUES IN ({part})"
            await connection.execute(text(attach))
            failpoint(Failpoint.IN_PART_TRANSACTION)
    except DBAPIError as error:
        if lacks_right(error):
            raise PartsRefusedError(str(getattr(error.orig, "__cause__", None) or error.orig)) from error
        if not is_lock_timeout(error):
            raise
        return last
    return first + n_rounds - 1


async def drop_old_part(
    db: Database, name: str, epoch: int, before_round: int, interval: int, at: datetime, *, most_moved: int = 1000
) -> DropStep:
    """Drop the oldest part whose rounds all come before ``before_round``, or take the next step towards that.

    If ``interval`` has changed since the part was made, retention now keeps some of its rounds: their bodies first move
    to part 0, one round per call. If one of these is too large, or the database's user may not drop the part, it stays,
    and its other rounds are deleted row by row. Call it until it reports that nothing is left.

    Args:
        most_moved: a round with more updates is not moved: others wait as long as its transaction takes.

    Raises:
        WriterFencedError: another federator has taken over.
    """
    if db.dialect == "sqlite":
        return DropStep(rows_before=before_round)
    of_part = (
        (rounds.c.federation == name)
        & rounds.c.number.between(body_parts.c.first_round, body_parts.c.last_round)
        & (rounds.c.part == body_parts.c.part)
    )
    kept = is_kept(interval)
    n_updates = select(func.coalesce(func.sum(rounds.c.n_updates), 0)).where(of_part).scalar_subquery()
    oldest = (
        select(
            body_parts.c.part,
            n_updates.label("n_updates"),
            select(func.min(rounds.c.number)).where(of_part, kept).scalar_subquery().label("kept_round"),
        )
        .where(body_parts.c.federation == name, body_parts.c.dropped_at.is_(None))
        .where(body_parts.c.last_round < before_round)
        .where(~exists().where(of_part, kept, rounds.c.n_updates > most_moved))
        .order_by(body_parts.c.first_round)
        .limit(1)
    )
    over_it = (
        select(func.min(body_parts.c.first_round))
        .where(body_parts.c.federation == name, body_parts.c.dropped_at.is_(None))
        .where(body_parts.c.last_round >= before_round)
    )
    async with db.reading() as connection:
        found = (await connection.execute(oldest)).one_or_none()
        if found is None:
            return DropStep(rows_before=min(before_round, await connection.scalar(over_it) or before_round))
    if found.kept_round is not None:
        return DropStep(n_moved=await _move_round(db, name, epoch, found.kept_round))
    its_rounds = select(rounds.c.number).join(body_parts, of_part).where(body_parts.c.part == found.part)
    thinned = stored_rounds.c.federation == name, stored_rounds.c.round.in_(its_rounds)
    try:
        async with _briefly_locking(db, name, epoch) as connection:
            await connection.execute(delete(stored_rounds).where(*thinned))
            dropped = update(body_parts).where(body_parts.c.part == found.part).values(dropped_at=at)
            await connection.execute(dropped)
            # The last step: from here on all others wait. The database's administrator may have dropped it already.
            await connection.execute(text(f"DROP TABLE IF EXISTS update_bodies_{found.part}"))
            failpoint(Failpoint.IN_PART_TRANSACTION)
    except DBAPIError as error:
        if lacks_right(error):
            return DropStep(rows_before=before_round)
        if not is_lock_timeout(error):
            raise
        return DropStep(is_delayed=True)
    return DropStep(found.n_updates)


async def _move_round(db: Database, name: str, epoch: int, number: int) -> int:
    """Move the bodies of a round to part 0; return how many."""
    async with fenced_transaction(db, name, epoch) as connection:
        moved = await connection.execute(update(update_bodies).where(*in_round(name, number)).values(part=ROW_BY_ROW))
        its_round = rounds.c.federation == name, rounds.c.number == number
        await connection.execute(update(rounds).where(*its_round).values(part=ROW_BY_ROW))
        failpoint(Failpoint.IN_PART_TRANSACTION)
    return int(moved.rowcount)


@asynccontextmanager
async def _briefly_locking(db: Database, name: str, epoch: int) -> AsyncIterator[AsyncConnection]:
    """Begin a writer's transaction that gives up if the table of bodies is locked."""
    async with fenced_transaction(db, name, epoch) as connection:
        await connection.execute(text(f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT_MS}ms'"))
        yield connection
