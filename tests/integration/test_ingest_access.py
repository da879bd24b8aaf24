"""A leader and a worker at a broker that knows its users, over TLS: each has a session and lines of its own."""

import asyncio
from contextlib import ExitStack

import pytest
from cli.commands import environment, foltr
from integration.deployment import until
from own_servers import provisioned
from prepared import PreparedProcess

from storage.database import Database
from storage.queries import list_rounds

N_ROUNDS = 2


@pytest.mark.slow
async def test_a_worker_with_its_own_user_takes_updates(tmp_path):
    """It reads what devices write, answers them, and throws nobody out: two devices and a leader make their rounds."""
    server = provisioned(tmp_path, "passwords")
    operator = ("--operator", str(server.operator_dir))
    db_url = f"sqlite:///{tmp_path}/foltr.sqlite"
    federator = str(server.operator_dir / "federator.json")
    with ExitStack() as ending:

        def start(*words: str) -> PreparedProcess:
            process = PreparedProcess(words, environment(FOLTR_LOG_LEVEL="warning"), output=log.fileno())
            ending.callback(process.wait, 10)
            ending.callback(process.kill)
            return process

        log = ending.enter_context((tmp_path / "log").open("ab"))
        server.start()
        ending.callback(server.stop)
        for words in (("enrol", "a", "b", *operator, "--out-dir", "devices"), ("broker", "worker", "1", *operator)):
            done = await asyncio.to_thread(foltr, *words, cwd=tmp_path)
            assert done.returncode == 0, done.stderr
        assert (await asyncio.to_thread(foltr, "db", "upgrade", "--db", db_url, cwd=tmp_path)).returncode == 0
        run = ("federator", "run", "--db", db_url)
        quorum = ("--min-clients", "2", "--max-clients", "2", "--min-time", "0", "--rounds", str(N_ROUNDS))
        leader = start(*run, "--role", "leader", "--credentials", federator, *quorum)
        worker = start(*run, "--role", "ingest", "--credentials", str(tmp_path / "worker-1.json"))
        for name in "ab":
            store = str(tmp_path / f"{name}.sqlite")
            start("client", "run", "--credentials", str(tmp_path / "devices" / f"{name}.json"), "--store", store)
        await until(lambda: leader.poll() is not None, 60, (tmp_path / "log").read_text())
        assert (leader.poll(), worker.poll()) == (0, None), (tmp_path / "log").read_text()
        assert "session_taken_over" not in (tmp_path / "log").read_text()
    async with await Database.connect(db_url) as database:
        rounds = await list_rounds(database, "fed")
    assert [(row.state, row.n_updates) for row in rounds] == [("completed", 2)] * N_ROUNDS
