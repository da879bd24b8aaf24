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


def leading(operator):
    """Options of a leader whose rounds need two devices."""
    of_rounds = ("--min-clients", "2", "--max-clients", "2")
    return ("--role", "leader", "--credentials", f"{operator}/federator.json", *of_rounds)


@pytest.mark.parametrize("access", ["passwords", pytest.param("mtls", marks=pytest.mark.nightly)])
def test_workers_serve_devices_as_users_of_their_own(tmp_path, access):
    """What `foltr broker worker` writes gets in; devices have all their receipts, and nobody throws the leader out."""
    server = ProvisionedMosquitto(tmp_path, access)
    server.start()
    operator, database = str(server.operator_dir), ("--db", migrated_sqlite(tmp_path / "f.sqlite"))
    for command in (
        ("device", "enrol", "dev", "--count", "2", "--out-dir", "devices"),
        *[("broker", "worker", n) for n in "12"],
    ):
        done = foltr(*command, "--operator", operator, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    leader = leading(operator)
    parts = [(*leader, "--min-time", "0"), *[("--role", "ingest", "--credentials", f"worker-{n}.json") for n in "12"]]
    processes = [start("federator", "run", *part, *database, cwd=tmp_path) for part in parts]
    try:
        devices = ("--credentials", "devices", "--id", "dev", "--count", "2", "--data", "synthetic", "--rounds", "3")
        done = foltr_process("client", "run", *devices, cwd=tmp_path, timeout_s=PATIENCE_S)
    finally:
        said = [stop(process) for process in processes]
        server.stop()
    assert done.returncode == 0, (done.stderr, said)
    assert "receipts: accepted 6" in done.stdout
    assert [code for code, _ in said] == [0, 0, 0]
    assert not any("taken_over" in output for _, output in said)


def rows(database, query):
    with contextlib.closing(sqlite3.connect(database)) as db:
        return db.execute(query).fetchall()


def test_no_device_gets_into_the_workers_group_and_a_thief_in_it_is_found(tmp_path):
    """Not even by its name. A worker that answers nothing is a thief, too, and the leader says so."""
    server = ProvisionedMosquitto(tmp_path, "passwords")
    server.start()
    operator, database = str(server.operator_dir), ("--db", migrated_sqlite(tmp_path / "f.sqlite"))
    for command in (
        ("device", "enrol", "dev", "--count", "2", "--out-dir", "devices"),
        *[("broker", "worker", n) for n in "123"],
    ):
        done = foltr(*command, "--operator", operator, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    device, thief = next((tmp_path / "devices").iterdir()), tmp_path / "worker-3.json"
    group = shared_filter(Topics("fed"), read_credentials(thief, "federator").key)
    with Subscriber(read_credentials(device, "device").broker) as subscriber:
        assert subscriber.granted(group, group.replace("updates", "+"), "$share/foltr-ingest/#") == [False] * 3

    often = with_defaults({"foltr.federator.service.GroupWatch": {"every_s": 0.2}})
    leader = start("federator", "run", *leading(operator), *database, cwd=tmp_path, **often)
    worker = start("federator", "run", "--role", "ingest", "--credentials", "worker-1.json", *database, cwd=tmp_path)
    devices = ("--credentials", "devices", "--id", "dev", "--count", "2", "--data", "synthetic", "--rounds", "200")
    crowd = start("client", "run", *devices, cwd=tmp_path)
    path = tmp_path / "f.sqlite"
    try:
        wait_until(lambda: bool(rows(path, "SELECT * FROM ingest_batches")), "no worker has stored anything")
        with Subscriber(read_credentials(thief, "federator").broker) as stealing:
            assert stealing.granted(group) == [True]
            # The leader speaks the second time that it has seen so.
            wait_until(lambda: bool(rows(path, _SWALLOWED)), "the thief is not found")
            details = rows(path, _SWALLOWED)
    finally:
        said = [stop(process) for process in (crowd, worker, leader)]
        server.stop()
    assert "updates_undelivered" in said[-1][1], said
    assert all("of 24 messages" in detail for (detail,) in details)
