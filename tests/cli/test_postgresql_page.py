"""docs/postgresql.md does what it says: its commands, from createdb to a restored federation that goes on."""

import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cli.commands import FOLTR, environment, start, stop
from cli.snippets import blocks
from servers import PostgresServer

from storage.migrate import head

OWNER, READER = (f"postgresql://{name}@127.0.0.1/foltr" for name in ("foltr", "foltr_reader"))
# As a server for others has it: its administrator by the socket, everybody else with a password.
_ACCESS = "local all all trust\nhost all postgres 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n"

pytestmark = pytest.mark.slow


@pytest.fixture
def server(postgres_server):
    """A PostgreSQL of this test's own that asks everybody but its administrator for a password."""
    del postgres_server  # says in words where there is none
    server = PostgresServer()
    (server.data / "pg_hba.conf").write_text(_ACCESS)
    server.start()
    yield server
    server.remove()


class Shell:
    """Runs blocks of the page in one folder, as a shell that stops at the first command that fails.

    The only changes: where the server is, and localhost by its number, as the server listens on no other.
    """

    def __init__(self, folder: Path, server: PostgresServer) -> None:
        self._folder = folder
        programs = folder / "programs"
        programs.mkdir()
        (programs / "foltr").write_text(f'#!/bin/sh\nexec {shlex.join([sys.executable, *FOLTR[1:]])} "$@"\n')
        (programs / "foltr").chmod(0o755)
        self.variables = {
            "PATH": f"{programs}:{server.programs}:{os.environ['PATH']}",
            "PGHOST": str(server.socket_dir),
            "PGPORT": str(server.port),
            "PGUSER": "postgres",
            "PGPASSFILE": "pgpass",
        }

    def run(self, block: str) -> str:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block.replace("localhost", "127.0.0.1")],
            env=environment(**self.variables),
            cwd=self._folder,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def learn(self, broker: str, until: int) -> None:
        """Let two devices and a federator go on until so many rounds are completed."""
        own = {"cwd": self._folder, "FOLTR_BROKER_URL": broker, "FOLTR_LOG_LEVEL": "warning"}
        own |= {name: self.variables[name] for name in ("PGPORT", "PGPASSFILE")}
        options = ("--min-clients", "2", "--max-clients", "2", "--min-time", "0")
        federator = start("federator", "run", "--allow-unsigned", "--db", OWNER, *options, **own)
        (self._folder / "stores").mkdir(exist_ok=True)
        devices = start("client", "run", "--count", "2", "--data", "synthetic", "--store", "stores", **own)
        give_up_at = time.monotonic() + 60
        try:
            while int(self.answer("SELECT count(*) FROM rounds WHERE state = 'completed'")) < until:
                assert time.monotonic() < give_up_at, "the rounds do not go on"
                time.sleep(0.2)
        finally:
            ended = [stop(process) for process in (devices, federator)]
        assert [code for code, _ in ended] == [0, 0], ended

    def answer(self, statement: str, url: str = OWNER) -> str:
        return self.run(f"PGPASSFILE=pgpass psql -X -At {url} -c {shlex.quote(statement)}").strip()


def test_the_page_from_createdb_to_a_restored_federation(server, mosquitto_server, tmp_path):
    """Both roles get in with their passwords alone; the restored database has the dump's rows, and learning goes on."""
    making, passwords, upgrading, backing_up, restoring = blocks("docs/postgresql.md", "sh")
    shell = Shell(tmp_path, server)
    shell.run(making)
    shell.run(passwords)
    assert f"revision {head()}" in shell.run(upgrading)
    shell.learn(mosquitto_server.url, until=3)
    listed = shell.answer("SELECT round, state, n_updates FROM round_history ORDER BY round")
    shell.run(backing_up)
    shell.learn(mosquitto_server.url, until=20)

    assert "equal" in shell.run(restoring)
    assert shell.answer("SELECT round, state, n_updates FROM round_history ORDER BY round", READER) == listed
    with pytest.raises(AssertionError, match="permission denied"):
        shell.answer("DELETE FROM rounds", READER)
    n_completed = shell.answer("SELECT count(*) FROM rounds WHERE state = 'completed'")
    epoch = shell.answer("SELECT writer_epoch FROM federations")
    shell.learn(mosquitto_server.url, until=int(n_completed) + 3)
    assert int(shell.answer("SELECT writer_epoch FROM federations")) > int(epoch)
    assert shell.run("foltr status --json --db " + READER + " || test $? = 1")
