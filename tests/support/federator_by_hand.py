"""A federator played by hand, for tests of devices against a real broker.

The devices' learner adds a document's features to the weights and each interaction has a feature of its own, so that an
update tells which interactions are in it, and how often.
"""

import asyncio
import contextlib

import numpy as np
import pytest
from support.device_options import grouped
from support.waiting import PATIENCE_S, until

from foltr.broker.address import BrokerAddress
from foltr.broker.link import MqttLink
from foltr.core.protocol.announcements import ModelAnnouncement, RoundAnnouncement
from foltr.core.protocol.codec import decode, encode
from foltr.core.protocol.explorations import SamplingExploration
from foltr.core.protocol.fields import model_hash, pack_vector, payload_digest, unpack_vector
from foltr.core.protocol.receipts import MembershipReceipt, ReceiptCode, UpdateReceipt
from foltr.core.protocol.topics import ClientTopic, Topics
from foltr.core.protocol.trainings import LinearRankerSpec, PdgdTraining
from foltr.core.protocol.updates import ModelUpdate
from foltr.edge_client.client import EdgeClient

TOPICS = Topics("mail")
N_FEATURES = 16
# Long enough for a message that should not come to arrive on a loopback.
QUIET_S = 0.15


class Federator:
    """Hears everything, says what it is told to, signed if it has a key, and takes every join and every leave."""

    def __init__(self, url, *, takes_joins=True, takes_leaves=True, key=None):
        self._heard = {topic: asyncio.Queue() for topic in ClientTopic}
        joins, leaves = (ClientTopic.JOIN, ReceiptCode.JOINED), (ClientTopic.LEAVE, ReceiptCode.LEFT)
        self._answers = {
            topic: code for takes, (topic, code) in ((takes_joins, joins), (takes_leaves, leaves)) if takes
        }
        # A test that says something unsigned has no key for a moment, in which a join may be answered.
        self.key = self._first_key = key
        self._tasks = set()
        self._update, self._claims = b"", {}
        self.watermarks = {}
        self.link = MqttLink(
            BrokerAddress.parse(url),
            client_id="federator",
            subscriptions=TOPICS.from_all_clients(),
            on_message=self._hear,
            persistent=False,
        )

    async def __aenter__(self):
        await self.link.__aenter__()
        await self.link.wait_connected(PATIENCE_S)
        return self

    async def __aexit__(self, *_):
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.link.__aexit__()

    def _hear(self, message):
        client_id, topic = TOPICS.parse(message.topic)
        if topic in (ClientTopic.JOIN, ClientTopic.LEAVE):
            self._claims[client_id] = message.payload
        self._heard[topic].put_nowait(message.payload)
        if topic in self._answers:
            task = asyncio.create_task(self._answer(client_id, topic, message.payload))
            self._tasks.add(task)

    async def _answer(self, client_id, topic, claim):
        await self.membership(client_id, self._answers[topic], to=claim, key=self.key or self._first_key)

    async def next(self, topic):
        async with asyncio.timeout(PATIENCE_S):
            return await self._heard[ClientTopic(topic)].get()

    def n_heard(self, topic):
        return self._heard[ClientTopic(topic)].qsize()

    async def update(self):
        self._update = await self.next("updates")
        return decode(self._update, ModelUpdate)

    async def nothing_on(self, topic):
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(QUIET_S):
                await self._heard[ClientTopic(topic)].get()
                pytest.fail(f"something came on {topic}")

    async def say(self, topic, message, *, sequence=0, retain=False, key=None):
        """Publish a message, signed with the federator's key or another."""
        await self.link.publish(topic, encode(message, topic, sequence, key or self.key), retain=retain)

    async def membership(self, client_id, code, *, to=None, key=None, **more):
        """Answer a join or a leave, the one heard last of the client unless told otherwise."""
        more = {"payload_digest": payload_digest(self._claims[client_id] if to is None else to), **more}
        more = {"counted_through": self.watermarks.get(client_id, 0), **more}
        receipt = MembershipReceipt(federation="mail", client_id=client_id, code=code, **more)
        await self.say(TOPICS.client(client_id, ClientTopic.INBOX), receipt, key=key)

    async def receipt(self, update, code, *, named=True, key=None, **more):
        """Answer ``update``; without its name, as the bytes last heard. The watermark moves with what counts."""
        if code in (ReceiptCode.ACCEPTED, ReceiptCode.DUPLICATE):
            self.watermarks[update.client_id] = update.through
        more = {"counted_through": self.watermarks.get(update.client_id, 0), **more}
        receipt = UpdateReceipt(
            federation="mail",
            client_id=update.client_id,
            update_id=update.update_id if named else None,
            payload_digest=None if named else payload_digest(self._update),
            code=code,
            **more,
        )
        await self.say(TOPICS.client(update.client_id, ClientTopic.INBOX), receipt, key=key)

    async def accept(self, update, client):
        await self.receipt(update, ReceiptCode.ACCEPTED)
        assert not (await client.wait_settled(PATIENCE_S)).is_pending

    async def announce(
        self, number, *, base=0, newest=None, training=None, min_interactions=2, max_interactions=10, **said
    ):
        """Announce model ``base``, all zeros, or the ``newest`` given, and round ``number`` on it."""
        newest = newest or model(base)
        training = training or PdgdTraining(
            min_interactions=min_interactions,
            max_interactions=max_interactions,
            exploration=SamplingExploration(),  # every list with a click says something
        )
        signed = {name: said[name] for name in ("sequence", "key") if name in said}
        await self.say(TOPICS.model, newest, retain=True, **signed)
        await self.announce_round(number, newest, training, **said)

    async def forget_model(self):
        await self.link.publish(TOPICS.model, b"", retain=True)

    async def announce_round(self, number, newest, training=None, *, sequence=0, key=None, **said):
        """Announce a round on a model that was announced, or that is still to come."""
        said = {"schema_hash": newest.schema_hash, **said}
        announced = round_on(number, newest.version, newest.weights, training, **said)
        await self.say(TOPICS.round, announced, retain=True, sequence=sequence, key=key)


def round_on(number=1, base=0, weights=None, training=None, *, is_open=True, **more):
    """A round on model ``base``, whose packed weights are zeros unless told otherwise."""
    weights = pack_vector([0.0] * N_FEATURES) if weights is None else weights
    return RoundAnnouncement(
        federation="mail",
        round=number,
        open=is_open,
        base_version=base,
        base_hash=model_hash(weights),
        training=training or PdgdTraining(),
        **{"withdraws_below": 0, "opened_at": 0.0, "closes_at": 1.0, **more},
    )


def announced(version, weights, ranker=None, **more):
    """A model, linear in as many features as it has weights unless told otherwise."""
    ranker = LinearRankerSpec(n_features=len(weights)) if ranker is None else ranker
    return ModelAnnouncement(federation="mail", version=version, ranker=ranker, weights=pack_vector(weights), **more)


def model(version=0, n_features=N_FEATURES, schema_hash=None):
    return announced(version, [0.0] * n_features, schema_hash=schema_hash)


async def retained(url, *topics):
    """What the broker would show a newcomer of these topics, by topic."""
    seen, done = {}, asyncio.Event()

    def hear(message):
        done.set() if message.topic == "end" else seen.update({message.topic: message.payload})

    link = MqttLink(
        BrokerAddress.parse(url),
        client_id="newcomer",
        subscriptions=[*topics, "end"],
        on_message=hear,
        persistent=False,
    )
    async with link, asyncio.timeout(PATIENCE_S):
        await link.wait_connected(PATIENCE_S)
        await link.publish("end", b"")
        await done.wait()
    return seen


def adding_learner(weights, interaction, training):  # noqa: ARG001 (the signature is the learner's)
    return weights + interaction.features[0]


def device(url, store=":memory:", client_id="device-7", **options):
    options = {"learner": adding_learner, "seed": 1, "federation": "mail", **options}
    return EdgeClient(store=store, **grouped(broker=url, client_id=client_id, **options))


def see(client, *numbers):
    """Record one interaction for each number, told apart by the feature that is 1."""
    serps = []
    for number in numbers:
        features = np.zeros((3, N_FEATURES), np.float32)
        features[:, number] = 1.0
        serps.append(client.rank(features))
        client.record_clicks(serps[-1], [0])
    return serps


def enrolled(url, credentials, store=":memory:", **options):
    return EdgeClient(credentials, store=store, **grouped(broker=url, learner=adding_learner, seed=1, **options))


@contextlib.asynccontextmanager
async def in_round(url, store=":memory:", *, announces=None, **options):
    """A federator and a device that knows of its open round, which is of two to ten interactions, say."""
    async with Federator(url) as federator, device(url, store, **options) as client:
        await federator.announce(1, **(announces or {}))
        await client.next_round(timeout_s=PATIENCE_S)
        yield federator, client


async def taken_in(client):
    """Wait until the federation has told the client what counts: before, it makes no update."""
    await until(lambda: client.counted_through is not None)


def content(update):
    """Which interactions an update holds: the number of each, as often as it counts."""
    counts = unpack_vector(update.body.values)
    assert update.n_interactions == counts.sum()
    return [number for number, n in enumerate(counts) for _ in range(round(n))]
