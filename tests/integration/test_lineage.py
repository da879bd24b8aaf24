"""Which federator, which model: a restored database needs no restart, and a broker cannot go back in time."""

import asyncio
import itertools

import numpy as np
from integration.deployment import DIM, FEDERATION, on
from integration.oracle import contribute, power_learner
from sqlalchemy import select, update
from support.backups import back_up, restore
from support.waiting import PATIENCE_S, until

from foltr.core.protocol.topics import Topics
from foltr.edge_client.client import EdgeClient
from foltr.edge_client.options import Experiment
from foltr.storage.federations import get_federation
from foltr.storage.models import latest_model
from foltr.storage.queries import list_contributions, list_rounds
from foltr.storage.tables import federations, updates

N_CLIENTS = 1
pytestmark = [on("sqlite")]

TOPICS = Topics(FEDERATION)
FEATURES = np.ones((1, DIM), np.float32)


async def click_once(client: EdgeClient) -> None:
    client.record_clicks(client.rank(FEATURES), [0])
    assert not (await client.wait_settled(PATIENCE_S)).is_pending


async def test_a_restored_database_goes_on_with_devices_that_never_left(deployment):
    """Versions and round numbers repeat with other weights; the device that stays connected takes part at once.

    Its update for a model of before the restore is stale, although a model of that number is served.
    """
    device = deployment.devices[0]
    async with asyncio.timeout(PATIENCE_S):
        async with EdgeClient(
            device, store=":memory:", experiment=Experiment(learner=power_learner(3), seed=1)
        ) as client:
            deployment.start_federator(1000)
            await client.next_round(timeout_s=PATIENCE_S)
            await click_once(client)
            backup = await back_up(deployment.database)
            await deployment.rounds_reach(1)
            for n in (2, 3):
                await click_once(client)
                await deployment.rounds_reach(n)
            before = {row.round: row for row in await list_rounds(deployment.database, FEDERATION)}
            assert max(before) > 3
            deployment.federator.kill()
            await deployment.exit_code()
            await restore(deployment.database, backup)

            deployment.start_federator(1000)
            # What counted since the backup is put back on the device, and counts again, in the restored rounds.
            await deployment.rounds_reach(3)
            await click_once(client)
            await deployment.rounds_reach(4)
            model = await latest_model(deployment.database, FEDERATION)
            assert model is not None
            await until(lambda: client.model_version == model.version, "the device has not the newest model")
    contributions = await list_contributions(deployment.database, FEDERATION)
    assert len({row.update_id for row in contributions}) == len(contributions)
    async with deployment.database.reading() as connection:
        ranges = await connection.execute(select(updates.c.covers_after, updates.c.covers_through))
        covered = sorted((after, through) for after, through in ranges if through is not None)
    assert all(before[1] <= after[0] for before, after in itertools.pairwise(covered))
    assert covered[-1][1] == 4


async def test_a_restored_database_is_believed_although_a_clock_had_run_ahead(deployment, tmp_path):
    """A claim of the future is lost with the database. The broker still has what was announced under it.

    The device has it, too, and believes nothing from below; its store outlives both federators.
    """
    device, store = deployment.devices[0], str(tmp_path / "device.sqlite")
    async with asyncio.timeout(PATIENCE_S):
        deployment.start_federator(1000)
        assert await contribute(device, store=store, n_wanted=1) == 1
        backup = await back_up(deployment.database)
        deployment.federator.kill()
        await deployment.exit_code()
        # As if the clock of the second one had shown the year 2096.
        async with deployment.database.transaction() as connection:
            await connection.execute(update(federations).values(writer_epoch=4_000_000_000))
        deployment.start_federator(1000)
        assert await contribute(device, store=store, n_wanted=1) == 1
        deployment.federator.kill()
        await deployment.exit_code()
        await restore(deployment.database, backup)

        deployment.start_federator(1000)
        assert await contribute(device, store=store, n_wanted=1) == 1
    stored = await get_federation(deployment.database, FEDERATION)
    assert stored is not None
    assert stored.writer_epoch == 4_000_000_002
