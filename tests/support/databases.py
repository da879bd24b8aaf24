"""Databases at the newest revision: migrated once, then copied (SQLite) or emptied and used again (PostgreSQL)."""

import asyncio
import functools
import itertools
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from support.postgres_server import PostgresServer
from support.worker_shared import made_once

from foltr.storage.database import Database
from foltr.storage.keys import KeyStore
from foltr.storage.migrate import upgrade

# Not template1, to which nobody may be connected while it is copied.
_EMPTY = "foltr_empty"
_MIGRATED = "foltr_migrated"
# A session that is left by a failing test holds locks.
# Each is waited for, as long as a test waits for anything.
_ENDED = "SELECT pg_terminate_backend(pid, 240000) FROM pg_stat_activity WHERE {others}"
_ALONE = _ENDED.format(others="datname = current_database() AND pid <> pg_backend_pid()")
# Most tables are empty after a test: deleting nothing costs nothing, where truncating makes new files for each.
_DELETIONS = (
    "SELECT string_agg(format('DELETE FROM %I', tablename), '; ') FROM pg_tables "
    "WHERE schemaname = 'public' AND tablename <> 'alembic_version'"
)
# Without triggers, and so in any order: foreign keys are triggers too.
_WITHOUT_TRIGGERS = "SET session_replication_role = replica"
_KEYS_FROM_1 = "SELECT setval(sequencename::regclass, 1, false) FROM pg_sequences WHERE schemaname = 'public'"
_SCHEMA = (
    "SELECT (SELECT count(*) FROM pg_class), (SELECT count(*) FROM pg_attribute), "
    "(SELECT count(*) FROM pg_constraint), (SELECT count(*) FROM pg_trigger), "
    "(SELECT string_agg(version_num, ',') FROM alembic_version)"
)


async def open_migrated(url: str, keys: KeyStore | None = None) -> Database:
    """Connect to a database at the newest revision; an SQLite file that is not there yet is made.

    A PostgreSQL database must be at that revision already, as those of `PostgresDatabases.migrated` are.
    """
    if url.startswith("sqlite"):
        await asyncio.to_thread(_make_if_missing, Path(url.removeprefix("sqlite:///")))
    return await Database.connect(url, keys=keys)


def migrated_sqlite(path: Path) -> str:
    """Make an SQLite file at the newest revision, and return its URL."""
    path.write_bytes(_migrated_file())
    return f"sqlite:///{path}"


class PostgresDatabases:
    """The databases of one server."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._numbers = itertools.count(1)
        self._free: list[str] = []
        server.sql(f"CREATE DATABASE {_EMPTY}")
        server.sql(f"CREATE DATABASE {_MIGRATED} TEMPLATE {_EMPTY}")
        _migrate(server.url(_MIGRATED))
        deletions = server.sql(_DELETIONS, _MIGRATED)
        self._cleaning = f"{_ALONE}; {_WITHOUT_TRIGGERS}; {deletions}; {_KEYS_FROM_1}; {_SCHEMA}"
        self._schema = server.sql(_SCHEMA, _MIGRATED)

    def empty(self) -> str:
        return self._create(_EMPTY)

    def drop(self, url: str) -> None:
        """Each takes 8 MB in 300 files, so none is kept that nobody will use."""
        self._alone(_name(url), f"DROP DATABASE {_name(url)} WITH (FORCE)")

    def migrated(self) -> str:
        """The URL of a database at the newest revision, without rows."""
        return self._free.pop() if self._free else self._create(_MIGRATED)

    def release(self, url: str) -> None:
        """Empty the tables for the next test; a database whose schema was changed is dropped."""
        try:
            *_, schema = self._server.sql(self._cleaning, _name(url)).splitlines()
        except subprocess.SubprocessError:
            schema = ""
        if schema == self._schema:
            self._free.append(url)
        else:
            self.drop(url)

    def _create(self, template: str) -> str:
        name = f"foltr_test_{next(self._numbers)}"
        self._alone(template, f"CREATE DATABASE {name} TEMPLATE {template}")
        return self._server.url(name)

    def _alone(self, name: str, statement: str) -> None:
        """Run a statement that nobody may be connected for: it waits itself, for at most five seconds."""
        try:
            self._server.sql(statement)
        except subprocess.CalledProcessError:
            self._server.sql(_ENDED.format(others=f"datname = '{name}'"))
            self._server.sql(statement)


def _make_if_missing(path: Path) -> None:
    if not path.exists():
        migrated_sqlite(path)


@functools.cache
def _migrated_file() -> bytes:
    return made_once("migrated.sqlite", _make_migrated).read_bytes()


def _make_migrated(file: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "migrated.sqlite"
        _migrate(f"sqlite:///{path}")
        # The last connection has moved the write-ahead log into the file.
        assert list(Path(folder).iterdir()) == [path]
        shutil.move(path, file)


def _migrate(url: str) -> None:
    """In a thread of its own, since the loop of an asynchronous test may be running in this one."""

    async def migrate() -> None:
        async with await Database.connect(url) as db:
            await upgrade(db)

    with ThreadPoolExecutor(1) as pool:
        pool.submit(asyncio.run, migrate()).result()


def _name(url: str) -> str:
    return url.rpartition("/")[2]
