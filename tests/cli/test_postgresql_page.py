"""docs/servers.md does what it says: its commands, from createdb to a restored federation that goes on."""

import os
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cli.commands import environment, start, stop
from cli.snippets import blocks
from support.completed_process import completed
from support.foltr_program import prepared_foltr
from support.postgres_server import PostgresServer
from support.waiting import wait_until

from foltr.storage.migrate import head

PAGE = "docs/servers.md#postgresql"
OWNER, READER = (f"postgresql://{name}@127.0.0.1/foltr" for name in ("foltr", "foltr_reader"))
# As a server for others has it: its administrator by the socket, everybody else with a password.
_ACCESS = "local all all trust\nhost all postgres 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n"

pytestmark = pytest.mark.nightly


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
    """Runs blocks of the page in one folder, as a shell that stops at the first command that fails."""

    def __init__(self, folder: Path, server: PostgresServer) -> None:
        self._folder = folder
        self.variables = {
            "PATH": f"{folder / 'programs'}:{server.programs}:{os.environ['PATH']}",
            "PGHOST": str(server.socket_dir),
            "PGPORT": str(server.port),
            "PGUSER": "postgres",
            "PGPASSFILE": "pgpass",
        }

    def run(self, block: str) -> str:
        done = completed(
            ["bash", "-euo", "pipefail", "-c", block.replace("localhost", "127.0.0.1")],
            env=environment(**self.variables),
            cwd=self._folder,
        )
        assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"
        return done.stdout

    def learn(self, broker: str, until: int, url: str = OWNER) -> None:
        """Let two devices and a federator go on until so many rounds are completed."""
        with self.learning(broker, url):
            self.await_rounds(until)

    @contextmanager
    def learning(self, broker: str, url: str = OWNER) -> Iterator[None]:
        """Two devices and a federator run, which end as they are told at the end of this."""
        own = {"cwd": self._folder, "FOLTR_BROKER_URL": broker, "FOLTR_LOG_LEVEL": "warning"}
        own |= {name: self.variables[name] for name in ("PGPORT", "PGPASSFILE")}
        options = ("--min-clients", "2", "--max-clients", "2", "--min-time", "0")
        federator = start("federator", "run", "--allow-unsigned", *options, FOLTR_DB_URL=url, **own)
        (self._folder / "stores").mkdir(exist_ok=True)
        devices = start("client", "run", "--count", "2", "--data", "synthetic", "--store", "stores", **own)
        try:
            yield
        finally:
            ended = [stop(process) for process in (devices, federator)]
        assert [code for code, _ in ended] == [0, 0], ended

    def await_rounds(self, until: int) -> None:
        """Wait for so many completed rounds."""
        wait_until(lambda: self.n_completed() >= until, "the rounds do not go on")

    def n_completed(self) -> int:
        return int(self.answer("SELECT count(*) FROM rounds WHERE state = 'completed'"))

    def answer(self, statement: str, url: str = OWNER) -> str:
        return self.run(f"PGPASSFILE=pgpass psql -X -At {url} -c {shlex.quote(statement)}").strip()


@pytest.fixture
def shell(server: PostgresServer, tmp_path: Path) -> Iterator[Shell]:
    """In an empty folder, with ``foltr`` on its path."""
    with prepared_foltr(tmp_path / "programs/foltr"):
        yield Shell(tmp_path, server)


def test_the_page_from_createdb_to_a_restored_federation(shell, mosquitto_server):
    """Both roles get in with their passwords alone; the restored database has the dump's rows, and learning goes on."""
    making, passwords, upgrading, backing_up, restoring, listing, clearing, _ = blocks(PAGE, "sh")
    shell.run(making)
    shell.run(passwords)
    assert f"revision {head()}" in shell.run(upgrading)
    shell.learn(mosquitto_server.url, until=3)
    listed = shell.answer("SELECT round, state, n_updates FROM round_history ORDER BY round")
    shell.run(backing_up)
    shell.learn(mosquitto_server.url, until=20)
    assert "equal" in shell.run(restoring)
    assert "dropped_at" in shell.run(listing)
    n_bodies = shell.answer("SELECT count(*) FROM update_bodies")
    shell.answer("INSERT INTO update_bodies (federation, round, client, body) SELECT name, 99, 99, '' FROM federations")
    assert "1 in update_bodies belong to no update" in shell.run(f"foltr doctor --db {OWNER} || true")
    assert "DELETE 1\n" in shell.run(clearing)
    assert shell.answer("SELECT count(*) FROM update_bodies") == n_bodies
    assert shell.answer("SELECT round, state, n_updates FROM round_history ORDER BY round", READER) == listed
    with pytest.raises(AssertionError, match="permission denied"):
        shell.answer("DELETE FROM rounds", READER)
    n_completed = shell.answer("SELECT count(*) FROM rounds WHERE state = 'completed'")
    epoch = shell.answer("SELECT writer_epoch FROM federations")
    shell.learn(mosquitto_server.url, until=int(n_completed) + 3)
    assert int(shell.answer("SELECT writer_epoch FROM federations")) > int(epoch)
    # The federator has ended, so the federation is down; a reader sees that.
    assert '"verdict"' in shell.run(f"foltr status --json --db {READER} || true")


def test_the_databases_password_is_another_one(shell, server, mosquitto_server, tmp_path):
    """By the page's last commands: a federator that runs goes on, one that is started gets in, and nothing is lost."""
    making, passwords, upgrading, *_, changing = blocks(PAGE, "sh")
    for block in (making, passwords, upgrading):
        shell.run(block)
    old = (tmp_path / "foltr.password").read_text().strip()
    with shell.learning(mosquitto_server.url):
        shell.await_rounds(3)
        listed = shell.answer("SELECT round, state, n_updates FROM round_history WHERE round <= 3 ORDER BY round")
        shell.run(changing)
        shell.await_rounds(shell.n_completed() + 3)
    new = (tmp_path / "foltr.password").read_text().strip()
    assert new != old
    with pytest.raises(AssertionError, match="password authentication failed"):
        shell.run(f"PGPASSFILE= psql -X {with_password(old)} -c 'SELECT 1'")
    # A federator whose address has the password, which another process cannot read in its environment.
    url = with_password(new).replace("/127.0.0.1/", f"/127.0.0.1:{server.port}/")
    shell.learn(mosquitto_server.url, shell.n_completed() + 3, url)
    assert shell.answer("SELECT round, state, n_updates FROM round_history WHERE round <= 3 ORDER BY round") == listed
    assert shell.answer("SELECT count(DISTINCT round) = max(round) FROM round_history") == "t"
    # What was stored before can be opened, and gives the same model.
    assert "equal" in shell.run(f"foltr rounds replay 1 --db {OWNER}")


def with_password(password: str) -> str:
    return OWNER.replace("foltr@", f"foltr:{password}@")
