"""The versions of the ranker, which are also the outbox: what is not marked published is published again."""

from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy import Row, func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from storage.database import Database
from storage.federations import fenced_transaction
from storage.records import ModelRow
from storage.tables import models


def model_row(row: Row[*tuple[Any, ...]]) -> ModelRow:
    """A row of the table ``models``; weights that were withdrawn are empty."""
    found = ModelRow(*row)
    return replace(found, weights=b"") if found.withdrawn_at is not None else found


async def latest_model(db: Database, name: str) -> ModelRow | None:
    """The newest model of the federation, or None if there is no such federation."""
    async with db.reading() as connection:
        found = await connection.execute(
            select(models).where(models.c.federation == name).order_by(models.c.version.desc()).limit(1)
        )
        row = found.one_or_none()
        return None if row is None else model_row(row)


async def newest_unlearned(db: Database, name: str) -> int:
    """The newest version that an unlearning job made; 0 if there is none."""
    async with db.reading() as connection:
        found = await connection.scalar(
            select(func.max(models.c.version)).where(models.c.federation == name, models.c.unlearning_job.is_not(None))
        )
        return 0 if found is None else int(found)


async def get_model(db: Database, name: str, version: int) -> ModelRow | None:
    """One version, or None."""
    async with db.reading() as connection:
        found = await connection.execute(select(models).where(models.c.federation == name, models.c.version == version))
        row = found.one_or_none()
        return None if row is None else model_row(row)


async def list_models(db: Database, name: str, limit: int = 100) -> list[ModelRow]:
    """The newest versions, newest first."""
    async with db.reading() as connection:
        found = await connection.execute(
            select(models).where(models.c.federation == name).order_by(models.c.version.desc()).limit(limit)
        )
        return [model_row(row) for row in found]


async def unpublished_models(db: Database, name: str) -> list[ModelRow]:
    """The models the broker has not taken yet and still may, oldest first."""
    async with db.reading() as connection:
        found = await connection.execute(
            select(models)
            .where(models.c.federation == name, models.c.published_at.is_(None), models.c.withdrawn_at.is_(None))
            .order_by(models.c.version)
        )
        return [model_row(row) for row in found]


async def mark_published(db: Database, name: str, epoch: int, version: int, at: datetime) -> None:
    """The broker has taken this model. The first mark stays."""
    async with fenced_transaction(db, name, epoch) as connection:
        await mark_model_published(connection, name, version, at)


async def mark_model_published(connection: AsyncConnection, name: str, version: int, at: datetime) -> None:
    """The part of a transaction that marks a model as taken by the broker."""
    await connection.execute(
        update(models)
        .where(models.c.federation == name, models.c.version == version, models.c.published_at.is_(None))
        .values(published_at=at)
    )
