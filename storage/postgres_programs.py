"""Copies a PostgreSQL database by `pg_dump`, and restores it by `pg_restore` and `psql` in one transaction."""

import asyncio
import os
import shutil
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable
from pathlib import Path
from typing import Final

from sqlalchemy import URL, text

from foltr.core.errors import DataError, SettingsError
from foltr.core.failpoints import Failpoint, failpoint
from foltr.core.file_locks import create_private
from foltr.storage.copies import Contents, OnBytes, read_contents
from foltr.storage.database import Database
from foltr.storage.engines import BUSY_TIMEOUT_S, application_name
from foltr.storage.migrate import LOCK_KEY

RESTORING: Final = "restore"
"""The name of a process that restores, for its sessions."""
# The session whose snapshot a dump reads is idle meanwhile.
_LONGEST_DUMP_S: Final = 7 * 86_400
_POLL_S: Final = 0.5
_LOCK_WAIT_MS: Final = 60_000
# All views, then all tables at once. If something that stays refers to one, PostgreSQL says what, and nothing changes.
_BEGIN: Final = f"""
BEGIN;
SET LOCAL client_min_messages = warning;
SET LOCAL lock_timeout = '{BUSY_TIMEOUT_S}s';
SELECT pg_advisory_xact_lock({LOCK_KEY});
DO $$ DECLARE found text; BEGIN
  SELECT string_agg(oid::regclass::text, ', ') INTO found FROM pg_class
    WHERE relnamespace = 'public'::regnamespace AND relkind = 'v';
  IF found IS NOT NULL THEN EXECUTE 'DROP VIEW ' || found; END IF;
  SELECT string_agg(oid::regclass::text, ', ') INTO found FROM pg_class
    WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition;
  IF found IS NOT NULL THEN EXECUTE 'DROP TABLE ' || found; END IF;
END $$;
"""  # noqa: S608 (two numbers of ours)


async def copy_postgres(db_url: str, copy: Path, on_bytes: OnBytes) -> Contents:
    """Copy a PostgreSQL database in pg_dump's custom format; return the contents of just that state.

    Raises:
        SettingsError: pg_dump is not installed.
        DataError: it fails.
    """
    create_private(copy)
    async with await Database.connect(db_url, idle_timeout_s=_LONGEST_DUMP_S) as db, db.reading() as connection:
        contents = await connection.run_sync(read_contents)
        snapshot = await connection.scalar(text("SELECT pg_export_snapshot()"))
        n_bytes = await connection.scalar(text("SELECT pg_database_size(current_database())")) or 0
        options = ("--no-password", "--format=custom", f"--lock-wait-timeout={_LOCK_WAIT_MS}")
        dump = await _start(db.engine.url, "pg_dump", *options, f"--snapshot={snapshot}", f"--file={copy}")
        await _end(dump, "pg_dump", lambda: on_bytes(copy.stat().st_size, n_bytes))
    return contents


async def check_postgres(copy: Path) -> None:
    """Check that pg_restore can read a copy's table of contents. Raises DataError if it cannot."""
    await _end(await _start(None, "pg_restore", "--list", str(copy)), "pg_restore")


async def replace_postgres(db: Database, copy: Path, on_poll: Callable[[], None]) -> None:
    """Replace all views and tables of a database by those of a copy, in one transaction.

    Raises:
        SettingsError: pg_restore or psql is not installed.
        DataError: one of them fails; the database is unchanged.
    """
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb", buffering=0) as script:
        try:
            options = ("--no-password", "--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1")
            psql = await _start(db.engine.url, "psql", *options, stdin=reading)
        finally:
            os.close(reading)
        cause: Exception | None = None
        try:
            script.write(_BEGIN.encode())
            # What is in that schema: the schema itself is there.
            words = ("--schema=public", "--file=-", str(copy))
            await _end(await _start(None, "pg_restore", *words, stdout=script.fileno()), "pg_restore", on_poll)
            failpoint(Failpoint.RESTORE_COPIED)
            # If a process dies before this line, nothing is committed.
            script.write(b"COMMIT;\n")
        except (BrokenPipeError, DataError) as error:
            cause = error  # unless psql has one
        except BaseException:
            psql.kill()
            await psql.wait()
            raise
        script.close()
        await _end(psql, "psql", on_poll)
        if cause is not None:
            raise cause
        failpoint(Failpoint.RESTORED)


async def other_sessions(db: Database) -> list[str]:
    """List the names of other foltr processes that are connected to a database; empty for SQLite."""
    if db.dialect == "sqlite":
        return []
    statement = text(
        "SELECT DISTINCT application_name FROM pg_stat_activity WHERE datname = current_database() "
        "AND application_name LIKE 'foltr%' AND application_name <> :own ORDER BY application_name"
    )
    async with db.reading() as connection:
        return list(await connection.scalars(statement, {"own": application_name(RESTORING)}))


async def _start(url: URL | None, name: str, *words: str, stdin: int = DEVNULL, stdout: int = DEVNULL) -> Process:
    """Start a program, which connects by variables: others on this machine can read command lines."""
    program = shutil.which(name)
    if program is None:
        raise SettingsError(
            f"{name} is not on the PATH of this machine: install PostgreSQL's client programs, of the server's version "
            "or newer (Debian: apt-get install postgresql-client)"
        )
    given = {} if url is None else _access(url)
    variables = {**os.environ, **{key: str(value) for key, value in given.items() if value is not None}}
    return await asyncio.create_subprocess_exec(program, *words, stdin=stdin, stdout=stdout, stderr=PIPE, env=variables)


def _access(url: URL) -> dict[str, object]:
    return {
        "PGHOST": url.query.get("host") or url.host,
        "PGPORT": url.query.get("port") or url.port,
        "PGUSER": url.username,
        "PGPASSWORD": url.password,
        "PGDATABASE": url.database,
        "PGSSLMODE": url.query.get("ssl"),
        "PGAPPNAME": application_name(RESTORING),
    }


async def _end(process: Process, name: str, on_poll: Callable[[], None] = lambda: None) -> None:
    """Wait for the end of a program. Raises DataError if it fails."""
    saying = asyncio.ensure_future(process.communicate())
    try:
        while not saying.done():
            await asyncio.wait([saying], timeout=_POLL_S)
            on_poll()
    except BaseException:
        process.kill()
        await saying
        raise
    _, said = saying.result()
    if process.returncode:
        first = next(iter(said.decode(errors="replace").strip().splitlines()), f"exit code {process.returncode}")
        raise DataError(f"{name} failed: {first}")
