"""The migrations make the schema that the code expects, and can be taken back."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, insert, inspect, select, text
from sqlalchemy.exc import DBAPIError

from federator.eraser import signed_by
from foltr.erasure.audit import next_entry
from foltr.erasure.receipt import verify_receipt
from foltr.erasure.states import NOTHING_UNLEARNED
from foltr.errors import SettingsError
from foltr.protocol.signing import SigningKey
from storage import migrate
from storage.arrivals import load_clients
from storage.database import Database
from storage.erasure.erasures import erase_client, list_erasures
from storage.erasure.records import ErasureOutcome
from storage.erasure.unlearning_jobs import list_stored_rounds
from storage.federations import get_federation
from storage.migrate import current, downgrade, head, require_head, upgrade
from storage.queries import list_contributions, list_rounds
from storage.retention import delete_old_bodies
from storage.tables import metadata
from storage.views import views

NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


async def test_upgrade_makes_every_table_and_view(migrated: Database) -> None:
    """Alembic's own comparison finds nothing missing, nothing too much, no comment that differs."""

    def differences(connection: Connection) -> list[Any]:
        # The partitions are not in the metadata.
        ours = {"include_name": lambda name, kind, _: kind != "table" or not name.startswith("update_bodies_")}
        context = MigrationContext.configure(connection, opts={"compare_type": True, **ours})
        # On PostgreSQL bodies have no foreign key (`storage.body_tables`), which the comparison does not know.
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


async def test_the_constraints_hold_in_both_databases(migrated: Database) -> None:
    """The baseline's constraints are not only declared: each database refuses what contradicts the rows it has."""
    await _insert_a_row_for_each_table(migrated)
    for wrong in (
        "DELETE FROM models",
        "DELETE FROM clients",
        "UPDATE updates SET round = 9",
        "UPDATE federations SET n_purged = 1",
        "UPDATE models SET n_values = 4",
        "UPDATE clients SET quarantine_reason = 'x'",
    ):
        with pytest.raises(DBAPIError):
            async with migrated.transaction() as connection:
                await connection.execute(text(wrong))


async def test_the_defaults_of_the_baseline(migrated: Database) -> None:
    """A row that says only what it must: a federation without orders, a client without messages, a round of means."""
    await _insert_a_row_for_each_table(migrated)
    federation = await get_federation(migrated, "web")
    assert federation is not None
    assert (federation.method, federation.roster_version, federation.last_order) == ("fpdgd", 0, 0)
    assert (federation.n_deletions, federation.n_purged) == (0, 0)
    (client,) = await load_clients(migrated, "web")
    assert (client.membership_sequence, client.status_sequence, client.counted_through) == (0, 0, 0)
    (opened,) = await list_rounds(migrated, "web")
    assert (opened.pacing, opened.aggregation, opened.byzantine) == ("deadline", "mean", 0.2)
    assert (opened.n_updates, opened.n_rejected, opened.rule) == (1, 1, None)
    (contribution,) = await list_contributions(migrated, "web")
    assert (contribution.client_id, contribution.n_bytes, contribution.body) == ("a", 2, "plain")


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


async def test_two_services_may_upgrade_at_once(database_url: str) -> None:
    """The second waits for the first and finds nothing to do."""
    async with await Database.connect(database_url) as one, await Database.connect(database_url) as other:
        await asyncio.gather(upgrade(one), upgrade(other))
        assert await current(one) == head()


async def test_a_large_table_may_take_its_time(database_url: str, monkeypatch) -> None:
    """A step of an upgrade is not cancelled after the seconds that a federator's statement has; what comes later is."""
    monkeypatch.setattr("storage.engines.STATEMENT_TIMEOUT_S", 0.3)
    monkeypatch.setattr("storage.engines.ANSWER_TIMEOUT_S", 0.1)
    async with await Database.connect(database_url) as db:
        if db.dialect == "sqlite":
            pytest.skip("SQLite has no such limit")
        async with db.rebuilding() as connection:
            await connection.execute(text("SELECT pg_sleep(1)"))
        with pytest.raises(DBAPIError, match="statement timeout"):
            async with db.transaction() as connection:
                await connection.execute(text("SELECT pg_sleep(1)"))


async def test_an_old_schema_says_what_to_run(database_url: str) -> None:
    """A service does not start on a schema it was not written for."""
    async with await Database.connect(database_url) as db:
        with pytest.raises(SettingsError, match=r"revision none.*foltr db upgrade"):
            await require_head(db)
        await upgrade(db)
        await require_head(db)
        async with db.transaction() as connection:
            await connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
        with pytest.raises(SettingsError, match=r"9999, which this foltr does not know"):
            await require_head(db)


async def test_the_rounds_of_before_are_listed(learned) -> None:
    """A database that was filled before they were has them from the upgrade on, but for thinned and abandoned ones."""
    await delete_old_bodies(learned.db, "web", learned.epoch, before_round=5, interval=3)
    await downgrade(learned.db, "0001")
    await upgrade(learned.db)
    assert await list_stored_rounds(learned.db, "web", 1, 9) == [1, 4]


async def test_a_large_history_is_moved_in_slices_and_told_of(learned, monkeypatch) -> None:
    """Each of whole rounds; nothing is told of one that is moved at once."""
    await downgrade(learned.db, "0015")
    told: list[str] = []
    await upgrade(learned.db, tell=told.append)
    anew = "the table of updates is written anew, without"
    moved = ("body", "ticket", "key_fingerprint", "cipher") if learned.db.dialect == "sqlite" else ("them",)
    assert told == [f"{anew} {words}" for words in moved]
    before = await learned.dump()
    await downgrade(learned.db, "0015")
    told.clear()
    monkeypatch.setattr(migrate, "ROWS_AT_ONCE", 3)
    await upgrade(learned.db, tell=told.append)
    assert told[: -len(moved)] == [f"bodies of {n} of 9 updates are in their own table" for n in (2, 5, 6, 9)]
    assert await learned.dump() == before


async def test_columns_are_not_dropped_by_a_sqlite_that_damages_files(learned, monkeypatch) -> None:
    """There the table of updates is written anew, and comes to the same rows and the same schema."""
    if learned.db.dialect != "sqlite":
        pytest.skip("SQLite's alone")
    before = await learned.dump()
    async with learned.db.reading() as connection:
        schema = await connection.run_sync(_schema)
    for version, words in (((3, 35, 4), ["the table of updates is written anew"]), ((3, 35, 5), None)):
        await downgrade(learned.db, "0015")
        monkeypatch.setattr("sqlite3.sqlite_version_info", version)
        told: list[str] = []
        await upgrade(learned.db, tell=told.append)
        assert words is None or told == words
        async with learned.db.reading() as connection:
            assert await connection.run_sync(_schema) == schema
            assert await connection.scalar(text("PRAGMA integrity_check")) == "ok"
        assert await learned.dump() == before


async def test_rankers_of_before_are_of_sigmoid_units(migrated: Database) -> None:
    """Taken back, one of ReLU units is none that an older foltr goes on with; up again it is what it was."""
    made = {"writer_epoch": 1, "n_features": 3, "created_at": NOW}
    rankers = {
        "linear": {"ranker": "linear"},
        "sigmoid": {"ranker": "neural", "hidden": 8, "activation": "sigmoid"},
        "relu": {"ranker": "neural", "hidden": 10, "activation": "relu"},
    }
    async with migrated.transaction() as connection:
        for name, ranker in rankers.items():
            await connection.execute(insert(metadata.tables["federations"]).values(name=name, **made, **ranker))
    stored = text("SELECT name, ranker, hidden FROM federations")

    async def rows() -> dict[str, tuple[str, int | None]]:
        async with migrated.reading() as connection:
            return {name: (ranker, hidden) for name, ranker, hidden in await connection.execute(stored)}

    await downgrade(migrated, "0013")
    assert await rows() == {"linear": ("linear", None), "sigmoid": ("neural", 8), "relu": ("relu-10", None)}
    await upgrade(migrated)
    assert await rows() == {"linear": ("linear", None), "sigmoid": ("neural", 8), "relu": ("neural", 10)}
    for name, ranker in rankers.items():
        found = await get_federation(migrated, name)
        assert found is not None
        assert found.activation == ranker.get("activation")


async def test_who_was_erased_before_digests_were_chains_has_a_receipt_of_that_version(learned) -> None:
    """Whenever it is signed; of whom rows are left to delete the digest is a chain, as it was."""
    whole, begun = (
        await learned.erase("a"),
        await erase_client(learned.db, "web", learned.epoch, learned.request("c"), limit=1),
    )
    assert (whole.digest_version, begun.digest_version) == (2, 2)
    await downgrade(learned.db, "0018")
    await upgrade(learned.db)
    rows = {row.pseudonym: row for row in await list_erasures(learned.db, "web")}
    assert [rows[one.pseudonym].digest_version for one in (whole, begun)] == [1, 2]
    sign, entry = signed_by(SigningKey(bytes(32))), next_entry(None, NOW, "erasure_completed", {})
    for row in rows.values():
        receipt = sign(row, ErasureOutcome(NOTHING_UNLEARNED, NOW), entry)
        assert verify_receipt(receipt, SigningKey(bytes(32)).public).version == row.digest_version


async def _insert_a_row_for_each_table(db: Database) -> None:
    """Fill the tables of what devices do, with what a row must say and nothing else."""
    federation = {"name": "web", "writer_epoch": 1, "ranker": "linear", "n_features": 3, "created_at": NOW}
    rows = {
        "clients": {
            "client_id": "a", "membership": "joined", "online": True, "joined_at": NOW, "last_seen_at": NOW,
        },
        "models": {"version": 0, "n_values": 3, "weights": bytes(12), "weights_hash": bytes(16), "created_at": NOW},
        "rounds": {
            "number": 1, "state": "collecting", "base_version": 0, "min_clients": 1, "max_clients": 2,
            "min_time_s": 0.0, "max_time_s": 60.0, "opened_at": NOW, "closes_at": NOW,
        },
        "updates": {
            "round": 1, "client": 1, "update_id": "u", "base_version": 0, "n_interactions": 5,
            "encoding": "dense_f32", "n_bytes": 2, "received_at": NOW,
        },
        "update_bodies": {"round": 1, "client": 1, "body": b"ab"},
        "events": {"at": NOW, "kind": "update_rejected", "code": "late", "round": 1, "detail": ""},
    }  # fmt: skip
    async with db.transaction() as connection:
        await connection.execute(insert(metadata.tables["federations"]).values(federation))
        for name, row in rows.items():
            await connection.execute(insert(metadata.tables[name]).values({"federation": "web", **row}))


def _names(connection: Connection) -> list[str]:
    inspector = inspect(connection)
    return sorted({*inspector.get_table_names(), *inspector.get_view_names()} - {"alembic_version"})


def _schema(connection: Connection) -> dict[str, Any]:
    """Everything the database itself says about our tables."""
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
