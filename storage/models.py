"""The versions of the ranker, and when the broker got each of them."""

from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Integer, bindparam, exists, func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from foltr.storage.database import Database, fetch_all, fetch_one
from foltr.storage.defence import ROUNDS, with_defence
from foltr.storage.model_tables import models
from foltr.storage.prepared import Prepared
from foltr.storage.records import ModelRow
from foltr.storage.restored_records import RestoredVersion
from foltr.storage.schema import OF_FEDERATION


def model_row(**columns: Any) -> ModelRow:
    """Make a record of a row of the table ``models``; withdrawn weights are empty."""
    row = ModelRow(**columns)
    return replace(row, weights=b"") if row.withdrawn_at is not None else row


async def latest_model(db: Database, name: str) -> ModelRow | None:
    """Find the newest model of the federation, or None if the federation does not exist."""
    async with db.reading() as connection:
        newest_first = select(models).where(models.c.federation == name).order_by(models.c.version.desc())
        row = await fetch_one(connection, model_row, newest_first.limit(1))
        return None if row is None else await with_defence(connection, row, ROUNDS)


async def model_hashes(db: Database, name: str, since: int) -> dict[int, bytes]:
    """Find the hashes of the weights of this version and all newer ones, including withdrawn ones."""
    async with db.reading() as connection:
        rows = await connection.execute(
            select(models.c.version, models.c.weights_hash).where(
                models.c.federation == name, models.c.version >= since
            )
        )
        return {row.version: row.weights_hash for row in rows}


async def newest_unlearned(db: Database, name: str, until: int | None = None) -> int:
    """Find the newest version made by an unlearning job, up to ``until`` if given; 0 without one."""
    unlearned = select(func.max(models.c.version)).where(models.c.federation == name)
    unlearned = unlearned.where(models.c.unlearning_job.is_not(None))
    async with db.reading() as connection:
        version = await connection.scalar(unlearned if until is None else unlearned.where(models.c.version <= until))
        return 0 if version is None else int(version)


async def get_model(db: Database, name: str, version: int) -> ModelRow | None:
    """Find one version, or None."""
    async with db.reading() as connection:
        which = models.c.federation == name, models.c.version == version
        row = await fetch_one(connection, model_row, select(models).where(*which))
        return None if row is None else await with_memory(connection, row)


async def get_anchor(db: Database, name: str, version: int) -> ModelRow | None:
    """Find a model without updates of erased clients; None if it does not exist, or has some.

    Its ``defence_state`` is the rule's memory of all clients together, without single clients.
    """
    clean = models.c.federation == name, models.c.version == version, models.c.tainted_at.is_(None)
    return await db.fetch_one(model_row, select(models).where(*clean))


async def list_models(db: Database, name: str, limit: int = 100) -> list[ModelRow]:
    """List the newest versions, newest last."""
    newest_first = select(models).where(models.c.federation == name).order_by(models.c.version.desc()).limit(limit)
    async with db.reading() as connection:
        rows = await fetch_all(connection, model_row, newest_first)
        return [await with_memory(connection, row) for row in rows[::-1]]


async def with_memory(connection: AsyncConnection, row: ModelRow) -> ModelRow:
    """Add the memory of clients to a model; an anchor has none."""
    if row.defence_state is None or row.unlearning_job is not None:
        return await with_defence(connection, row, row.unlearning_job or ROUNDS)
    newest = await connection.scalar(select(func.max(models.c.version)).where(models.c.federation == row.federation))
    return await with_defence(connection, row, ROUNDS) if row.version == newest else replace(row, defence_state=None)


# --- what was taken back ----------------------------------------------------------------------------------------
#
# A restored model has the weights of its base. The models between the two are dead ends: no later one is made from
# them. An anchor is never older than the newest restored model, so these spans never overlap.


async def list_restored(connection: AsyncConnection, name: str) -> list[RestoredVersion]:
    """List the restored models, the oldest first, within a transaction."""
    restored = select(models.c.version, models.c.restored_version).where(
        models.c.federation == name, models.c.restored_version.is_not(None)
    )
    return await fetch_all(connection, RestoredVersion, restored.order_by(models.c.version))


async def restored_versions(db: Database, name: str) -> list[RestoredVersion]:
    """List the restored models, the oldest first."""
    async with db.reading() as connection:
        return await list_restored(connection, name)


def is_taken_back(name: str, version: ColumnElement[int]) -> ColumnElement[bool]:
    """SQL for whether a model was rolled back: it lies between a restored model and the one it restores."""
    restored = models.alias()
    return exists().where(
        restored.c.federation == name, restored.c.restored_version < version, restored.c.version > version
    )


async def mark_model_published(connection: AsyncConnection, name: str, version: int, at: datetime) -> None:
    """Mark a model as taken by the broker, within a transaction; the first mark stays."""
    published = {"of_federation": name, "of_version": version, "published_at": at}
    await _MARK_PUBLISHED.execute(connection, published)


_MARK_PUBLISHED = Prepared(
    update(models).where(
        models.c.federation == OF_FEDERATION,
        models.c.version == bindparam("of_version", type_=Integer),
        models.c.published_at.is_(None),
    )
)
