"""`foltr federator run --role ingest` does not start where no update would reach it, or where it would do harm."""

import pytest
from cli.commands import foltr
from own_servers import provisioned
from servers import MissingError, NatsCluster

RUN = ("federator", "run", "--role", "ingest")


def test_a_broker_that_shares_nothing_out_is_said(tmp_path):
    """NATS grants the subscription: a worker would wait there for ever, and devices with it."""
    try:
        nats = NatsCluster(tmp_path)
    except MissingError as error:
        pytest.skip(f"NATS: {error}")
    nats.start()
    try:
        done = foltr(*RUN, "--allow-unsigned", "--broker", nats.urls[0], cwd=tmp_path)
    finally:
        nats.stop()
    assert done.returncode == 3, done.stderr
    assert "delivers none; do not use foltr federator run --role ingest at this broker" in done.stderr


def test_a_worker_does_not_come_as_the_leader(tmp_path):
    """It would throw the leader out, and be thrown out by it."""
    server = provisioned(tmp_path, "passwords")
    assert foltr("enrol", "device-1", "--operator", str(server.operator_dir), cwd=tmp_path).returncode == 0
    done = foltr(*RUN, "--credentials", str(server.operator_dir / "federator.json"), cwd=tmp_path)
    assert (done.returncode, "foltr broker worker NAME" in done.stderr) == (2, True)
