"""A device votes: what it finds of the newest model against the anchor goes with its updates, and is not lost."""

import contextlib

import numpy as np
import pytest
from drawn import sampled
from made_policies import policy
from played import N_FEATURES, TOPICS, WITHIN_S, Federator, adding_learner, device, see, until
from structlog.testing import capture_logs
from under_policy import CLIP_NORM, identity
from under_policy import FEDERATOR as KEY

from edge_client.client import EdgeClient
from edge_client.guard.model_judgement import FEWEST_LISTS as FEWEST_OF_A_GUARD
from edge_client.store.store import DeviceStore
from foltr.learning.agreement import lead, preferences
from foltr.learning.comparison import Comparison
from foltr.methods.base import scores_of
from foltr.protocol.announcements import ModelAnnouncement
from foltr.protocol.codec import encode
from foltr.protocol.explorations import SamplingExploration
from foltr.protocol.fields import pack_vector
from foltr.protocol.policies import SecureRound
from foltr.protocol.receipts import ErasureNotice, ReceiptCode
from foltr.protocol.signing import SigningKey
from foltr.protocol.topics import ClientTopic
from foltr.protocol.trainings import (
    EvolutionTraining,
    FedAvgTraining,
    FpdgdPaperTraining,
    LinearRankerSpec,
    NeuralRankerSpec,
    PdgdTraining,
)
from foltr.protocol.updates import Vote

LINEAR = LinearRankerSpec(n_features=N_FEATURES)
GOOD = np.zeros(N_FEATURES, np.float32)
GOOD[:2] = 3.0, 1.0
BAD = -GOOD
ENOUGH = 60
LATER = 2**30  # a number of the next epoch


def announced(version, weights, ranker=LINEAR, **more):
    return ModelAnnouncement(federation="mail", version=version, ranker=ranker, weights=pack_vector(weights), **more)


def training(n):
    return PdgdTraining(min_interactions=n, max_interactions=n, exploration=SamplingExploration())


def search(client, n, seed=2):
    """Click n times on what `GOOD` scores highest of the five shown; return the lists and their clicks."""
    rng, recorded = np.random.default_rng(seed), []
    for _ in range(n):
        features = rng.random((12, N_FEATURES), np.float32)
        serp = client.rank(features, 5)
        best = int(np.argmax(features[serp.ranking] @ GOOD))
        client.record_clicks(serp, [best])
        recorded.append((serp, np.arange(5) == best))
    return recorded


def compared(recorded, newest, anchor, ranker=LINEAR, known=None):
    """What a device is to know after these lists, and before them."""
    known = known or Comparison()
    for serp, clicks in recorded:
        said = preferences(serp.reversals, clicks)
        of_newest, of_anchor = (
            lead(scores_of(ranker, one, serp.features), serp.ranking, said) for one in (newest, anchor)
        )
        known = known.with_list(of_newest, of_anchor, said.total)
    return known


async def say_anchor(federator, anchor, **more):
    await federator.say(TOPICS.anchor, anchor, retain=True, **more)


async def begin(federator, client, newest, anchor, *, n=ENOUGH, number=1, **more):
    """Announce an anchor, a model and a round that takes n lists, and wait until the device has heard all three."""
    await say_anchor(federator, anchor)
    await federator.announce(number, newest=newest, **{"training": training(n), **more})
    await client.next_round(after=number - 1, timeout_s=WITHIN_S)
    # What was said before the round was heard before it; but for the answer to the join.
    await until(lambda: client.counted_through is not None)


def stored(path):
    """The store of a device that does not run."""
    return contextlib.closing(DeviceStore(path, client_id="device-7", federation="mail", max_interactions=10_000))


def is_known(path):
    """Whether a store has an anchor, and whether anything of a comparison."""
    with stored(path) as store:
        return [store.anchor() is not None, store.rows("SELECT n_lists > 0 FROM comparison") == [(1,)]]


# --- what it says -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("newest", "anchor", "value"), [(BAD, GOOD, -1), (GOOD, BAD, 1)], ids=["the newest is worse", "it is better"]
)
async def test_an_update_says_what_the_device_has_found(mqtt_broker, newest, anchor, value):
    """By each list, as both models score it; and nothing is held back for it."""
    async with Federator(mqtt_broker) as federator, device(mqtt_broker) as client:
        await begin(federator, client, announced(5, newest), announced(3, anchor))
        recorded = search(client, ENOUGH)
        assert client.comparison == compared(recorded, newest, anchor)
        update = await federator.update()
        assert update.vote == Vote(anchor_version=3, value=value)
        assert update.n_interactions == ENOUGH


async def test_of_few_lists_nothing_is_said(mqtt_broker):
    """But that it has no opinion, which takes the place of an earlier one."""
    async with Federator(mqtt_broker) as federator, device(mqtt_broker) as client:
        await begin(federator, client, announced(5, BAD), announced(3, GOOD), n=5)
        search(client, 5)
        assert (await federator.update()).vote == Vote(anchor_version=3, value=0)


async def test_without_an_anchor_an_update_has_no_vote(mqtt_broker):
    """As with a federator that knows none."""
    async with Federator(mqtt_broker) as federator, device(mqtt_broker) as client:
        await federator.announce(1, newest=announced(5, BAD), training=training(ENOUGH))
        await client.next_round(timeout_s=WITHIN_S)
        search(client, ENOUGH)
        assert (await federator.update()).vote is None
        assert client.comparison == Comparison()


async def test_a_model_is_no_better_than_itself(mqtt_broker):
    """While the newest model is the anchor nothing is compared, whatever version it has."""
    async with Federator(mqtt_broker) as federator, device(mqtt_broker) as client:
        await begin(federator, client, announced(5, GOOD), announced(3, GOOD))
        search(client, ENOUGH)
        assert (await federator.update()).vote == Vote(anchor_version=3, value=0)
        assert client.comparison == Comparison()


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
                await client.next_round(timeout_s=WITHIN_S)
                search(client, ENOUGH, seed=3)
                assert (await federator.update()).vote is None
        assert not [one for one in logs if one["event"] == "message_refused"]
        assert is_known(path) == [False, False]


async def test_what_a_guard_holds_back_is_compared_too(mqtt_broker):
    """Also against a model that it refuses: that is the newest one all the same."""
    async with Federator(mqtt_broker) as federator, device(mqtt_broker, guard=0.5) as client:
        await begin(federator, client, announced(4, GOOD), announced(3, 0.5 * GOOD), n=10_000)
        recorded = search(client, 2 * FEWEST_OF_A_GUARD + 10)
        assert client.n_held_back >= FEWEST_OF_A_GUARD
        known = client.comparison
        assert known == compared(recorded, GOOD, 0.5 * GOOD)
        await federator.announce(2, newest=announced(5, BAD), training=training(10_000))
        await client.next_round(after=1, timeout_s=WITHIN_S)
        assert [one.version for one in client.refused_models] == [5]
        search(client, ENOUGH, seed=3)
        assert client.comparison.mean < known.mean
        assert client.comparison.opinion < 0


# --- restarts, copies, another anchor ---------------------------------------------------------------------------


async def test_what_is_known_outlives_a_restart(mqtt_broker, path):
    """To the bit, and the device goes on with it."""
    async with Federator(mqtt_broker) as federator:
        async with device(mqtt_broker, path) as client:
            await begin(federator, client, announced(5, BAD), announced(3, GOOD), n=ENOUGH)
            first = search(client, ENOUGH - 20)
            before = client.comparison
        async with device(mqtt_broker, path) as client:
            assert client.comparison == before
            await client.next_round(timeout_s=WITHIN_S)
            recorded = [*first, *search(client, 20, seed=3)]
            assert client.comparison == compared(recorded, BAD, GOOD)
            assert (await federator.update()).vote == Vote(anchor_version=3, value=-1)


@pytest.mark.usefixtures("resend_fast")
async def test_a_vote_is_sent_again_as_it_was(mqtt_broker, path):
    """With the update that it is in, to the byte, whatever was found or announced since."""
    async with Federator(mqtt_broker) as federator:
        async with device(mqtt_broker, path) as client:
            await begin(federator, client, announced(5, BAD), announced(3, GOOD), n=5)
            search(client, 5)
            first = await federator.next("updates")
            search(client, ENOUGH, seed=3)
            await say_anchor(federator, announced(4, 2 * GOOD))
            assert await federator.next("updates") == first
        async with device(mqtt_broker, path) as client:
            while federator.n_heard("updates"):
                await federator.next("updates")
            assert await federator.next("updates") == first


async def test_with_another_anchor_all_begins_anew(mqtt_broker, path):
    """Also where it has the version of the one before, as a restored federation's may; and after a restart."""
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


async def test_the_same_anchor_announced_again_changes_nothing(mqtt_broker):
    """As at each start of a federator, in other bytes."""
    async with Federator(mqtt_broker) as federator, device(mqtt_broker) as client:
        await begin(federator, client, announced(5, BAD), announced(3, GOOD), n=10_000)
        search(client, ENOUGH)
        known = client.comparison
        await say_anchor(federator, announced(3, GOOD), sequence=LATER)
        await federator.announce(2, newest=announced(5, BAD), training=training(ENOUGH), sequence=LATER + 1)
        assert (await federator.update()).vote == Vote(anchor_version=3, value=-1)
        assert client.comparison == known


async def test_an_anchor_of_an_earlier_federator_counts_for_nothing(mqtt_broker, path):
    """It was left at the broker, or is in the store: the one that runs now has none, or not this one."""
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
            await client.next_round(timeout_s=WITHIN_S)
            search(client, 5, seed=3)
            assert client.comparison == known


async def test_an_anchor_that_the_broker_has_lost_counts_for_nothing(mqtt_broker, path):
    """A device that is started again takes none for today's that nobody has announced to it since; nor does it vote."""
    async with Federator(mqtt_broker) as federator:
        async with device(mqtt_broker, path) as client:
            await begin(federator, client, announced(5, BAD), announced(3, GOOD), n=ENOUGH + 5)
            search(client, ENOUGH)
            known = client.comparison
        await federator.link.publish(TOPICS.anchor, b"", retain=True)
        async with device(mqtt_broker, path) as client:
            await client.next_round(timeout_s=WITHIN_S)
            search(client, 5, seed=3)
            update = await federator.update()
            assert update.vote is None
            await federator.receipt(update, ReceiptCode.ACCEPTED)
            assert client.comparison == known
            await begin(federator, client, announced(6, BAD), announced(3, GOOD), n=5, number=2)
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
            assert client.comparison == Comparison()
        assert is_known(path) == [False, False]
        async with device(mqtt_broker, path) as client:
            await begin(federator, client, announced(6, BAD), announced(4, GOOD), n=5, number=2)
            search(client, 5, seed=3)
            assert (await federator.update()).vote == Vote(anchor_version=4, value=0)


# --- whose it is --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong", ["unsigned", "another's key", "another federation's", "for another topic", "older than one before"]
)
async def test_only_the_federators_newest_anchor_is_taken(mqtt_broker, wrong):
    """By a device with credentials: no broker and no client makes it compare with another model."""
    credentials = identity()
    async with (
        Federator(mqtt_broker, key=KEY) as federator,
        EdgeClient(mqtt_broker, credentials=credentials, store=":memory:", learner=adding_learner, seed=1) as client,
    ):
        await say_anchor(federator, announced(3, GOOD), sequence=5)
        await federator.announce(1, newest=announced(5, BAD), training=training(10_000), sequence=5)
        await client.next_round(timeout_s=WITHIN_S)
        search(client, 10)
        known = client.comparison
        assert known.n_lists > 0
        other = announced(4, 2 * GOOD)
        if wrong == "unsigned":
            federator.key = None
            await say_anchor(federator, other, sequence=6)
            federator.key = KEY
        elif wrong == "another's key":
            await say_anchor(federator, other, sequence=6, key=SigningKey(bytes([9]) * 32))
        elif wrong == "another federation's":
            await say_anchor(federator, other.model_copy(update={"federation": "photos"}), sequence=6)
        elif wrong == "for another topic":
            await federator.link.publish(TOPICS.anchor, encode(other, TOPICS.model, 6, KEY), retain=True)
        else:
            await say_anchor(federator, other, sequence=4)
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
            await client.next_round(timeout_s=WITHIN_S)
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


async def test_a_forgotten_client_knows_nothing(mqtt_broker, path):
    """Neither the anchor nor what its user's clicks said of it is on the disk."""
    async with Federator(mqtt_broker) as federator, device(mqtt_broker, path) as client:
        await begin(federator, client, announced(5, BAD), announced(3, GOOD), n=10_000)
        search(client, ENOUGH)
        assert any(pack_vector(GOOD)[:8] in file.read_bytes() for file in path.parent.glob(f"{path.name}*"))
        notice = ErasureNotice(federation="mail", client_id="device-7", code=ReceiptCode.FORGETTING)
        await federator.say(TOPICS.client("device-7", ClientTopic.INBOX), notice)
        await until(lambda: client.forgotten)
        assert client.comparison == Comparison()
        assert not any(pack_vector(GOOD)[:8] in file.read_bytes() for file in path.parent.glob(f"{path.name}*"))
        await say_anchor(federator, announced(4, GOOD), sequence=1)
        await federator.nothing_on("updates")
        assert client._agent.voter.anchor.key is None  # noqa: SLF001 (an application has no use for it)
    assert is_known(path) == [False, False]


# --- where nobody votes -----------------------------------------------------------------------------------------


async def test_under_a_policy_nobody_votes(mqtt_broker, path):
    """The federator would see it. What was known before the policy came is dropped."""
    signed = policy()
    async with (
        Federator(mqtt_broker, key=KEY) as federator,
        EdgeClient(mqtt_broker, credentials=identity(), store=path, learner=adding_learner, seed=1) as client,
    ):
        await say_anchor(federator, announced(3, GOOD), sequence=1)
        await federator.announce(1, newest=announced(5, BAD), training=training(10_000), sequence=1)
        await client.next_round(timeout_s=WITHIN_S)
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
        (
            FpdgdPaperTraining(learning_rate=0.1, sensitivity=3.0, epsilon=2.0, n_clients=10),
            "fpdgd-paper adds noise",
        ),
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
    (said,) = [one for one in logs if one["event"] == "votes_idle"]
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


# --- other rankers ----------------------------------------------------------------------------------------------


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
        await federator.receipt(await federator.update(), ReceiptCode.ACCEPTED)
        assert await client.wait_settled(WITHIN_S)
        await begin(federator, client, *models, training=sampled(method, {}, 30), number=2)
        trainer = client._agent.trainer  # noqa: SLF001 (an application has no use for it)
        own = [trainer.weights_under(model) for model in models]
        assert np.array_equal(own[0], newest) is (method != "fedper")
        before = client.comparison
        known = compared(search(client, 30, seed=3), *own, ranker, known=before)
        assert client.comparison == known
        assert known.n_lists > before.n_lists > 20.0
        assert (await federator.update()).vote == Vote(anchor_version=3, value=int(known.opinion))
