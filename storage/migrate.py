"""The schema's revisions: which one a database is at, and how to move it. Alembic, without its command line.

The scripts live in `migrations/`, beside this room in a checkout and in a wheel.
"""

from collections.abc import Callable
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

from foltr.storage.database import Database
from foltr.storage.engines import BUSY_TIMEOUT_S
from foltr.storage.errors import SchemaNewerError, SchemaOlderError

# "foltr" in ASCII: the advisory lock under which migrations run one process at a time.
LOCK_KEY = 0x666F6C7472


async def upgrade(db: Database, revision: str = "head") -> None:
    """Move the schema forward to ``revision``, in one transaction; does nothing if it is there."""
    await _run(db, lambda config: command.upgrade(config, revision))


async def downgrade(db: Database, revision: str) -> None:
    """Move the schema back to ``revision``; ``base`` drops every table with its data."""
    await _run(db, lambda config: command.downgrade(config, revision))


async def current(db: Database) -> str | None:
    """Find the revision of the database, or None if no migration ever ran there."""
    async with db.reading() as connection:
        return await connection.run_sync(_current)


def head() -> str:
    """Find the newest revision this installation of foltr knows."""
    newest = ScriptDirectory.from_config(_config()).get_current_head()
    if newest is None:
        raise FileNotFoundError(f"{_migrations()} holds no revisions: the installation of foltr is broken")
    return newest


def is_known(revision: str) -> bool:
    """Tell whether this installation of foltr can upgrade tables from this revision."""
    return revision in _known_revisions()


async def require_head(db: Database) -> None:
    """Check that the schema is the one this installation was written for.

    Raises:
        SchemaOlderError, SchemaNewerError: it is not; the message says what to do.
    """
    revision, wanted = await current(db), head()
    if revision == wanted:
        return
    if revision is not None and revision not in _known_revisions():
        raise SchemaNewerError(
            f"{db.location} is at schema revision {revision}, which this foltr does not know (its newest is "
            f"{wanted}): install the foltr that made it, or a newer one"
        )
    raise SchemaOlderError(
        f"{db.location} is at schema revision {revision or 'none'}, this foltr needs {wanted}: "
        "run `foltr db upgrade` with the same --db"
    )


async def _run(db: Database, step: Callable[[Config], None]) -> None:
    def migrate(connection: Connection) -> None:
        config = _config()
        config.attributes["connection"] = connection
        step(config)

    async with db.schema_transaction() as connection:
        if db.dialect == "postgresql":
            # Two services that start together both upgrade; the second waits and then finds nothing to do. SQLite needs
            # no such lock: BEGIN IMMEDIATE is one. Here a wait may take as long as an upgrade.
            await connection.execute(text("SELECT set_config('lock_timeout', '0', true)"))
            await connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": LOCK_KEY})
            await connection.execute(text(f"SELECT set_config('lock_timeout', '{BUSY_TIMEOUT_S}s', true)"))
        await connection.run_sync(migrate)


def _current(connection: Connection) -> str | None:
    return MigrationContext.configure(connection).get_current_revision()


def _known_revisions() -> set[str]:
    return {script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions()}


def _config() -> Config:
    config = Config()
    # Config interpolates %, which a folder's name may contain.
    config.set_main_option("script_location", str(_migrations()).replace("%", "%%"))
    config.set_main_option("path_separator", "os")
    return config


def _migrations() -> Path:
    return Path(__file__).resolve().parents[1] / "migrations"
