"""Erasing a client: all that is stored of it, in short transactions, and what is left to prove it.

The data key lies outside the database (`foltr.storage.keys`): it is destroyed after the transaction, and again at the
next start if the federator died in between.
"""

import asyncio
from collections.abc import Collection
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from foltr.core.erasure.digests import NOTHING_DIGESTED
from foltr.core.erasure.states import (
    NOTHING_UNLEARNED,
    TRANSITIONS,
    UNTIL_ERASED,
    ErasureEvent,
    ErasureState,
    following,
)
from foltr.core.errors import ProtocolViolationError
from foltr.core.failpoints import Failpoint, failpoint
from foltr.core.protocol.states import OPEN_ROUND, Membership, RoundState
from foltr.storage.cipher import fingerprints
from foltr.storage.clients import find_keys, is_client, key_of, keys_for, select_named
from foltr.storage.database import Database, fetch_all, fetch_one
from foltr.storage.erasure.audit_log import CLIENT_ERASED, append_audit
from foltr.storage.erasure.client_rows import (
    count_rows_of,
    delete_client,
    delete_newest_of,
    delete_what_names,
    leave_only_the_name,
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
"""So many of a client's updates, fates and events one transaction deletes: others' answers wait for it."""


async def erase_client(
    db: Database, name: str, epoch: int, request: ErasureRequest, limit: int = ROWS_AT_ONCE
) -> ErasureRow:
    """Take a client out of the federation, and taint the models that its updates are in.

    Its updates, what rules made of them and its events go, the newest first and at most ``limit`` of each with this
    transaction: what it has in the open round among them. A row of ``erasures`` with its pseudonym stays, in state
    ``erased`` if that was all, and else in ``erasing`` until `erase_more` has deleted the rest; of its own row its name
    stays until its device was told. A client that nothing is stored of gets such rows, too. Erased again, nothing
    changes and the row that is there is returned.

    Raises:
        WriterFencedError: another federator has taken over.
        ProtocolViolationError: a round that it has an update in is aggregating: its model may be made, with the update.
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
        await delete_what_names(connection, client)
        await leave_only_the_name(connection, client, request.erased_at)
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
    """Delete the next rows of a client that is being erased; with the last one it is ``erased``, at that moment.

    Of one that is erased nothing changes.

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
    """Delete rows of a client within a transaction; its erasure, as it is from then on."""
    digest, is_last = await delete_newest_of(connection, row.federation, client, row.erased_digest, limit)
    row = replace(row, erased_digest=digest)
    if is_last:
        # In a backup of before there may be rows of it.
        row = replace(row, state=following(row.state, ErasureEvent.ROWS_DELETED), erased_at=at)
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
    """Taint models that rounds made, and all that are made of them; none of these is compared with any more.

    What was taken back is in no model that was made since.
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
    """Tell whether anything stored has the name of somebody who is no client: refusals, say, before it could join."""
    async with db.reading() as connection:
        stranger = key_of(name, client_id, clients.c.membership == Membership.STRANGER)
        return await connection.scalar(select(stranger)) is not None


async def list_erasures(db: Database, name: str, limit: int = 100) -> list[ErasureRow]:
    """List the newest erasures, newest last."""
    async with db.reading() as connection:
        newest_first = (
            select_named(erasures)
            .where(erasures.c.federation == name)
            .order_by(erasures.c.erased_at.desc(), erasures.c.pseudonym.desc())
            .limit(limit)
        )
        return (await fetch_all(connection, ErasureRow, newest_first))[::-1]


async def waiting_erasures(db: Database, name: str) -> list[ErasureRow]:
    """List those that wait for an unlearning job, the first one first."""
    async with db.reading() as connection:
        return await select_erasures(connection, name, erasures.c.state == ErasureState.WAITING)


async def unfinished_erasures(db: Database, name: str) -> list[ErasureRow]:
    """List what a federator that starts has to go on with: rows to delete, keys to destroy, devices to tell."""
    untold = erasures.c.told.is_(False) & erasures.c.client.is_not(None)
    async with db.reading() as connection:
        return await select_erasures(connection, name, erasures.c.state.in_(UNTIL_ERASED) | untold)


async def forgotten_pseudonyms(db: Database, name: str) -> set[str]:
    """List the pseudonyms of all names that must not be used again."""
    async with db.reading() as connection:
        return set(await connection.scalars(select(erasures.c.pseudonym).where(erasures.c.federation == name)))


async def note_key_destroyed(
    db: Database, name: str, epoch: int, pseudonym: str, *, destroyed: bool = True
) -> ErasureRow:
    """Note that no data key of the client exists any more. Who is in a model waits for a job from now on.

    Args:
        destroyed: False where the database has no keys: the erasure goes on, and its receipt says so.
    """
    async with fenced_transaction(db, name, epoch) as connection:
        known = await _require(connection, name, pseudonym)
        row = replace(known, key_destroyed=known.key_destroyed or destroyed)
        if row.state is ErasureState.ERASED and row.first_round is not None:
            waiting = following(row.state, ErasureEvent.LEFT_TO_A_JOB)
            row = replace(row, state=waiting, client_id=None if row.told else row.client_id)
        await _change(connection, known, state=row.state, key_destroyed=row.key_destroyed, client_id=row.client_id)
        return row


async def note_told(db: Database, name: str, epoch: int, pseudonym: str) -> None:
    """Note that its device knows: the name, which was kept to tell it, goes."""
    async with fenced_transaction(db, name, epoch) as connection:
        row = await _require(connection, name, pseudonym)
        await _change(connection, row, told=True, client_id=row.client_id if row.state in UNTIL_ERASED else None)


async def drop_untold_names(db: Database, name: str, epoch: int, erased_before: datetime) -> int:
    """Give up on devices that were not there to be told since; how many names went with that."""
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
    """Complete the erasure of a client that is in no model. Done again, it returns what is there.

    Raises:
        ProtocolViolationError: there is something to unlearn: a job completes it.
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
    """Complete an erasure within a transaction: with an entry of the audit log, and the receipt that names it."""
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
    # Once told, a device needs its name no more; one that was not is told with the receipt.
    row = replace(
        known,
        state=following(known.state, event),
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
    """The part of a transaction in which an event happens to every erasure that allows it; how many there were.

    Args:
        conditions: on their table, which of them.
        values: that change with it.
    """
    n = 0
    for state in (state for state, allowed in TRANSITIONS if allowed is event):
        moved = await connection.execute(
            update(erasures)
            .where(erasures.c.federation == name, erasures.c.state == state, *conditions)
            .values(state=following(state, event), **values)
        )
        n += moved.rowcount
    return n


async def select_erasures(connection: AsyncConnection, name: str, condition: ColumnElement[bool]) -> list[ErasureRow]:
    """Find the erasures for which a condition on their table holds, the first one first."""
    return await fetch_all(
        connection,
        ErasureRow,
        select_named(erasures)
        .where(erasures.c.federation == name, condition)
        .order_by(erasures.c.erased_at, erasures.c.pseudonym),
    )


async def unreadable_clients(db: Database, name: str) -> list[str]:
    """List the clients whose updates are sealed with a data key that is not there; none where the database has no keys.

    After the database was restored from a backup these were erased since: erase them again. Where it is everybody, the
    folder is not that of this database's keys.
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
# They are counted in the transactions that delete, so that a federator that dies before it purges leaves it to the
# next.


async def count_deletion(connection: AsyncConnection, name: str) -> None:
    """Note within a transaction that it deletes something of a forgotten client: the database is to be purged."""
    await connection.execute(
        update(federations).where(federations.c.name == name).values(n_deletions=federations.c.n_deletions + 1)
    )


async def deletions_to_purge(db: Database, name: str) -> int | None:
    """Count the deletions that a purge which begins now is for, from the first one on; None if none needs it."""
    async with db.reading() as connection:
        answer = await connection.execute(
            select(federations.c.n_deletions).where(
                federations.c.name == name, federations.c.n_purged < federations.c.n_deletions
            )
        )
        return answer.scalar_one_or_none()


async def note_purge(db: Database, name: str, epoch: int, n_deletions: int) -> None:
    """Note a purge that began after so many deletions; those since then are to be purged still.

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
    """Store new values of a row, ``known`` as it is stored; without its name the row of ``clients`` goes, too."""
    await connection.execute(
        update(erasures)
        .where(erasures.c.federation == known.federation, erasures.c.pseudonym == known.pseudonym)
        .values(**values)
    )
    if known.client_id is not None and client_id is None:
        keys = await find_keys(connection, known.federation, [known.client_id])
        await delete_client(connection, known.federation, keys[known.client_id])
        await count_deletion(connection, known.federation)
