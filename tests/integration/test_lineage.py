"""Which federator, which model: a restored database needs no restart, and a broker cannot go back in time."""

import asyncio
import itertools

import numpy as np
import pytest
from integration.deployment import DIM, FEDERATION, on
from integration.oracle import contribute, power_learner
from integration.recorder import Recorder
from sqlalchemy import select, update
from support.backups import back_up, restore
from support.waiting import PATIENCE_S, until

from foltr.core.protocol.announcements import ModelAnnouncement, RoundAnnouncement
from foltr.core.protocol.codec import open_envelope
from foltr.core.protocol.signing import epoch_and_number
from foltr.core.protocol.topics import ClientTopic, Topics
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


@pytest.mark.usefixtures("patient_devices")
async def test_a_hostile_broker_cannot_bring_back_what_was_signed_before(deployment, tmp_path):
    """A replayed model, round or answer, retained or not, is refused: in this connection, the next, and a restart."""
    device = deployment.devices[0]
    inbox = TOPICS.client(device.name, ClientTopic.INBOX)
    store = str(tmp_path / "device.sqlite")
    async with Recorder(deployment.broker_url, TOPICS.model, TOPICS.round, inbox).listening() as recorder:
        deployment.start_federator(3)
        n_counted = await contribute(device, store=store, n_wanted=3)
        assert await deployment.exit_code() == 0
        old_model, old_round, old_answer = (recorder.first(topic) for topic in (TOPICS.model, TOPICS.round, inbox))
        newest = await latest_model(deployment.database, FEDERATION)
        assert (n_counted, newest.version) == (3, 3)
        assert open_envelope(old_model).read(ModelAnnouncement).version == 0
        assert open_envelope(old_round).read(RoundAnnouncement).round == 1
        async with EdgeClient(device, store=store, experiment=Experiment(learner=power_learner(0), seed=1)) as client:
            await client.wait_connected(PATIENCE_S)
            for topic, payload, retain in (
                (TOPICS.model, old_model, True),
                (TOPICS.round, old_round, True),
                (inbox, old_answer, False),
            ):
                await recorder.say_again(topic, payload, retain=retain)
            client.record_clicks(client.rank(FEATURES), [0])
            await asyncio.sleep(0.5)  # clock: silence
            assert client.model_version == 3
            assert (client.n_waiting, client.receipts) == (1, {})
        # The broker has nothing but what is old now, and the device starts again.
        async with EdgeClient(device, store=store, experiment=Experiment(learner=power_learner(0), seed=1)) as client:
            await client.wait_connected(PATIENCE_S)
            await asyncio.sleep(0.5)  # clock: silence
            assert (client.model_version, client.n_waiting) == (3, 1)
            # A genuine federator is believed at once.
            deployment.start_federator(4)
            assert (await client.next_round(timeout_s=PATIENCE_S)).round == 4
            assert not (await client.wait_settled(PATIENCE_S)).is_pending
            assert client.receipts == {"accepted": 1}


async def test_each_claim_has_a_later_epoch_whatever_the_database_says(deployment):
    """Its seconds are in what it signs: two lives one after the other, the second on a database from before both."""
    empty = await back_up(deployment.database)
    epochs = []
    async with Recorder(deployment.broker_url, TOPICS.round).listening() as recorder:
        for life in range(2):
            n_heard = len(recorder.heard.get(TOPICS.round, []))
            deployment.start_federator(1000)
            await until(
                lambda n=n_heard: len(recorder.heard.get(TOPICS.round, [])) > n, f"life {life} announced nothing"
            )
            epochs.append(epoch_and_number(open_envelope(recorder.heard[TOPICS.round][-1]).sequence)[0])
            deployment.federator.kill()
            await deployment.exit_code()
            await restore(deployment.database, empty)
            await asyncio.sleep(1.0)  # clock: away
    assert epochs[0] < epochs[1]


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
