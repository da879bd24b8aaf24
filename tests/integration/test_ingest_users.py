"""A leader and two workers at a broker that knows its users: each has a session of its own, and may do what it must."""

import contextlib
import sqlite3

import pytest
from cli.commands import foltr, foltr_process, start, stop
from support.databases import migrated_sqlite
from support.mqtt_subscriber import Subscriber
from support.prepared_processes import with_defaults
from support.servers import ProvisionedMosquitto
from support.waiting import PATIENCE_S, wait_until

from foltr.core.operator.credentials import read_credentials
from foltr.core.protocol.topics import Topics
from foltr.federator.ingest.service import shared_filter

_SWALLOWED = "SELECT detail FROM event_history WHERE kind = 'updates_undelivered'"


OF_TWO = ("--min-clients", "2", "--max-clients", "2")
DEVICES = ("--credentials", "devices", "--id", "dev", "--count", "2", "--data", "synthetic")


@contextlib.contextmanager
def serving(folder, access, *workers):
    """A broker that lets in two devices and these workers."""
    server = ProvisionedMosquitto(folder, access)
    server.start()
    try:
        of_workers = [("broker", "worker", name) for name in workers]
        for command in (("device", "enrol", "dev", "--count", "2", "--out-dir", "devices"), *of_workers):
            done = foltr(*command, "--operator", server.operator_dir, cwd=folder)
            assert done.returncode == 0, done.stderr
        yield server
    finally:
        server.stop()


def run(folder, role, credentials, *options, **variables):
    """Start a federator process on the folder's database."""
    where = ("--credentials", str(credentials), "--db", f"sqlite:///{folder}/f.sqlite")
    return start("federator", "run", "--role", role, *where, *options, cwd=folder, **variables)


@pytest.mark.parametrize("access", ["passwords", pytest.param("mtls", marks=pytest.mark.nightly)])
def test_workers_serve_devices_as_users_of_their_own(tmp_path, access):
    """What `foltr broker worker` writes gets in; devices have all their receipts, and nobody throws the leader out."""
    migrated_sqlite(tmp_path / "f.sqlite")
    with serving(tmp_path, access, "1", "2") as server:
        processes = [run(tmp_path, "leader", server.operator_dir / "federator.json", *OF_TWO, "--min-time", "0")]
        processes += [run(tmp_path, "ingest", f"worker-{n}.json") for n in "12"]
        try:
            done = foltr_process("client", "run", *DEVICES, "--rounds", "3", cwd=tmp_path, timeout_s=PATIENCE_S)
        finally:
            said = [stop(process) for process in processes]
    assert done.returncode == 0, (done.stderr, said)
    assert "receipts: accepted 6" in done.stdout
    assert [code for code, _ in said] == [0, 0, 0]
    assert not any("taken_over" in output for _, output in said)


def rows(database, query):
    with contextlib.closing(sqlite3.connect(database)) as db:
        return db.execute(query).fetchall()


def test_no_device_gets_into_the_workers_group_and_a_thief_in_it_is_found(tmp_path):
    """Not even by its name. A worker that answers nothing is a thief, too, and the leader says so."""
    path, thief = tmp_path / "f.sqlite", tmp_path / "worker-3.json"
    migrated_sqlite(path)
    with serving(tmp_path, "passwords", "1", "2", "3") as server:
        group = shared_filter(Topics("fed"), read_credentials(thief, "federator").key)
        device = next((tmp_path / "devices").iterdir())
        with Subscriber(read_credentials(device, "device").broker) as subscriber:
            assert subscriber.granted(group, group.replace("updates", "+"), "$share/foltr-ingest/#") == [False] * 3

        often = with_defaults({"foltr.federator.service.GroupWatch": {"every_s": 0.2}})
        leader = run(tmp_path, "leader", server.operator_dir / "federator.json", *OF_TWO, **often)
        worker = run(tmp_path, "ingest", "worker-1.json")
        crowd = start("client", "run", *DEVICES, "--rounds", "200", cwd=tmp_path)
        try:
            wait_until(lambda: bool(rows(path, "SELECT * FROM ingest_batches")), "no worker has stored anything")
            with Subscriber(read_credentials(thief, "federator").broker) as stealing:
                assert stealing.granted(group) == [True]
                # The leader speaks the second time that it has seen so.
                wait_until(lambda: bool(rows(path, _SWALLOWED)), "the thief is not found")
                details = rows(path, _SWALLOWED)
        finally:
            said = [stop(process) for process in (crowd, worker, leader)]
    assert "updates_undelivered" in said[-1][1], said
    assert all("of 24 messages" in detail for (detail,) in details)
