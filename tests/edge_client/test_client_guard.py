"""A device with a guard in a federation: it refuses a model and goes on, and comes back for a better one."""

import numpy as np
from played import N_FEATURES, TOPICS, WITHIN_S, Federator, content, device, see, taken_in, until
from structlog.testing import capture_logs

from foltr.core.learning.agreement import preferences
from foltr.core.protocol.announcements import ModelAnnouncement
from foltr.core.protocol.fields import pack_vector
from foltr.core.protocol.receipts import ReceiptCode
from foltr.core.protocol.trainings import LinearRankerSpec, PdgdTraining
from foltr.edge_client.guard.model_judgement import FEWEST_LISTS

GOOD = np.zeros(N_FEATURES, np.float32)
GOOD[:2] = 3.0, 1.0
# A device shows so many documents once it has heard a round of it.
SEEN = PdgdTraining(serp_length=7)


def announced(version, weights):
    ranker = LinearRankerSpec(n_features=N_FEATURES)
    return ModelAnnouncement(federation="mail", version=version, ranker=ranker, weights=pack_vector(weights))


def search(client, n_held_back):
    """Click on what `GOOD` scores highest until so many lists more are held back whose clicks say anything."""
    rng, n_telling = np.random.default_rng(2), 0
    while n_telling < n_held_back:
        features, n_before = rng.random((3, N_FEATURES), np.float32), client.n_held_back
        serp = client.rank(features)
        clicks = serp.ranking == np.argmax(features @ GOOD)
        client.record_clicks(serp, np.flatnonzero(clicks).tolist())
        n_telling += client.n_held_back > n_before and preferences(serp.reversals, clicks).total > 0


async def test_what_is_held_back_is_in_no_update(mqtt_broker):
    """Of ten lists five are learned from and sent; the others stay, however often they are recorded."""
    async with Federator(mqtt_broker) as federator, device(mqtt_broker, guard=0.5) as client:
        await federator.announce(1, min_interactions=5)
        await client.next_round()
        serps = see(client, *range(10))
        for serp in serps:
            client.record_clicks(serp, [1])
        sent = content(await federator.update())
        assert sent in ([0, 2, 4, 6, 8], [1, 3, 5, 7, 9])
        assert (client.n_held_back, client.n_waiting) == (5, 0)


async def test_without_a_guard_nothing_is_held_back(mqtt_broker):
    """Every list is learned from, and every model is used."""
    async with Federator(mqtt_broker) as federator, device(mqtt_broker) as client:
        await federator.announce(1, newest=announced(0, GOOD))
        await client.next_round()
        await taken_in(client)
        see(client, *range(10))
        assert content(await federator.update()) == [0, 1]
        await federator.announce(2, newest=announced(1, -GOOD))
        await client.next_round(after=1)
        assert (client.model_version, client.n_held_back, client.refused_models) == (1, 0, ())


async def test_a_withdrawn_model_is_not_used_guard_or_not(mqtt_broker):
    """The refused one takes its place, as it alone is without what was unlearned; the clicks go into its round."""
    async with Federator(mqtt_broker) as federator, device(mqtt_broker, guard=0.5) as client:
        await federator.announce(1, newest=announced(0, GOOD), min_interactions=10_000, max_interactions=10_000)
        await client.next_round()
        search(client, FEWEST_LISTS)
        await federator.announce(2, newest=announced(1, -GOOD), min_interactions=2)
        await client.next_round(after=1)
        assert (client.model_version, [one.version for one in client.refused_models]) == (0, [1])
        await federator.announce(3, newest=announced(1, -GOOD), min_interactions=2, withdraws_below=1)
        await client.next_round(after=2)
        assert client.model_version == 1
        assert (await federator.update()).base_version == 1
        (withdrawn,) = client.refused_models
        assert (withdrawn.version, withdrawn.withdrawn, withdrawn.judgement) == (0, True, None)


async def test_a_withdrawn_model_that_comes_late_is_not_used(mqtt_broker, path):
    """Nor after a restart: what was withdrawn is in the store. It is said once, in the log and of the device."""
    async with Federator(mqtt_broker) as federator:
        with capture_logs() as logs:
            async with device(mqtt_broker, path, guard=0.5) as client:
                await federator.announce(1, newest=announced(0, GOOD))
                await client.next_round()
                await federator.announce_round(2, announced(5, GOOD), SEEN, withdraws_below=5)
                await until(lambda: client.model_version is None)
                for _ in range(2):
                    await federator.say(TOPICS.model, announced(4, GOOD), retain=True)
                await until(lambda: [one.version for one in client.refused_models] == [0, 4])
                assert client.model_version is None
            assert [one["version"] for one in logs if one["event"] == "model_withdrawn"] == [0, 4]
        async with device(mqtt_broker, path, guard=0.5) as client:
            await until(lambda: client.serp_length == SEEN.serp_length)
            assert client.model_version is None
            assert [(one.version, one.withdrawn) for one in client.refused_models] == [(0, True), (4, True)]
            await federator.say(TOPICS.model, announced(5, GOOD), retain=True)
            await until(lambda: client.model_version == 5)


async def test_a_withdrawn_model_that_was_refused_is_not_used(mqtt_broker):
    """Announced again with nothing kept beside it, it would be the first that a guard takes unseen."""
    async with Federator(mqtt_broker) as federator, device(mqtt_broker, guard=0.5) as client:
        await federator.announce(1, newest=announced(0, GOOD), min_interactions=10_000, max_interactions=10_000)
        await client.next_round()
        search(client, FEWEST_LISTS)
        await federator.announce(2, newest=announced(1, -GOOD))
        await client.next_round(after=1)
        await federator.announce_round(3, announced(2, GOOD), withdraws_below=2)
        await until(lambda: client.model_version is None)
        await federator.say(TOPICS.model, announced(1, -GOOD), retain=True)
        await federator.announce_round(4, announced(2, GOOD), SEEN, withdraws_below=2)
        await until(lambda: client.serp_length == SEEN.serp_length)
        assert client.model_version is None
        said = [(one.version, one.withdrawn, one.judgement is not None) for one in client.refused_models]
        assert said == [(0, True, False), (1, True, True)]


async def test_a_restored_federation_withdraws_less(mqtt_broker, path):
    """Its numbers are of other models than before, whether the model comes before its round or after."""
    async with Federator(mqtt_broker) as federator, device(mqtt_broker, path) as client:
        await federator.announce(9, newest=announced(8, GOOD), withdraws_below=8)
        await client.next_round()
        await federator.announce(3, newest=announced(6, GOOD), withdraws_below=2)
        await until(lambda: client.model_version == 6)
        await federator.say(TOPICS.model, announced(7, GOOD), retain=True)
        await until(lambda: client.model_version == 7)


async def test_a_device_that_was_off_drops_a_withdrawn_model_at_once(mqtt_broker, path):
    """Also where the new one has not come yet: then it has none, nor after a restart."""
    async with Federator(mqtt_broker) as federator:
        async with device(mqtt_broker, path) as client:
            await federator.announce(1, newest=announced(0, GOOD))
            await client.next_round()
        await federator.forget_model()
        async with device(mqtt_broker, path) as client:
            assert client.model_version == 0
            await federator.announce_round(2, announced(5, GOOD), withdraws_below=5)
            await until(lambda: client.model_version is None)
        async with device(mqtt_broker, path) as client:
            assert client.model_version is None


async def test_a_refused_model_is_not_used_and_a_better_one_is(mqtt_broker, path):
    """Its round is announced to the application and gets no update; the clicks wait for a round of a better model.

    A restart in between changes nothing.
    """
    async with Federator(mqtt_broker) as federator:
        async with device(mqtt_broker, path, guard=0.5) as client:
            await federator.announce(1, newest=announced(0, GOOD), min_interactions=10_000, max_interactions=10_000)
            await client.next_round()
            search(client, FEWEST_LISTS)
            n_waiting = client.n_waiting
            await federator.announce(2, newest=announced(1, -GOOD))
            assert (await client.next_round(after=1)).base_version == 1
            assert client.model_version == 0
            assert [(one.version, one.kept_version) for one in client.refused_models] == [(1, 0)]
            search(client, 1)  # judged again with one list more, and ranked by the model it has
            assert client.model_version == 0
            assert client.n_waiting >= n_waiting
            await federator.nothing_on("updates")
        async with device(mqtt_broker, path, guard=0.5) as client:
            assert client.model_version == 0
            assert (await client.next_round(after=1)).base_version == 1
            assert client.model_version == 0
            assert [one.version for one in client.refused_models] == [1]
            await federator.nothing_on("updates")
            await federator.announce(3, newest=announced(2, 1.2 * GOOD))
            await client.next_round(after=2)
            assert client.model_version == 2
            update = await federator.update()
            assert (update.round, update.base_version, update.n_interactions) == (3, 2, 10)
            await federator.receipt(update, ReceiptCode.ACCEPTED)
            assert await client.wait_settled(WITHIN_S)


async def test_lists_that_speak_for_a_refused_model_let_it_in(mqtt_broker):
    """Nobody has to announce it again, and who waits for its round has it at hand."""
    async with Federator(mqtt_broker) as federator, device(mqtt_broker, guard=0.5) as client:
        await federator.announce(1, newest=announced(0, GOOD), min_interactions=10_000, max_interactions=10_000)
        await client.next_round()
        search(client, FEWEST_LISTS)
        await federator.announce(2, newest=announced(1, -GOOD))
        await client.next_round(after=1)
        assert client.model_version == 0
        rng = np.random.default_rng(2)
        for _ in range(20 * FEWEST_LISTS):
            features = rng.random((3, N_FEATURES), np.float32)
            serp = client.rank(features)
            client.record_clicks(serp, np.flatnonzero(serp.ranking == np.argmin(features @ GOOD)).tolist())
            if client.model_version == 1:
                break
        assert client.model_version == 1
        assert client.refused_models == ()
        update = await federator.update()
        assert (update.round, update.base_version) == (2, 1)
