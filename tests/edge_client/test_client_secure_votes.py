"""A device under a policy with votes, against a real broker: it compares as ever, and votes behind its masks."""

import pytest
from support.comparing_devices import BAD, ENOUGH, GOOD, begin, is_known, search, training
from support.device_options import grouped
from support.device_under_policy import CLIP_NORM, FEDERATOR, identity, opened
from support.federator_by_hand import N_FEATURES, TOPICS, Federator, adding_learner, announced
from support.secure_policies import policy
from support.waiting import PATIENCE_S, until

from foltr.core.learning.comparison import Comparison
from foltr.core.protocol.policies import SecureRound
from foltr.edge_client.client import EdgeClient

WEIGHT = 64
VOTING = policy(proofs=True, vote_weight=WEIGHT, n_interactions=ENOUGH)
SECURE = SecureRound(policy_hash=VOTING.hash, clip_norm=CLIP_NORM)


def device(url, path, credentials, **options):
    return EdgeClient(credentials, store=path, **grouped(broker=url, learner=adding_learner, seed=1, **options))


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
        Federator(mqtt_broker, key=FEDERATOR) as federator,
        device(mqtt_broker, path, credentials, **options) as client,
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
    async with Federator(mqtt_broker, key=FEDERATOR) as federator, device(mqtt_broker, path, credentials) as client:
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
    async with Federator(mqtt_broker, key=FEDERATOR) as federator, device(mqtt_broker, path, credentials) as client:
        await begin(federator, client, announced(5, BAD), announced(3, GOOD), secure=SECURE)
        search(client, 10)
        assert client.comparison.n_lists > 0
        await federator.link.publish(TOPICS.policy, policy(proofs=True, after=VOTING).signed, retain=True)
        await until(lambda: client.comparison == Comparison())
    assert is_known(path) == [False, False]
