"""A thousand simulated devices in one process, each with its own connection, over Mosquitto."""

import json

import pytest
from cli.commands import foltr, foltr_process, start, stop
from support.waiting import PATIENCE_S

N_CLIENTS, N_ROUNDS = 1000, 20


@pytest.mark.nightly
def test_a_thousand_devices_complete_twenty_rounds(mosquitto_server, tmp_path):
    """Signed, every device contributes to every round, and each of the 20,000 updates is receipted accepted once."""
    db = f"sqlite:///{tmp_path}/federator.sqlite"
    variables = {
        "FOLTR_BROKER_URL": mosquitto_server.url,
        "FOLTR_DB_URL": db,
        "FOLTR_DATASET": "synthetic",
        "FOLTR_INTERACTIONS": "1",
        "FOLTR_LOG_LEVEL": "warning",
    }
    assert foltr("db", "upgrade", **variables).returncode == 0
    assert (
        foltr("device", "enrol", "device", "--count", str(N_CLIENTS), "--out-dir", "devices", cwd=tmp_path).returncode
        == 0
    )
    counts = ("--min-clients", str(N_CLIENTS), "--max-clients", str(N_CLIENTS))
    federator = start(
        *("federator", "run", "--credentials", "foltr-operator/federator.json", *counts),
        *("--min-time", "0", "--max-time", "3600", "--rounds", str(N_ROUNDS)),
        cwd=tmp_path,
        **variables,
    )
    try:
        devices = foltr_process(
            *("client", "run", "--credentials", "devices", "--id", "device", "--count", str(N_CLIENTS), "--json"),
            cwd=tmp_path,
            timeout_s=PATIENCE_S,
            **variables,
        )
        assert devices.returncode == 0, devices.stderr[-2000:]
        assert federator.wait(timeout=PATIENCE_S) == 0
    finally:
        stop(federator)
    receipts = json.loads(devices.stdout)["receipts"]
    assert receipts["accepted"] + receipts.get("duplicate", 0) >= N_CLIENTS * N_ROUNDS
    rounds = json.loads(foltr("rounds", "list", "--json", **variables).stdout)
    assert [(row["state"], row["n_updates"]) for row in rounds] == [("completed", N_CLIENTS)] * N_ROUNDS
