"""``foltr status``, as a user runs it."""

import asyncio
import contextlib
import json
import sqlite3

import pytest
from cli.commands import foltr, start
from support.databases import migrated_sqlite
from support.history_database import made_history
from support.prepared_processes import with_defaults
from support.tally_database import made_tallies
from support.waiting import PATIENCE_S

# A look may take as long as a test waits for anything.
SLOW_LOOKS = with_defaults({"foltr.cli.status._LOOK_S": PATIENCE_S})


@pytest.fixture(scope="module")
def db(tmp_path_factory):
    """A database as a federator left it in January: round 2 is open."""
    url = f"sqlite:///{tmp_path_factory.mktemp('status') / 'foltr.sqlite'}"
    asyncio.run(made_history(url, "mail"))
    return url


def test_one_look_fits_80x24(db):
    """With when it was taken, and exit code 3: the federator should have ended the round."""
    done = foltr("status", "--db", db, COLUMNS="80", LINES="24", code=3)
    lines = done.stdout.splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 80
    assert lines[0] == "DOWN"
    assert any("as of 20" in line for line in lines)
    assert "Federator  not running, says the database" in done.stdout


def test_json_has_all_of_it(db):
    """One document, or one line, with whom the round awaits."""
    for option in ("--json", "--jsonl"):
        done = foltr("status", "--db", db, option)
        found = json.loads(done.stdout)
        assert found["federator"] == "stopped"
        assert found["situation"]["awaited"] == ["a", "c"]
        assert found["members"]["n_quarantined"] == 1
        assert found["waits_for"][0].startswith("Round 2 has no update")
        assert found["as_of"].endswith("+00:00")
    assert len(done.stdout.splitlines()) == 1
    refused = foltr("status", "--db", db, "--json", "--watch", code=2)
    assert "--jsonl --watch" in refused.stderr


def test_a_watch_goes_on_while_the_database_is_away(postgres_databases, tmp_path):
    """A line for each look; one that fails says why. It goes on with a file that took the place of another."""
    on_postgresql, file = postgres_databases.migrated(), tmp_path / "foltr.sqlite"

    def replace_file():
        asyncio.run(made_tallies(migrated_sqlite(tmp_path / "backup.sqlite")))
        for path in tmp_path.glob("foltr.sqlite*"):
            path.unlink(missing_ok=True)  # the log of it goes with the last who closes it

    for url, take_away, said in (
        (on_postgresql, lambda: postgres_databases.drop(on_postgresql), "createdb"),
        (migrated_sqlite(file), replace_file, "does not exist"),
    ):
        asyncio.run(made_history(url, "mail"))
        watching = start("status", "--db", url, "--watch", "--jsonl", "--every", "0.2", **SLOW_LOOKS)
        try:
            assert json.loads(watching.stdout.readline())["situation"]["round"]["number"] == 2
            take_away()
            found = _next(watching, lambda line: "unavailable" in line)
            assert (found["as_of"], found["last_as_of"][-3:]) == (None, "UTC")
            _next(watching, lambda line, said=said: said in line.get("unavailable", ""))
            if url != on_postgresql:
                (tmp_path / "backup.sqlite").rename(file)
                found = _next(watching, lambda line: line["as_of"] is not None)
                assert found["situation"]["round"]["number"] == 6
        finally:
            watching.kill()
            watching.stdout.close()


def _next(process, is_wanted):
    return next(found for line in process.stdout if is_wanted(found := json.loads(line)))


def test_what_is_not_there_is_said(tmp_path):
    """No file, no federation, nobody listening, older or newer tables: an exit code that says which kind."""

    def looked(name):
        return json.loads(foltr("status", "--db", f"sqlite:///{tmp_path}/{name}.sqlite", "--json", code=3).stdout)

    (finding,) = looked("nowhere")["verdict"]["findings"]
    assert (finding["reason"], finding["culprit"]) == ("database_gone", f"sqlite:///{tmp_path}/nowhere.sqlite")
    assert "move it back" in finding["detail"]
    assert not (tmp_path / "nowhere.sqlite").exists()
    empty = migrated_sqlite(tmp_path / "empty.sqlite")
    foltr("status", "--db", empty, code=2)
    away = foltr("status", "--db", "postgresql://nobody@127.0.0.1:1/none", code=3)
    assert "postgresql://127.0.0.1:1/none: The database does not answer." in " ".join(away.stdout.split())
    (tmp_path / "old.sqlite").touch()
    (finding,) = looked("old")["verdict"]["findings"]
    assert finding["command"] == f"foltr db upgrade --db sqlite:///{tmp_path}/old.sqlite"
    with contextlib.closing(sqlite3.connect(tmp_path / "empty.sqlite")) as newer:
        newer.execute("UPDATE alembic_version SET version_num = '9999'")
        newer.commit()
    said = " ".join(foltr("status", "--db", empty, code=3).stdout.split())
    assert ("install that version" in said, "Type: foltr doctor" in said, "db upgrade" in said) == (True, True, False)
