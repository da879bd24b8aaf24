"""Where a device gives no votes, and which rankers it compares."""

import numpy as np
import pytest
from structlog.testing import capture_logs
from support.comparing_devices import BAD, GOOD, LINEAR, begin, compared, is_known, say_anchor, search, training
from support.device_under_policy import CLIP_NORM, identity
from support.device_under_policy import FEDERATOR as KEY
from support.federator_by_hand import N_FEATURES, TOPICS, Federator, announced, device, enrolled, see
from support.sampled_lists import sampled
from support.secure_policies import policy
from support.waiting import PATIENCE_S, until

from foltr.core.learning.comparison import Comparison
from foltr.core.protocol.policies import SecureRound
from foltr.core.protocol.trainings import (
    EvolutionTraining,
    FedAvgTraining,
    FpdgdPaperTraining,
    LinearRankerSpec,
    NeuralRankerSpec,
)
from foltr.core.protocol.updates import Vote


async def test_under_a_policy_without_votes_nobody_votes(mqtt_broker, path):
    """The federator would see it. What was known before the policy came is dropped."""
    signed = policy()
    async with Federator(mqtt_broker, key=KEY) as federator, enrolled(mqtt_broker, identity(), path) as client:
        await say_anchor(federator, announced(3, GOOD), sequence=1)
        await federator.announce(1, newest=announced(5, BAD), training=training(10_000), sequence=1)
        await client.next_round(timeout_s=PATIENCE_S)
        search(client, 10)
        assert client.comparison.n_lists > 0
        await federator.link.publish(TOPICS.policy, signed.signed, retain=True)
        await until(lambda: client.comparison == Comparison())
        await say_anchor(federator, announced(4, 2 * GOOD), sequence=2)
        secure = SecureRound(policy_hash=signed.hash, clip_norm=CLIP_NORM)
        await federator.announce(2, newest=announced(5, BAD), secure=secure, sequence=2)
        see(client, *range(10))
        update = await federator.update()
        assert (update.body.kind, update.vote) == ("masked", None)
        assert client.comparison == Comparison()
    assert is_known(path) == [False, False]


@pytest.mark.parametrize(
    ("training", "cause"),
    [
        (EvolutionTraining(noise_scale=0.1), "do not draw the lists of foltr-es by score"),
        (FedAvgTraining(learning_rate=0.1), "do not draw the lists of fedavg by score"),
        (FpdgdPaperTraining(learning_rate=0.1, sensitivity=3.0, epsilon=2.0, n_clients=10), "fpdgd-paper adds noise"),
    ],
    ids=lambda value: getattr(value, "kind", None),
)
async def test_methods_that_give_no_votes(mqtt_broker, training, cause):
    """One that draws no lists by score, and one whose noise is to hide the clicks; said once, and it learns as ever."""
    chosen = training.model_copy(update={"min_interactions": 5, "max_interactions": 5})
    with capture_logs() as logs:
        async with Federator(mqtt_broker) as federator, device(mqtt_broker, learner=None) as client:
            await begin(federator, client, announced(5, BAD), announced(3, GOOD), training=chosen)
            search(client, 5)
            assert (await federator.update()).vote is None
            assert client.comparison == Comparison()
    (said,) = [one for one in logs if one["event"] == "voting_disabled"]
    assert cause in said["cause"]


@pytest.mark.parametrize("wrong", ["another number of features", "another schema", "another kind of ranker"])
async def test_an_anchor_that_does_not_fit_is_not_compared(mqtt_broker, wrong):
    """The vote says that the device has no opinion of it."""
    if wrong == "another number of features":
        anchor = announced(3, np.ones(5), LinearRankerSpec(n_features=5))
    elif wrong == "another schema":
        anchor = announced(3, GOOD, schema_hash=bytes(32))
    else:
        ranker = NeuralRankerSpec(n_features=N_FEATURES, hidden=2)
        anchor = announced(3, np.ones(ranker.n_weights), ranker)
    async with Federator(mqtt_broker) as federator, device(mqtt_broker) as client:
        await begin(federator, client, announced(5, BAD), anchor, n=30)
        search(client, 30)
        assert (await federator.update()).vote == Vote(anchor_version=3, value=0)
        assert client.comparison == Comparison()


async def test_lists_of_other_features_than_the_models_are_not_compared(mqtt_broker):
    """They wait, and say nothing of models that cannot rank them."""
    async with Federator(mqtt_broker) as federator, device(mqtt_broker) as client:
        await begin(federator, client, announced(5, BAD), announced(3, GOOD))
        serp = client.rank(np.random.default_rng(1).random((3, 5), np.float32))
        client.record_clicks(serp, [1])
        assert client.comparison == Comparison()


@pytest.mark.parametrize("method", ["fpdgd", "fedper", "fpdgd-personal"])
async def test_rankers_of_other_kinds_are_compared_too(mqtt_broker, path, method):
    """A neural one; and one whose weights are partly the device's own: both models are joined to these."""
    ranker = LINEAR if method == "fpdgd-personal" else NeuralRankerSpec(n_features=N_FEATURES, hidden=3)
    rng = np.random.default_rng(5)
    anchor, first, newest = (rng.standard_normal(ranker.n_weights).astype(np.float32) for _ in range(3))
    models = announced(6, newest, ranker), announced(3, anchor, ranker)
    async with Federator(mqtt_broker) as federator, device(mqtt_broker, path, learner=None) as client:
        await begin(federator, client, announced(5, first, ranker), models[1], training=sampled(method, {}, 30))
        search(client, 30)
        await federator.accept(await federator.update(), client)
        await begin(federator, client, *models, training=sampled(method, {}, 30), number=2)
        trainer = client.agent.trainer
        own = [trainer.weights_under(model) for model in models]
        assert np.array_equal(own[0], newest) is (method != "fedper")
        before = client.comparison
        known = compared(search(client, 30, seed=3), *own, ranker, known=before)
        assert client.comparison == known
        assert known.n_lists > before.n_lists > 20.0
        assert (await federator.update()).vote == Vote(anchor_version=3, value=int(known.opinion))
