"""How an ingest worker stores a batch of updates: it decides and writes in one transaction, under a lock.

All writers lock the federation's row first. A batch is decided by data read under that lock, never by a worker's
memory. Closing a round, erasing, revoking or quarantining a client, and other workers come before or after it.
"""

import json
from collections.abc import Callable
from typing import Any

from sqlalchemy import JSON, Select, Text, bindparam, cast, func, literal, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from foltr.core.erasure.pseudonyms import pseudonym
from foltr.core.errors import ProtocolViolationError
from foltr.core.failpoints import Failpoint, failpoint
from foltr.core.protocol.states import RoundState, TakesUpdates
from foltr.storage.aggregation_tables import trainings
from foltr.storage.arrivals import find_stored, store_updates
from foltr.storage.cipher import encrypt_bodies
from foltr.storage.clients import is_client, select_clients
from foltr.storage.database import Database, fetch_all, fetch_one
from foltr.storage.database_clock import DatabaseNow
from foltr.storage.erasure_tables import erasures
from foltr.storage.events import store_events
from foltr.storage.federations import writer_transaction
from foltr.storage.ingest import may_end_at, store_worker
from foltr.storage.ingest_records import (
    BatchKeys,
    DecisionInputs,
    IngestDecision,
    Ingested,
    IngestNotAllowed,
    RoundFacts,
)
from foltr.storage.ingest_tables import ingest_batches, ingestion
from foltr.storage.keys import KeyStore
from foltr.storage.model_tables import models
from foltr.storage.models import list_restored
from foltr.storage.records import ClientRow, CountingUpdate, RoundRow
from foltr.storage.tables import IS_OPEN, clients, federations, rounds, updates
from foltr.storage.watermarks import move_watermarks

Decide = Callable[[DecisionInputs], IngestDecision]


async def take_updates(
    db: Database,
    name: str,
    asked: BatchKeys,
    decide: Decide,
    known: RoundFacts | None = None,
    worker_id: str | None = None,
) -> Ingested | IngestNotAllowed:
    """Decide on a batch and store the result in one transaction. If a commit is in doubt, repeat it.

    Args:
        decide: gets stored data, under the lock, and returns what to store; called once for each try.
        known: facts of an earlier batch, which are read again if they are of another round.
        worker_id: noted with the batch and the worker's progress.

    Raises:
        ProtocolViolationError: the decision contradicts stored state; nothing of it is stored.
        SettingsError: a client has encrypted updates whose key is missing.
    """
    await db.follow_file()  # a worker has no claim that a restore would end
    failpoint(Failpoint.INGEST_BEGUN)
    async with writer_transaction(db, name) as connection:
        if db.dialect == "postgresql":
            await connection.execute(_HOLD_FOR_SECONDS)
        held = (await connection.execute(_HOLD, {"of_federation": name})).one_or_none()
        if held is None or held.takes_updates is not TakesUpdates.WORKERS:
            return IngestNotAllowed(TakesUpdates.WRITER if held is None else held.takes_updates)
        opened = await fetch_one(connection, RoundRow, select(rounds).where(rounds.c.federation == name, IS_OPEN))
        if opened is None or opened.state is not RoundState.COLLECTING:
            return IngestNotAllowed(held.takes_updates)
        ends = may_end_at(opened.opened_at, opened.min_time_s, opened.closes_at)
        if held.n_collected >= opened.max_clients and held.now >= ends[0]:
            return IngestNotAllowed(held.takes_updates)  # its leader is about to end it
        ground = await _ground(connection, db.keys, name, held, opened, asked, known)
        taken = decide(ground)
        if taken.n_answers == 0:
            return IngestNotAllowed(held.takes_updates)
        if any(new.round != opened.number for new in taken.updates):
            raise ProtocolViolationError(f"federation {name!r} is collecting for round {opened.number} alone")
        await move_watermarks(connection, name, taken.updates)
        bodies = await encrypt_bodies(connection, db.keys, name, taken.updates)
        await store_updates(connection, name, taken.updates, bodies)
        await store_events(connection, name, taken.events)
        await _note_batch(connection, name, held.n_answers + 1, taken)
        n_collected = held.n_collected + len(taken.updates)
        counted = {"n_answers": held.n_answers + taken.n_answers, "n_collected": n_collected}
        await connection.execute(update(ingestion).where(ingestion.c.federation == name).values(counted))
        if worker_id is not None and taken.arrived_before is not None:
            await store_worker(connection, name, worker_id, taken.arrived_before)
        failpoint(Failpoint.IN_INGEST_TRANSACTION)
    failpoint(Failpoint.INGEST_COMMITTED)
    return Ingested(held.writer_epoch, held.n_answers + 1, n_collected, ends)


async def _note_batch(connection: AsyncConnection, name: str, first_answer: int, taken: IngestDecision) -> None:
    """Note whose updates these are: the leader reads only these when it takes updates back."""
    if not taken.updates:
        return
    is_sqlite = connection.dialect.name == "sqlite"
    keys = func.json_group_array(clients.c.id) if is_sqlite else cast(func.json_agg(clients.c.id), Text)
    senders = _names(connection, frozenset(new.client_id for new in taken.updates))
    batch = select(literal(name), literal(first_answer), keys).where(
        clients.c.federation == name, clients.c.client_id.in_(senders)
    )
    columns = ["federation", "first_answer", "clients"]
    await connection.execute(ingest_batches.insert().from_select(columns, batch))


# A worker that is paused while it holds the row must not block its leader; SQLite has no such limit.
_HOLD_FOR_SECONDS = text("SET LOCAL idle_in_transaction_session_timeout = '5s'")
_HOLD = (
    select(
        federations.c.writer_epoch,
        ingestion.c.takes_updates,
        ingestion.c.n_answers,
        ingestion.c.n_collected,
        ingestion.c.evaluation,
        federations.c.n_deletions,
        DatabaseNow().label("now"),
    )
    .join_from(federations, ingestion, ingestion.c.federation == federations.c.name)
    .where(federations.c.name == bindparam("of_federation"))
    # On SQLite the transaction locked the whole file when it began.
    .with_for_update()
)


async def _ground(
    connection: AsyncConnection,
    keys: KeyStore | None,
    name: str,
    held: Any,
    opened: RoundRow,
    asked: BatchKeys,
    known: RoundFacts | None,
) -> DecisionInputs:
    of_keys = held.writer_epoch, held.n_deletions
    of_round = opened.number, opened.base_version
    facts = known
    if keys is not None and (facts is None or (facts.epoch, facts.n_deletions) != of_keys):
        # Keys of erased clients are destroyed; a process that re-encrypted updates has claimed the federation for that.
        keys.clear_cache()
    if facts is None or (facts.epoch, facts.n_deletions, facts.number, facts.base_version) != of_keys + of_round:
        facts = await _facts(connection, name, *of_keys, opened)
    of_batch = clients.c.client_id.in_(_names(connection, asked.client_ids))
    found = await fetch_all(connection, ClientRow, select_clients(name).where(of_batch))
    strangers = asked.client_ids - {row.client_id for row in found}
    roster, forgotten = await _forgotten(connection, name, strangers, facts) if strangers else (None, frozenset())
    collected = (
        select(clients.c.client_id, updates.c.update_id, updates.c.covers_after, updates.c.cohort, updates.c.position)
        .join_from(updates, clients, clients.c.id == updates.c.client)
        .where(clients.c.federation == name, of_batch)
        .where(updates.c.federation == name, updates.c.round == opened.number)
    )
    return DecisionInputs(
        facts=facts,
        round=opened,
        clients=found,
        stored=await find_stored(connection, name, asked.identities),
        collected=[CountingUpdate(*row) for row in await connection.execute(collected)],
        n_collected=held.n_collected,
        roster=roster,
        forgotten=forgotten,
        evaluation=held.evaluation,
    )


def _names(connection: AsyncConnection, client_ids: frozenset[str]) -> Select[Any]:
    """Make a table of names from one parameter: the statement is the same for any number."""
    listed = literal(json.dumps(sorted(client_ids)), Text())
    if connection.dialect.name == "sqlite":
        return select(func.json_each(listed).table_valued("value").c.value)
    return select(func.json_array_elements_text(cast(listed, JSON)).column_valued("value"))


async def _facts(connection: AsyncConnection, name: str, epoch: int, n_deletions: int, opened: RoundRow) -> RoundFacts:
    of_round = trainings.c.federation == name, trainings.c.from_round <= opened.number
    training = select(trainings.c.training).where(*of_round).order_by(trainings.c.from_round.desc()).limit(1)
    oldest = opened.base_version - opened.staleness_limit
    known = models.c.federation == name, models.c.version >= oldest
    hashes = await connection.execute(select(models.c.version, models.c.weights_hash).where(*known))
    unlearned = select(func.max(models.c.version)).where(
        models.c.federation == name, models.c.unlearning_job.is_not(None)
    )
    pseudonym_key = select(federations.c.pseudonym_key).where(federations.c.name == name)
    return RoundFacts(
        epoch=epoch,
        n_deletions=n_deletions,
        number=opened.number,
        base_version=opened.base_version,
        training=await connection.scalar(training),
        model_hashes={row.version: row.weights_hash for row in hashes},
        oldest_base=await connection.scalar(unlearned) or 0,
        restored=await list_restored(connection, name),
        pseudonym_key=await connection.scalar(pseudonym_key) or b"",
    )


async def _forgotten(
    connection: AsyncConnection, name: str, strangers: frozenset[str], facts: RoundFacts
) -> tuple[bytes | None, frozenset[str]]:
    """Find the operator's roster, and the pseudonyms of the forgotten clients among these names."""
    roster = await connection.scalar(select(federations.c.roster).where(federations.c.name == name))
    pseudonyms = [pseudonym(facts.pseudonym_key, client_id) for client_id in strangers]
    found = select(erasures.c.pseudonym).where(erasures.c.federation == name, erasures.c.pseudonym.in_(pseudonyms))
    return roster, frozenset(await connection.scalars(found))


async def find_public_keys(db: Database, name: str, client_ids: frozenset[str]) -> dict[str, bytes | None]:
    """Find the keys that verify these clients' messages; names that are not clients are left out."""
    await db.follow_file()
    async with db.reading() as connection:
        of_batch = clients.c.client_id.in_(_names(connection, client_ids))
        found = select(clients.c.client_id, clients.c.public_key).where(clients.c.federation == name, of_batch)
        return {row.client_id: row.public_key for row in await connection.execute(found.where(is_client()))}


async def list_keys(db: Database, name: str, after: int, limit: int = 50_000) -> tuple[dict[str, bytes | None], int]:
    """List the keys of clients that joined later than those already listed; also return where to continue."""
    columns = select(clients.c.id, clients.c.client_id, clients.c.public_key)
    later = columns.where(clients.c.federation == name, clients.c.id > after, is_client())
    await db.follow_file()
    async with db.reading() as connection:
        rows = (await connection.execute(later.order_by(clients.c.id).limit(limit))).all()
    return {row.client_id: row.public_key for row in rows}, rows[-1].id if rows else after


async def find_facts(db: Database, name: str) -> RoundFacts | None:
    """Find the facts of the open round; None if workers do not take updates, or no round is open."""
    columns = federations.c.writer_epoch, federations.c.n_deletions, ingestion.c.takes_updates
    takes = select(*columns).join_from(federations, ingestion, ingestion.c.federation == federations.c.name)
    await db.follow_file()
    async with db.reading() as connection:
        held = (await connection.execute(takes.where(federations.c.name == name))).one_or_none()
        if held is None or held.takes_updates is not TakesUpdates.WORKERS:
            return None
        opened = await fetch_one(connection, RoundRow, select(rounds).where(rounds.c.federation == name, IS_OPEN))
        return None if opened is None else await _facts(connection, name, held.writer_epoch, held.n_deletions, opened)
