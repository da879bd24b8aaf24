"""`foltr federator run --role ingest` does not start where no update would reach it, or where it would do harm."""

from datetime import UTC, datetime

import pytest
from cli.commands import foltr, foltr_process
from databases import open_migrated
from own_servers import provisioned
from servers import MissingError, NatsCluster

from storage.arrivals import commit_batch
from storage.federations import claim_federation, create_federation
from storage.keys import KeyStore
from storage.records import Batch, MembershipChange, NewUpdate, RoundOpening
from storage.rounds import open_round

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


async def test_a_worker_with_another_folder_of_keys_does_not_start(tmp_path):
    """What it sealed nobody could open, and an erasure would leave the key there."""
    url, now = f"sqlite:///{tmp_path}/foltr.sqlite", datetime.now(UTC)
    async with await open_migrated(url, KeyStore(tmp_path / "leaders")) as db:
        await create_federation(db, "default", 1, "linear", bytes(4), now)
        epoch = await claim_federation(db, "default", 0.0)
        await commit_batch(db, "default", epoch, Batch(membership=[MembershipChange("a", "joined", now)]))
        await open_round(db, "default", epoch, RoundOpening(1, 0, 1, 10, 0.0, 60.0, now, now))
        update = NewUpdate(
            round=1,
            client_id="a",
            update_id="0" * 32,
            base_version=0,
            covers_after=0,
            covers_through=1,
            n_interactions=1,
            encoding="dense_f32",
            body=bytes(4),
            received_at=now,
        )
        await commit_batch(db, "default", epoch, Batch(updates=[update]))
    there = ("--allow-unsigned", "--broker", "mqtt://127.0.0.1:1", "--db", url, "--keys", tmp_path / "workers")
    done = foltr_process(*RUN, *there, cwd=tmp_path)
    assert (done.returncode, "keys of another folder" in done.stderr) == (2, True), done.stderr
