"""`foltr federator run --role ingest` does not start where no update would reach it, or where it would do harm."""

from cli.commands import foltr, foltr_process
from support.databases import open_migrated
from support.sealed_updates import add_sealed_update
from support.servers import NatsCluster, ProvisionedMosquitto

from foltr.storage.keys import KeyStore

RUN = ("federator", "run", "--role", "ingest")


def test_a_broker_that_shares_nothing_out_is_said(tmp_path):
    """NATS grants the subscription: a worker would wait there for ever, and devices with it."""
    nats = NatsCluster(tmp_path)
    nats.start()
    try:
        done = foltr(*RUN, "--allow-unsigned", "--broker", nats.urls[0], cwd=tmp_path, code=3)
    finally:
        nats.stop()
    assert "messages; do not use foltr federator run --role ingest at this broker" in done.stderr


def test_a_worker_does_not_come_as_the_leader(tmp_path):
    """It would throw the leader out, and be thrown out by it."""
    server = ProvisionedMosquitto(tmp_path, "passwords")
    foltr("device", "enrol", "device-1", "--operator", str(server.operator_dir), cwd=tmp_path, code=0)
    done = foltr(*RUN, "--credentials", str(server.operator_dir / "federator.json"), cwd=tmp_path)
    assert (done.returncode, "foltr broker worker NAME" in done.stderr) == (2, True)


async def test_a_worker_with_another_folder_of_keys_does_not_start(tmp_path):
    """What it sealed nobody could open, and an erasure would leave the key there."""
    url = f"sqlite:///{tmp_path}/foltr.sqlite"
    async with await open_migrated(url, KeyStore(tmp_path / "leaders")) as db:
        await add_sealed_update(db, "default")
    there = ("--allow-unsigned", "--broker", "mqtt://127.0.0.1:1", "--db", url, "--keys", tmp_path / "workers")
    done = foltr_process(*RUN, *there, cwd=tmp_path)
    assert (done.returncode, "keys of another folder" in done.stderr) == (2, True), done.stderr
