"""What the production stack is set up with, run without a container: begun, ended in the middle, begun again."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
FOLDERS = ("operator", "helpers", "devices", "federator", "mosquitto", "database", "tmp")
SHIMS = {
    "foltr": f'exec "{sys.executable}" -c "from foltr.cli.main import main; main()" "$@"',
    "chown": "exit 0",
    "touch": 'test -z "${DIES:-}" && exec /usr/bin/touch "$@"; kill -9 $PPID',
}


@pytest.fixture
def set_up(tmp_path):
    """Run the script on folders of the test's own; its exit code."""
    text = (REPOSITORY / "docker/production-setup.sh").read_text()
    text = re.sub(rf"(?<=[\s=])/({'|'.join(FOLDERS)})\b", rf"{tmp_path}/\1", text)
    text = text.replace("/usr/local/bin/", f"{REPOSITORY}/docker/")
    script = tmp_path / "setup.sh"
    script.write_text(text)
    for folder in (*FOLDERS, "shims", "helpers/north", "helpers/south", "mosquitto/config", "mosquitto/data"):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    for name, does in SHIMS.items():
        shim = tmp_path / "shims" / name
        shim.write_text(f"#!/bin/sh\n{does}\n")
        shim.chmod(0o755)

    def run(**more):
        told = {"FOLTR_FEDERATION": "mail", "FOLTR_PRIVACY": "trusted", "HOST": "localhost", "DEVICES": "2"}
        path = f"{tmp_path / 'shims'}:{os.environ['PATH']}"
        python = f"{REPOSITORY}:{os.environ.get('PYTHONPATH', '')}"
        environment = {**os.environ, **told, "POLICY": "", "PATH": path, "PYTHONPATH": python, **more}
        return subprocess.run(["/bin/sh", script], env=environment, cwd=tmp_path, check=False, timeout=120).returncode

    return run


def test_a_setup_that_was_killed_is_ended_by_the_next(set_up, tmp_path):
    """The devices are enrolled, and that they are was not noted: else no stack would ever start again."""
    assert set_up(DIES="yes") != 0
    assert not (tmp_path / "devices/enrolled").exists()
    assert set_up() == 0
    names = sorted(path.parent.name for path in tmp_path.glob("devices/*/credentials.json"))
    assert names == ["device-0001", "device-0002"]
    before = {path: path.read_bytes() for path in tmp_path.rglob("credentials.json")}
    assert len(before) == 5
    assert set_up() == 0
    assert {path: path.read_bytes() for path in tmp_path.rglob("credentials.json")} == before
