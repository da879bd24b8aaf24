"""The versions of the ranker, and since when the broker has each of them."""

from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from storage.database import Database, fetch_all, fetch_one
from storage.defence import ROUNDS, with_defence
from storage.records import ModelRow
from storage.tables import models


def model_row(**columns: Any) -> ModelRow:
    """Make a record of a row of the table ``models``; weights that were withdrawn are empty."""
    row = ModelRow(**columns)
    return replace(row, weights=b"") if row.withdrawn_at is not None else row


async def latest_model(db: Database, name: str) -> ModelRow | None:
    """Find the newest model of the federation, or None if there is no such federation."""
    async with db.reading() as connection:
        newest_first = select(models).where(models.c.federation == name).order_by(models.c.version.desc())
        row = await fetch_one(connection, model_row, newest_first.limit(1))
        return None if row is None else await with_defence(connection, row, ROUNDS)


async def model_hashes(db: Database, name: str, since: int) -> dict[int, bytes]:
    """Find the hashes of the weights of this version and all newer ones, also where they were withdrawn."""
    async with db.reading() as connection:
        rows = await connection.execute(
            select(models.c.version, models.c.weights_hash).where(
                models.c.federation == name, models.c.version >= since
            )
        )
        return {row.version: row.weights_hash for row in rows}


async def newest_unlearned(db: Database, name: str, until: int | None = None) -> int:
    """Find the newest version that an unlearning job made, up to one if that is given; 0 if there is none."""
    unlearned = select(func.max(models.c.version)).where(models.c.federation == name)
    unlearned = unlearned.where(models.c.unlearning_job.is_not(None))
    async with db.reading() as connection:
        version = await connection.scalar(unlearned if until is None else unlearned.where(models.c.version <= until))
        return 0 if version is None else int(version)


async def get_model(db: Database, name: str, version: int) -> ModelRow | None:
    """Find one version; None where there is none."""
    async with db.reading() as connection:
        which = models.c.federation == name, models.c.version == version
        row = await fetch_one(connection, model_row, select(models).where(*which))
        return None if row is None else await with_defence(connection, row, row.unlearning_job or ROUNDS)


async def list_models(db: Database, name: str, limit: int = 100) -> list[ModelRow]:
    """List the newest versions, newest last."""
    newest_first = select(models).where(models.c.federation == name).order_by(models.c.version.desc()).limit(limit)
    async with db.reading() as connection:
        rows = await fetch_all(connection, model_row, newest_first)
        return [await with_defence(connection, row, row.unlearning_job or ROUNDS) for row in rows[::-1]]


async def mark_model_published(connection: AsyncConnection, name: str, version: int, at: datetime) -> None:
    """Mark a model as taken by the broker, within a transaction; the first mark stays."""
    await connection.execute(
        update(models)
        .where(models.c.federation == name, models.c.version == version, models.c.published_at.is_(None))
        .values(published_at=at)
    )
