"""The migrations make the schema that the code expects, and can be taken back."""

import asyncio
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, inspect, select, text
from support.waiting import PATIENCE_S

from foltr.core.errors import SettingsError
from foltr.storage import engines, migrate
from foltr.storage.database import VACUUM_TIMEOUT_S, Database
from foltr.storage.engines import STATEMENT_TIMEOUT_S
from foltr.storage.errors import SchemaNewerError, SchemaOlderError
from foltr.storage.migrate import _migrations, current, downgrade, head, require_head, upgrade
from foltr.storage.tables import metadata
from foltr.storage.views import views

NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


# A step as a later version may have it: SQLite rewrites the table, to which others refer.
_NEXT_STEP = """
import os

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    with op.batch_alter_table("models") as models:
        models.add_column(sa.Column("n_bytes", sa.Integer()))
    op.execute("UPDATE models SET n_bytes = length(weights)")
    with op.batch_alter_table("models") as models:
        models.create_check_constraint("n_bytes", "n_bytes >= 0")
    AT_ITS_END


def downgrade() -> None:
    with op.batch_alter_table("models") as models:
        models.drop_constraint("n_bytes", type_="check")
        models.drop_column("n_bytes")
"""


class Following:
    """A copy of the migrations, to which a made-up next step may be added."""

    def __init__(self, folder: Path) -> None:
        self.folder = Path(shutil.copytree(_migrations(), folder))
        self._step = folder / "versions" / "0006_next.py"

    def add(self, at_its_end: str = "") -> None:
        self._step.write_text(_NEXT_STEP.replace("AT_ITS_END", at_its_end))

    def remove(self) -> None:
        self._step.unlink()

    def upgrade_in_a_process(self, url: str) -> int:
        migrates = (
            "import asyncio, pathlib, sys\n"
            f"from {Database.__module__} import Database\n"
            f"from {migrate.__name__.rpartition('.')[0]} import migrate\n"
            "migrate._migrations = lambda: pathlib.Path(sys.argv[1])\n"
            "async def upgrade():\n"
            "    async with await Database.connect(sys.argv[2]) as db:\n"
            "        await migrate.upgrade(db)\n"
            "asyncio.run(upgrade())\n"
        )
        command = [sys.executable, "-c", migrates, self.folder, url]
        return subprocess.run(command, check=False, timeout=PATIENCE_S).returncode


@pytest.fixture
def following(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Following:
    """The migrations of a version that has none beyond ours until a test adds one."""
    made = Following(tmp_path / "migrations")
    monkeypatch.setattr(migrate, "_migrations", lambda: made.folder)
    return made


async def test_upgrade_makes_every_table_and_view(migrated: Database) -> None:
    """Alembic's own comparison finds nothing missing, nothing too much, no comment that differs."""

    def differences(connection: Connection) -> list[Any]:
        # The partitions are not in the metadata.
        ours = {"include_name": lambda name, kind, _: kind != "table" or not name.startswith("update_bodies_")}
        context = MigrationContext.configure(connection, opts={"compare_type": True, **ours})
        # On PostgreSQL bodies have no foreign key (`foltr.storage.body_tables`), which the comparison does not know.
        return [each for each in compare_metadata(context, metadata) if each[0] != "add_fk"]

    async with migrated.reading() as connection:
        assert await connection.run_sync(differences) == []


async def test_migrated_equals_created(migrated: Database, tmp_path: Path, request) -> None:
    """Constraints too, which Alembic does not compare: migrations and metadata make the same schema."""
    async with migrated.reading() as connection:
        from_migrations = await connection.run_sync(_schema)
    if migrated.dialect == "sqlite":
        url = f"sqlite:///{tmp_path}/created.sqlite"
    else:
        url = request.getfixturevalue("postgres_databases").empty()
    async with await Database.connect(url) as created:
        async with created.transaction() as connection:
            await connection.run_sync(metadata.create_all)
        async with created.reading() as connection:
            assert await connection.run_sync(_schema) == from_migrations


async def test_the_views_have_the_declared_columns(migrated: Database) -> None:
    """What the queries select is what the migration made, in the same order."""
    async with migrated.reading() as connection:
        for view in views.tables.values():
            found = await connection.execute(select(text("*")).select_from(view))
            assert list(found.keys()) == [column.name for column in view.columns]


async def test_down_and_up_again(migrated: Database) -> None:
    """Taking the schema back leaves nothing; both directions may be repeated."""
    await upgrade(migrated)
    assert await current(migrated) == head()
    await downgrade(migrated, "base")
    assert await current(migrated) is None
    async with migrated.reading() as connection:
        assert await connection.run_sync(_names) == []
    await upgrade(migrated)
    assert await current(migrated) == head()


async def test_a_failing_upgrade_changes_nothing(database_url: str) -> None:
    """All steps are one transaction: a table in the way leaves the database as it was."""
    async with await Database.connect(database_url) as db:
        async with db.transaction() as connection:
            await connection.execute(text("CREATE TABLE events (x INTEGER)"))
        with pytest.raises(Exception, match="events"):
            await upgrade(db)
        async with db.reading() as connection:
            assert await connection.run_sync(_names) == ["events"]
        assert await current(db) is None


async def test_two_services_may_upgrade_at_once(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second waits for the first and finds nothing to do."""
    monkeypatch.setitem(engines._SQLITE_OPTIONS, "timeout", PATIENCE_S)  # noqa: SLF001 (five seconds to make all)
    async with await Database.connect(database_url) as one, await Database.connect(database_url) as other:
        await asyncio.gather(upgrade(one), upgrade(other))
        assert await current(one) == head()


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
async def test_a_large_table_may_take_its_time(database_url: str) -> None:
    """A step of an upgrade has an hour, and a federator's statement after it the seconds that it has."""
    limit = text("SELECT setting::int / 1000 FROM pg_settings WHERE name = 'statement_timeout'")
    async with await Database.connect(database_url) as db:
        async with db.schema_transaction() as connection:
            assert await connection.scalar(limit) == VACUUM_TIMEOUT_S
        async with db.transaction() as connection:
            assert await connection.scalar(limit) == STATEMENT_TIMEOUT_S < VACUUM_TIMEOUT_S


async def test_an_old_schema_says_what_to_run(database_url: str) -> None:
    """A service does not start on a schema it was not written for."""
    async with await Database.connect(database_url) as db:
        with pytest.raises(SchemaOlderError, match=r"revision none.*foltr db upgrade"):
            await require_head(db)
        await upgrade(db)
        await require_head(db)
        async with db.transaction() as connection:
            await connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
        with pytest.raises(SchemaNewerError, match=r"9999, which this foltr does not know"):
            await require_head(db)


async def test_a_later_step_keeps_every_row(learned, following) -> None:
    """From the baseline to a next step and back: it changes a table that others refer to, and fills what it adds."""
    before = await learned.dump()
    async with learned.db.reading() as connection:
        schema = await connection.run_sync(_schema)
    following.add()
    with pytest.raises(SettingsError, match=r"revision 0005, this foltr needs 0006: run `foltr db upgrade`"):
        await require_head(learned.db)
    await upgrade(learned.db)
    await require_head(learned.db)
    async with learned.db.reading() as connection:
        assert (await connection.scalars(text("SELECT n_bytes FROM models ORDER BY version"))).all() == [12] * 4
    assert await learned.dump() == before
    await downgrade(learned.db, "0005")
    assert await current(learned.db) == "0005"
    assert await learned.dump() == before
    async with learned.db.reading() as connection:
        assert await connection.run_sync(_schema) == schema
    await upgrade(learned.db)
    following.remove()
    with pytest.raises(SettingsError, match=r"0006, which this foltr does not know \(its newest is 0005\)"):
        await require_head(learned.db)


async def test_a_killed_upgrade_changes_nothing(learned, following, migrated_url) -> None:
    """The process ends after the step has changed the table; the next upgrade does all of it."""
    before = await learned.dump()
    following.add(at_its_end="os.kill(os.getpid(), 9)")
    assert await asyncio.to_thread(following.upgrade_in_a_process, migrated_url) == -9
    assert await current(learned.db) == "0005"
    assert await learned.dump() == before
    following.add()
    await upgrade(learned.db)
    assert await current(learned.db) == "0006"
    assert await learned.dump() == before


def _names(connection: Connection) -> list[str]:
    inspector = inspect(connection)
    return sorted({*inspector.get_table_names(), *inspector.get_view_names()} - {"alembic_version"})


def _schema(connection: Connection) -> dict[str, Any]:
    inspector = inspect(connection)

    def ordered(items: Any) -> list[str]:
        return sorted(repr(sorted(item.items(), key=str)) for item in items)

    return {
        name: {
            "columns": [{**column, "type": repr(column["type"])} for column in inspector.get_columns(name)],
            "primary key": inspector.get_pk_constraint(name),
            "foreign keys": ordered(inspector.get_foreign_keys(name)),
            "unique": ordered(inspector.get_unique_constraints(name)),
            "checks": ordered(inspector.get_check_constraints(name)),
            "indexes": sorted(
                str({**index, "dialect_options": _texts(index.get("dialect_options", {}))})
                for index in inspector.get_indexes(name)
            ),
        }
        for name in metadata.tables
    }


def _texts(options: dict[str, Any]) -> dict[str, str]:
    """The options with their SQL expressions, such as the condition of a partial index, as text."""
    return {name: str(value) for name, value in sorted(options.items())}
