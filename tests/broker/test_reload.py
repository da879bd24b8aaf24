"""A provisioned broker while it runs: it reads what was written, and takes changes without a restart."""

import os
import queue
import shutil
import ssl
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from paho.mqtt.client import CallbackAPIVersion, Client
from support.broker_links import connected
from support.servers import ProvisionedMosquitto
from support.waiting import PATIENCE_S, wait_until

from foltr.broker.address import BrokerAddress
from foltr.broker.provision import reload_broker
from foltr.broker.users import readmit_user


def test_the_broker_has_no_complaints(guarded):
    """But for the patterns of every user, which the access list explains, and for who only asked if it listens."""
    guarded.stop()
    complaints = [line for line in guarded.log.read_text().splitlines() if "Error" in line or "Warning" in line]
    expected = ("should not be run as root", "does not contain '%c' or '%u'", "unexpected eof while reading")
    assert [line for line in complaints if not any(text in line for text in expected)] == []


def test_another_brokers_process_is_left_alone(guarded, tmp_path):
    """A Mosquitto with another configuration: the signal might end what does not handle it."""
    (tmp_path / "two").mkdir()
    other = ProvisionedMosquitto(tmp_path / "two", "passwords")
    shutil.copy(guarded.broker_dir / "data" / "mosquitto.pid", other.broker_dir / "data" / "mosquitto.pid")
    assert reload_broker(guarded.operator_dir)
    assert not reload_broker(other.operator_dir)


def test_a_broker_that_is_starting_is_not_killed_by_the_signal(tmp_path):
    """Mosquitto listens before it handles SIGHUP, which would end it until then: it is told when it does."""
    server = ProvisionedMosquitto(tmp_path, "passwords")
    slow, pid_file = tmp_path / "mosquitto", server.broker_dir / "data" / "mosquitto.pid"
    pid_file.parent.mkdir(exist_ok=True)
    # No shell: started under nohup it could not trap what it has to.
    slow.write_text(
        f"#!{sys.executable} -SE\nimport os, pathlib, signal, sys, time\n"
        f"new = pathlib.Path('{pid_file}.new')\nnew.write_text(str(os.getpid()))\nnew.rename('{pid_file}')\n"
        "time.sleep(0.3)\nsignal.signal(signal.SIGHUP, lambda *_: sys.exit(print('reloaded')))\n"
        "while True:\n    time.sleep(0.02)\n"
    )
    slow.chmod(0o700)
    with subprocess.Popen([slow, "-c", server.config], stdout=subprocess.PIPE, text=True) as process:
        try:
            # As Mosquitto does, it writes its number itself: before that it has not even its own name yet.
            wait_until(pid_file.exists)
            assert reload_broker(server.operator_dir)
            assert process.communicate(timeout=PATIENCE_S)[0] == "reloaded\n"
        finally:
            process.kill()


def test_the_broker_survives_reloads_that_refuse_absent_sessions(tmp_path, monkeypatch):
    """Each such session was to expire twice, and was looked for after its end: Mosquitto 2.0.11 crashed over it."""
    monkeypatch.setenv("MALLOC_PERTURB_", "165")  # with glibc, so that what was freed is not found unchanged
    server = ProvisionedMosquitto(tmp_path, "passwords")
    server.start()
    names = [f"device-{i}" for i in range(40)]
    sessions = []
    try:
        accesses = dict(zip(names, server.enrol(*names), strict=True))
        sessions += [session(name, access, server.port) for name, access in accesses.items()]
        for each in sessions:
            each.disconnect()
        for _ in range(2):
            for n_readmitted in (20, 4):
                for name in names[:n_readmitted]:
                    accesses[name] = readmit_user(server.operator_dir, name, None)
                assert reload_broker(server.operator_dir)
                time.sleep(0.5)  # clock: silence
            sessions += [session(name, access, server.port) for name, access in accesses.items()]
            for each in sessions[-len(names) :]:
                each.disconnect()
            time.sleep(2.5)  # clock: silence
        assert server.is_alive
    finally:
        for each in sessions:
            each.loop_stop()
        server.stop()


def session(name, access, port):
    """Connect with a session that remains afterwards."""
    client, answers = Client(CallbackAPIVersion.VERSION2, client_id=name, clean_session=False), queue.Queue()
    client.username_pw_set(access.username, access.password)
    client.tls_set_context(ssl.create_default_context(cadata=access.ca))
    client.on_connect = lambda *answer: answers.put(answer[3])
    client.connect("127.0.0.1", port)
    client.loop_start()
    assert answers.get(timeout=PATIENCE_S) == 0
    return client


@pytest.fixture
def nobodys_server():
    """A Mosquitto that root starts and that becomes another user, in a folder which that user can enter."""
    home = Path(tempfile.mkdtemp(prefix="foltr-mosquitto-", dir="/tmp"))
    home.chmod(0o755)
    try:
        server = ProvisionedMosquitto(home, "passwords", user="nobody")
        server.start()
        yield server
        server.stop()
    finally:
        shutil.rmtree(home)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
async def test_the_user_mosquitto_becomes_can_read_its_files(nobodys_server):
    """Root writes them and lets users in; the broker, which has dropped its rights, still reads them."""
    server = nobodys_server
    for name in ("device-1", "device-2"):
        (device,) = server.enrol(name)
        async with connected(BrokerAddress.of(device)):
            pass
    assert "Permission denied" not in server.log.read_text()
    for name in ("passwords", "acl", "server.key", "data/mosquitto.pid"):
        assert (server.broker_dir / name).owner() == "nobody"
