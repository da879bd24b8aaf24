"""``foltr broker``: the embedded broker ends when told to, and the Mosquitto configuration is one Mosquitto takes."""

import getpass
import json
import socket

from cli.commands import foltr, start, stop
from support.servers import free_port

from foltr.broker.subscription_plugin import build_plugin

# A temporary folder may be closed to the user mosquitto, which the command refuses when root runs it.
USER = getpass.getuser()


def test_the_embedded_broker_runs_until_it_is_told_to_stop():
    """It listens on the loopback interface, ends on SIGTERM with 0, and frees its port."""
    port, web = free_port(), free_port()
    broker = start("broker", "run", "--port", str(port), "--websocket-port", str(web))
    try:
        assert f"mqtt://127.0.0.1:{port} and ws://127.0.0.1:{web}" in broker.stdout.readline()
        assert listening("127.0.0.1", port)
        assert listening("127.0.0.1", web)
        assert "--port" in foltr("broker", "run", "--port", port, code=3).stderr  # it is taken
    finally:
        code, _ = stop(broker)
    assert code == 0
    assert not listening("127.0.0.1", port)


def test_the_configuration_is_written_and_not_overwritten(tmp_path):
    """The same again is fine; a different one needs --force, and one that is open to the network its own flag."""
    written = ("broker", "config", "--out", str(tmp_path / "m"), "--user", USER, "--port")
    for _ in range(2):
        foltr(*written, "1884", code=0)
    assert "listener 1884 127.0.0.1" in (tmp_path / "m" / "mosquitto.conf").read_text()
    assert foltr(*written, "1885").returncode != 0
    foltr(*written, "1885", "--force", code=0)
    open_to_all = (*written, "1885", "--force", "--listen", "0.0.0.0")  # noqa: S104 (refused)
    assert "allow" in foltr(*open_to_all, code=2).stderr
    foltr(*open_to_all, "--allow-anonymous-network", code=0)


def test_a_broker_that_lets_in_who_is_enrolled(tmp_path):
    """Passwords over TLS: both folders, what is secret, and what to do next; again it changes nothing."""
    command = ("broker", "config", "--tls", "--host", "broker.example", "--host", "10.0.0.1", "--federation", "clinic")
    done = foltr(*command, "--user", USER, cwd=tmp_path, code=0)
    for said in (
        "server.key in it is secret",
        "ca.key in it admits users",
        "mqtts://broker.example:8883",
        "--listen 0.0.0.0",
        "mosquitto -c mosquitto/mosquitto.conf",
        "foltr device enrol device-1",
    ):
        assert said in done.stdout
    assert "listener 8883 127.0.0.1" in (tmp_path / "mosquitto" / "mosquitto.conf").read_text()
    assert "foltr/v1/clinic/clients" in (tmp_path / "mosquitto" / "acl").read_text()
    record = json.loads((tmp_path / "foltr-operator" / "broker.json").read_text())
    assert (record["federation"], record["mode"]) == ("clinic", "passwords")
    before = (tmp_path / "foltr-operator" / "federator.broker.json").read_text()
    assert json.loads(before)["password"] not in done.stdout
    foltr(*command, "--user", USER, cwd=tmp_path, code=0)
    assert (tmp_path / "foltr-operator" / "federator.broker.json").read_text() == before


def test_the_next_step_names_the_operators_folder(tmp_path):
    """Copied as it stands it enrols into the folder that was just made, and makes no second one."""
    done = foltr("broker", "config", "--tls", "--operator", "op", "--federation", "m", "--user", USER, cwd=tmp_path)
    (said,) = [line for line in done.stdout.splitlines() if "foltr device enrol" in line]
    foltr(*said.partition("foltr ")[2].split(), cwd=tmp_path, code=0)
    assert not (tmp_path / "foltr-operator").exists()


def test_a_broker_that_asks_for_certificates(tmp_path):
    """--mtls alone is enough; the port and the folders can be named."""
    arguments = ("--out", "b", "--operator", "o", "--port", "9000", "--max-connections", "50", "--user", USER)
    done = foltr("broker", "config", "--mtls", *arguments, cwd=tmp_path, code=0)
    text = (tmp_path / "b" / "mosquitto.conf").read_text()
    assert {"listener 9000 127.0.0.1", "require_certificate true", "max_connections 50"} <= set(text.splitlines())
    assert json.loads((tmp_path / "o" / "federator.broker.json").read_text())["certificate"]
    assert "--listen 0.0.0.0" not in done.stdout


def test_a_contradiction_is_a_wrong_setting(tmp_path):
    """Exit code 2 with the option's name, and no configuration is left behind."""
    for arguments in (
        ("--host", "broker.example"),
        ("--operator", "o"),
        ("--plugin", "foltr_subscriptions.so"),
        ("--tls", "--plugin", "no-such-file"),
        ("--tls", "--host", "a b"),
        ("--tls", "--operator", "mosquitto"),
    ):
        done = foltr("broker", "config", *arguments, "--user", USER, cwd=tmp_path, code=2)
        assert arguments[-2].removeprefix("--") in done.stderr, arguments
        assert not (tmp_path / "mosquitto" / "mosquitto.conf").exists(), arguments


def test_the_plugin_is_built_here_or_brought(tmp_path):
    """Where there is no compiler one that was built elsewhere is taken; without either nothing is written."""
    config = ("broker", "config", "--tls", "--user", USER, "--federation", "m")
    built = tmp_path / "built"
    foltr(*config, "--out", str(built), "--operator", "one", cwd=tmp_path, code=0)
    build_plugin.cache_clear()
    plugin = built / "foltr_subscriptions.so"
    other = tmp_path / "other.so"
    other.write_bytes(plugin.read_bytes().replace(b"foltr-subscriptions:", b"foltr-subscriptions-"))
    for named, said in (
        ((), "--plugin FILE"),
        (("--plugin", str(other)), "was not built from this foltr's"),
        (("--plugin", "/dev/zero"), "it is a device, not a file"),
    ):
        assert said in foltr(*config, *named, cwd=tmp_path, CC="no-such-compiler", code=2).stderr, named
        assert not (tmp_path / "mosquitto" / "mosquitto.conf").exists()
    for brought in (("--plugin", str(plugin)), ()):
        foltr(*config, *brought, cwd=tmp_path, CC="no-such-compiler", code=0)
    assert (tmp_path / "mosquitto" / plugin.name).read_bytes() == plugin.read_bytes()


def test_sessions_from_before_the_plugin_are_said(tmp_path):
    """Mosquitto keeps what they had subscribed to, and judges it no more: what to do is named, once."""
    config = ("broker", "config", "--tls", "--user", USER, "--federation", "m", "--force")
    foltr(*config, cwd=tmp_path, code=0)
    (tmp_path / "mosquitto" / "data" / "mosquitto.db").touch()
    for is_said in (False, True, False):
        done = foltr(*config, cwd=tmp_path)
        assert ("mosquitto.db" in done.stdout, done.returncode) == (is_said, 0)
        if not is_said:
            (tmp_path / "mosquitto" / "foltr_subscriptions.so").unlink()


def listening(host: str, port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((host, port)) == 0


def test_another_key_and_certificate_on_demand(tmp_path):
    """`foltr broker renew` takes the hosts as they were, says until when the old one counts, and how to end that."""
    renew = ("broker", "renew", "--operator", tmp_path / "op")
    assert "foltr broker config" in foltr(*renew, code=2).stderr
    folders = ("--out", tmp_path / "m", "--operator", tmp_path / "op")
    foltr("broker", "config", "--tls", "--host", "broker.example", "--user", USER, *folders, code=0)
    key = (tmp_path / "m" / "server.key").read_text()
    done = foltr(*renew, code=0)
    assert (tmp_path / "m" / "server.key").read_text() != key
    assert all(part in done.stdout for part in ("broker.example", "SIGHUP", "foltr broker authority begin"))
    found = json.loads(foltr(*renew, "--days", "9", "--json").stdout)
    assert (found["hosts"], found["broker_to_reload"]) == (["broker.example"], True)
