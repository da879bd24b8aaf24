"""kill -9 of a device at every failpoint of its store: no click that was on its disk is lost, none counts twice."""

from pathlib import Path

import pytest
from integration.clicker import clicks_in
from integration.deployment import FEDERATION, Deployment, logged_process, swept
from support.waiting import until

from foltr.core.failpoints import Failpoint
from foltr.core.protocol.fields import unpack_vector
from foltr.storage.models import list_models
from foltr.storage.queries import list_rounds

CLICKER = Path(__file__).with_name("clicker.py")
N_CLICKS = 8
# The pass at which the process dies: in mid-run, and surely reached.
DIES_AT = {
    Failpoint.IN_INTERACTION_TRANSACTION: 5,
    Failpoint.INTERACTION_STORED: 5,
    Failpoint.IN_UPDATE_TRANSACTION: 2,
    Failpoint.UPDATE_STORED: 2,
    Failpoint.IN_SETTLEMENT_TRANSACTION: 2,
    Failpoint.SETTLEMENT_STORED: 2,
    Failpoint.IN_MODEL_TRANSACTION: 2,
    Failpoint.MODEL_STORED: 2,
}
USUAL = {Failpoint.IN_INTERACTION_TRANSACTION, Failpoint.UPDATE_STORED}
USUALLY_TWICE = {Failpoint.IN_UPDATE_TRANSACTION, Failpoint.SETTLEMENT_STORED}


def at(database, usual):
    cases = swept([(database, failpoint) for failpoint in DIES_AT], [(database, failpoint) for failpoint in usual])
    return pytest.mark.parametrize(("migrated_url", "failpoint"), cases, indirect=["migrated_url"])


@pytest.fixture
async def deployment(mosquitto_server, migrated_url, tmp_path):
    async with Deployment(tmp_path, mosquitto_server.url, migrated_url, 1) as opened:
        opened.start_federator(1000, "--interactions", "2")
        await opened.serves()
        yield opened


async def live(deployment: Deployment, folder: Path, failpoints: str = "") -> int:
    """One life of the device; how it ended."""
    credentials = folder / "device.json"
    credentials.write_text(deployment.devices[0].model_dump_json())
    credentials.chmod(0o600)
    words = [str(credentials), str(folder / "device.sqlite"), str(folder / "clicks.log"), str(N_CLICKS)]
    process = logged_process(words, folder / "device.out", failpoints=failpoints, program=CLICKER)
    try:
        await until(lambda: process.poll() is not None, "the device goes on")
    finally:
        process.kill()
    return process.wait()


async def clicks_of_models(deployment: Deployment) -> list[set[int]]:
    """Which clicks each round has added, by the weights that are stored."""
    rounds = await list_rounds(deployment.database, FEDERATION, limit=10_000)
    models = await list_models(deployment.database, FEDERATION, limit=10_000)
    weights = {model.version: float(unpack_vector(model.weights)[0]) for model in models}
    added = [weights[row.model_version] - weights[row.base_version] for row in rounds if row.state == "completed"]
    assert all(change == int(change) > 0 for change in added)
    return [{k for k in range(24) if int(change) >> k & 1} for change in added]


@at("postgresql", USUAL)
async def test_kill_9_of_a_device_loses_no_click_and_counts_none_twice(deployment, failpoint, tmp_path):
    """Killed there by the kernel, and started again: every click that was stored counts, in one update."""
    await die_and_recover(deployment, tmp_path, failpoint, [DIES_AT[failpoint]])


@at("sqlite", USUALLY_TWICE)
async def test_kill_9_twice_at_one_place(deployment, failpoint, tmp_path):
    """The second life dies where the first one did, at the first pass; the third one ends the run."""
    await die_and_recover(deployment, tmp_path, failpoint, [DIES_AT[failpoint], 1])


async def die_and_recover(deployment: Deployment, tmp_path: Path, failpoint: Failpoint, deaths: list[int]) -> None:
    """Kill the device at each of these passes, one life each, let the next life end, and look at every click."""
    for at_pass in deaths:
        code = await live(deployment, tmp_path, f"{failpoint}=kill@{at_pass}")
        assert code == -9, (tmp_path / "device.out").read_text()
    assert await live(deployment, tmp_path) == 0, (tmp_path / "device.out").read_text()
    log = tmp_path / "clicks.log"
    tried, stored = set(clicks_in(log, "tried")), set(clicks_in(log, "stored"))
    in_updates: list[int] = []

    async def all_count() -> bool:
        # An update is answered before its round has a model.
        in_updates[:] = [k for clicks in await clicks_of_models(deployment) for k in sorted(clicks)]
        return stored <= set(in_updates)

    await until(all_count, f"not all of {sorted(stored)} count")
    assert len(in_updates) == len(set(in_updates)), "a click counts twice"
    assert set(in_updates) <= tried
    # Of those whose recording was cut short one may be on the disk, and then it counts: that is what it was for.
    unsure = tried - stored
    on_disk = failpoint is not Failpoint.IN_INTERACTION_TRANSACTION
    if failpoint in (Failpoint.IN_INTERACTION_TRANSACTION, Failpoint.INTERACTION_STORED):
        assert len(unsure) == len(deaths)
        assert (unsure <= set(in_updates)) is on_disk
