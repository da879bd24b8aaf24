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
    finally:
        code, _ = stop(broker)
    assert code == 0
    assert not listening("127.0.0.1", port)


def test_a_taken_port_is_said_with_the_next_step():
    """Exit code 3 and the flag that chooses another port."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = foltr("broker", "run", "--port", str(taken.getsockname()[1]), code=3)
    assert "--port" in done.stderr


def test_the_configuration_is_written_and_not_overwritten(tmp_path):
    """The same again is fine; a different one needs --force."""
    foltr("broker", "config", "--out", str(tmp_path / "m"), "--user", USER, "--port", "1884", code=0)
    assert "listener 1884 127.0.0.1" in (tmp_path / "m" / "mosquitto.conf").read_text()
    foltr("broker", "config", "--out", str(tmp_path / "m"), "--user", USER, "--port", "1884", code=0)
    changed = ("broker", "config", "--out", str(tmp_path / "m"), "--user", USER, "--port", "1885")
    assert foltr(*changed).returncode != 0
    foltr(*changed, "--force", code=0)


def test_an_open_listener_for_the_network_must_be_asked_for(tmp_path):
    """Without a flag no configuration is written that lets everybody in from everywhere."""
    arguments = ("broker", "config", "--out", str(tmp_path / "m"), "--user", USER, "--listen", "0.0.0.0")  # noqa: S104 (refused)
    done = foltr(*arguments, code=2)
    assert "allow" in done.stderr
    foltr(*arguments, "--allow-anonymous-network", code=0)


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
    assert record == {
        "federation": "clinic",
        "broker_url": "mqtts://broker.example:8883",
        "mode": "passwords",
        "broker_dir": str(tmp_path / "mosquitto"),
        "helpers": [],
        "workers": [],
        "data_dir": None,
    }
    before = (tmp_path / "foltr-operator" / "federator.broker.json").read_text()
    assert json.loads(before)["password"] not in done.stdout
    foltr(*command, "--user", USER, cwd=tmp_path, code=0)
    assert (tmp_path / "foltr-operator" / "federator.broker.json").read_text() == before


def test_the_next_step_names_the_operators_folder(tmp_path):
    """Copied as it stands it enrols into the folder that was just made, and makes no second one."""
    done = foltr("broker", "config", "--tls", "--operator", "op", "--federation", "m", "--user", USER, cwd=tmp_path)
    (said,) = [line for line in done.stdout.splitlines() if "foltr device enrol" in line]
    _, _, command = said.partition("foltr ")
    foltr(*command.split(), cwd=tmp_path, code=0)
    assert (tmp_path / "op" / "operator.json").exists()
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
    done = foltr(*config, cwd=tmp_path, CC="no-such-compiler")
    assert (done.returncode, "--plugin FILE" in done.stderr) == (2, True), done.stderr
    assert not (tmp_path / "mosquitto" / "mosquitto.conf").exists()
    plugin = built / "foltr_subscriptions.so"
    other = tmp_path / "other.so"
    other.write_bytes(plugin.read_bytes().replace(b"foltr-subscriptions:", b"foltr-subscriptions-"))
    done = foltr(*config, "--plugin", str(other), cwd=tmp_path, CC="no-such-compiler")
    assert (done.returncode, "was not built from this foltr's" in done.stderr) == (2, True), done.stderr
    done = foltr(*config, "--plugin", "/dev/zero", cwd=tmp_path)
    assert (done.returncode, "it is a device, not a file" in done.stderr) == (2, True), done.stderr
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
    folders = ("--out", tmp_path / "m", "--operator", tmp_path / "op")
    foltr("broker", "config", "--tls", "--host", "broker.example", "--user", USER, *folders, code=0)
    key = (tmp_path / "m" / "server.key").read_text()
    done = foltr("broker", "renew", "--operator", tmp_path / "op", code=0)
    assert (tmp_path / "m" / "server.key").read_text() != key
    assert [part in done.stdout for part in ("broker.example", "SIGHUP", "foltr broker authority begin")] == [True] * 3
    found = json.loads(foltr("broker", "renew", "--operator", tmp_path / "op", "--days", "9", "--json").stdout)
    assert (found["hosts"], found["broker_to_reload"]) == (["broker.example"], True)


def test_a_broker_without_tls_has_no_certificate_to_renew(tmp_path):
    """Nor has one that was never configured: it says what configures one."""
    done = foltr("broker", "renew", "--operator", tmp_path)
    assert (done.returncode, "foltr broker config" in done.stderr) == (2, True)
