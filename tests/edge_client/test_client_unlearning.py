"""A device in unlearning rounds over a real broker: it answers each of them, and its own rounds go on."""

from support.device_under_policy import FEDERATOR, identity, learnable
from support.federator_by_hand import TOPICS, Federator, content, device, enrolled, see

from foltr.core.protocol.codec import decode, open_envelope
from foltr.core.protocol.signing import SigningKey
from foltr.core.protocol.topics import ClientTopic
from foltr.core.protocol.updates import UnlearningUpdate

STRANGER = SigningKey.generate()
UNLEARNING = TOPICS.client("device-7", ClientTopic.UNLEARNING)


async def announce(federator, *, job=1, step=0, is_open=True, local_interactions=3, federation="mail", **more):
    """Announce a step of a job; its model is all zeros."""
    said = {"federation": federation, "job": job, "step": step, "open": is_open}
    said["local_interactions"] = local_interactions
    await federator.say(TOPICS.unlearning_round, learnable().model_copy(update=said), retain=True, **more)


async def answer(federator):
    return decode(await federator.next("unlearning"), UnlearningUpdate)


async def contribute(federator, client, number, *interactions):
    """A round whose update counts."""
    await federator.announce(number, base=number - 1, min_interactions=len(interactions))
    await client.next_round(after=number - 1)
    see(client, *interactions)
    await federator.accept(await federator.update(), client)


async def test_a_step_is_answered_while_rounds_go_on(mqtt_broker):
    """From what has counted, not from what waits; the update of the open round is what it would have been."""
    async with Federator(mqtt_broker) as federator, device(mqtt_broker) as client:
        await contribute(federator, client, 1, 1, 2, 3)
        await federator.announce(2, base=1)
        await client.next_round(after=1)
        see(client, 8)
        await announce(federator, local_interactions=5)
        answered = await answer(federator)
        assert (answered.job, answered.step) == (1, 0)
        assert content(answered) == [1, 2, 3]
        see(client, 9)
        assert content(await federator.update()) == [8, 9]


async def test_a_device_that_left_answers_nothing(mqtt_broker):
    """It is not of the federation any more."""
    async with Federator(mqtt_broker) as federator, device(mqtt_broker) as client:
        await contribute(federator, client, 1, 1, 2, 3)
        await client.leave()
        await announce(federator)
        await federator.nothing_on("unlearning")


async def test_only_its_own_federator_is_answered_and_signed(mqtt_broker):
    """Not a forgery, nor another federation's step, nor one older than was seen; the answer is signed."""
    credentials = identity()
    async with Federator(mqtt_broker, key=FEDERATOR) as federator, enrolled(mqtt_broker, credentials) as client:
        await contribute(federator, client, 1, 1, 2, 3)
        await announce(federator, key=STRANGER)
        await announce(federator, federation="photos")
        await federator.nothing_on("unlearning")
        await announce(federator, step=5, sequence=50)
        envelope = open_envelope(await federator.next("unlearning"))
        assert envelope.is_signed_by(credentials.key.public, UNLEARNING)
        assert envelope.read(UnlearningUpdate).step == 5
        await announce(federator, step=4, sequence=40)
        await federator.nothing_on("unlearning")
