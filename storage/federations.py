"""Federations and their single writer.

A federator claims its federation when it starts and gets an epoch. Every later write proves that this is still the
latest claim, so a federator that was paused, replaced and woken cannot write over its successor.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from enum import StrEnum
from typing import Any

from sqlalchemy import case, delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from foltr.core.errors import ProtocolViolationError, SettingsError
from foltr.core.protocol.fields import model_hash
from foltr.core.protocol.states import Privacy, TakesUpdates
from foltr.core.protocol.trainings import Activation
from foltr.storage.aggregation_tables import trainings
from foltr.storage.database import Database, insert_into
from foltr.storage.errors import WriterFencedError
from foltr.storage.ingest_tables import ingest_batches, ingestion
from foltr.storage.leases import Claimant, claim_lease
from foltr.storage.model_tables import models
from foltr.storage.prepared import Prepared
from foltr.storage.records import FederationRow
from foltr.storage.schema import OF_FEDERATION
from foltr.storage.tables import federations


async def create_federation(
    db: Database,
    name: str,
    n_features: int,
    ranker: str,
    initial_weights: bytes,
    now: datetime,
    selection_seed: bytes | None = None,
    *,
    aggregation_seed: bytes | None = None,
    pseudonym_key: bytes | None = None,
    method: str = "fpdgd",
    hidden: int | None = None,
    activation: Activation | None = None,
    privacy: Privacy = Privacy.TRUSTED,
    schema_hash: bytes | None = None,
    first_model_is_chosen: bool = False,
) -> None:
    """Create the federation with its initial model as version 0; if it exists, check that it fits.

    Stored seeds, key and initial model are kept.

    Args:
        pseudonym_key: of the pseudonyms of erased clients (`foltr.core.erasure.pseudonyms`), secret.
        hidden, activation: of a neural ranker's hidden units; None for a linear one.
        schema_hash: of the features' schema, if it has one.
        first_model_is_chosen: the initial model was chosen explicitly, so a different stored one is refused.

    Raises:
        SettingsError: the stored federation has another method, ranker, privacy or schema, models of another size, or
            another first model than the chosen one.
    """
    n_initial = len(initial_weights) // 4
    settings = {"method": method, "privacy": privacy, "ranker": ranker, "n_features": n_features, "hidden": hidden}
    settings |= {"activation": activation, "schema_hash": schema_hash}
    async with db.transaction() as connection:
        await connection.execute(
            insert_into(connection, federations).on_conflict_do_nothing(index_elements=["name"]),
            {
                "name": name,
                "writer_epoch": 0,
                "created_at": now,
                **settings,
            },
        )
        await connection.execute(
            update(federations)
            .where(federations.c.name == name)
            .values(
                selection_seed=func.coalesce(federations.c.selection_seed, selection_seed),
                aggregation_seed=func.coalesce(federations.c.aggregation_seed, aggregation_seed),
                pseudonym_key=func.coalesce(federations.c.pseudonym_key, pseudonym_key),
            )
        )
        stored = (await connection.execute(select(federations).where(federations.c.name == name))).one()
        _require_same(name, {key: getattr(stored, key) for key in settings}, settings)
        await connection.execute(
            insert_into(connection, models).on_conflict_do_nothing(index_elements=["federation", "version"]),
            {
                "federation": name,
                "version": 0,
                "n_values": n_initial,
                "weights": initial_weights,
                "created_at": now,
                "weights_hash": model_hash(initial_weights),
            },
        )
        first = select(models.c.n_values, models.c.weights_hash).where(
            models.c.federation == name, models.c.version == 0
        )
        n_values, stored_hash = (await connection.execute(first)).one()
        # A method's own settings can add values to a model.
        _require_same(name, {"values in a model": n_values}, {"values in a model": n_initial})
        if first_model_is_chosen and stored_hash != model_hash(initial_weights):
            raise SettingsError(
                f"initial_model: federation {name!r} began with another model and has learned since. Leave "
                "initial_model out, or give the new federation another name"
            )


async def claim_federation(
    db: Database,
    name: str,
    at: float,
    claimant: Claimant | None = None,
    takes_updates: TakesUpdates = TakesUpdates.WRITER,
) -> int:
    """Become the federation's only writer and return the epoch: every earlier claim is fenced from now on.

    The epoch is above every stored one, and at least ``at``: a restored database has lost its newest epochs, and
    devices trust nothing below the epoch they have seen.

    Args:
        at: epoch seconds: now, or more than every epoch that devices may have heard of.
        claimant: who gets the lease with it; None leaves the lease as it is.
        takes_updates: who stores updates from now on: the writer itself, or a leader that may let workers do it.

    Raises:
        SettingsError: the federation does not exist.
        WriterFencedError: another process now has the claimant's lease; nothing is claimed.
    """
    async with db.transaction() as connection:
        claimed = await connection.execute(
            update(federations)
            .where(federations.c.name == name)
            .values(
                writer_epoch=case(
                    (federations.c.writer_epoch >= int(at), federations.c.writer_epoch + 1), else_=int(at)
                )
            )
            .returning(federations.c.writer_epoch)
        )
        epoch: int | None = claimed.scalar_one_or_none()
        if epoch is not None and claimant is not None:
            await claim_lease(connection, name, claimant)
        if epoch is not None:
            await _begin_ingestion(connection, name, takes_updates)
    if epoch is None:
        raise SettingsError(f"federation = {name!r}: {db.location} has no such federation; create it first")
    return epoch


async def _begin_ingestion(connection: AsyncConnection, name: str, takes_updates: TakesUpdates) -> None:
    """Set who takes updates from now on; answers to devices are numbered from 0, and all of a round is read again."""
    await connection.execute(delete(ingest_batches).where(ingest_batches.c.federation == name))
    began = {"takes_updates": takes_updates, "n_answers": 0}
    if takes_updates is TakesUpdates.WRITER:
        # Without a row no workers ever took updates.
        await connection.execute(update(ingestion).where(ingestion.c.federation == name).values(began))
        return
    insert = insert_into(connection, ingestion).values(federation=name, n_collected=0, evaluation=False, **began)
    await connection.execute(insert.on_conflict_do_update(index_elements=["federation"], set_=began))


async def list_federations(db: Database) -> list[FederationRow]:
    """List every federation of the database, by name."""
    return await db.fetch_all(FederationRow, select(federations).order_by(federations.c.name))


async def get_federation(db: Database, name: str) -> FederationRow | None:
    """Find one federation, or None."""
    return await db.fetch_one(FederationRow, select(federations).where(federations.c.name == name))


@asynccontextmanager
async def fenced_transaction(db: Database, name: str, epoch: int) -> AsyncIterator[AsyncConnection]:
    """Begin a transaction of the federation's writer, which holds the federation's row to the end.

    Raises:
        WriterFencedError: another federator has claimed the federation since ``epoch``.
        ProtocolViolationError: the transaction contradicts what is stored; nothing of it is kept.
    """
    async with writer_transaction(db, name) as connection:
        await require_epoch(connection, name, epoch)
        yield connection


@asynccontextmanager
async def writer_transaction(db: Database, name: str) -> AsyncIterator[AsyncConnection]:
    """Begin one as `fenced_transaction` does, whose first statement checks the epoch itself."""
    try:
        async with db.transaction() as connection:
            yield connection
    except IntegrityError as error:
        raise ProtocolViolationError(f"federation {name!r} refuses to store this: {error.orig}") from error


async def require_epoch(connection: AsyncConnection, name: str, epoch: int) -> None:
    """Raise WriterFencedError unless ``epoch`` is the federation's latest claim."""
    # On PostgreSQL the row is locked until commit; on SQLite BEGIN IMMEDIATE has locked the whole file.
    _require_newest(name, await _LOCK_EPOCH.fetch_one(connection, {"of_federation": name}), epoch)


async def require_writer(db: Database, name: str, epoch: int) -> None:
    """Raise WriterFencedError as every write does, without writing: for an answer that stores nothing."""
    async with db.reading() as connection:
        newest = await _EPOCH.fetch_one(connection, {"of_federation": name})
    _require_newest(name, newest, epoch)


_SELECT_EPOCH = select(federations.c.writer_epoch).where(federations.c.name == OF_FEDERATION)
_EPOCH = Prepared(_SELECT_EPOCH)
_LOCK_EPOCH = Prepared(_SELECT_EPOCH.with_for_update())


def _require_newest(name: str, stored: dict[str, Any] | None, epoch: int) -> None:
    newest = None if stored is None else stored["writer_epoch"]
    if newest != epoch:
        raise WriterFencedError(
            f"federation {name!r} is at writer epoch {newest}, this federator holds {epoch}: "
            "another federator has taken over. Stop this one"
        )


def _require_same(name: str, stored: dict[str, object], settings: dict[str, object]) -> None:
    """Raise SettingsError if the settings contradict those a federation was created with."""
    if stored != settings:
        there, wanted = (
            ", ".join(f"{key} = {_plain(each[key])!r}" for key in each if (stored[key], settings[key]) != (None, None))
            for each in (stored, settings)
        )
        raise SettingsError(
            f"federation {name!r} is stored with {there}, but the settings have {wanted}. Change the settings, or "
            "give the new federation another name"
        )


def _plain(value: object) -> object:
    if isinstance(value, bytes):
        return value.hex()
    return str(value) if isinstance(value, StrEnum) else value


async def note_training(db: Database, name: str, epoch: int, from_round: int, training: str) -> None:
    """Store a federator's settings for computing rounds, from its first round on, unless they are stored already.

    None of these rounds has ended, so settings that another federator stored for them were never used.

    Args:
        training: JSON.
    """
    of_federation = trainings.c.federation == name
    async with fenced_transaction(db, name, epoch) as connection:
        await connection.execute(delete(trainings).where(of_federation, trainings.c.from_round >= from_round))
        newest_first = select(trainings.c.training).where(of_federation).order_by(trainings.c.from_round.desc())
        if await connection.scalar(newest_first.limit(1)) != training:
            row = {"federation": name, "from_round": from_round, "training": training}
            await connection.execute(insert(trainings), row)


async def load_trainings(db: Database, name: str) -> dict[int, str]:
    """Find the settings that rounds were computed with, as JSON, by the first round of each."""
    async with db.reading() as connection:
        rows = await connection.execute(
            select(trainings.c.from_round, trainings.c.training).where(trainings.c.federation == name)
        )
        return {row.from_round: row.training for row in rows}
