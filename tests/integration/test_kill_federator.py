"""kill -9 of the federator in the middle of a run by hand: broker, federator and devices as separate processes."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from integration.oracle import check_sqlite

FOLTR = [sys.executable, "-c", "from foltr.cli.main import main; main()"]
ORACLE = Path(__file__).with_name("oracle.py")
FEDERATION = "killed"
N_CLIENTS, N_ROUNDS = 8, 30


def count(db: Path, query: str) -> int:
    connection = sqlite3.connect(db, timeout=5)
    try:
        return connection.execute(query).fetchone()[0]
    finally:
        connection.close()


def rows_per_client(db: Path) -> dict[str, int]:
    connection = sqlite3.connect(db, timeout=5)
    try:
        return dict(connection.execute("SELECT client_id, count(*) FROM updates GROUP BY client_id").fetchall())
    finally:
        connection.close()


@pytest.mark.slow
def test_kill_9_of_the_federator_loses_nothing_and_counts_nothing_twice(mqtt_broker, tmp_path):
    """Killed three times while devices contribute 2^i: every update told accepted is in exactly one sum."""
    db = tmp_path / "federator.sqlite"
    environment = {
        **os.environ,
        "FOLTR_DB_URL": f"sqlite:///{db}",
        "FOLTR_BROKER_URL": mqtt_broker,
        "FOLTR_FEDERATION": FEDERATION,
        "FOLTR_LOG_LEVEL": "warning",
    }
    subprocess.run([*FOLTR, "db", "upgrade"], env=environment, check=True, timeout=60)
    federator_command = [
        *(*FOLTR, "federator", "run", "--features", "4", "--interactions", "1"),
        *("--min-clients", "1", "--max-clients", str(N_CLIENTS), "--min-time", "0.15", "--max-time", "20"),
    ]
    federator = subprocess.Popen(federator_command, env=environment)
    oracle_command = [sys.executable, str(ORACLE), mqtt_broker, FEDERATION, str(N_CLIENTS), str(N_ROUNDS)]
    devices = subprocess.Popen([*oracle_command, str(tmp_path)], env=environment, stdout=subprocess.PIPE, text=True)
    try:
        for kill in range(1, 4):
            wanted = kill * N_CLIENTS * N_ROUNDS // 5
            deadline = time.monotonic() + 60
            while count(db, "SELECT count(*) FROM updates") < wanted:
                assert time.monotonic() < deadline, "the rounds do not go on"
                assert devices.poll() is None
                time.sleep(0.02)
            federator.send_signal(signal.SIGKILL)
            federator.wait(timeout=10)
            before = count(db, "SELECT max(number) FROM rounds")
            federator = subprocess.Popen(federator_command, env=environment)
            started = time.monotonic()
            while count(db, "SELECT count(*) FROM rounds WHERE state = 'completed'") < before:
                assert time.monotonic() - started < 15, "the open round was not resumed"
                time.sleep(0.02)
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
    check_sqlite(db, FEDERATION)  # every model is the sum of exactly the updates its round lists
    assert set(told.values()) == {N_ROUNDS}
    assert rows_per_client(db) == told
