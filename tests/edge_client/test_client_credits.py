"""A device says whom its interleaved lists credit, and its gate uses what those of all clients say."""

import numpy as np
import pytest
from support.comparing_devices import LATER
from support.device_stores import stored
from support.federator_by_hand import N_FEATURES, TOPICS, Federator, device
from support.waiting import PATIENCE_S, until

from foltr.core.learning.credits import OPENS_AT, Credits
from foltr.core.learning.gate import Source
from foltr.core.protocol.evaluations import EvaluationRequest
from foltr.core.protocol.receipts import ReceiptCode
from foltr.core.protocol.trainings import PdgdTraining

N_LISTS = 30
TRAINING = PdgdTraining(min_interactions=N_LISTS, max_interactions=N_LISTS)
# In the application's order; the model likes the last one best.
DOCUMENTS = np.eye(4, N_FEATURES, dtype=np.float32)[::-1]
BETTER = Credits(25.0, 40.0)


def liking(weights, interaction, training):  # noqa: ARG001 (the signature is the learner's)
    liked = np.zeros_like(weights)
    liked[:3] = [3.0, 2.0, 1.0]
    return liked


def search(client, n, liked):
    for _ in range(n):
        serp = client.rank(DOCUMENTS, 4)
        client.record_clicks(serp, np.flatnonzero(np.isin(serp.ranking, liked))[:1].tolist())


async def tell(federator, of_all=BETTER, since=0, **more):
    total, squares = of_all
    request = EvaluationRequest(federation="mail", credits_since=since, credit_total=total, credit_squares=squares)
    await federator.say(TOPICS.evaluation, request, retain=True, **more)


async def test_an_update_says_what_its_lists_credit(mqtt_broker, path):
    """As the gate counts them; and a gate that the user's own clicks could not open yet is opened by all clients'."""
    async with Federator(mqtt_broker) as federator, device(mqtt_broker, path, learner=liking) as client:
        await tell(federator)
        await federator.announce(1, training=TRAINING)
        await client.next_round(timeout_s=PATIENCE_S)
        assert client.gate.shared == BETTER
        search(client, N_LISTS, [3, 0])
        own = client.gate.credits
        update = await federator.update()
        assert own.weight_squares > 0.0
        said = update.evaluation.credit_total, update.evaluation.credit_squares
        assert said == pytest.approx((own.total, own.weight_squares))
        await federator.receipt(update, ReceiptCode.ACCEPTED)
        for _ in range(400):
            if not client.gate.is_open:
                search(client, 1, [3, 0])
        assert client.gate.is_open
        assert client.gate.growth < OPENS_AT
        assert client.rank(DOCUMENTS, 4, exploration="none").source == "model"
        search(client, 40, [])
        assert not client.gate.is_open, "the own clicks close it as ever"


async def test_lists_of_a_withdrawn_model_credit_nothing(mqtt_broker):
    """Their rewards are sent all the same."""
    async with Federator(mqtt_broker) as federator, device(mqtt_broker, learner=liking) as client:
        await tell(federator, since=1)
        await federator.announce(1, training=TRAINING)
        await client.next_round(timeout_s=PATIENCE_S)
        search(client, N_LISTS, [3])
        assert client.gate.credits.weight_squares > 0.0
        evaluation = (await federator.update()).evaluation
        assert (evaluation.clicked, evaluation.credit_total, evaluation.credit_squares) == (1.0, 0.0, 0.0)


async def test_what_an_earlier_federator_announced_opens_no_gate(mqtt_broker):
    """It is left at the broker; the one that runs now may not ask, or know of other clicks."""
    async with Federator(mqtt_broker) as federator, device(mqtt_broker, learner=liking) as client:
        await tell(federator)
        await federator.announce(1, training=TRAINING, sequence=LATER)
        await client.next_round(timeout_s=PATIENCE_S)
        assert client.gate.shared == Credits()
        await tell(federator, sequence=LATER + 1)
        await until(lambda: client.gate.shared == BETTER)
        await tell(federator, Credits(), sequence=LATER + 2)
        await until(lambda: client.gate.shared == Credits())


async def test_who_says_nothing_gets_nothing(mqtt_broker):
    async with Federator(mqtt_broker) as federator, device(mqtt_broker, learner=liking, evaluation=False) as client:
        await tell(federator)
        await federator.announce(1, training=TRAINING)
        await client.next_round(timeout_s=PATIENCE_S)
        search(client, N_LISTS, [3])
        assert (await federator.update()).evaluation is None
        assert client.gate.shared == Credits()


async def test_a_device_that_was_off_goes_by_what_is_announced_now(mqtt_broker, path):
    """Nothing of all clients is in its store; its own lists are."""
    async with Federator(mqtt_broker) as federator:
        await tell(federator)
        await federator.announce(1, training=TRAINING)
        async with device(mqtt_broker, path, learner=liking) as client:
            await client.next_round(timeout_s=PATIENCE_S)
            search(client, 10, [3, 0])
            before = client.gate
        with stored(path) as store:
            assert store.gate().shared == Credits()
            assert store.gate() == before
        await tell(federator, Credits(-5.0, 40.0))
        await federator.announce(20, training=TRAINING)
        async with device(mqtt_broker, path, learner=liking) as client:
            await until(lambda: client.gate.shared == Credits(-5.0, 40.0))
            assert client.gate.count(Source.BASE) == before.count(Source.BASE)


async def test_more_clicks_leave_a_lists_credit(mqtt_broker):
    """The gate has counted it, and the update agrees."""
    async with Federator(mqtt_broker) as federator, device(mqtt_broker, learner=liking) as client:
        await tell(federator)
        await federator.announce(1, training=TRAINING)
        await client.next_round(timeout_s=PATIENCE_S)
        for _ in range(N_LISTS):
            serp = client.rank(DOCUMENTS, 4)
            for position in range(4):
                client.record_clicks(serp, [position])
            if client.agent.participation.pending is not None:
                break
        own, evaluation = client.gate.credits, (await federator.update()).evaluation
        assert evaluation.credit_squares > 0.0
        assert (evaluation.credit_total, evaluation.credit_squares) == pytest.approx((own.total, own.weight_squares))
