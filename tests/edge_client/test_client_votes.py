"""A device votes: what it finds of the newest model against the anchor goes with its updates, and is not lost."""

import pytest
from structlog.testing import capture_logs
from support.comparing_devices import BAD, ENOUGH, GOOD, LATER, begin, compared, is_known, say_anchor, search, training
from support.device_under_policy import FEDERATOR as KEY
from support.device_under_policy import identity
from support.federator_by_hand import TOPICS, Federator, announced, device, enrolled
from support.waiting import PATIENCE_S, until

from foltr.core.learning.comparison import Comparison
from foltr.core.protocol.codec import encode
from foltr.core.protocol.fields import pack_vector
from foltr.core.protocol.receipts import ErasureNotice, ReceiptCode
from foltr.core.protocol.signing import SigningKey
from foltr.core.protocol.topics import ClientTopic
from foltr.core.protocol.updates import Vote


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


@pytest.mark.parametrize(("newest", "n"), [(BAD, 5), (GOOD, ENOUGH)], ids=["few lists", "the anchor itself"])
async def test_without_an_opinion_that_is_said(mqtt_broker, newest, n):
    """It takes the place of an earlier one; a model is no better than itself, whatever version it has."""
    async with Federator(mqtt_broker) as federator, device(mqtt_broker) as client:
        await begin(federator, client, announced(5, newest), announced(3, GOOD), n=n)
        search(client, n)
        assert (await federator.update()).vote == Vote(anchor_version=3, value=0)
        assert (client.comparison == Comparison()) is (newest is GOOD)


async def test_without_an_anchor_an_update_has_no_vote(mqtt_broker):
    """As with a federator that knows none."""
    async with Federator(mqtt_broker) as federator, device(mqtt_broker) as client:
        await federator.announce(1, newest=announced(5, BAD), training=training(ENOUGH))
        await client.next_round(timeout_s=PATIENCE_S)
        search(client, ENOUGH)
        assert (await federator.update()).vote is None
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
                await client.next_round(timeout_s=PATIENCE_S)
                search(client, ENOUGH, seed=3)
                assert (await federator.update()).vote is None
        assert not [one for one in logs if one["event"] == "message_refused"]
        assert is_known(path) == [False, False]


async def test_what_is_known_outlives_a_restart(mqtt_broker, path):
    """To the bit, and the device goes on with it."""
    async with Federator(mqtt_broker) as federator:
        async with device(mqtt_broker, path) as client:
            await begin(federator, client, announced(5, BAD), announced(3, GOOD), n=ENOUGH)
            first = search(client, ENOUGH - 20)
            before = client.comparison
        async with device(mqtt_broker, path) as client:
            assert client.comparison == before
            await client.next_round(timeout_s=PATIENCE_S)
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
            await client.next_round(timeout_s=PATIENCE_S)
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
            await client.next_round(timeout_s=PATIENCE_S)
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


@pytest.mark.parametrize(
    "wrong", ["unsigned", "another's key", "another federation's", "for another topic", "older than one before"]
)
async def test_only_the_federators_newest_anchor_is_taken(mqtt_broker, wrong):
    """By a device with credentials: no broker and no client makes it compare with another model."""
    credentials = identity()
    async with Federator(mqtt_broker, key=KEY) as federator, enrolled(mqtt_broker, credentials, ":memory:") as client:
        await say_anchor(federator, announced(3, GOOD), sequence=5)
        await federator.announce(1, newest=announced(5, BAD), training=training(10_000), sequence=5)
        await client.next_round(timeout_s=PATIENCE_S)
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
        assert client.agent.voter.anchor.key is None
    assert is_known(path) == [False, False]
