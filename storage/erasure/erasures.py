"""Erases a client: deletes its stored data in short transactions, and keeps what proves that.

The data key lies outside the database (`foltr.storage.keys`): it is destroyed after the transaction, and again at the
next start if the federator died in between.
"""

import asyncio
from collections.abc import Collection
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, and_, func, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from foltr.core.erasure.digests import NOTHING_DIGESTED
from foltr.core.erasure.states import (
    NOTHING_UNLEARNED,
    TRANSITIONS,
    UNTIL_ERASED,
    ErasureEvent,
    ErasureState,
    next_state,
)
from foltr.core.errors import ProtocolViolationError
from foltr.core.failpoints import Failpoint, failpoint
from foltr.core.protocol.states import OPEN_ROUND, Membership, RoundState
from foltr.storage.cipher import fingerprints
from foltr.storage.clients import find_keys, is_client, key_of, keys_for, select_named
from foltr.storage.database import Database, fetch_all, fetch_one
from foltr.storage.erasure.audit_log import CLIENT_ERASED, append_audit
from foltr.storage.erasure.client_rows import (
    clear_except_name,
    count_rows_of,
    delete_client,
    delete_mentions,
    delete_newest_of,
    rounds_of,
)
from foltr.storage.erasure_records import ErasureOutcome, ErasureRequest, ErasureRow, Sign
from foltr.storage.erasure_tables import erasures
from foltr.storage.events import store_events
from foltr.storage.federations import fenced_transaction
from foltr.storage.model_tables import models
from foltr.storage.models import list_restored
from foltr.storage.orders import store_orders
from foltr.storage.tables import clients, events, federations, rounds

ROWS_AT_ONCE = 200
"""How many of a client's updates, fates and events one transaction deletes: others' answers wait for it."""


async def erase_client(
    db: Database, name: str, epoch: int, request: ErasureRequest, limit: int = ROWS_AT_ONCE
) -> ErasureRow:
    """Take a client out of the federation, and taint the models that contain its updates.

    Deletes its updates, their outcomes and its events, newest first, at most ``limit`` of each in this transaction;
    that includes its update in the open round. A row of ``erasures`` with its pseudonym stays: in state ``erased`` if
    nothing is left, else ``erasing`` until `erase_more` has deleted the rest. The client's name stays until its device
    is notified. A client without stored data gets such rows as well. Repeating it returns the stored row.

    Raises:
        WriterFencedError: another federator has taken over.
        ProtocolViolationError: a round with its update is aggregating, so a model may be made with the update.
    """
    client_id, pseudonym = request.client_id, request.pseudonym
    async with fenced_transaction(db, name, epoch) as connection:
        await store_orders(connection, name, [] if request.order is None else [request.order])
        if (known := await _find(connection, name, pseudonym)) is not None:
            return known
        client = (await keys_for(connection, name, [client_id], request.erased_at))[client_id]
        contributed = await rounds_of(connection, name, client)
        completed = [row for row in contributed if row.state is RoundState.COMPLETED and row.is_in_sum]
        key_fingerprint = (await fingerprints(connection, name, clients.c.id == client)).get(client_id)
        await _taint(connection, name, [row.model_version for row in completed], request.erased_at)
        await delete_mentions(connection, client)
        await clear_except_name(connection, client, request.erased_at)
        row = ErasureRow(
            federation=name,
            pseudonym=pseudonym,
            client_id=client_id,
            state=ErasureState.ERASING,
            requested_at=request.requested_at,
            requested_by=request.requested_by,
            erased_at=request.erased_at,
            completed_at=None,
            n_rounds=len(completed),
            n_updates=len(contributed),
            n_events=await count_rows_of(connection, client, events),
            erased_digest=NOTHING_DIGESTED,
            first_round=completed[0].round if completed else None,
            key_fingerprint=key_fingerprint,
            key_destroyed=False,
            told=False,
            job=None,
            receipt=None,
            audit_seq=None,
        )
        values = asdict(row)
        del values["client_id"]
        await connection.execute(insert(erasures).values(values | {"client": client}))
        row = await _delete_rows(connection, row, client, request.erased_at, limit)
        await store_events(connection, name, request.events)
        failpoint(Failpoint.IN_ERASURE_TRANSACTION)
    return row


async def erase_more(
    db: Database, name: str, epoch: int, pseudonym: str, at: datetime, limit: int = ROWS_AT_ONCE
) -> ErasureRow:
    """Delete the next rows of a client in state ``erasing``; with the last one it becomes ``erased``.

    An erased client does not change.

    Raises:
        WriterFencedError: another federator has taken over.
    """
    async with fenced_transaction(db, name, epoch) as connection:
        row = await _require(connection, name, pseudonym)
        if row.state is not ErasureState.ERASING or row.client_id is None:
            return row
        keys = await find_keys(connection, name, [row.client_id])
        row = await _delete_rows(connection, row, keys[row.client_id], at, limit)
        failpoint(Failpoint.IN_ERASURE_TRANSACTION)
        return row


async def _delete_rows(
    connection: AsyncConnection, row: ErasureRow, client: int, at: datetime, limit: int
) -> ErasureRow:
    """Delete rows of a client within a transaction; return its changed erasure."""
    digest, is_last = await delete_newest_of(connection, row.federation, client, row.erased_digest, limit)
    row = replace(row, erased_digest=digest)
    if is_last:
        # Backups from before may still have its rows.
        row = replace(row, state=next_state(row.state, ErasureEvent.ROWS_DELETED), erased_at=at)
        body = {
            "pseudonym": row.pseudonym,
            "requested_by": row.requested_by,
            "requested_at": row.requested_at.isoformat(),
            "n_rounds": row.n_rounds,
            "n_updates": row.n_updates,
            "n_events": row.n_events,
            "erased_digest": digest,
        }
        await append_audit(connection, row.federation, at, CLIENT_ERASED, body)
    changed = {"state": row.state, "erased_at": row.erased_at, "erased_digest": digest}
    await _change(connection, row, client_id=row.client_id, **changed)
    await count_deletion(connection, row.federation)
    return row


async def _taint(connection: AsyncConnection, name: str, made: Collection[int], at: datetime) -> None:
    """Taint models made by rounds, and all made from these; comparisons with them end.

    Models that were taken back are in no later model.
    """
    restored = await list_restored(connection, name)
    first_until: dict[int | None, int] = {}
    for version in made:
        until = next((each.version for each in restored if each.takes_back(version)), None)
        first_until[until] = min(version, first_until.get(until, version))
    for until, first in first_until.items():
        holding = update(models).where(models.c.federation == name, models.c.tainted_at.is_(None))
        holding = holding.where(models.c.version >= first)
        await connection.execute(
            (holding if until is None else holding.where(models.c.version < until)).values(tainted_at=at)
        )
    tainted = select(models.c.version).where(
        models.c.federation == name, models.c.version == rounds.c.anchor_version, models.c.tainted_at.is_not(None)
    )
    await connection.execute(
        update(rounds)
        .where(rounds.c.federation == name, rounds.c.state.in_(OPEN_ROUND), tainted.exists())
        .values(anchor_version=None)
    )


async def find_erasure(db: Database, name: str, pseudonym: str) -> ErasureRow | None:
    """Find one erasure, or None."""
    async with db.reading() as connection:
        return await _find(connection, name, pseudonym)


async def is_named(db: Database, name: str, client_id: str) -> bool:
    """Tell whether stored data names somebody who is not a client, e.g. in refusals from before it joined."""
    async with db.reading() as connection:
        stranger = key_of(name, client_id, clients.c.membership == Membership.STRANGER)
        return await connection.scalar(select(stranger)) is not None


async def list_erasures(db: Database, name: str, limit: int = 100, *, before: str | None = None) -> list[ErasureRow]:
    """List the newest erasures, or the newest before the one of pseudonym ``before``, newest last."""
    found = select_named(erasures).where(erasures.c.federation == name)
    if before is not None:
        last = select(erasures.c.erased_at).where(erasures.c.federation == name, erasures.c.pseudonym == before)
        at = last.scalar_subquery()
        found = found.where(
            or_(erasures.c.erased_at < at, and_(erasures.c.erased_at == at, erasures.c.pseudonym < before))
        )
    async with db.reading() as connection:
        newest_first = found.order_by(erasures.c.erased_at.desc(), erasures.c.pseudonym.desc()).limit(limit)
        return (await fetch_all(connection, ErasureRow, newest_first))[::-1]


async def count_erased(db: Database, name: str, number: int) -> int:
    """Count the erased clients that had an update in this completed round or in one before it."""
    until = erasures.c.first_round <= number
    statement = select(func.count()).select_from(erasures).where(erasures.c.federation == name, until)
    async with db.reading() as connection:
        return await connection.scalar(statement) or 0


async def waiting_erasures(db: Database, name: str) -> list[ErasureRow]:
    """List the erasures that wait for an unlearning job, oldest first."""
    async with db.reading() as connection:
        return await select_erasures(connection, name, erasures.c.state == ErasureState.WAITING)


async def unfinished_erasures(db: Database, name: str) -> list[ErasureRow]:
    """List the work of a starting federator: rows to delete, keys to destroy, devices to notify."""
    untold = erasures.c.told.is_(False) & erasures.c.client.is_not(None)
    async with db.reading() as connection:
        return await select_erasures(connection, name, erasures.c.state.in_(UNTIL_ERASED) | untold)


async def forgotten_pseudonyms(db: Database, name: str) -> set[str]:
    """List the pseudonyms of all names that must not be reused."""
    async with db.reading() as connection:
        return set(await connection.scalars(select(erasures.c.pseudonym).where(erasures.c.federation == name)))


async def note_key_destroyed(
    db: Database, name: str, epoch: int, pseudonym: str, *, destroyed: bool = True
) -> ErasureRow:
    """Note that the client's data key is gone. An erasure that affects a model waits for a job from now on.

    Args:
        destroyed: False if the database has no keys: the erasure goes on, and its receipt says so.
    """
    async with fenced_transaction(db, name, epoch) as connection:
        known = await _require(connection, name, pseudonym)
        row = replace(known, key_destroyed=known.key_destroyed or destroyed)
        if row.state is ErasureState.ERASED and row.first_round is not None:
            waiting = next_state(row.state, ErasureEvent.LEFT_TO_A_JOB)
            row = replace(row, state=waiting, client_id=None if row.told else row.client_id)
        await _change(connection, known, state=row.state, key_destroyed=row.key_destroyed, client_id=row.client_id)
        return row


async def note_told(db: Database, name: str, epoch: int, pseudonym: str) -> None:
    """Note that its device was notified, and delete the name, which was kept for that."""
    async with fenced_transaction(db, name, epoch) as connection:
        row = await _require(connection, name, pseudonym)
        await _change(connection, row, told=True, client_id=row.client_id if row.state in UNTIL_ERASED else None)


async def drop_untold_names(db: Database, name: str, epoch: int, erased_before: datetime) -> int:
    """Give up on devices that could not be notified since then; return how many names were deleted."""
    async with fenced_transaction(db, name, epoch) as connection:
        untold = await connection.scalars(
            select(erasures.c.client)
            .where(erasures.c.federation == name, erasures.c.erased_at < erased_before)
            .where(erasures.c.client.is_not(None), erasures.c.state.not_in(UNTIL_ERASED))
        )
        keys = list(untold)
        for client in keys:
            await delete_client(connection, name, client)
        if keys:
            await count_deletion(connection, name)
        return len(keys)


async def complete_erasure(
    db: Database, name: str, epoch: int, pseudonym: str, completed_at: datetime, sign: Sign
) -> ErasureRow:
    """Complete the erasure of a client that is in no model; repeating it returns the stored row.

    Raises:
        ProtocolViolationError: a model contains the client, so a job must complete it.
    """
    async with fenced_transaction(db, name, epoch) as connection:
        row = await _require(connection, name, pseudonym)
        if row.state is ErasureState.DONE:
            return row
        if row.first_round is not None:
            raise ProtocolViolationError(f"erasure {pseudonym} of {name!r} has {row.n_rounds} rounds to unlearn")
        return await finish_erasure(connection, row, ErasureOutcome(NOTHING_UNLEARNED, completed_at), sign)


async def finish_erasure(
    connection: AsyncConnection, known: ErasureRow, outcome: ErasureOutcome, sign: Sign
) -> ErasureRow:
    """Complete an erasure within a transaction: add an audit entry, and the receipt that names it."""
    body = {
        "pseudonym": known.pseudonym,
        "strategy": outcome.strategy,
        "rounds_replayed": outcome.rounds_replayed,
        "model_before": outcome.model_before,
        "model_after": outcome.model_after,
        "models_withdrawn": outcome.models_withdrawn,
        "key_destroyed": known.key_destroyed,
    }
    entry = await append_audit(connection, known.federation, outcome.completed_at, "erasure_completed", body)
    was_unlearned = outcome.strategy != NOTHING_UNLEARNED
    event = ErasureEvent.MODEL_REPLACED if was_unlearned else ErasureEvent.NOTHING_TO_UNLEARN
    # A notified device needs its name no longer; another one is notified with the receipt.
    row = replace(
        known,
        state=next_state(known.state, event),
        completed_at=outcome.completed_at,
        audit_seq=entry.seq,
        client_id=None if known.told else known.client_id,
    )
    row = replace(row, receipt=sign(row, outcome, entry))
    await _change(
        connection,
        known,
        state=row.state,
        completed_at=row.completed_at,
        audit_seq=row.audit_seq,
        client_id=row.client_id,
        receipt=row.receipt,
    )
    return row


async def move_erasures(
    connection: AsyncConnection, name: str, event: ErasureEvent, *conditions: ColumnElement[bool], **values: Any
) -> int:
    """Apply an event to every erasure that allows it, within a transaction; return how many.

    Args:
        conditions: on their table, select erasures.
        values: columns to change as well.
    """
    n = 0
    for state in (state for state, allowed in TRANSITIONS if allowed is event):
        moved = await connection.execute(
            update(erasures)
            .where(erasures.c.federation == name, erasures.c.state == state, *conditions)
            .values(state=next_state(state, event), **values)
        )
        n += moved.rowcount
    return n


async def select_erasures(connection: AsyncConnection, name: str, condition: ColumnElement[bool]) -> list[ErasureRow]:
    """Find the erasures for which a condition on their table holds, oldest first."""
    return await fetch_all(
        connection,
        ErasureRow,
        select_named(erasures)
        .where(erasures.c.federation == name, condition)
        .order_by(erasures.c.erased_at, erasures.c.pseudonym),
    )


async def unreadable_clients(db: Database, name: str) -> list[str]:
    """List the clients whose updates are encrypted with a missing data key; empty if the database has no keys.

    After a restore these are the clients erased since the backup: erase them again. If it is all, the folder is another
        database's.
    """
    keys = db.keys
    if keys is None:
        return []
    async with db.reading() as connection:
        sealed_with = await fingerprints(connection, name, is_client())
    return await asyncio.to_thread(
        lambda: sorted(who for who in sealed_with if not keys.has(name, who, sealed_with[who]))
    )


# --- what deletions leave in the database's files ---------------------------------------------------------------
#
# Deletions are counted in their transactions, so that if a federator dies before it purges, the next one does.


async def count_deletion(connection: AsyncConnection, name: str) -> None:
    """Count a deletion of a forgotten client's data, within its transaction: the database then needs a purge."""
    await connection.execute(
        update(federations).where(federations.c.name == name).values(n_deletions=federations.c.n_deletions + 1)
    )


async def deletions_to_purge(db: Database, name: str) -> int | None:
    """Count all deletions so far if a purge is needed, else None."""
    async with db.reading() as connection:
        answer = await connection.execute(
            select(federations.c.n_deletions).where(
                federations.c.name == name, federations.c.n_purged < federations.c.n_deletions
            )
        )
        return answer.scalar_one_or_none()


async def note_purge(db: Database, name: str, epoch: int, n_deletions: int) -> None:
    """Note a purge that began after so many deletions; later ones still need a purge.

    Raises:
        WriterFencedError: another federator has taken over: it purges once more.
    """
    async with fenced_transaction(db, name, epoch) as connection:
        await connection.execute(update(federations).where(federations.c.name == name).values(n_purged=n_deletions))


# --- helpers ----------------------------------------------------------------------------------------------------


async def _find(connection: AsyncConnection, name: str, pseudonym: str) -> ErasureRow | None:
    return await fetch_one(
        connection,
        ErasureRow,
        select_named(erasures).where(erasures.c.federation == name, erasures.c.pseudonym == pseudonym),
    )


async def _require(connection: AsyncConnection, name: str, pseudonym: str) -> ErasureRow:
    row = await _find(connection, name, pseudonym)
    if row is None:
        raise ProtocolViolationError(f"federation {name!r} has no erasure {pseudonym}")
    return row


async def _change(connection: AsyncConnection, known: ErasureRow, *, client_id: str | None, **values: Any) -> None:
    """Store a row's new values, ``known`` being the stored ones; if its name goes, so does the row of ``clients``."""
    await connection.execute(
        update(erasures)
        .where(erasures.c.federation == known.federation, erasures.c.pseudonym == known.pseudonym)
        .values(**values)
    )
    if known.client_id is not None and client_id is None:
        keys = await find_keys(connection, known.federation, [known.client_id])
        await delete_client(connection, known.federation, keys[known.client_id])
        await count_deletion(connection, known.federation)
