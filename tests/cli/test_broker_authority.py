"""`foltr broker authority`: an authority is replaced while devices go on, and without enrolling anybody anew."""

import json

import pytest
from cli.commands import foltr
from support.waiting import PATIENCE_S

from foltr.broker.provision import reload_broker
from foltr.core.errors import UnavailableError
from foltr.edge_client.client import EdgeClient
from foltr.edge_client.options import Connection

pytestmark = pytest.mark.parametrize("guarded_broker", ["passwords"], indirect=True)


@pytest.fixture
def server(guarded_broker):
    return guarded_broker


def authority(server, step, *more):
    return foltr("broker", "authority", step, *more, "--operator", server.operator_dir, code=0).stdout


def certificates(path):
    return json.loads(path.read_text())["broker"]["ca"].count("BEGIN CERTIFICATE")


async def comes_back(path, store):
    """Whether a device that is started now gets in."""
    try:
        async with EdgeClient(path, store=store, connection=Connection(give_up_after_s=0.0)) as device:
            await device.wait_connected(PATIENCE_S)
    except UnavailableError:
        return False
    return True


async def test_a_device_follows_and_one_that_was_off_is_mended(server, tmp_path):
    """It hears of the next authority, connects to the broker that shows its certificate, and lets the former go."""
    folder, files = server.operator_dir, [tmp_path / f"device-{i}.json" for i in (1, 2)]
    foltr("device", "enrol", "device-1", "device-2", "--out-dir", tmp_path, "--operator", folder, code=0)
    store = tmp_path / "device-1.sqlite"
    async with EdgeClient(files[0], store=store) as device:
        await device.wait_connected(PATIENCE_S)
        assert "foltr broker authority switch" in authority(server, "begin")
        assert json.loads(authority(server, "show", "--json"))["step"] == "begun"
        assert [certificates(folder / f"{each}.json") for each in ("federator", "operator")] == [2, 2]
        assert await comes_back(files[1], tmp_path / "unheard.sqlite")
    (tmp_path / "unheard.sqlite").unlink()
    assert "foltr broker authority end" in authority(server, "switch")
    assert reload_broker(folder)
    assert await comes_back(files[0], store)
    assert not await comes_back(files[1], tmp_path / "device-2.sqlite")
    before = json.loads(files[1].read_text())
    foltr("broker", "readmit", files[1], "--operator", folder, code=0)
    assert json.loads(files[1].read_text())["signing_key"] == before["signing_key"]
    assert await comes_back(files[1], tmp_path / "device-2.sqlite")
    authority(server, "end")
    assert await comes_back(files[0], store)
    assert (certificates(folder / "operator.json"), (folder / "ca-former.key").exists()) == (1, False)
    assert json.loads(authority(server, "show", "--json"))["step"] == "alone"


def test_a_broker_that_is_away_is_told_later(server):
    """The list is signed and kept; the words say what publishes it."""
    foltr("device", "enrol", "device-1", "--out-dir", server.folder, "--operator", server.operator_dir, code=0)
    server.stop()
    assert "foltr operator publish" in authority(server, "begin")
    server.start()
    foltr("operator", "publish", "--operator", server.operator_dir, code=0)
