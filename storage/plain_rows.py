"""Inserts many rows in one statement and gives the driver each value as it is.

SQLAlchemy asks the type of each column to adapt each value. For an update that takes as long as inserting it. Nearly
all values are what the drivers take anyway: numbers, text, bytes. SQLite has no moments and keeps them as text.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.sql.dml import Insert

from foltr.storage.schema import UtcDateTime

Row = Mapping[str, Any]


class PlainInsert:
    """An INSERT of rows that all have the same columns, of whose types only `UtcDateTime` needs adapting."""

    def __init__(self, statement: Insert) -> None:
        self._statement = statement
        self._made: dict[str, tuple[str, Callable[[Row], tuple[Any, ...]]]] = {}

    async def execute(self, connection: AsyncConnection, rows: Sequence[Row]) -> None:
        """Insert the rows, if there are any, in their order."""
        if not rows:
            return
        name = connection.dialect.name
        if name not in self._made:
            self._made[name] = self._make(connection, list(rows[0]))
        statement, values_of = self._made[name]
        await connection.exec_driver_sql(statement, [values_of(row) for row in rows])

    def _make(self, connection: AsyncConnection, columns: list[str]) -> tuple[str, Callable[[Row], tuple[Any, ...]]]:
        compiled: Any = self._statement.compile(dialect=connection.dialect, column_keys=columns)
        names: list[str] = compiled.positiontup
        take = itemgetter(*names)
        moments = [at for at, name in enumerate(names) if isinstance(compiled.binds[name].type, UtcDateTime)]
        if connection.dialect.name != "sqlite" or not moments:
            return str(compiled), take

        def values_of(row: Row) -> tuple[Any, ...]:
            values = list(take(row))
            for at in moments:
                values[at] = _as_text(values[at])
            return tuple(values)

        return str(compiled), values_of


def _as_text(moment: datetime | None) -> str | None:
    """Write a moment as SQLAlchemy writes it in SQLite."""
    if moment is None:
        return None
    if moment.tzinfo is None:
        raise ValueError(f"{moment!r} has no time zone; storage takes aware datetimes only")
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(" ", "microseconds")
