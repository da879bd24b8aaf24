"""A federator's database is put back to before rotations of keys, or an operator's folder is: both go on."""

import asyncio
import shutil

import pytest
from integration.deployment import FEDERATION, Deployment
from support.databases import migrated_sqlite
from support.message_publisher import publish_once
from support.waiting import until

from foltr.core.operator.credentials import BrokerAccess
from foltr.core.operator.folder import open_authority
from foltr.core.protocol.topics import Topics
from foltr.storage.orders import list_orders

LONG = {"max_time_s": 600.0}


@pytest.fixture
async def deployment(mosquitto_server, tmp_path):
    url = migrated_sqlite(tmp_path / "foltr.sqlite")
    async with Deployment(tmp_path, mosquitto_server.url, url, 2) as made:
        yield made


async def outcomes(deployment):
    return [(row.kind, str(row.outcome)) for row in await list_orders(deployment.database, FEDERATION)]


@pytest.mark.parametrize("who", ["operator", "federator"])
async def test_a_federator_that_has_lost_two_rotations_takes_them_one_by_one(deployment, operator, tmp_path, who):
    """However long the second one takes to come, and started anew between them, it is the newest federator."""
    for _ in range(2):
        deployment.start_federator(1_000, **LONG)
        await deployment.serves()
        assert (await operator("operator", "send")).returncode == 0
        assert (await operator(who, "rotate-key")).returncode == 0
        assert await deployment.exit_code() == 2
    expected = await outcomes(deployment)
    await deployment.database.close()
    for path in tmp_path.glob("foltr.sqlite*"):
        path.unlink()
    migrated_sqlite(tmp_path / "foltr.sqlite")
    await deployment.reopen_database()
    deployment.start_federator(1_000, **LONG)
    await deployment.serves()
    with open_authority(tmp_path / "operator") as authority:
        first = authority.orders.order_or_void(1).payload
    access = BrokerAccess(broker_url=deployment.broker_url)
    await asyncio.to_thread(publish_once, access, "operator", Topics(FEDERATION).operator, first)

    async def has_first():
        return await outcomes(deployment) == expected[:1]

    await until(has_first, "the first order is not obeyed")
    await asyncio.sleep(0.5)  # clock: silence
    assert deployment.is_alive, deployment.said()
    await deployment.kill_federator()
    deployment.start_federator(1_000, **LONG)
    revoked = await operator("device", "revoke", "oracle-00")
    assert revoked.returncode == 0, revoked.stderr
    assert await outcomes(deployment) == [*expected, ("revoke_client", "obeyed")]
    assert deployment.is_alive


async def test_an_older_copy_of_the_folder_is_said_before_its_key_is_rotated(deployment, operator, tmp_path):
    """Who was enrolled since would be refused; and one from before a rotation would tell devices of another key."""
    folder = tmp_path / "operator"
    deployment.start_federator(1_000, **LONG)
    await deployment.serves()
    shutil.copytree(folder, tmp_path / "copy")
    assert (await operator("device", "revoke", "oracle-00")).returncode == 0
    shutil.rmtree(folder)
    shutil.copytree(tmp_path / "copy", folder)
    before = (folder / "enrolment.key").read_bytes()
    refused = await operator("operator", "rotate-key")
    assert (refused.returncode, "lacks order 1" in refused.stderr) == (2, True), refused.stderr
    assert (folder / "enrolment.key").read_bytes() == before
    rotated = await operator("operator", "rotate-key", "--lose-newer")
    assert rotated.returncode == 0, rotated.stderr
    assert await deployment.exit_code() == 2
    assert await outcomes(deployment) == [("revoke_client", "obeyed"), ("rotate_enrolment_key", "obeyed")]
    deployment.start_federator(1_000, **LONG)
    assert (await operator("device", "revoke", "oracle-01")).returncode == 0
    shutil.rmtree(folder)
    shutil.copytree(tmp_path / "copy", folder)
    forked = await operator("operator", "rotate-key", "--lose-newer")
    assert (forked.returncode, "before its enrolment key was rotated" in forked.stderr) == (1, True), forked.stderr
    assert not (folder / "succession.bin").exists()
