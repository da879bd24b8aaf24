"""``foltr backup create`` and ``verify`` as an operator runs them, on both databases."""

import asyncio
import contextlib
import json
import os
import shutil
import sqlite3
import stat

from cli.commands import foltr, start
from support.databases import migrated_sqlite
from support.kept_backups import FORGOTTEN, in_little_room
from support.sealed_federation import NAMES, sealed_federation
from support.waiting import PATIENCE_S

from foltr.operations.backups import MANIFEST_NAME
from foltr.storage.keys import KeyStore
from foltr.storage.migrate import head


def test_a_backup_has_the_database_of_its_moment_and_no_key(kept):
    """Made while the database is open; only its owner reads it; verify says how far it is."""
    backup = kept.backup
    files = [path for path in backup.rglob("*") if path.is_file()]
    assert stat.S_IMODE(backup.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    manifest = json.loads((backup / MANIFEST_NAME).read_text())
    (federation,) = manifest["federations"]
    assert (manifest["version"], manifest["revision"]) == (1, head())
    assert (federation["name"], federation["newest_round"], federation["erased"]) == ("mail", 4, [])
    assert manifest["keys_to"] == str(kept.keys_copy)
    keys = [path.read_bytes() for path in kept.keys_copy.glob("??/*")]
    assert len(keys) == len(NAMES)
    assert not any(key in path.read_bytes() for key in keys for path in files)
    assert "mail at round 4, 0 forgotten" in kept.run("backup", "verify", backup).stdout
    told = json.loads(kept.run("backup", "verify", backup, "--json").stdout)
    assert (told["federations"][0]["epoch"], told["not_of_it"]) == (federation["epoch"], [])
    assert told["age_s"] >= 0


def test_the_copy_of_the_keys_loses_a_forgotten_clients_key(kept):
    """With the next backup; what is sealed in the earlier backup cannot be read by it any more."""
    before = {path.read_bytes() for path in kept.keys_copy.glob("??/*")}
    done = kept.create()
    after = {path.read_bytes() for path in kept.keys_copy.glob("??/*")}
    assert after == {path.read_bytes() for path in kept.keys.glob("??/*")}
    assert len(before - after) == 1
    assert KeyStore(kept.keys_copy).find("mail", FORGOTTEN) is None
    assert "has the 2 data keys of now" in done.stdout
    assert len(list(kept.dest.iterdir())) == 2


def test_keys_do_not_go_beside_the_database(on_sqlite):
    """Within the backups' folder, around it or next to it: refused with the reason, and nothing is written."""
    shutil.rmtree(on_sqlite.keys_copy)
    for place in (on_sqlite.dest / "keys", on_sqlite.dest, on_sqlite.folder / "beside"):
        words = ("backup", "create", on_sqlite.dest, "--keys-to", place)
        done = on_sqlite.run(*words, code=2)
        assert "An erasure destroys a client's key" in done.stderr
        assert "--keys-beside-database" in done.stderr
    assert len(list(on_sqlite.dest.iterdir())) == 1
    assert not (on_sqlite.folder / "beside").exists()
    done = on_sqlite.run(*words, "--keys-beside-database")
    assert "An erasure destroys a client's key" in done.stderr
    assert len(list((on_sqlite.folder / "beside").glob("??/*"))) == 2
    done = on_sqlite.run("backup", "create", on_sqlite.dest, "--keys-to", on_sqlite.keys, code=2)
    assert "has the data keys themselves" in done.stderr


def test_a_lost_key_stays_in_the_copy(on_sqlite):
    """Which may be the last one: neither a lost key nor a wrong folder empties it."""
    on_sqlite.create()
    lost = next(on_sqlite.keys.glob("??/*"))
    lost.unlink()
    assert "lacks the keys of 1 clients of mail" in on_sqlite.create(code=2).stderr
    (on_sqlite.folder / "empty").mkdir(mode=0o700)
    assert "lacks the keys of 2 clients" in on_sqlite.create("--keys", on_sqlite.folder / "empty", code=2).stderr
    assert "there is no folder" in on_sqlite.create("--keys", on_sqlite.folder / "typo", code=2).stderr
    assert len(list(on_sqlite.keys_copy.glob("??/*"))) == 2
    assert len(list(on_sqlite.dest.iterdir())) == 2


def test_the_copy_of_the_keys_is_a_folder_of_its_own(on_sqlite):
    """Where something else is, nothing is deleted, nor where another database's keys are: they look destroyed."""
    other = on_sqlite.folder / "home" / "photos"
    other.mkdir(mode=0o700, parents=True)
    (other / "a.jpg").write_text("a photo")
    done = on_sqlite.run("backup", "create", on_sqlite.dest, "--keys-to", other, code=2)
    assert "has more than data keys, such as a.jpg" in done.stderr
    other.chmod(0o755)
    assert "chmod 700" in on_sqlite.run("backup", "create", on_sqlite.dest, "--keys-to", other, code=2).stderr
    assert (other / "a.jpg").read_text() == "a photo"
    another = on_sqlite.folder / "other"
    another.mkdir(mode=0o700)
    KeyStore(another).key("web", "alice")
    before = sorted(on_sqlite.keys_copy.glob("??/*"))
    done = on_sqlite.create("--db", migrated_sqlite(on_sqlite.folder / "web.sqlite"), "--keys", another, code=2)
    assert "has other keys and none of these" in done.stderr
    assert sorted(on_sqlite.keys_copy.glob("??/*")) == before
    assert len(list(on_sqlite.dest.iterdir())) == 1


def test_the_operators_folder_is_copied_without_stores(on_sqlite):
    """A helper's store keeps neither its name nor its place: it is known by its content."""
    operator = on_sqlite.folder / "foltr-operator"
    foltr("device", "enrol", "device-7", cwd=on_sqlite.folder, FOLTR_BROKER_URL="mqtt://127.0.0.1:1", code=0)
    for name in ("mail-north.helper.sqlite", "orders/north.db"):
        (operator / name).parent.mkdir(exist_ok=True)
        with contextlib.closing(sqlite3.connect(operator / name)) as store:
            store.execute("CREATE TABLE keys (key)")
    left = on_sqlite.dest / "foltr-abc.unfinished"
    left.mkdir()  # of one that was killed: it has the database's rows, and nobody else would delete it
    done = on_sqlite.create("--operator", operator)
    assert f"{left} is of a backup that did not end" in done.stderr
    left.rmdir()
    backup = max(on_sqlite.dest.iterdir())
    assert "mail-north.helper.sqlite, orders/north.db. If a helper's store goes back" in done.stdout
    copied = {str(path.relative_to(backup / "operator")) for path in (backup / "operator").rglob("*") if path.is_file()}
    there = {str(path.relative_to(operator)) for path in operator.rglob("*") if path.is_file()}
    assert there - copied == {"mail-north.helper.sqlite", "orders/north.db", ".lock"}
    assert (backup / "operator/enrolment.key").read_text() == (operator / "enrolment.key").read_text()
    assert stat.S_IMODE((backup / "operator/enrolment.pub").stat().st_mode) == 0o600
    assert "the operator's folder at roster 1" in on_sqlite.run("backup", "verify", backup).stdout
    assert "is not an operator's folder" in on_sqlite.create("--operator", on_sqlite.folder, code=2).stderr
    assert not list(on_sqlite.dest.glob("*.unfinished"))


def test_verify_finds_what_is_wrong(kept):
    """Exit code 1 and which file; a file that was put there is named, and is no fault."""
    backup, manifest = kept.backup, kept.backup / MANIFEST_NAME
    (backup / "notes.txt").write_text("the one of Monday")
    assert "Not of this backup, and not checked: notes.txt" in kept.run("backup", "verify", backup).stdout
    (copy,) = (path for path in backup.iterdir() if path.name.startswith("foltr."))
    content, text = copy.read_bytes(), manifest.read_text()
    copy.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert "differs from what was backed up" in kept.run("backup", "verify", backup, code=1).stderr
    copy.unlink()
    assert f"lacks {copy.name}" in kept.run("backup", "verify", backup, code=1).stderr
    copy.write_bytes(content)
    manifest.write_text(text.replace('"version": 1', '"version": 2'))
    assert "install a newer foltr" in kept.run("backup", "verify", backup, code=1).stderr
    for broken in (text[:-10], text.replace('"made_at"', '"at"'), "[]"):
        manifest.write_text(broken)
        assert "is damaged" in kept.run("backup", "verify", backup, code=1).stderr
    manifest.unlink()
    assert "is no backup" in kept.run("backup", "verify", backup, code=2).stderr
    assert "is no backup" in kept.run("backup", "restore", backup, "--yes", code=2).stderr


def test_a_copy_that_was_damaged_before_its_digest_is_found(kept):
    """Its database itself is looked at: a digest of nonsense proves nothing."""
    backup = kept.backup
    manifest = json.loads((backup / MANIFEST_NAME).read_text())
    (name,) = manifest["files"]
    content = bytearray((backup / name).read_bytes())
    content[:4096] = os.urandom(4096)
    (backup / name).write_bytes(content)
    from foltr.operations.backups import _measure

    manifest["files"][name] = _measure(backup / name, lambda _: None)
    (backup / MANIFEST_NAME).write_text(json.dumps(manifest))
    done = kept.run("backup", "verify", backup, code=1)
    assert "is damaged" in done.stderr or "pg_restore failed" in done.stderr


def test_what_cannot_be_backed_up_leaves_nothing(tmp_path):
    """No database, another program's, or one without tables."""
    (tmp_path / "empty.sqlite").touch()
    (tmp_path / "text.sqlite").write_text("this is not a database, and never was one")
    with contextlib.closing(sqlite3.connect(tmp_path / "helper.sqlite")) as store:
        store.execute("CREATE TABLE keys (key)")
    for name, code, said in (
        ("typo", 2, "does not exist"),
        ("empty", 2, "no tables of foltr"),
        ("text", 1, "cannot be copied"),
        ("helper", 2, "no tables of foltr"),
    ):
        db = f"sqlite:///{tmp_path}/{name}.sqlite"
        assert said in foltr("backup", "create", tmp_path / "backups", "--db", db, code=code).stderr
    assert list((tmp_path / "backups").iterdir()) == []


def test_a_password_is_on_no_command_line_and_without_its_programs_it_says_what_to_install(
    tmp_path, postgres_server, postgres_databases
):
    """Others on the machine could read it there: programs get it in a variable. What one says is passed on."""
    url, program = postgres_databases.migrated(), tmp_path / "pg_dump"
    create = ("backup", "create", tmp_path / "backups")
    assert "pg_dump is not on the PATH" in foltr(*create, "--db", url, PATH=str(tmp_path), code=2).stderr
    path = f"{tmp_path}:{postgres_server.programs}:{os.environ['PATH']}"
    program.write_text("#!/bin/sh\necho 'pg_dump: error: aborting: version mismatch' >&2\nexit 1\n")
    program.chmod(0o755)
    done = foltr(*create, "--db", url, PATH=path, code=1)
    assert "pg_dump failed: pg_dump: error: aborting: version mismatch" in done.stderr
    assert list((tmp_path / "backups").iterdir()) == []
    program.write_text(
        f'#!/bin/sh\necho "$@" > {tmp_path}/words\necho "$PGPASSWORD" > {tmp_path}/password\n'
        f'exec {postgres_server.programs}/pg_dump "$@"\n'
    )
    foltr(*create, FOLTR_DB_URL=url.replace("postgres@", "postgres:s3cret@"), PATH=path, code=0)
    assert "s3cret" not in (tmp_path / "words").read_text()
    assert (tmp_path / "password").read_text() == "s3cret\n"
    (backup,) = (tmp_path / "backups").iterdir()
    assert "s3cret" not in (backup / MANIFEST_NAME).read_text()
    postgres_databases.release(url)


def test_two_at_once_are_two_backups(kept):
    """Into one folder, with one copy of the keys."""
    words = ("backup", "create", str(kept.dest), "--keys-to", str(kept.keys_copy))
    processes = [start(*words, cwd=kept.folder, **kept.variables) for _ in range(2)]
    ended = [process.communicate(timeout=PATIENCE_S) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], ended
    assert len(list(kept.dest.iterdir())) == 3
    for backup in kept.dest.iterdir():
        kept.run("backup", "verify", backup)
    assert len(list(kept.keys_copy.glob("??/*"))) == 2


def test_a_full_disk_leaves_nothing(kept):
    """Neither part of a copy nor a folder without one."""
    done = in_little_room(kept, "backup", "create", kept.dest)
    assert done.returncode == 1, done
    assert "cannot be copied" in done.stderr or "pg_dump failed" in done.stderr
    assert len(list(kept.dest.iterdir())) == 1


def test_a_copy_has_one_moment_while_a_federator_writes(on_sqlite):
    """A copy of many pages, during which rounds are completed: it has none or all of each."""

    async def live() -> None:
        async with sealed_federation(f"sqlite:///{on_sqlite.folder}/live.sqlite", on_sqlite.folder / "k") as federation:
            await federation.learn(2)
            words = ("backup", "create", str(on_sqlite.folder / "live"))
            process = start(*words, FOLTR_DB_URL=f"sqlite:///{on_sqlite.folder}/live.sqlite")
            while process.poll() is None:
                await federation.learn(1)
            said, _ = process.communicate()
            assert process.returncode == 0, said

    asyncio.run(live())
    (backup,) = (on_sqlite.folder / "live").iterdir()
    on_sqlite.run("backup", "verify", backup)
    with contextlib.closing(sqlite3.connect(backup / "foltr.sqlite")) as copy:
        counts = copy.execute("SELECT round, count(*) FROM updates GROUP BY round").fetchall()
        assert {n for _, n in counts[:-1]} == {3}
        assert copy.execute("PRAGMA foreign_key_check").fetchall() == []
