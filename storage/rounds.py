"""The life of a round in SQL: collecting, then aggregating, then completed or abandoned.

A round with a secure sum is checking and opening in between (`foltr.storage.sums`).

Each function is one transaction. A function that finds its own work already done returns quietly, so a federator that
lost the answer to a commit just calls it again.
"""

from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import fields
from datetime import datetime
from operator import itemgetter

from sqlalchemy import case, func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from foltr.core.errors import DataError, ProtocolViolationError
from foltr.core.failpoints import Failpoint, failpoint
from foltr.core.protocol.fields import model_hash
from foltr.core.protocol.states import RoundState
from foltr.storage.aggregations import store_aggregation
from foltr.storage.bodies import in_round
from foltr.storage.body_tables import update_bodies
from foltr.storage.cipher import decrypt_row
from foltr.storage.clients import is_not_forgotten
from foltr.storage.database import Database, fetch_all, fetch_one
from foltr.storage.defence import ROUNDS, forget_defence, store_defence
from foltr.storage.events import store_events
from foltr.storage.federations import fenced_transaction
from foltr.storage.model_tables import models
from foltr.storage.records import (
    CountingUpdate,
    DeadlineChange,
    NewEvent,
    NewModel,
    RoundOpening,
    RoundRow,
    UpdateRow,
)
from foltr.storage.round_statements import (
    CLOSE,
    INSERT_MODEL,
    NEXT_UPDATES,
    NOTE_BODIES,
    OPEN,
    STOP_COLLECTING,
    THE_ROUND,
    of_round,
)
from foltr.storage.schema import DETAIL_MAX
from foltr.storage.sum_rows import delete_masked_bodies, delete_sums, store_evaluation, store_tally
from foltr.storage.tables import IS_OPEN, clients, rounds, updates
from foltr.storage.watermarks import take_back_round

_OPENING = tuple(field.name for field in fields(RoundOpening))


async def open_round(db: Database, name: str, epoch: int, opening: RoundOpening) -> None:
    """Open a round. No other round of the federation may be open."""
    async with fenced_transaction(db, name, epoch) as connection:
        await open_next(connection, name, opening)


async def load_open_round(db: Database, name: str) -> tuple[RoundRow, list[CountingUpdate]] | None:
    """Find the open round with every update that counts in it, or None if none is open."""
    async with db.reading() as connection:
        opened = await fetch_one(
            connection,
            RoundRow,
            select(rounds).where(rounds.c.federation == name, IS_OPEN),
        )
        if opened is None:
            return None
        committed = await connection.execute(
            select(
                clients.c.client_id,
                updates.c.update_id,
                updates.c.covers_after,
                updates.c.cohort,
                updates.c.position,
            )
            .join_from(updates, clients, clients.c.id == updates.c.client)
            .where(updates.c.federation == name, updates.c.round == opened.number)
            .order_by(clients.c.client_id)
        )
        return opened, [CountingUpdate(*row) for row in committed]


async def latest_round(db: Database, name: str) -> RoundRow | None:
    """Find the round with the highest number, open or closed, or None before the first."""
    return await db.fetch_one(
        RoundRow, select(rounds).where(rounds.c.federation == name).order_by(rounds.c.number.desc()).limit(1)
    )


async def find_round(db: Database, name: str, number: int) -> RoundRow | None:
    """Find one round, or None."""
    return await db.fetch_one(RoundRow, select(rounds).where(rounds.c.federation == name, rounds.c.number == number))


async def stream_completed(db: Database, name: str, first: int, last: int, batch: int = 256) -> AsyncIterator[RoundRow]:
    """Read the rounds from ``first`` to ``last`` that made a model, in order; ``batch`` of them at a time."""
    statement = (
        select(rounds)
        .where(rounds.c.federation == name, rounds.c.state == RoundState.COMPLETED, rounds.c.number <= last)
        .order_by(rounds.c.number)
        .limit(batch)
    )
    while True:
        async with db.reading() as connection:
            page = await fetch_all(connection, RoundRow, statement.where(rounds.c.number >= first))
        for row in page:
            yield row
        if len(page) < batch:
            return
        first = page[-1].number + 1


async def count_updates(db: Database, name: str, number: int) -> tuple[int, int]:
    """Count a round's updates that have a row, and those that have a body: retention deletes bodies.

    Updates of clients being erased, which `stream_updates` skips, do not count.
    """
    n_rows = select(func.count()).join_from(updates, clients, clients.c.id == updates.c.client)
    n_bodies = select(func.count()).join_from(update_bodies, clients, clients.c.id == update_bodies.c.client)
    n_rows = n_rows.where(updates.c.federation == name, updates.c.round == number, is_not_forgotten())
    n_bodies = n_bodies.where(*in_round(name, number), is_not_forgotten())
    async with db.reading() as connection:
        return await connection.scalar(n_rows) or 0, await connection.scalar(n_bodies) or 0


async def begin_aggregation(db: Database, name: str, epoch: int, number: int) -> None:
    """Stop collecting: from now on the round's updates do not change."""
    async with fenced_transaction(db, name, epoch) as connection:
        await stop_collecting(connection, name, number)


async def stop_collecting(connection: AsyncConnection, name: str, number: int) -> None:
    """Make a collecting round aggregating, or checking if it has a secure sum; repeating it changes nothing."""
    if await STOP_COLLECTING.execute(connection, of_round(name, number)):
        return
    stored = await load_round(connection, name, number)
    if stored.state not in (RoundState.AGGREGATING, RoundState.CHECKING):
        raise ProtocolViolationError(f"round {number} of {name!r} is {stored.state}, not collecting")


async def change_state(
    connection: AsyncConnection, name: str, number: int, before: RoundState, after: RoundState
) -> bool:
    """Move a round from one state to the next, within a transaction; False if that is already done.

    Raises:
        ProtocolViolationError: it is in neither state.
    """
    moved = await connection.execute(
        update(rounds)
        .where(rounds.c.federation == name, rounds.c.number == number, rounds.c.state == before)
        .values(state=after)
    )
    if moved.rowcount == 1:
        return True
    stored = await load_round(connection, name, number)
    if stored.state is not after:
        raise ProtocolViolationError(f"round {number} of {name!r} is {stored.state}, not {before}")
    return False


async def require_collecting(
    connection: AsyncConnection,
    name: str,
    numbers: Collection[int],
    states: Sequence[RoundState] = (RoundState.COLLECTING,),
) -> None:
    """Raise ProtocolViolationError unless each of these rounds still takes updates, or is in one of these states."""
    collecting = await connection.scalars(
        select(rounds.c.number).where(
            rounds.c.federation == name, rounds.c.number.in_(numbers), rounds.c.state.in_(states)
        )
    )
    if closed := set(numbers) - set(collecting):
        raise ProtocolViolationError(f"federation {name!r} is not collecting for rounds {sorted(closed)}")


async def change_deadline(connection: AsyncConnection, name: str, change: DeadlineChange) -> None:
    """Change a collecting round's deadline, within a transaction."""
    await require_collecting(connection, name, {change.round})
    await connection.execute(
        update(rounds)
        .where(rounds.c.federation == name, rounds.c.number == change.round)
        .values(
            opened_at=change.opened_at,
            closes_at=change.closes_at,
            max_time_s=change.max_time_s,
            min_time_s=case((rounds.c.min_time_s > change.max_time_s, change.max_time_s), else_=rounds.c.min_time_s),
        )
    )


async def load_updates(
    db: Database, name: str, number: int, after: str, limit: int, *, readable_only: bool = False
) -> list[UpdateRow]:
    """Read the next updates of a round by client_id in byte order; fewer than ``limit`` at the end.

    Args:
        after: the client_id of the last one read; empty at first.
        readable_only: skip updates that cannot be read.

    Raises:
        DataError: an update cannot be read: retention has deleted it, its key is destroyed or missing, or it does not
            decrypt.
    """
    rows: list[UpdateRow] = []
    while True:
        parameters = of_round(name, number) | {"after": after, "most": limit}
        async with db.reading() as connection:
            page = await NEXT_UPDATES.fetch_all(connection, parameters)
        # By code points, which is byte order.
        page.sort(key=itemgetter("client_id"))
        for stored in page:
            try:
                rows.append(decrypt_row(db.keys, stored))
            except DataError:
                if not readable_only:
                    raise
        if len(page) < limit or len(rows) >= limit:
            return rows[:limit]
        after = page[-1]["client_id"]


async def stream_updates(db: Database, name: str, number: int, batch: int = 256) -> AsyncIterator[UpdateRow]:
    """Read the updates of a round by client_id in byte order, so that summing them again gives the same bits.

    Reads ``batch`` rows per short transaction: the updates of a round that is no longer collecting do not change, and a
    slow aggregation must not hold a snapshot open.

    Raises:
        DataError: an update cannot be read, see `load_updates`.
    """
    last = ""
    while True:
        page = await load_updates(db, name, number, last, batch)
        for row in page:
            yield row
        if len(page) < batch:
            return
        last = page[-1].client_id


async def first_round_on(db: Database, name: str, version: int) -> int | None:
    """Find the first round that trained from a model of this version or a newer one; None if none has yet."""
    # Versions and rounds rise together, so it comes after the newest round whose model is no newer; do not read them
    # all.
    made_before = (
        select(models.c.round)
        .where(models.c.federation == name, models.c.version <= version, models.c.round.is_not(None))
        .order_by(models.c.version.desc())
        .limit(1)
    )
    async with db.reading() as connection:
        before = await connection.scalar(made_before) or 0
        number: int | None = await connection.scalar(
            select(rounds.c.number)
            .where(rounds.c.federation == name, rounds.c.number > before, rounds.c.base_version >= version)
            .order_by(rounds.c.number)
            .limit(1)
        )
        return number


async def complete_round(
    db: Database,
    name: str,
    epoch: int,
    number: int,
    model: NewModel,
    closed_at: datetime,
    next_opening: RoundOpening | None = None,
) -> None:
    """Close an aggregating round with the model it made, and open the next round if given.

    The model is stored unpublished; a later batch marks it once the broker has taken it. The federator's state from
    round to round, the outcome of each update and findings are stored with it in one transaction. The rule's shared
    memory is deleted from the former model, unless that is the next anchor.
    """
    async with fenced_transaction(db, name, epoch) as connection:
        stored = await load_round(connection, name, number)
        if stored.state is RoundState.COMPLETED and stored.model_version == model.version:
            return
        if stored.state is not RoundState.AGGREGATING:
            raise ProtocolViolationError(f"round {number} of {name!r} is {stored.state}, not aggregating")
        anchor = stored.anchor_version if next_opening is None else next_opening.anchor_version
        had_memory = await forget_defence(connection, name, {model.version - 1, stored.anchor_version}, keep=anchor)
        defence_state = model.defence_state
        if had_memory or defence_state is not None:
            defence_state = await store_defence(connection, name, ROUNDS, defence_state)
        made = {
            "version": model.version,
            "base_version": stored.base_version,
            "n_values": len(model.weights) // 4,
            "weights": model.weights,
            "weights_hash": model_hash(model.weights),
            "created_at": closed_at,
            "optimizer_state": model.optimizer_state,
            "defence_state": defence_state,
        }
        made |= {"of_base": stored.base_version, "at": closed_at}
        await INSERT_MODEL.execute(connection, of_round(name, number) | made)
        if model.aggregation is not None:
            await store_aggregation(connection, name, number, model.aggregation)
        if model.tally is not None:
            await store_tally(connection, name, number, model.tally)
        if model.evaluation is not None:
            await store_evaluation(connection, name, number, model.evaluation)
        await store_events(connection, name, model.events)
        if stored.policy_hash is not None:
            await delete_masked_bodies(connection, name, number)
        else:
            await NOTE_BODIES.execute(connection, of_round(name, number))
        await _close(connection, name, number, closed_at, state=RoundState.COMPLETED, model_version=model.version)
        if next_opening is not None:
            await open_next(connection, name, next_opening)
        failpoint(Failpoint.IN_ROUND_TRANSACTION)


async def abandon_round(
    db: Database,
    name: str,
    epoch: int,
    number: int,
    reason: str,
    closed_at: datetime,
    next_opening: RoundOpening | None = None,
    noted: Sequence[NewEvent] = (),
) -> None:
    """Close an open round without a model, with the reason, and open the next round if given."""
    async with fenced_transaction(db, name, epoch) as connection:
        if not await close_without_model(connection, name, number, reason, closed_at):
            return
        await store_events(connection, name, noted)
        if next_opening is not None:
            # A federator started with another setting may have lost its anchor, or have one again.
            stored = await load_round(connection, name, number)
            former = {stored.anchor_version} - {stored.base_version}
            await forget_defence(connection, name, former, keep=next_opening.anchor_version)
            await open_next(connection, name, next_opening)


async def close_without_model(
    connection: AsyncConnection, name: str, number: int, reason: str, closed_at: datetime
) -> bool:
    """Abandon an open round, within a transaction; False if it is abandoned already. Its updates no longer count."""
    stored = await load_round(connection, name, number)
    if stored.state is RoundState.ABANDONED:
        return False
    if stored.state is RoundState.COMPLETED:
        raise ProtocolViolationError(f"round {number} of {name!r} is completed and cannot be abandoned")
    await take_back_round(connection, name, number)
    if stored.policy_hash is not None:
        await delete_masked_bodies(connection, name, number)
        await delete_sums(connection, name, number)
    await _close(connection, name, number, closed_at, state=RoundState.ABANDONED, reason=reason[:DETAIL_MAX])
    return True


async def open_next(connection: AsyncConnection, name: str, opening: RoundOpening) -> None:
    """Open a round, within a transaction; repeating it changes nothing."""
    values = {field: getattr(opening, field) for field in _OPENING}
    new = {"federation": name, "state": RoundState.COLLECTING, **values} | of_round(name, opening.number)
    if await OPEN[connection.dialect.name].execute(connection, new):
        return
    stored = await load_round(connection, name, opening.number)
    if any(getattr(stored, field) != value for field, value in values.items()):
        raise ProtocolViolationError(f"round {opening.number} of {name!r} was opened before, differently")


async def load_round(connection: AsyncConnection, name: str, number: int) -> RoundRow:
    """Load a round, within a transaction; ProtocolViolationError if it does not exist."""
    row = await THE_ROUND.fetch_one(connection, of_round(name, number))
    if row is None:
        raise ProtocolViolationError(f"federation {name!r} has no round {number}")
    return RoundRow(**row)


async def _close(
    connection: AsyncConnection,
    name: str,
    number: int,
    closed_at: datetime,
    *,
    state: RoundState,
    model_version: int | None = None,
    reason: str | None = None,
) -> None:
    outcome = {"state": state, "model_version": model_version, "reason": reason, "closed_at": closed_at}
    await CLOSE.execute(connection, of_round(name, number) | outcome)
