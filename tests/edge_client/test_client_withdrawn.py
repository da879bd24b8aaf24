"""A device in a federation that withdraws models: it uses none of them, whenever they come."""

import numpy as np
from structlog.testing import capture_logs
from support.federator_by_hand import N_FEATURES, TOPICS, Federator, announced, device
from support.waiting import until

from foltr.core.protocol.trainings import PdgdTraining

GOOD = np.zeros(N_FEATURES, np.float32)
GOOD[:2] = 3.0, 1.0
# A device shows so many documents once it has heard a round of it.
SEEN = PdgdTraining(serp_length=7)


def withdrawn_in(logs) -> list[int]:
    return [one["version"] for one in logs if one["event"] == "model_withdrawn"]


async def test_a_withdrawn_model_that_comes_late_is_not_used(mqtt_broker, path):
    """Nor after a restart: what was withdrawn is in the store. The log says it once."""
    async with Federator(mqtt_broker) as federator:
        with capture_logs() as logs:
            async with device(mqtt_broker, path) as client:
                await federator.announce(1, newest=announced(0, GOOD))
                await client.next_round()
                await federator.announce_round(2, announced(5, GOOD), withdraws_below=5)
                await until(lambda: client.model_version is None)
                for _ in range(2):
                    await federator.say(TOPICS.model, announced(4, GOOD), retain=True)
                await until(lambda: withdrawn_in(logs) == [0, 4])
                assert client.model_version is None
                await federator.announce_round(3, announced(5, GOOD), SEEN, withdraws_below=5)
                await until(lambda: client.serp_length == SEEN.serp_length)
                assert client.model_version is None
        async with device(mqtt_broker, path) as client:
            await until(lambda: client.serp_length == SEEN.serp_length)
            assert client.model_version is None
            await federator.say(TOPICS.model, announced(5, GOOD), retain=True)
            await until(lambda: client.model_version == 5)
        assert withdrawn_in(logs) == [0, 4]


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
