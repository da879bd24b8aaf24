"""What the production stack is set up with, run without a container: begun, ended in the middle, begun again."""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from cli.commands import foltr
from support.foltr_program import prepared_foltr
from support.waiting import PATIENCE_S

from foltr.broker.subscription_plugin import build_plugin
from foltr.core.operator.folder import open_authority
from foltr.core.operator.one_time_tokens import read_token

REPOSITORY = Path(__file__).parents[2]
FOLDERS = ("operator", "helpers", "devices", "tokens", "federator", "mosquitto", "database", "tmp")
CHOWN = 'test -z "${DIES:-}" && exit 0; kill -9 $PPID'


@pytest.fixture
def set_up(tmp_path):
    """Run the script on folders of the test's own; its exit code."""
    text = (REPOSITORY / "docker/production-setup.sh").read_text()
    text = re.sub(rf"(?<=[\s=])/({'|'.join(FOLDERS)})\b", rf"{tmp_path}/\1", text)
    text = text.replace("/usr/local/bin/", f"{REPOSITORY}/docker/")
    # What the image is built with.
    text = text.replace("/usr/local/lib/", f"{tmp_path}/")
    (tmp_path / "foltr_subscriptions.so").write_bytes(build_plugin())
    script = tmp_path / "setup.sh"
    script.write_text(text)
    for folder in (*FOLDERS, "shims", "helpers/north", "helpers/south", "mosquitto/config", "mosquitto/data"):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    chown = tmp_path / "shims/chown"
    chown.write_text(f"#!/bin/sh\n{CHOWN}\n")
    chown.chmod(0o755)

    def run(**more):
        told = {"FOLTR_FEDERATION": "mail", "FOLTR_PRIVACY": "trusted", "HOST": "localhost", "PORT": "8883"}
        path = f"{tmp_path / 'shims'}:{os.environ['PATH']}"
        python = f"{REPOSITORY}:{os.environ.get('PYTHONPATH', '')}"
        told |= {"DEVICES": "2", "TOKEN_EXPIRES": "1h", "POLICY": "", "PATH": path, "PYTHONPATH": python}
        environment = {**os.environ, **told, **more}
        return subprocess.run(
            ["/bin/sh", script], env=environment, cwd=tmp_path, check=False, timeout=PATIENCE_S
        ).returncode

    with prepared_foltr(tmp_path / "shims/foltr"):
        yield run


def tokens(tmp_path):
    return {path.stem: read_token(path).token for path in tmp_path.glob("tokens/*.token")}


def states(tmp_path):
    with open_authority(tmp_path / "operator/foltr") as authority:
        return {record.token: str(record.state) for record in authority.tokens.records()}


def test_a_setup_that_was_killed_is_ended_by_the_next(set_up, tmp_path):
    """Its tokens were not handed over yet: each device has one that is open, and no more."""
    assert set_up(DIES="yes") != 0
    assert set_up() == 0
    now = tokens(tmp_path)
    assert sorted(now) == ["device-0001", "device-0002"]
    assert sorted(token for token, state in states(tmp_path).items() if state == "open") == sorted(now.values())


def test_what_was_made_stays(set_up, tmp_path):
    """Credentials of services; and a device that is enrolled, or was forgotten, is given no token again."""
    assert set_up() == 0
    before = {path: path.read_bytes() for path in tmp_path.rglob("credentials.json")}
    assert len(before) == 3
    first = tokens(tmp_path)
    for name, file in (("device-0001", "credentials.json"), ("device-0002", "forgotten")):
        (tmp_path / "devices" / name).mkdir()
        (tmp_path / "devices" / name / file).touch()
    assert set_up(DEVICES="3") == 0
    assert {path: path.read_bytes() for path in before} == before
    assert first.items() < tokens(tmp_path).items()
    assert set(tokens(tmp_path)) == {"device-0001", "device-0002", "device-0003"}


def test_a_token_that_is_good_stays_and_one_that_is_not_is_replaced(set_up, tmp_path):
    """A device may be about to use it, however often the stack is brought up meanwhile."""
    assert set_up() == 0
    first = tokens(tmp_path)
    with open_authority(tmp_path / "operator/foltr") as authority:
        authority.tokens.revoke(record for record in authority.tokens.records() if record.client_id == "device-0002")
    assert set_up() == 0
    second = tokens(tmp_path)
    assert second["device-0001"] == first["device-0001"]
    assert states(tmp_path)[second["device-0002"]] == "open"


def test_an_older_stack_gets_a_plugin_and_lets_a_desk_in(set_up, tmp_path):
    """Its configuration and its access list are written again; who was let in before is still."""
    assert set_up() == 0
    folder = tmp_path / "mosquitto/config"
    config, plugin, acl, passwords = (
        folder / name for name in ("mosquitto.conf", "foltr_subscriptions.so", "acl", "passwords")
    )
    whole, known = [path.read_bytes() for path in (config, plugin, acl)], set(passwords.read_text().splitlines())
    plugin.unlink()
    lines = config.read_text().splitlines(keepends=True)
    config.write_text("".join(line for line in lines if not line.startswith("plugin")))
    acl.write_text(acl.read_text().replace("user @desk", "user @nobody"))
    assert set_up() == 0
    assert [path.read_bytes() for path in (config, plugin, acl)] == whole
    assert {line for line in known if "@token." not in line} <= set(passwords.read_text().splitlines())


def test_a_device_elsewhere_is_given_the_brokers_address(set_up, tmp_path):
    """The name and the port that the operator published, in which the broker's certificate is good."""
    assert set_up(HOST="broker.example.org", PORT="8900") == 0
    operator, out = tmp_path / "operator/foltr", tmp_path / "till-1.json"
    foltr("device", "enrol", "till-1", "--operator", operator, "--out", out, code=0)
    assert json.loads(out.read_text())["broker"]["broker_url"] == "mqtts://broker.example.org:8900"
    assert "listener 8900 0.0.0.0" in (tmp_path / "mosquitto/config/mosquitto.conf").read_text()


def test_who_takes_the_enrolment_key_to_another_host_keeps_the_broker(set_up, tmp_path):
    """With the operator's folder gone, nothing is made again: another authority would lock out every device."""
    assert set_up() == 0
    (tmp_path / "operator/foltr").rename(tmp_path / "elsewhere")
    folders = [tmp_path / name for name in ("mosquitto", "federator", "helpers", "tokens")]
    files = (path for folder in folders for path in folder.rglob("*") if path.is_file())
    before = {path: path.read_bytes() for path in files}
    assert set_up(DEVICES="3") == 0
    assert {path: path.read_bytes() for path in before} == before
    assert not (tmp_path / "operator/foltr").exists()
    # There it enrols as before, into its copy of the broker's folder.
    foltr("device", "enrol", "till-1", "--operator", tmp_path / "elsewhere", "--out", tmp_path / "till-1.json", code=0)
    passwords = tmp_path / "mosquitto/config/passwords"
    assert passwords.read_bytes().removeprefix(before[passwords]).startswith(b"till-1:")
