"""A backup of a database, and its restore, on SQLite and PostgreSQL alike: all rows of all tables."""

from typing import Any

from sqlalchemy import Select, Table, delete, insert, select

from foltr.storage.database import Database
from foltr.storage.schema import metadata

Backup = dict[str, list[dict[str, Any]]]


async def back_up(db: Database) -> Backup:
    """Read every row of every table, at one moment, older ones first: a model's row names the model before it."""
    async with db.reading() as connection:
        return {
            table.name: [dict(row) for row in (await connection.execute(_in_order(table))).mappings()]
            for table in metadata.sorted_tables
        }


async def restore(db: Database, backup: Backup) -> None:
    """Have the rows of the backup and no others. Nobody else may be connected who would write."""
    async with db.transaction() as connection:
        for table in reversed(metadata.sorted_tables):
            await connection.execute(delete(table))
        for table in metadata.sorted_tables:
            if backup[table.name]:
                await connection.execute(insert(table), backup[table.name])


def _in_order(table: Table) -> Select[Any]:
    return select(table).order_by(*table.primary_key)
