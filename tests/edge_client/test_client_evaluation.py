"""A device says what its user's lists earned, where the federation that announces the rounds asks for it."""

import numpy as np
import pytest
from structlog.testing import capture_logs
from support.comparing_devices import LATER
from support.device_under_policy import FEDERATOR as KEY
from support.device_under_policy import identity
from support.federator_by_hand import N_FEATURES, TOPICS, Federator, device, enrolled
from support.waiting import PATIENCE_S

from foltr.core.learning.rewards import ListRewards, mean_of_lists
from foltr.core.protocol.evaluations import Evaluation, EvaluationRequest
from foltr.core.protocol.receipts import ReceiptCode
from foltr.core.protocol.signing import SigningKey
from foltr.core.protocol.trainings import EvolutionTraining, FpdgdPaperTraining

ASKED = EvaluationRequest(federation="mail")


async def ask(federator, **more):
    await federator.say(TOPICS.evaluation, ASKED, retain=True, **more)


def click(client, *clicked, base=(5.0, 4.0, 3.0, 2.0, 1.0)):
    """Show lists of five, in an order of the device's, and click on documents; return what each list earned."""
    earned = []
    for number, documents in enumerate(clicked):
        features = np.zeros((5, N_FEATURES), np.float32)
        features[:, number] = 1.0
        serp = client.rank(features, 5, base=base)
        shown = serp.ranking.tolist()
        client.record_clicks(serp, [shown.index(document) for document in documents])
        order = np.argsort(-np.array(base), kind="stable").tolist()
        first = min((shown.index(each) for each in documents), default=None)
        best = min((order.index(each) for each in documents), default=None)
        earned.append(ListRewards(*(0.0 if at is None else 1 / (1 + at) for at in (first, best))))
    return earned


def said(lists):
    clicked, reward, base_reward = mean_of_lists(lists)
    return Evaluation(clicked=clicked, reward=reward, base_reward=base_reward)


async def test_an_update_says_what_its_own_lists_earned(mqtt_broker):
    """As shown and in the application's order, whatever that is; a list counts in one update."""
    async with Federator(mqtt_broker) as federator, device(mqtt_broker) as client:
        await ask(federator)
        await federator.announce(1, min_interactions=3, max_interactions=3)
        await client.next_round(timeout_s=PATIENCE_S)
        first = click(client, [4], [], [1, 2], base=(1.0, 2.0, 3.0, 4.0, 5.0))
        update = await federator.update()
        assert update.evaluation == said(first)
        assert first[0].base_reward == 1.0
        await federator.receipt(update, ReceiptCode.ACCEPTED)
        await federator.announce(2, min_interactions=3, max_interactions=3)
        second = click(client, [0], [0], [0])
        assert (await federator.update()).evaluation == said(second)


async def test_what_an_earlier_federator_asked_counts_for_nothing(mqtt_broker):
    """It is left at the broker; the one that runs now knows of no evaluations, or was told not to ask."""
    async with Federator(mqtt_broker) as federator, device(mqtt_broker) as client:
        await ask(federator)
        await federator.announce(1, sequence=LATER)
        await client.next_round(timeout_s=PATIENCE_S)
        click(client, [0], [1])
        update = await federator.update()
        assert update.evaluation is None
        await federator.receipt(update, ReceiptCode.ACCEPTED)
        await ask(federator, sequence=LATER + 1)
        await federator.announce(2, sequence=LATER + 2)
        lists = click(client, [0], [1])
        assert (await federator.update()).evaluation == said(lists)


async def test_who_switched_it_off_says_nothing_and_keeps_nothing(mqtt_broker, path):
    """Nor does it hear who asks."""
    async with Federator(mqtt_broker) as federator, device(mqtt_broker, path, evaluation=False) as client:
        await federator.link.publish(TOPICS.evaluation, b"what nobody can read", retain=True)
        await federator.announce(1, min_interactions=3)
        with capture_logs() as logs:
            await client.next_round(timeout_s=PATIENCE_S)
            click(client, [0], [1])
            assert client.agent.store.earned(0, 99) == []
            click(client, [2])
            assert (await federator.update()).evaluation is None
        assert not [one for one in logs if one["event"] == "message_refused"]


async def test_lists_of_older_software_are_left_out(mqtt_broker, path):
    """Of them nobody knows the base order; of an update that has no other nothing is said."""
    async with Federator(mqtt_broker) as federator:
        await ask(federator)
        await federator.announce(1, min_interactions=3, max_interactions=3)
        async with device(mqtt_broker, path, evaluation=False) as client:
            await client.next_round(timeout_s=PATIENCE_S)
            click(client, [3], [0])
        async with device(mqtt_broker, path) as client:
            await client.next_round(timeout_s=PATIENCE_S)
            lists = click(client, [1])
            update = await federator.update()
            assert (update.n_interactions, update.evaluation) == (3, said(lists))


@pytest.mark.parametrize(
    "noisy",
    [
        FpdgdPaperTraining(min_interactions=2, learning_rate=0.1, sensitivity=3.0, epsilon=2.0, n_clients=10),
        EvolutionTraining(min_interactions=2, noise_scale=0.1),
    ],
    ids=lambda each: each.kind,
)
async def test_beside_noise_nothing_is_said(mqtt_broker, noisy):
    """It would tell of the clicks what the noise is to hide; the log says so once."""
    async with Federator(mqtt_broker) as federator, device(mqtt_broker, learner=None) as client:
        with capture_logs() as logs:
            await ask(federator)
            await federator.announce(1, training=noisy)
            await client.next_round(timeout_s=PATIENCE_S)
            click(client, *[[0]] * 6)
            assert (await federator.update()).evaluation is None
        (told,) = [one for one in logs if one["event"] == "evaluation_disabled"]
        assert "an evaluation beside it would have none" in told["cause"]


async def test_only_the_federator_asks(mqtt_broker):
    """By a device with credentials: no broker and no client has it say more."""
    async with Federator(mqtt_broker, key=KEY) as federator, enrolled(mqtt_broker, identity(), ":memory:") as client:
        federator.key = None
        await ask(federator, sequence=1)
        federator.key = KEY
        await ask(federator, sequence=1, key=SigningKey(bytes([9]) * 32))
        await federator.announce(1, sequence=1)
        await client.next_round(timeout_s=PATIENCE_S)
        click(client, [0], [1])
        assert (await federator.update()).evaluation is None
