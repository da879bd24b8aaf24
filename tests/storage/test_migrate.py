"""The migrations make the schema that the code expects, and can be taken back."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, Integer, column, insert, inspect, select, table, text
from sqlalchemy.exc import DBAPIError

from foltr.errors import SettingsError
from storage.arrivals import load_clients
from storage.database import Database
from storage.federations import get_federation
from storage.migrate import current, downgrade, head, require_head, upgrade
from storage.models import latest_model
from storage.queries import list_contributions, list_events, list_rounds
from storage.rounds import load_open_round, stream_updates
from storage.tables import metadata
from storage.views import views

NOW = datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


async def test_upgrade_makes_every_table_and_view(migrated: Database) -> None:
    """Alembic's own comparison finds nothing missing, nothing too much, no comment that differs."""

    def differences(connection: Connection) -> list[Any]:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        return compare_metadata(context, metadata)

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


async def test_identity_and_pacing_come_and_go_with_data_in_the_tables(database_url: str) -> None:
    """0001 to 0002 and back: every old value stays, the new columns say what was true before there were any."""
    async with await Database.connect(database_url) as db:
        await upgrade(db, "0001")
        await _insert_rows_of_0001(db)
        before = await _everything(db)
        await upgrade(db, "0002")
        client = "client_id, public_key, revoked_at, membership_nonce, status_nonce"
        assert await _select(db, f"{client} FROM clients") == [("a", None, None, 0, 0)]
        assert await _select(db, "selection_seed, roster_version, operator_nonce FROM federations") == [(None, 0, 0)]
        row = "pacing, n_selected, n_updates, n_rejected"
        assert await _select(db, f"{row} FROM round_history") == [("deadline", None, 1, 1)]
        assert [event.n for event in await list_events(db, "web")] == [1, 1]
        await downgrade(db, "0001")
        assert await current(db) == "0001"
        assert await _everything(db) == before
        assert len(before["updates"]) == 1
        await upgrade(db)
        assert [row.client_id for row in await load_clients(db, "web")] == ["a"]


async def test_methods_come_and_go_with_data_in_the_tables(database_url: str) -> None:
    """0002 to 0003 and back: what was there learned by FPDGD, linearly, and its optimiser had no state."""
    async with await Database.connect(database_url) as db:
        await upgrade(db, "0002")
        await _insert_rows_of_0001(db)
        before = await _everything(db)
        await upgrade(db, "0003")
        assert await _select(db, "method, ranker, hidden FROM federations") == [("fpdgd", "linear", None)]
        assert await _select(db, "n_features, weights, optimizer_state FROM models") == [(3, bytes(12), None)]
        await downgrade(db, "0002")
        assert await current(db) == "0002"
        assert await _everything(db) == before
        await upgrade(db)
        await require_head(db)


async def test_rules_and_quarantine_come_and_go_with_data_in_the_tables(database_url: str) -> None:
    """0003 to 0004 and back: rounds were means, models remembered nothing, nobody was in quarantine."""
    async with await Database.connect(database_url) as db:
        await upgrade(db, "0003")
        await _insert_rows_of_0001(db)
        before = await _everything(db)
        await upgrade(db, "0004")
        (opened,) = await list_rounds(db, "web")
        assert (opened.aggregation, opened.rule, opened.fallback_reason) == ("mean", None, None)
        assert (opened.n_updates, opened.n_rejected, opened.n_clipped, opened.n_dropped) == (1, 1, 0, 0)
        found = await load_open_round(db, "web")
        assert found is not None
        stored = found[0]
        assert (stored.byzantine, stored.aggregation_parameters, stored.aggregation_fallback) == (0.2, "{}", "median")
        assert await _select(db, "defence_state FROM models") == [(None,)]
        (client,) = await load_clients(db, "web")
        assert (client.quarantined_at, client.quarantine_reason) == (None, None)
        assert await _select(db, "client_id, fate, share FROM client_history") == [("a", None, None)]
        with pytest.raises(DBAPIError):  # the constraints that came with a column hold on both databases
            async with db.transaction() as connection:
                await connection.execute(text("UPDATE clients SET quarantine_reason = 'x'"))
        await downgrade(db, "0003")
        assert await current(db) == "0003"
        assert await _everything(db) == before
        await upgrade(db)
        await require_head(db)


async def test_erasure_comes_and_goes_with_data_in_the_tables(database_url: str) -> None:
    """0004 to 0005 and back: what was there is plain, in no model that is tainted, and nobody was forgotten."""
    async with await Database.connect(database_url) as db:
        await upgrade(db, "0004")
        await _insert_rows_of_0001(db)
        before = await _everything(db)
        await upgrade(db, "0005")
        model = "weights, tainted_at, withdrawn_at, unlearning_job"
        assert await _select(db, f"{model} FROM models") == [(bytes(12), None, None, None)]
        (contribution,) = await list_contributions(db, "web")
        assert (contribution.client_id, contribution.n_bytes, contribution.body) == ("a", 2, "plain")
        assert [(row.body, row.cipher) async for row in stream_updates(db, "web", 1)] == [(b"ab", "")]
        federation = await get_federation(db, "web")
        assert federation is not None
        assert (federation.pseudonym_key, federation.n_deletions, federation.n_purged) == (None, 0, 0)
        # The tables that SQLite makes anew are still referred to, and still refer to others.
        for wrong in (
            "DELETE FROM models",
            "UPDATE updates SET client_id = 'stranger'",
            "UPDATE updates SET round = 9",
            "UPDATE federations SET n_purged = 1",
        ):
            with pytest.raises(DBAPIError):
                async with db.transaction() as connection:
                    await connection.execute(text(wrong))
        await downgrade(db, "0004")
        assert await current(db) == "0004"
        assert await _everything(db) == before
        await upgrade(db)
        await require_head(db)


async def test_the_size_of_a_model_gets_its_name_with_data_in_the_tables(database_url: str) -> None:
    """0005 to 0006 and back: the values stay, and the constraint that compares them with the weights holds."""
    async with await Database.connect(database_url) as db:
        await upgrade(db, "0005")
        await _insert_rows_of_0001(db)
        before = await _everything(db)
        await upgrade(db, "0006")
        model = await latest_model(db, "web")
        assert model is not None
        assert (model.n_values, model.weights) == (3, bytes(12))
        with pytest.raises(DBAPIError):
            async with db.transaction() as connection:
                await connection.execute(text("UPDATE models SET n_values = 4"))
        await downgrade(db, "0005")
        assert await current(db) == "0005"
        assert await _everything(db) == before
        await upgrade(db)
        await require_head(db)


async def test_what_0004_cannot_hold_is_not_lost(migrated: Database) -> None:
    """Going back would let forgotten names come again, and sealed updates be unreadable: it is refused."""
    await _insert_rows_of_0001(migrated, model_size="n_values")
    async with migrated.transaction() as connection:
        await connection.execute(text("UPDATE updates SET body = NULL"))
    before = await _everything(migrated)
    with pytest.raises(RuntimeError, match="sealed or thinned updates, which revision 0004 cannot hold"):
        await downgrade(migrated, "0004")
    assert await _everything(migrated) == before
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


async def test_two_services_may_upgrade_at_once(database_url: str) -> None:
    """The second waits for the first and finds nothing to do."""
    async with await Database.connect(database_url) as one, await Database.connect(database_url) as other:
        await asyncio.gather(upgrade(one), upgrade(other))
        assert await current(one) == head()


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


async def _insert_rows_of_0001(db: Database, *, model_size: str = "n_features") -> None:
    """Fill every table; a model's size has another name since 0006."""
    async with db.transaction() as connection:
        for name, row in _rows_of_0001(model_size):
            known = metadata.tables[name].columns
            # With the types of today, but the columns that the schema has.
            there = table(name, *(column(key, known[key].type if key in known else Integer()) for key in row))
            await connection.execute(insert(there).values(row))


def _rows_of_0001(model_size: str) -> list[tuple[str, dict[str, Any]]]:
    """A row for every table, with no column that came later."""
    federation = {"name": "web", "writer_epoch": 1, "ranker": "linear", "n_features": 3, "created_at": NOW}
    rows = {
        "clients": {
            "client_id": "a", "membership": "joined", "online": True, "joined_at": NOW, "last_seen_at": NOW,
        },
        "models": {"version": 0, model_size: 3, "weights": bytes(12), "created_at": NOW},
        "rounds": {
            "number": 1, "state": "collecting", "base_version": 0, "min_clients": 1, "max_clients": 2,
            "min_time_s": 0.0, "max_time_s": 60.0, "opened_at": NOW, "closes_at": NOW,
        },
        "updates": {
            "round": 1, "client_id": "a", "update_id": "u", "base_version": 0, "n_interactions": 5,
            "encoding": "dense_f32", "n_bytes": 2, "body": b"ab", "received_at": NOW,
        },
    }  # fmt: skip
    late = {"at": NOW, "kind": "update_rejected", "code": "late", "round": 1, "detail": ""}
    rest = [*rows.items(), ("events", late), ("events", late | {"code": "duplicate"})]
    return [("federations", federation), *((name, {"federation": "web", **row}) for name, row in rest)]


async def _select(db: Database, what: str) -> list[tuple[Any, ...]]:
    """Plain SQL: the code's own tables have columns that a schema of before has not."""
    async with db.reading() as connection:
        return [tuple(row) for row in await connection.execute(text(f"SELECT {what}"))]


async def _everything(db: Database) -> dict[str, list[tuple[Any, ...]]]:
    """Every row of every table and view, whatever columns they have."""
    async with db.reading() as connection:
        return {
            name: sorted((tuple(row) for row in await connection.execute(text(f"SELECT * FROM {name}"))), key=repr)  # noqa: S608
            for name in await connection.run_sync(_names)
        }


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
