"""Statements that are made once, and by whom they are executed without looking at their parts again.

SQLAlchemy finds what it compiled of a statement by all of the statement's parts, makes an object of each execution and
of each answer, and goes through a greenlet for what it might wait for. Of a statement about a row or two that is nine
tenths of the time. In the thread of SQLite's transactions nothing is waited for, so there statements that modules make
once (`constant`) go to the driver as they were compiled, with their values adapted by the types of the same columns.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy import Dialect, Executable
from sqlalchemy.exc import MultipleResultsFound, NoResultFound

S = TypeVar("S", bound=Executable)
Adapt = Callable[[Any], Any]

# By identity, which is all that a statement is compared by; they are there for as long as the process.
_CONSTANTS: dict[int, Executable] = {}


def constant(statement: S) -> S:
    """Have a statement compiled once for each set of parameters; of one that a module makes once."""
    _CONSTANTS[id(statement)] = statement
    return statement


def is_constant(statement: Executable) -> bool:
    """Whether a statement is one that its module makes once."""
    return id(statement) in _CONSTANTS


@dataclass(frozen=True, slots=True)
class Compiled:
    """A statement as a driver takes it, whose parameters have places in place of names.

    Attributes:
        names: of the parameters, by place.
        own: values that the statement itself brings, adapted.
        adapts: of which places values are adapted, and how.
        columns: of what it selects, as far as it is known.
        reads: of which columns what is found is read, and how.
    """

    text: str
    names: tuple[str, ...]
    own: Mapping[str, Any]
    adapts: tuple[tuple[int, Adapt], ...]
    columns: tuple[str, ...]
    reads: tuple[tuple[int, Adapt], ...]

    def values_of(self, parameters: Mapping[str, Any]) -> list[Any]:
        """Put values by place. KeyError where one is missing."""
        given = {**self.own, **parameters}
        values = [given[name] for name in self.names]
        for at, adapt in self.adapts:
            values[at] = adapt(values[at])
        return values

    def rows_of(self, found: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """Read rows as they were found."""
        if not self.reads:
            return found
        rows = []
        for row in found:
            values = list(row)
            for at, read in self.reads:
                values[at] = read(values[at])
            rows.append(tuple(values))
        return rows


def compile_constant(statement: Any, dialect: Dialect, given: Sequence[str]) -> Compiled:
    """Compile a statement for parameters of these names, as SQLAlchemy does when it executes it.

    Raises:
        ValueError: a list of any length is in it, which would be written into the statement each time anew; or it
            returns rows that it changes, or has defaults that SQLAlchemy makes, which are its own to read and to make.
    """
    compiled = statement.compile(dialect=dialect, column_keys=list(given))
    is_for_sqlalchemy = compiled.effective_returning or compiled.insert_prefetch or compiled.update_prefetch
    if compiled.post_compile_params or compiled.literal_execute_params or is_for_sqlalchemy:
        raise ValueError(f"not a constant statement: {compiled}")
    names = tuple(compiled.positiontup or ())
    binds = compiled.binds
    how = {name: binds[name].type.dialect_impl(dialect).bind_processor(dialect) for name in names}
    own = {name: value for name, value in compiled.params.items() if name not in given and not binds[name].required}
    own = {name: how[name](value) if how.get(name) else value for name, value in own.items()}
    adapts = tuple((at, how[name]) for at, name in enumerate(names) if name not in own and how[name] is not None)
    selected = tuple(getattr(statement, "selected_columns", ()))
    read = [column.type.dialect_impl(dialect).result_processor(dialect, None) for column in selected]
    reads = tuple((at, how_read) for at, how_read in enumerate(read) if how_read is not None)
    return Compiled(str(compiled), names, own, adapts, tuple(column.name for column in selected), reads)


class Answer:
    """What a constant statement has come to, with those methods of SQLAlchemy's results that are asked for of one."""

    __slots__ = ("_columns", "_rows", "rowcount")

    def __init__(self, rows: list[tuple[Any, ...]], columns: tuple[str, ...], rowcount: int) -> None:
        self._rows = rows
        self._columns = columns
        self.rowcount = rowcount

    def keys(self) -> tuple[str, ...]:
        """Return the names of the columns."""
        return self._columns

    def all(self) -> list[tuple[Any, ...]]:
        """Return all rows."""
        return self._rows

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        return iter(self._rows)

    def one_or_none(self) -> tuple[Any, ...] | None:
        """Return the only row; None where there is none. Raises MultipleResultsFound of several."""
        if len(self._rows) > 1:
            raise MultipleResultsFound("several rows where there is to be one")
        return self._rows[0] if self._rows else None

    def one(self) -> tuple[Any, ...]:
        """Return the only row. Raises NoResultFound or MultipleResultsFound."""
        row = self.one_or_none()
        if row is None:
            raise NoResultFound("no row where there is to be one")
        return row

    def scalar(self) -> Any:
        """Return the first value of the first row; None where there is none."""
        return self._rows[0][0] if self._rows else None

    def scalars(self) -> list[Any]:
        """Return the first value of each row."""
        return [row[0] for row in self._rows]
