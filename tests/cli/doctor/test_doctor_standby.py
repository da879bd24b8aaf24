"""What ``foltr doctor --standby`` says of a machine on which a federator is to stand by."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cli.commands import foltr
from support.databases import migrated_sqlite, open_migrated
from support.sealed_updates import add_sealed_update
from support.waiting import PATIENCE_S

from foltr.cli.doctor import checks_database
from foltr.cli.doctor.checks import Finding, State
from foltr.storage.database import Database
from foltr.storage.federations import create_federation
from foltr.storage.keys import KeyStore
from foltr.storage.leases import give_up_lease, take_lease


async def with_update(url: str, folder: Path) -> None:
    """A federation with an update that is sealed with a key in a folder."""
    async with await open_migrated(url, KeyStore(folder)) as db:
        await add_sealed_update(db, "mail")


async def test_it_has_the_leaders_data_keys_or_not(tmp_path):
    """With another folder, or none, it would end when it is to lead; SQLite is for one machine."""
    url = migrated_sqlite(tmp_path / "foltr.sqlite")
    await with_update(url, tmp_path / "keys")
    for folder, state in (("keys", State.OK), ("another", State.PROBLEM)):
        found = {one.what: one for one in await checks_database.check_database(url, str(tmp_path / folder), "mail")}
        assert found["standby keys"].state is state
        assert str(tmp_path / folder) in found["standby keys"].detail
        assert found["standby"].state is State.WARNING
    assert "standby" not in {one.what for one in await checks_database.check_database(url, str(tmp_path / "keys"))}


def test_it_is_asked_for_by_a_flag_or_by_the_setting_of_the_federator(tmp_path):
    """So that the same file of settings does for both commands."""
    for words in (("--standby",), ()):
        url = migrated_sqlite(tmp_path / "foltr.sqlite")
        environment = {} if words else {"FOLTR_STANDBY": "1"}
        done = foltr(
            "doctor", *words, "--db", url, "--broker", "mqtt://127.0.0.1:1", "--json", cwd=tmp_path, **environment
        )
        assert "standby keys" in {one["what"] for one in json.loads(done.stdout)}, words


@pytest.mark.parametrize("migrated_url", ["postgresql"], indirect=True)
async def test_it_may_end_the_sessions_of_the_leader_or_not(migrated_url, postgres_server, tmp_path, monkeypatch):
    """As another role it may not, unless it is one that may signal all of them; of a superuser never."""
    monkeypatch.setattr("foltr.storage.leases.LEASE_S", PATIENCE_S)  # nobody renews it here
    name = migrated_url.rsplit("/", 1)[1]
    for role in ("north_role", "south_role"):
        postgres_server.sql(f"DROP ROLE IF EXISTS {role}")
        postgres_server.sql(f"CREATE ROLE {role} LOGIN")
        postgres_server.sql(f"GRANT ALL ON ALL TABLES IN SCHEMA public TO {role}", name)

    def of(role: str) -> str:
        return migrated_url.replace("postgres@", f"{role}@")

    async def found(role: str) -> Finding:
        return next(
            one
            for one in await checks_database.check_database(of(role), str(tmp_path), "mail")
            if one.what == "standby"
        )

    async def lead(db: Database) -> None:
        await take_lease(db, "mail", "north:1:00")

    try:
        async with await open_migrated(migrated_url) as db:
            await create_federation(db, "mail", 1, "linear", bytes(4), datetime.now(UTC))
        async with await Database.connect(of("north_role"), process="north:1:00") as db:
            assert (await found("south_role")).state is State.ABSENT
            await lead(db)
            refused = await found("south_role")
            assert (refused.state, "leads as north_role, whose sessions" in refused.detail) == (State.PROBLEM, True)
            assert (await found("north_role")).state is State.OK
            postgres_server.sql("GRANT pg_signal_backend TO south_role")
            assert (await found("south_role")).state is State.OK
            await give_up_lease(db, "mail", "north:1:00")
        async with await Database.connect(migrated_url, process="north:1:00") as db:
            await lead(db)
            refused = await found("south_role")
            assert (refused.state, "leads as postgres, whose sessions" in refused.detail) == (State.PROBLEM, True)
    finally:
        for role in ("north_role", "south_role"):
            postgres_server.sql(f"DROP OWNED BY {role}", name)
