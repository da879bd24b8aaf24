"""A federation with a backup of its third round, after which rounds went on and a client was forgotten."""

import asyncio
import contextlib
import os
import sqlite3
import subprocess
from pathlib import Path

from cli.commands import FOLTR, environment, foltr
from support.completed_process import completed
from support.postgres_server import PostgresServer
from support.sealed_federation import sealed_federation

FORGOTTEN = "bob"


class Kept:
    """A federation's database, PostgreSQL's or a file, its data keys, and where the backup of its past is."""

    def __init__(self, folder: Path, url: str, server: PostgresServer | None) -> None:
        self.folder, self.url, self.server = folder, url, server
        self.file = Path(url.removeprefix("sqlite:///"))
        self.keys, self.dest, self.keys_copy = folder / "keys", folder / "backups", folder / "elsewhere" / "keys"
        path = os.environ["PATH"] if server is None else f"{server.programs}:{os.environ['PATH']}"
        self.variables = {"FOLTR_DB_URL": url, "FOLTR_KEYS": str(self.keys), "PATH": path}

    @property
    def backup(self) -> Path:
        (found,) = self.dest.iterdir()
        return found

    def run(self, *words: object, code: int | None = 0, **variables: str) -> "subprocess.CompletedProcess[str]":
        return foltr(*words, cwd=self.folder, code=code, **(self.variables | variables))

    def create(self, *words: object, code: int = 0) -> "subprocess.CompletedProcess[str]":
        return self.run("backup", "create", self.dest, "--keys-to", self.keys_copy, *words, code=code)

    def query(self, statement: str) -> str:
        if self.server is not None:
            return self.server.sql(statement, self.url.rpartition("/")[2])
        with contextlib.closing(sqlite3.connect(self.file)) as connection:
            return str(connection.execute(statement).fetchone()[0])

    def newest_round(self) -> int:
        return int(self.query("SELECT max(number) FROM rounds WHERE state = 'completed'"))


def in_little_room(kept: Kept, *words: object) -> "subprocess.CompletedProcess[str]":
    """Run a command that may write no file of more than 48 kB, as if the disk were full."""
    little = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (48_000, 48_000)); "
    python, flag, program = FOLTR
    return completed(
        [python, flag, little + program, *map(str, words)], env=environment(**kept.variables), cwd=kept.folder
    )


def keep(folder: Path, url: str, server: PostgresServer | None) -> Kept:
    """Complete three rounds, back up while the database is open, complete two more, and forget one of three."""
    kept = Kept(folder, url, server)

    async def live() -> None:
        async with sealed_federation(url, kept.keys) as federation:
            await federation.learn(3)
            kept.create()
            await federation.learn(2)
            await federation.forget(FORGOTTEN)

    asyncio.run(live())
    return kept
