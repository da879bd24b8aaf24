"""A federator's database is put back to an older copy while the broker remembers later rounds, on real processes."""

import asyncio
import shutil

from integration.deployment import FEDERATION, Deployment
from integration.oracle import contribute
from support.databases import migrated_sqlite
from support.waiting import PATIENCE_S, until

from foltr.operations.overview import read_overview
from foltr.operations.verdict import judge
from foltr.storage.queries import list_rounds


async def test_an_older_copy_is_found_until_rounds_pass_the_announced_one(mosquitto_server, tmp_path):
    """By the verdict. Nobody restores on purpose here, and the devices go on all the same."""
    file = tmp_path / "foltr.sqlite"
    async with Deployment(tmp_path, mosquitto_server.url, migrated_sqlite(file), 2) as deployment:

        async def finds_it() -> bool:
            verdict = judge(await read_overview(deployment.database, FEDERATION))
            return "database_older" in {each.reason for each in verdict.findings}

        deployment.start_federator(100_000)
        await deployment.serves()
        devices = [asyncio.create_task(contribute(one)) for one in deployment.devices]
        await deployment.rounds_reach(2)
        await stop(deployment)
        shutil.copy(file, tmp_path / "copy.sqlite")
        await deployment.reopen_database()
        in_copy = await deployment.n_completed()
        deployment.start_federator(100_000)
        await deployment.rounds_reach(in_copy + 3)
        assert not await finds_it()
        # Without them no round passes the announced one before it is looked.
        for device in devices:
            device.cancel()
        await asyncio.gather(*devices, return_exceptions=True)
        announced = (await list_rounds(deployment.database, FEDERATION))[-1].round
        await stop(deployment)
        for path in tmp_path.glob("foltr.sqlite*"):
            path.unlink()
        shutil.copy(tmp_path / "copy.sqlite", file)
        await deployment.reopen_database()
        deployment.start_federator(100_000)
        await until(finds_it, "nothing says that the database is older")
        devices = [asyncio.create_task(contribute(one)) for one in deployment.devices]
        await deployment.rounds_reach(announced)
        assert not await finds_it()
        for device in devices:
            device.cancel()
        await asyncio.gather(*devices, return_exceptions=True)


async def stop(deployment: Deployment) -> None:
    """End the federator and close its database, so that its file is whole."""
    deployment.federator.kill()
    deployment.federator.wait(PATIENCE_S)
    await deployment.database.close()
