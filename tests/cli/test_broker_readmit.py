"""`foltr broker readmit`: another password or certificate for anybody, at any time; what was stolen lets nobody in."""

import json
import shutil

import pytest
from cli.commands import foltr
from support.waiting import PATIENCE_S

from foltr.broker.address import BrokerAddress
from foltr.broker.link import MqttLink
from foltr.core.errors import UnavailableError
from foltr.core.operator.credentials import Credentials


@pytest.fixture
def server(guarded_broker, tmp_path):
    """A Mosquitto, and beside it the files of a device, a helper and the two services."""
    for arguments in (
        ("device", "enrol", "device-1", "device-2", "--out-dir", tmp_path),
        ("helper", "enrol", "north", "--out", tmp_path / "north.json"),
    ):
        foltr(*arguments, "--operator", guarded_broker.operator_dir, code=0)
    return guarded_broker


def files_of(server):
    services = [server.operator_dir / f"{name}.json" for name in ("federator", "operator")]
    return [server.folder / "device-1.json", server.folder / "north.json", *services]


async def gets_in(path):
    access = BrokerAddress.of(Credentials.model_validate_json(path.read_text()).broker)
    options = {"subscriptions": [], "on_message": print, "persistent": False, "give_up_after_s": 0.0}
    try:
        async with MqttLink(access, client_id="a", **options) as link:
            await link.wait_connected(PATIENCE_S)
    except UnavailableError:
        return False
    return True


def readmit(server, *files):
    return foltr("broker", "readmit", *files, "--operator", server.operator_dir)


async def test_what_was_stolen_lets_nobody_in(server):
    """Of a device, a helper, the federator, the operator: the file gets in, and the copy of what it was does not."""
    for path in files_of(server):
        stolen = path.with_name(f"stolen-{path.name}")
        shutil.copy(path, stolen)
        assert await gets_in(stolen)
        done = readmit(server, path)
        assert done.returncode == 0, done.stderr
        assert (await gets_in(path), await gets_in(stolen)) == (True, False), path
        before, after = (json.loads(each.read_text()) for each in (stolen, path))
        assert {key for key in before if before[key] != after[key]} == {"broker"}
    assert await gets_in(server.folder / "device-2.json")  # nobody else is touched
    # The operator's commands go on with what is in its folder.
    foltr("operator", "publish", "--operator", server.operator_dir, code=0)


async def test_a_copy_of_a_file_that_was_moved_away_is_mended(server):
    """The federator's, say; the folder's commands know of it, too."""
    moved = server.folder / "federator.json"
    (server.operator_dir / "federator.json").rename(moved)
    assert readmit(server, moved).returncode == 0
    assert await gets_in(moved)
    mine = json.loads((server.operator_dir / "federator.broker.json").read_text())
    assert json.loads(moved.read_text())["broker"]["username"] == mine["username"]


def test_nobody_is_let_in_who_was_not(server):
    """A device that was revoked or enrolled anew since, and what is no credentials at all."""
    old = server.folder / "old.json"
    shutil.copy(server.folder / "device-1.json", old)
    again = ("device", "enrol", "device-1", "--replace", "--out-dir", server.folder, "--operator", server.operator_dir)
    foltr(*again, code=0)
    foltr("device", "revoke", "device-2", "--offline", "--operator", server.operator_dir, code=0)
    for path in (old, server.folder / "device-2.json"):
        done = readmit(server, path)
        assert (done.returncode, "enrol" in done.stderr) == (2, True)
