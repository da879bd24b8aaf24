"""kill -9 of the federator in the middle of a run: broker, federator and signed devices as separate processes."""

import asyncio
import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cli.commands import environment, foltr_process
from integration.deployment import DIM, FEDERATION, enrol
from integration.oracle import check_history
from prepared import PreparedProcess

from foltr.operator.credentials import write_secret
from storage.database import Database
from storage.queries import list_contributions, list_rounds

ORACLE = Path(__file__).with_name("oracle.py")
N_CLIENTS, N_ROUNDS = 8, 30


def progress(db_url: str) -> tuple[int, int, int]:
    """How many updates are stored, how many rounds were opened, and how many are completed."""

    async def look() -> tuple[int, int, int]:
        async with await Database.connect(db_url) as database:
            rounds = await list_rounds(database, FEDERATION, limit=10_000)
            n_updates = len(await list_contributions(database, FEDERATION))
            return n_updates, len(rounds), sum(row.state == "completed" for row in rounds)

    return asyncio.run(look())


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

    federator = start_federator()
    oracle_command = [sys.executable, str(ORACLE), str(N_ROUNDS), str(tmp_path)]
    devices = subprocess.Popen(oracle_command, env=variables, stdout=subprocess.PIPE, text=True)
    resumed_after_s = []
    try:
        for kill in range(1, 4):
            deadline = time.monotonic() + 60
            while progress(database_url)[0] < kill * N_CLIENTS * N_ROUNDS // 5:
                assert time.monotonic() < deadline, "the rounds do not go on"
                assert devices.poll() is None
                time.sleep(0.1)
            federator.send_signal(signal.SIGKILL)
            federator.wait(timeout=10)
            _, n_rounds, n_completed = progress(database_url)
            federator = start_federator()
            started = time.monotonic()
            while progress(database_url)[2] <= n_completed:
                assert time.monotonic() - started < 20, "the open round was not resumed"
                time.sleep(0.1)
            resumed_after_s.append(time.monotonic() - started)
            assert progress(database_url)[1] >= n_rounds
        output, _ = devices.communicate(timeout=120)
        federator.send_signal(signal.SIGTERM)
        assert federator.wait(timeout=20) == 0
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
