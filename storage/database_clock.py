"""The database's clock, which processes on several machines share."""

from datetime import datetime
from typing import Any

from sqlalchemy import Float, literal
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from foltr.storage.schema import UtcDateTime


class DatabaseNow(FunctionElement[datetime]):
    """The moment at which the database runs the expression, plus so many seconds; not the start of the transaction.

    A transaction may have waited for a lock, and must decide by the time after that.
    """

    name = "database_now"
    type = UtcDateTime()
    inherit_cache = True

    def __init__(self, plus_s: float = 0.0) -> None:
        super().__init__(literal(float(plus_s), Float()))


@compiles(DatabaseNow, "postgresql")
def _on_postgresql(element: DatabaseNow, compiler: SQLCompiler, **options: Any) -> str:
    return f"(clock_timestamp() + make_interval(secs => {compiler.process(element.clauses, **options)}))"


@compiles(DatabaseNow, "sqlite")
def _on_sqlite(element: DatabaseNow, compiler: SQLCompiler, **options: Any) -> str:
    # In SQLAlchemy's format, so that texts compare like moments; SQLite has a precision of milliseconds.
    shift = f"printf('%+.3f seconds', {compiler.process(element.clauses, **options)})"
    return f"strftime('%Y-%m-%d %H:%M:%f000', 'now', {shift})"
