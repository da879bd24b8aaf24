"""Statements of the hot path, each compiled once for a database.

For a statement on a row or two, SQLAlchemy spends most of its time finding the compiled statement by all of its parts,
and on objects for the execution and its answer. A prepared statement goes to the driver as compiled, and only values
whose column type needs it are converted.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import Dialect, Executable
from sqlalchemy.ext.asyncio import AsyncConnection

Values = Mapping[str, Any]
_Adapt = tuple[int, Callable[[Any], Any]]


class Prepared:
    """A statement that a module makes once; every value that changes is a parameter."""

    def __init__(self, statement: Executable) -> None:
        self.statement = statement
        self._compiled: dict[tuple[str, tuple[str, ...]], _Compiled] = {}

    async def fetch_all(self, connection: AsyncConnection, parameters: Values) -> list[dict[str, Any]]:
        """Return each row as a dictionary by the names of the columns."""
        if connection.dialect.name != "sqlite":
            # How to read PostgreSQL's values depends on types in its answer.
            return [dict(row) for row in (await connection.execute(self.statement, parameters)).mappings()]
        compiled = self._for(connection, parameters)
        answer = await connection.exec_driver_sql(compiled.text, compiled.bind(parameters))
        return compiled.read(answer.fetchall())

    async def fetch_one(self, connection: AsyncConnection, parameters: Values) -> dict[str, Any] | None:
        """Return the first row, or None."""
        return next(iter(await self.fetch_all(connection, parameters)), None)

    async def execute(self, connection: AsyncConnection, parameters: Values) -> int:
        """Execute the statement; return how many rows were inserted, updated or deleted."""
        compiled = self._for(connection, parameters)
        return (await connection.exec_driver_sql(compiled.text, compiled.bind(parameters))).rowcount

    async def execute_many(self, connection: AsyncConnection, rows: Sequence[Values]) -> None:
        """Execute the statement once for each row; all rows have the same names."""
        if rows:
            compiled = self._for(connection, rows[0])
            await connection.exec_driver_sql(compiled.text, [compiled.bind(row) for row in rows])

    def _for(self, connection: AsyncConnection, parameters: Values) -> "_Compiled":
        key = connection.dialect.name, tuple(parameters)
        compiled = self._compiled.get(key)
        if compiled is None:
            compiled = self._compiled[key] = _Compiled(self.statement, connection.dialect, key[1])
        return compiled


class _Compiled:
    """A statement in a driver's form, for parameters of these names."""

    def __init__(self, statement: Any, dialect: Dialect, given: tuple[str, ...]) -> None:
        compiled = statement.compile(dialect=dialect, column_keys=given)
        if compiled.post_compile_params or compiled.effective_returning:
            raise ValueError(f"a prepared statement has neither a list of any length nor RETURNING: {compiled}")
        self.text = str(compiled)
        self._places: tuple[str, ...] = tuple(compiled.positiontup)
        adapts = {
            name: adapt
            for name in self._places
            if (adapt := compiled.binds[name].type.dialect_impl(dialect).bind_processor(dialect)) is not None
        }
        # Values that the statement itself contains, such as a state.
        self._own = {
            name: adapts[name](value) if name in adapts else value
            for name, value in compiled.params.items()
            if name not in given and not compiled.binds[name].required
        }
        self._adapts: list[_Adapt] = [
            (place, adapts[name]) for place, name in enumerate(self._places) if name in adapts and name in given
        ]
        columns = tuple(getattr(statement, "selected_columns", ()))
        self._names = tuple(column.name for column in columns)
        reads = (column.type.dialect_impl(dialect).result_processor(dialect, None) for column in columns)
        self._reads: list[_Adapt] = [(place, read) for place, read in enumerate(reads) if read is not None]

    def bind(self, parameters: Values) -> tuple[Any, ...]:
        """Put the values in their places."""
        known = {**self._own, **parameters}
        values = [known[name] for name in self._places]
        for place, adapt in self._adapts:
            values[place] = adapt(values[place])
        return tuple(values)

    def read(self, rows: Sequence[Sequence[Any]]) -> list[dict[str, Any]]:
        """Make rows of what the driver answers."""
        found = []
        for row in rows:
            values = list(row)
            for place, read in self._reads:
                values[place] = read(values[place])
            found.append(dict(zip(self._names, values, strict=True)))
        return found
