"""kill -9 of the federator in the middle of a run: broker, federator and signed devices as separate processes."""

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from cli.commands import environment, foltr_process
from integration.deployment import DIM, FEDERATION, enrol
from integration.oracle import check_history
from support.prepared_processes import PreparedProcess
from support.waiting import PATIENCE_S

from foltr.core.operator.credentials import write_secret
from foltr.storage.database import Database
from foltr.storage.queries import list_contributions, list_rounds

ORACLE = Path(__file__).with_name("oracle.py")
N_CLIENTS, N_ROUNDS = 8, 30


@dataclass(frozen=True)
class Progress:
    """How many updates are stored, how many rounds were opened, and how many are completed."""

    n_updates: int
    n_rounds: int
    n_completed: int


async def wait_until(db_url: str, reached: Callable[[Progress], bool], timeout_s: float) -> Progress:
    """Look until it is so far; AssertionError if it is not in time."""
    give_up_at = time.monotonic() + timeout_s
    async with await Database.connect(db_url) as database:
        while True:
            rounds = await list_rounds(database, FEDERATION, limit=10_000)
            n_updates = len(await list_contributions(database, FEDERATION))
            seen = Progress(n_updates, len(rounds), sum(row.state == "completed" for row in rounds))
            if reached(seen):
                return seen
            assert time.monotonic() < give_up_at, f"the rounds do not go on: {seen}"
            await asyncio.sleep(0.1)


@pytest.mark.slow
def test_kill_9_of_the_federator_loses_nothing_and_counts_nothing_twice(mqtt_broker, database_url, tmp_path):
    """Killed three times while devices contribute 2^i: every update told accepted is in exactly one sum."""
    for credentials in enrol(tmp_path / "operator", mqtt_broker, N_CLIENTS):
        write_secret(tmp_path / f"{credentials.name}.json", credentials.model_dump_json())
    variables = environment(FOLTR_DB_URL=database_url, FOLTR_KEYS=str(tmp_path / "keys"), FOLTR_LOG_LEVEL="warning")
    assert foltr_process("db", "upgrade", "--db", database_url).returncode == 0
    federator_command = [
        *("federator", "run", "--credentials", str(tmp_path / "operator" / "federator.json")),
        *("--features", str(DIM), "--interactions", "1"),
        *("--min-clients", "1", "--max-clients", str(N_CLIENTS), "--min-time", "0.15", "--max-time", "20"),
    ]

    def start_federator() -> PreparedProcess:
        with (tmp_path / "federator.log").open("ab") as log:
            return PreparedProcess(federator_command, variables, output=log.fileno())

    def look(reached: Callable[[Progress], bool], timeout_s: float = 0.0) -> Progress:
        return asyncio.run(wait_until(database_url, reached, timeout_s))

    federator = start_federator()
    oracle_command = [sys.executable, str(ORACLE), str(N_ROUNDS), str(tmp_path)]
    devices = subprocess.Popen(oracle_command, env=variables, stdout=subprocess.PIPE, text=True)
    resumed_after_s = []
    try:
        for kill in range(1, 4):
            enough = kill * N_CLIENTS * N_ROUNDS // 5
            look(lambda seen, enough=enough: seen.n_updates >= enough, 60)
            federator.send_signal(signal.SIGKILL)
            federator.wait(timeout=PATIENCE_S)
            before = look(lambda _: True)
            federator = start_federator()
            started = time.monotonic()
            after = look(lambda seen, before=before: seen.n_completed > before.n_completed, 20)
            resumed_after_s.append(time.monotonic() - started)
            assert after.n_rounds >= before.n_rounds
        output, _ = devices.communicate(timeout=PATIENCE_S)
        federator.send_signal(signal.SIGTERM)
        assert federator.wait(timeout=PATIENCE_S) == 0
    finally:
        for process in (federator, devices):
            if process.poll() is None:
                process.kill()
                process.wait()
        if devices.stdout is not None:
            devices.stdout.close()
    told = {f"oracle-{i:02d}": n for i, n in enumerate(json.loads(output))}
    assert set(told.values()) == {N_ROUNDS}
    # Every model is the sum of exactly the updates its round lists, and each update told accepted is one row.
    assert asyncio.run(check_history(database_url, FEDERATION)) == told
    print("completed the open round after", [f"{seconds:.1f} s" for seconds in resumed_after_s])  # noqa: T201
