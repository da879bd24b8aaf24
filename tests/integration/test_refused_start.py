"""A federator that is started with another folder of data keys leaves the round that was open, on real processes."""

import asyncio

from integration.deployment import FEDERATION, Deployment, died_by_sigkill
from integration.oracle import contribute
from support.databases import migrated_sqlite

from foltr.core.failpoints import Failpoint
from foltr.storage.queries import list_rounds


async def test_a_round_waits_for_the_federator_that_has_its_keys(mosquitto_server, tmp_path):
    """The first was killed before it could make the model; the second would abandon the round, and so refuses."""
    url = migrated_sqlite(tmp_path / "foltr.sqlite")
    async with Deployment(tmp_path, mosquitto_server.url, url, 2) as deployment:

        async def state() -> str:
            (row,) = await list_rounds(deployment.database, FEDERATION)
            return row.state

        deployment.start_federator(1, failpoints=f"{Failpoint.COLLECTING_STOPPED}=kill@1")
        await deployment.serves()
        devices = [asyncio.create_task(contribute(one)) for one in deployment.devices]
        assert died_by_sigkill(await deployment.exit_code())
        assert await state() == "aggregating"
        deployment.start_federator(1, "--keys", str(tmp_path / "another"))
        assert await deployment.exit_code() == 2
        assert "keys of another folder" in deployment.said()
        assert await state() == "aggregating"
        deployment.start_federator(1)
        assert await deployment.exit_code() == 0
        assert await state() == "completed"
        for device in devices:
            device.cancel()
        await asyncio.gather(*devices, return_exceptions=True)
