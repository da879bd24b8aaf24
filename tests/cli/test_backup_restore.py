"""``foltr backup restore``: what it says before and after, whom it waits for, and that it may die at any moment."""

import asyncio
import contextlib
import io
import shutil
import signal
import sqlite3
import sys
from pathlib import Path

import pytest
from cli.commands import LONG_LEASES, foltr, foltr_process, start, stop
from support.kept_backups import FORGOTTEN, Kept, in_little_room, keep
from support.waiting import PATIENCE_S, wait_until

from foltr.core.erasure.pseudonyms import pseudonym
from foltr.storage import migrate
from foltr.storage.database import Database
from foltr.storage.leases import note_standby, take_lease

_NEXT = """
from alembic import op

revision, down_revision, branch_labels, depends_on = "9999", "REVISION", None, None

def upgrade():
    op.execute("CREATE TABLE extras (name TEXT, federation VARCHAR(64) REFERENCES federations (name))")

def downgrade():
    op.execute("DROP TABLE extras")
"""


@pytest.fixture
def newer_schema(tmp_path, monkeypatch):
    """Have this foltr know another revision, from when it is called."""

    def begin() -> None:
        folder = Path(shutil.copytree(migrate._migrations(), tmp_path / "migrations"))  # noqa: SLF001
        (folder / "versions/9999_next.py").write_text(_NEXT.replace("REVISION", migrate.head()))
        monkeypatch.setattr(migrate, "_migrations", lambda: folder)

    return begin


def former(kept) -> list[Path]:
    return sorted(kept.folder.glob("foltr.sqlite.before-*"))


def test_it_says_what_is_newer_and_whom_to_forget_again(kept):
    """By numbers before, by pseudonym as long as the present database is there, and by name afterwards."""
    key = kept.query(
        "SELECT hex(pseudonym_key) FROM federations"
        if kept.server is None
        else "SELECT encode(pseudonym_key, 'hex') FROM federations"
    )
    done = kept.run("backup", "restore", kept.backup, "--yes")
    assert "round 6 and 4" in done.stdout
    assert "1 and 0 clients forgotten" in done.stdout
    assert pseudonym(bytes.fromhex(key), FORGOTTEN) in done.stdout
    assert f"Forget again, with foltr erasure request: {FORGOTTEN}." in done.stdout
    assert "Start the federator" in done.stdout
    assert kept.newest_round() == 3
    assert kept.query("SELECT count(*) FROM erasures") == "0"
    assert f"no key in {kept.keys}: {FORGOTTEN}" in kept.run("doctor", code=None).stdout
    assert "Erased since" in kept.run("rounds", "replay", "1").stdout
    if kept.server is None:
        (old,) = former(kept)
        assert str(old) in done.stdout
        with contextlib.closing(sqlite3.connect(old)) as connection:
            assert connection.execute("SELECT count(*) FROM erasures").fetchone() == (1,)


def test_who_was_forgotten_before_the_backup_stays_so(on_sqlite):
    """Although the device was not there to hear of it, so that the name is still stored."""
    on_sqlite.create()
    assert on_sqlite.query("SELECT count(*) FROM erasures WHERE client IS NOT NULL") == "1"
    done = on_sqlite.run("backup", "restore", max(on_sqlite.dest.iterdir()), "--yes")
    assert "1 and 1 clients forgotten" in done.stdout
    assert "Forget again" not in done.stdout


def test_nothing_changes_unless_somebody_confirms(kept):
    """Without a terminal: exit code 2, after the same lines."""
    done = kept.run("backup", "restore", kept.backup, code=2)
    assert "round 6 and 4" in done.stdout
    assert "add --yes" in done.stderr
    assert kept.newest_round() == 5
    assert former(kept) == []


def test_a_database_in_use_is_left_alone(kept, monkeypatch):
    """By a federator, a standby, or another process that has the file, or a session, open."""
    # Nobody renews them here while a restore looks at the backup first.
    monkeypatch.setattr("foltr.storage.leases.LEASE_S", 3600.0)
    monkeypatch.setattr("foltr.storage.leases.STANDBY_S", 3600.0)

    async def used() -> None:
        async with await Database.connect(kept.url, process="host:1") as db:
            assert await take_lease(db, "mail", "host:1")
            done = kept.run("backup", "restore", kept.backup, "--yes", code=3)
            assert "host:1 leads mail" in done.stderr
            async with db.transaction() as connection:
                await connection.exec_driver_sql("UPDATE leases SET holder = NULL, expires_at = NULL")
            await note_standby(db, "mail", "host:2")
            assert "host:2 stands by" in kept.run("backup", "restore", kept.backup, "--yes", code=3).stderr
            async with db.transaction() as connection:
                await connection.exec_driver_sql("DELETE FROM standbys")
            done = kept.run("backup", "restore", kept.backup, "--yes", code=3)
            assert "open in another process" in done.stderr or "foltr host:1 is connected" in done.stderr

    asyncio.run(used())
    assert kept.newest_round() == 5
    assert former(kept) == []
    kept.run("backup", "restore", kept.backup, "--yes")
    assert kept.newest_round() == 3


@pytest.mark.parametrize(
    ("migrated_url", "point"),
    [
        *(("sqlite", point) for point in ("restore_copied", "restore_kept", "restored")),
        # PostgreSQL keeps nothing aside.
        *(("postgresql", point) for point in ("restore_copied", "restored")),
    ],
    indirect=["migrated_url"],
)
def test_a_restore_that_dies_leaves_one_of_the_two(kept, point):
    """Killed there by the kernel, and run again."""
    words = ("backup", "restore", kept.backup, "--yes")
    done = foltr_process(*words, cwd=kept.folder, **kept.variables, FOLTR_TEST_FAILPOINTS=f"{point}=kill")
    assert done.returncode == -signal.SIGKILL, done
    assert kept.newest_round() == (3 if point == "restored" else 5)
    wait_until(lambda: kept.run(*words, code=None).returncode == 0, "the killed one's session stays")
    assert kept.newest_round() == 3
    if kept.server is None:
        assert not list(kept.folder.glob("*.restoring"))
        assert len(former(kept)) == (2 if point == "restored" else 1)
        for file in former(kept):
            with contextlib.closing(sqlite3.connect(file)) as connection:
                assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_damaged_file_is_replaced_and_kept(on_sqlite):
    """It cannot be read, so what is newer in it is unknown; its log does not get into the new file."""
    on_sqlite.file.write_bytes(b"lost" * 1000)
    on_sqlite.file.with_name("foltr.sqlite-wal").write_bytes(b"log")
    done = on_sqlite.run("backup", "restore", on_sqlite.backup, "--yes")
    assert "cannot be read" in done.stdout
    assert f"Forget again, with foltr erasure request: {FORGOTTEN}." in done.stdout
    assert on_sqlite.newest_round() == 3
    old, *_ = former(on_sqlite)
    assert old.read_bytes()[:4] == b"lost"
    assert not on_sqlite.file.with_name("foltr.sqlite-wal").exists()


def test_it_goes_to_another_place(kept, tmp_path, request):
    """A new file, or an empty database; with another folder of keys it says that these are wrong."""
    if kept.server is None:
        url = f"sqlite:///{tmp_path}/new.sqlite"
    else:
        databases = request.getfixturevalue("postgres_databases")
        url = databases.empty()
        request.addfinalizer(lambda: databases.drop(url))
    other = tmp_path / "others"
    other.mkdir(mode=0o700)
    done = kept.run("backup", "restore", kept.backup, "--yes", "--db", url, "--keys", other)
    assert "Find the data keys" in done.stdout
    done = kept.run("backup", "restore", kept.backup, "--yes", "--db", url, "--keys", tmp_path / "typo")
    assert f"which this backup left in {kept.keys_copy}" in done.stdout
    assert "equal" in kept.run("rounds", "replay", "2", "--db", url, "--keys", kept.keys_copy).stdout
    assert kept.newest_round() == 5


def test_it_asks_on_a_terminal(on_sqlite, monkeypatch):
    """And does as it is answered."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    words = ("backup", "restore", on_sqlite.backup)
    monkeypatch.setattr(sys, "stdin", Terminal("n\n"))
    assert "Nothing was changed" in on_sqlite.run(*words, code=1).stdout
    assert on_sqlite.newest_round() == 5
    monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
    assert "Restored" in on_sqlite.run(*words).stdout
    assert on_sqlite.newest_round() == 3


def test_a_full_disk_changes_nothing(on_sqlite):
    """Nor does it keep what fitted."""
    done = in_little_room(on_sqlite, "backup", "restore", on_sqlite.backup, "--yes")
    assert done.returncode == 1, done
    assert "cannot be copied" in done.stderr
    assert on_sqlite.newest_round() == 5
    assert not list(on_sqlite.folder.glob("*.restoring"))


def test_a_link_to_the_database_stays_one(on_sqlite):
    """What it leads to is replaced, and kept beside that; a folder that is missing is named."""
    (on_sqlite.folder / "disk").mkdir()
    real = on_sqlite.file.rename(on_sqlite.folder / "disk/real.sqlite")
    on_sqlite.file.symlink_to(real)
    done = on_sqlite.run("backup", "restore", on_sqlite.backup, "--yes")
    assert on_sqlite.file.is_symlink()
    assert f"{real}.before-" in done.stdout
    assert on_sqlite.newest_round() == 3
    url = f"sqlite:///{on_sqlite.folder}/typo/foltr.sqlite"
    done = on_sqlite.run("backup", "restore", on_sqlite.backup, "--yes", "--db", url, code=3)
    assert "typo/foltr.sqlite cannot be used" in done.stderr
    # Nothing moves data from one kind of database to the other.
    done = on_sqlite.run("backup", "restore", on_sqlite.backup, "--yes", "--db", "postgresql://x@127.0.0.1:1/y", code=2)
    assert "not sqlite, which the backup is of" in done.stderr


def test_an_older_schema_is_upgraded_after_it(kept, newer_schema):
    """And one of a newer foltr is refused before anything is changed."""
    newer_schema()
    kept.run("db", "upgrade")
    older = kept.backup
    done = kept.run("backup", "restore", older, "--yes")
    assert "1. Upgrade the tables: foltr db upgrade." in done.stdout
    assert "from revision" in kept.run("db", "upgrade").stdout
    assert "rounds" in kept.run("rounds", "list").stdout.lower()
    kept.run("backup", "create", kept.folder / "newer")
    (newer,) = (kept.folder / "newer").iterdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(migrate, "_migrations", lambda: Path(migrate.__file__).resolve().parents[1] / "migrations")
        assert "install foltr" in kept.run("backup", "restore", newer, "--yes", code=2).stderr
        # To go back: the older foltr restores over tables that it does not know.
        kept.run("backup", "restore", older, "--yes")
        kept.run("rounds", "list")
    if kept.server is not None:
        assert kept.server.sql("SELECT to_regclass('extras') IS NULL", kept.url.rpartition("/")[2]) == "t"


def test_two_restores_at_once(kept):
    """Each may be refused because of the other, and leaves a whole database: it is run again."""
    words = ("backup", "restore", str(kept.backup), "--yes")
    processes = [start(*words, cwd=kept.folder, **kept.variables) for _ in range(2)]
    ended = [process.communicate(timeout=PATIENCE_S) for process in processes]
    codes = {process.returncode for process in processes}
    assert codes <= {0, 1, 3}, ended
    assert kept.newest_round() == (3 if 0 in codes else 5)
    kept.run(*words)
    assert kept.newest_round() == 3
    assert kept.query("SELECT count(*) FROM updates") == "9"


def test_a_views_owner_is_named_and_nothing_changes(tmp_path, postgres_server, postgres_databases, request):
    """Somebody's own view of our tables, made since: PostgreSQL says which, and the old rows stay."""
    url = postgres_databases.empty()
    request.addfinalizer(lambda: postgres_databases.drop(url))
    foltr("db", "upgrade", "--db", url, code=0)
    kept = keep(tmp_path, url, postgres_server)
    name = url.rpartition("/")[2]
    postgres_server.sql("CREATE SCHEMA boards", name)
    postgres_server.sql("CREATE VIEW boards.mine AS SELECT number FROM rounds", name)
    done = kept.run("backup", "restore", kept.backup, "--yes", code=1)
    assert "psql failed" in done.stderr
    assert kept.newest_round() == 5


@pytest.mark.parametrize("migrated_url", ["sqlite", "postgresql"], indirect=True)
def test_a_running_federation_is_backed_up_and_goes_back(
    migrated_url, tmp_path, mosquitto_server, request, monkeypatch
):
    """Backups while rounds go on; a restore waits for its end; devices and a federator go on from there."""
    monkeypatch.setattr("foltr.storage.leases.LEASE_S", 600.0)  # as of the federator
    server = None if migrated_url.startswith("sqlite") else request.getfixturevalue("postgres_server")
    kept = Kept(tmp_path, migrated_url, server)
    own = {"cwd": tmp_path, "FOLTR_BROKER_URL": mosquitto_server.url, "FOLTR_LOG_LEVEL": "warning"}
    own |= kept.variables | LONG_LEASES

    def learn(n_clients: int, until: int, meanwhile=lambda: None) -> None:
        sizes = ("--min-clients", str(n_clients), "--max-clients", str(n_clients), "--min-time", "0")
        federator = start("federator", "run", "--allow-unsigned", *sizes, **own)
        devices = start("client", "run", "--count", "2", "--data", "synthetic", "--store", "stores", **own)
        try:
            wait_until(lambda: n_completed(kept) >= until, "the rounds do not go on")
            meanwhile()
        finally:
            ended = [stop(process) for process in (devices, federator)]
        assert [code for code, _ in ended] == [0, 0], ended

    def back_up() -> None:
        for _ in range(3):
            before = n_completed(kept)
            kept.run("backup", "create", kept.dest, "--keys-to", kept.keys_copy)
            wait_until(lambda before=before: n_completed(kept) > before, "the rounds do not go on")
        refused = kept.run("backup", "restore", min(kept.dest.iterdir()), "--yes", code=3)
        assert "Stop the federator" in refused.stderr

    (tmp_path / "stores").mkdir()
    learn(2, 3, back_up)
    for backup in kept.dest.iterdir():
        kept.run("backup", "verify", backup)
    n_then = n_completed(kept)
    kept.run("backup", "restore", min(kept.dest.iterdir()), "--yes")
    n_restored = n_completed(kept)
    assert 3 <= n_restored < n_then
    assert "equal" in kept.run("rounds", "replay", str(n_restored)).stdout
    learn(1, n_restored + 3)
    twice = "SELECT 1 FROM updates GROUP BY client, covers_after HAVING count(*) > 1"
    assert kept.query(f"SELECT count(*) FROM ({twice}) t") == "0"  # noqa: S608 (our own words)


def n_completed(kept) -> int:
    try:
        return int(kept.query("SELECT count(*) FROM rounds WHERE state = 'completed'"))
    except sqlite3.OperationalError:
        return 0
