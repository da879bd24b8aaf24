"""A device votes: what it finds of the newest model against the anchor goes with its updates, and is not lost."""

import numpy as np
import pytest
from structlog.testing import capture_logs
from support.comparing_devices import (
    BAD,
    ENOUGH,
    GOOD,
    LATER,
    LINEAR,
    begin,
    compared,
    is_known,
    say_anchor,
    search,
    training,
)
from support.device_under_policy import CLIP_NORM, identity, opened
from support.device_under_policy import FEDERATOR as KEY
from support.federator_by_hand import N_FEATURES, TOPICS, Federator, announced, device, enrolled
from support.sampled_lists import sampled
from support.secure_policies import policy
from support.waiting import PATIENCE_S, until

from foltr.core.learning.comparison import Comparison
from foltr.core.protocol.codec import encode
from foltr.core.protocol.policies import SecureRound
from foltr.core.protocol.receipts import ReceiptCode
from foltr.core.protocol.signing import SigningKey
from foltr.core.protocol.trainings import (
    EvolutionTraining,
    FedAvgTraining,
    FpdgdPaperTraining,
    LinearRankerSpec,
    NeuralRankerSpec,
)
from foltr.core.protocol.updates import Vote

NEURAL = NeuralRankerSpec(n_features=N_FEATURES, hidden=2)


@pytest.mark.parametrize(
    ("newest", "anchor", "n", "value"),
    [
        pytest.param(BAD, announced(3, GOOD), ENOUGH, -1, id="worse"),
        pytest.param(GOOD, announced(3, BAD), ENOUGH, 1, id="better"),
        pytest.param(BAD, announced(3, GOOD), 5, 0, id="few lists"),
        pytest.param(GOOD, announced(3, GOOD), ENOUGH, 0, id="the anchor itself"),
        pytest.param(BAD, None, 5, None, id="no anchor"),
        pytest.param(BAD, announced(3, np.ones(5), LinearRankerSpec(n_features=5)), 30, 0, id="another width"),
        pytest.param(BAD, announced(3, GOOD, schema_hash=bytes(32)), 30, 0, id="another schema"),
        pytest.param(BAD, announced(3, np.ones(NEURAL.n_weights), NEURAL), 30, 0, id="another kind of ranker"),
    ],
)
async def test_an_update_says_what_the_device_has_found(mqtt_broker, newest, anchor, n, value):
    """By each list, as both models score it; nothing of an anchor that does not fit; nothing is held back for it."""
    async with Federator(mqtt_broker) as federator, device(mqtt_broker) as client:
        if anchor is None:
            await federator.announce(1, newest=announced(5, newest), training=training(n))
            await client.next_round(timeout_s=PATIENCE_S)
        else:
            await begin(federator, client, announced(5, newest), anchor, n=n)
        serp = client.rank(np.random.default_rng(1).random((3, 5), np.float32))
        client.record_clicks(serp, [1])
        assert client.comparison == Comparison(), "the list has other features than the models"
        recorded = search(client, n)
        is_compared = (newest is BAD and anchor == announced(3, GOOD)) or value == 1
        assert client.comparison == (compared(recorded, newest, -newest) if is_compared else Comparison())
        update = await federator.update()
        assert update.vote == (None if value is None else Vote(anchor_version=3, value=value))
        assert update.n_interactions == n


async def test_who_does_not_vote_hears_no_anchor(mqtt_broker, path):
    """And keeps none, nor what it knew while it did."""
    async with Federator(mqtt_broker) as federator:
        async with device(mqtt_broker, path) as client:
            await begin(federator, client, announced(5, BAD), announced(3, GOOD), n=2 * ENOUGH)
            search(client, ENOUGH)
        assert is_known(path) == [True, True]
        await federator.link.publish(TOPICS.anchor, b"what nobody can read", retain=True)
        with capture_logs() as logs:
            async with device(mqtt_broker, path, votes=False) as client:
                await client.next_round(timeout_s=PATIENCE_S)
                search(client, ENOUGH, seed=3)
                assert (await federator.update()).vote is None
        assert not [one for one in logs if one["event"] == "message_refused"]
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


async def test_with_another_anchor_all_begins_again(mqtt_broker, path):
    """Also if it has the version of the one before, as a restored federation's may; a restart goes on with it."""
    async with Federator(mqtt_broker) as federator:
        async with device(mqtt_broker, path) as client:
            await begin(federator, client, announced(5, BAD), announced(3, GOOD), n=ENOUGH)
            search(client, ENOUGH)
            update = await federator.update()
            assert update.vote.value == -1
            for anchor in (announced(3, 2 * GOOD), announced(4, 2 * GOOD)):
                known = client.comparison
                await say_anchor(federator, anchor)
                await until(lambda before=known: client.comparison is not before)
                assert client.comparison == Comparison()
                recorded = search(client, 5, seed=4)
                assert client.comparison == compared(recorded, BAD, 2 * GOOD)
            await federator.receipt(update, ReceiptCode.ACCEPTED)
            await federator.announce(2, newest=announced(6, BAD), training=training(10))
            assert (await federator.update()).vote == Vote(anchor_version=4, value=0)
            before = client.comparison
        async with device(mqtt_broker, path) as client:
            assert client.comparison == before


async def test_an_anchor_counts_while_the_federator_that_announces_rounds_has_it(mqtt_broker, path):
    """Neither one that an earlier federator left at the broker, nor one that is in the store alone."""
    async with Federator(mqtt_broker) as federator:
        async with device(mqtt_broker, path) as client:
            await begin(federator, client, announced(5, BAD), announced(3, GOOD), n=10_000)
            search(client, ENOUGH)
            known = client.comparison
            await federator.announce(2, newest=announced(5, BAD), training=training(ENOUGH), sequence=LATER)
            update = await federator.update()
            assert update.vote is None
            await federator.receipt(update, ReceiptCode.ACCEPTED)
            search(client, 5, seed=3)
            assert client.comparison == known
        await federator.link.publish(TOPICS.anchor, b"", retain=True)
        async with device(mqtt_broker, path) as client:
            await federator.announce(3, newest=announced(5, BAD), training=training(5), sequence=LATER)
            await client.next_round(after=2, timeout_s=PATIENCE_S)
            update = await federator.update()
            assert update.vote is None
            await federator.receipt(update, ReceiptCode.ACCEPTED)
            assert client.comparison == known
            await say_anchor(federator, announced(3, GOOD), sequence=LATER)
            await federator.announce(4, newest=announced(6, BAD), training=training(5), sequence=LATER)
            await client.next_round(after=3, timeout_s=PATIENCE_S)
            search(client, 5, seed=3)
            assert (await federator.update()).vote == Vote(anchor_version=3, value=-1)
            assert client.comparison.n_lists > known.n_lists


async def test_an_anchor_that_is_cleared_is_dropped_at_once(mqtt_broker, path):
    """Somebody who was erased since may be in it. Votes go on with another one."""
    async with Federator(mqtt_broker) as federator:
        async with device(mqtt_broker, path) as client:
            await begin(federator, client, announced(5, BAD), announced(3, GOOD), n=ENOUGH)
            search(client, ENOUGH - 5)
            await federator.link.publish(TOPICS.anchor, b"", retain=True)
            await until(lambda: client.comparison == Comparison())
            search(client, 5)
            update = await federator.update()
            assert update.vote is None
            await federator.receipt(update, ReceiptCode.ACCEPTED)
        assert is_known(path) == [False, False]
        async with device(mqtt_broker, path) as client:
            await begin(federator, client, announced(6, BAD), announced(4, GOOD), n=5, number=2)
            search(client, 5, seed=3)
            assert (await federator.update()).vote == Vote(anchor_version=4, value=0)


async def test_only_the_federators_newest_anchor_is_taken(mqtt_broker):
    """By a device with credentials: no broker and no client makes it compare with another model."""
    async with Federator(mqtt_broker, key=KEY) as federator, enrolled(mqtt_broker, identity(), ":memory:") as client:
        await say_anchor(federator, announced(3, GOOD), sequence=5)
        await federator.announce(1, newest=announced(5, BAD), training=training(10_000), sequence=5)
        await client.next_round(timeout_s=PATIENCE_S)
        search(client, 10)
        known = client.comparison
        assert known.n_lists > 0
        other = announced(4, 2 * GOOD)
        federator.key = None
        await say_anchor(federator, other, sequence=6)
        federator.key = KEY
        await say_anchor(federator, other, sequence=6, key=SigningKey(bytes([9]) * 32))
        await federator.link.publish(TOPICS.anchor, encode(other, TOPICS.model, 6, KEY), retain=True)
        await say_anchor(federator, other, sequence=4)
        await say_anchor(federator, other.model_copy(update={"federation": "photos"}), sequence=6)
        await federator.announce(2, newest=announced(5, BAD), training=training(10), sequence=6)
        assert (await federator.update()).vote.anchor_version == 3
        assert client.comparison == known


async def test_a_withdrawn_anchor_is_dropped_at_once(mqtt_broker, path):
    """It holds what was unlearned since: it is not in the store, nor used when it comes again."""
    async with Federator(mqtt_broker) as federator:
        async with device(mqtt_broker, path) as client:
            await begin(federator, client, announced(5, BAD), announced(3, GOOD), n=10_000)
            search(client, ENOUGH)
            await federator.announce(2, newest=announced(5, BAD), training=training(10_000), withdraws_below=4)
            await until(lambda: client.comparison == Comparison())
            await say_anchor(federator, announced(3, GOOD))
            await federator.announce(3, newest=announced(5, BAD), training=training(ENOUGH), withdraws_below=4)
            assert (await federator.update()).vote is None
        assert is_known(path) == [False, False]
        async with device(mqtt_broker, path) as client:
            await client.next_round(timeout_s=PATIENCE_S)
            search(client, 5)
            assert client.comparison == Comparison()
        assert is_known(path) == [False, False]


async def test_a_restored_federation_may_have_an_older_anchor(mqtt_broker):
    """Its anchor comes before the round that withdraws less, as its model may."""
    async with Federator(mqtt_broker) as federator, device(mqtt_broker) as client:
        await begin(federator, client, announced(9, BAD), announced(8, GOOD), n=10_000, withdraws_below=8)
        await say_anchor(federator, announced(3, 2 * GOOD))
        await federator.announce(2, newest=announced(6, BAD), training=training(5), withdraws_below=2)
        await until(lambda: client.model_version == 6)
        search(client, 5)
        assert (await federator.update()).vote == Vote(anchor_version=3, value=0)


WEIGHT = 64
VOTING = policy(proofs=True, vote_weight=WEIGHT, n_interactions=ENOUGH)
SECURE = SecureRound(policy_hash=VOTING.hash, clip_norm=CLIP_NORM)


@pytest.mark.parametrize(
    ("newest", "anchor", "options", "votes"),
    [
        pytest.param(BAD, GOOD, {}, [WEIGHT, 0], id="worse"),
        pytest.param(GOOD, BAD, {}, [0, WEIGHT], id="better"),
        pytest.param(GOOD, 2 * GOOD, {}, [0, 0], id="neither"),
        pytest.param(BAD, GOOD, {"votes": False}, [0, 0], id="who does not compare"),
    ],
)
async def test_a_vote_goes_into_the_sum(mqtt_broker, path, newest, anchor, options, votes):
    """What the clicks say of the newest model, or nothing, which is as long; in the open there is no vote."""
    credentials = identity(VOTING)
    async with (
        Federator(mqtt_broker, key=KEY) as federator,
        enrolled(mqtt_broker, credentials, path, **options) as client,
    ):
        await begin(federator, client, announced(5, newest), announced(3, anchor), secure=SECURE)
        search(client, ENOUGH)
        update = await federator.update()
        assert (update.body.kind, update.vote) == ("masked", None)
        assert opened(update, VOTING, credentials.key.public)[N_FEATURES:].tolist() == votes
        assert (client.comparison == Comparison()) is bool(options)


async def test_an_anchor_that_comes_before_the_policy_with_votes_is_taken_up(mqtt_broker, path):
    """Under a policy without votes nothing of it is used; under the next one it counts, as it was announced."""
    plain = policy(proofs=True, n_interactions=1000)
    credentials = identity(plain)
    voting = policy(proofs=True, vote_weight=WEIGHT, n_interactions=ENOUGH, after=plain)
    async with Federator(mqtt_broker, key=KEY) as federator, enrolled(mqtt_broker, credentials, path) as client:
        secure = SecureRound(policy_hash=plain.hash, clip_norm=CLIP_NORM)
        await begin(federator, client, announced(5, BAD), announced(3, GOOD), secure=secure)
        search(client, 10)
        assert client.comparison == Comparison()
        await federator.link.publish(TOPICS.policy, voting.signed, retain=True)
        secure = SecureRound(policy_hash=voting.hash, clip_norm=CLIP_NORM)
        await federator.announce_round(2, announced(5, BAD), training(ENOUGH), secure=secure)
        await client.next_round(after=1, timeout_s=PATIENCE_S)
        search(client, ENOUGH)
        update = await federator.update()
        assert opened(update, voting, credentials.key.public)[N_FEATURES:].tolist() == [WEIGHT, 0]


async def test_a_policy_without_votes_ends_them(mqtt_broker, path):
    """What was compared is dropped, from the disk as well."""
    credentials = identity(VOTING)
    async with Federator(mqtt_broker, key=KEY) as federator, enrolled(mqtt_broker, credentials, path) as client:
        await begin(federator, client, announced(5, BAD), announced(3, GOOD), secure=SECURE)
        search(client, 10)
        assert client.comparison.n_lists > 0
        await federator.link.publish(TOPICS.policy, policy(proofs=True, after=VOTING).signed, retain=True)
        await until(lambda: client.comparison == Comparison())
    assert is_known(path) == [False, False]
