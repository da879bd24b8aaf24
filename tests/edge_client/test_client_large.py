"""A ranker too large for one message, seen by one device: its model in chunks, its update offered and asked for."""

import asyncio

import numpy as np
import pytest
from structlog.testing import capture_logs
from support.device_under_policy import FEDERATOR, identity
from support.federator_by_hand import TOPICS, Federator, announced, device, enrolled, round_on
from support.waiting import PATIENCE_S, until

from foltr.broker.link import MqttLink
from foltr.core.learning.linear import score
from foltr.core.protocol.chunks import Assembly, chunk_of, manifest_of
from foltr.core.protocol.codec import decode, encode, open_envelope
from foltr.core.protocol.fields import CHUNK_BYTES, MAX_CHUNKED_BYTES, pack_vector, payload_digest
from foltr.core.protocol.receipts import ReceiptCode, UpdateReceipt
from foltr.core.protocol.signing import SigningKey
from foltr.core.protocol.topics import ClientTopic
from foltr.core.protocol.trainings import PdgdTraining
from foltr.core.protocol.updates import Chunk, Manifest, ModelUpdate, Vote
from foltr.edge_client.messaging.transfer import WINDOW
from foltr.edge_client.models import Models

N_FEATURES = 7 * CHUNK_BYTES // 4 - 200  # seven chunks: more than are sent at once
STRANGER = SigningKey.generate()
INBOX = TOPICS.client("device-7", ClientTopic.INBOX)


class LargeModel:
    """A model as a federator announces it, in parts, as the newest one or as the anchor."""

    def __init__(self, version, value=0.0, key=None, *, is_anchor=False):
        self.topic = TOPICS.anchor if is_anchor else TOPICS.model
        self.chunk_topic = TOPICS.anchor_chunk if is_anchor else TOPICS.model_chunk
        self.payload = encode(announced(version, np.full(N_FEATURES, value)), self.topic, version, key)
        self.manifest = manifest_of(self.payload, "mail")
        self.n_chunks = self.manifest.n_chunks

    async def chunks(self, federator, indices=None):
        for index in range(self.n_chunks) if indices is None else indices:
            chunk = chunk_of(self.manifest, self.payload, index)
            await federator.say(self.chunk_topic(index), chunk, retain=True)

    async def announce(self, federator, sequence=0):
        await federator.say(self.topic, self.manifest, retain=True, sequence=sequence)


async def announce_round(federator, number=1, base=0):
    weights, training = pack_vector(np.zeros(N_FEATURES)), PdgdTraining(min_interactions=1, max_interactions=1)
    await federator.say(TOPICS.round, round_on(number, base, weights, training), retain=True)


@pytest.fixture
def heard(monkeypatch):
    """The indices of the model's chunks that a device hears, as they come."""
    indices, take = [], Models.receive_chunk

    def counting(self, chunk):
        indices.append(chunk.index)
        take(self, chunk)

    monkeypatch.setattr(Models, "receive_chunk", counting)
    return indices


@pytest.fixture
def chunk_topics(monkeypatch):
    topics = set()
    subscribe, unsubscribe = MqttLink.subscribe, MqttLink.unsubscribe

    async def subscribing(self, wanted):
        topics.update(wanted)
        await subscribe(self, wanted)

    async def unsubscribing(self, unwanted):
        await unsubscribe(self, unwanted)
        topics.difference_update(unwanted)

    monkeypatch.setattr(MqttLink, "subscribe", subscribing)
    monkeypatch.setattr(MqttLink, "unsubscribe", unsubscribing)
    return topics


def ranks_by(client, value):
    documents = np.random.default_rng(1).random((3, N_FEATURES), np.float32)
    return np.array_equal(client.scores(documents), score(np.full(N_FEATURES, value), documents))


async def test_a_model_comes_in_chunks(mqtt_broker, nowhere, path, heard, chunk_topics):
    """Each once, however it is announced again; and it is there after a restart without a network."""
    async with Federator(mqtt_broker) as federator:
        large = LargeModel(3, value=0.5)
        await large.chunks(federator)
        await large.announce(federator)
        async with device(mqtt_broker, path) as client:
            await until(lambda: client.model_version == 3)
            await until(lambda: not chunk_topics)
            assert sorted(heard) == list(range(large.n_chunks))
            assert ranks_by(client, 0.5)
            await large.chunks(federator)
            await large.announce(federator, sequence=5)
            await federator.nothing_on("updates")
            assert len(heard) == large.n_chunks
        async with device(mqtt_broker, path) as client:
            heard.clear()
            assert client.model_version == 3
            await client.wait_connected()
            await federator.nothing_on("updates")
            assert heard == []
    async with device(nowhere, path) as client:
        assert client.model_version == 3


async def test_a_device_may_end_at_any_moment(mqtt_broker):
    """Also while the broker is answering a subscription: ending it takes no time."""
    async with Federator(mqtt_broker) as federator:
        large = LargeModel(1)
        await large.chunks(federator)
        await large.announce(federator)
        for i in range(12):
            async with asyncio.timeout(PATIENCE_S):
                async with device(mqtt_broker) as client:
                    await client.wait_connected()
                    while client.model_version is None:  # noqa: ASYNC110
                        await asyncio.sleep(0)
                    await asyncio.sleep(i / 5_000)


async def test_a_model_that_stays_incomplete_is_given_up_and_taken_up(
    mqtt_broker, monkeypatch, caplog, heard, chunk_topics
):
    """After a while without a chunk, with a line in the log; the next announcement needs only what was missing."""
    monkeypatch.setattr("foltr.edge_client.messaging.transfer.MODEL_PATIENCE_S", PATIENCE_S)
    async with Federator(mqtt_broker) as federator, device(mqtt_broker) as client:
        large = LargeModel(4)
        await large.chunks(federator, [0, 1, 2, 4])
        await large.announce(federator, sequence=1)
        await until(lambda: sorted(heard) == [0, 1, 2, 4])
        with monkeypatch.context() as a_while_later:
            a_while_later.setattr("foltr.edge_client.messaging.transfer.MODEL_PATIENCE_S", 0.0)
            client.agent.wake.set()
            await until(lambda: "model_incomplete" in caplog.text)
        await until(lambda: not chunk_topics)
        assert f"n_missing={large.n_chunks - 4}" in caplog.text
        await large.chunks(federator, [3, 5, 6])
        await federator.nothing_on("updates")
        assert client.model_version is None
        await large.announce(federator, sequence=2)
        await until(lambda: client.model_version == 4)
        assert sorted(heard) == list(range(large.n_chunks))


@pytest.mark.parametrize("what", ["the manifest", "a chunk", "the model"])
async def test_each_layer_must_be_the_federators(mqtt_broker, what):
    """A device with credentials believes neither a manifest, nor a chunk, nor the model in them from anyone else."""
    credentials = identity()
    async with Federator(mqtt_broker, key=FEDERATOR) as federator, enrolled(mqtt_broker, credentials) as client:
        forged = LargeModel(9, key=STRANGER if what == "the model" else FEDERATOR)
        federator.key = STRANGER if what == "a chunk" else FEDERATOR
        await forged.chunks(federator)
        federator.key = STRANGER if what == "the manifest" else FEDERATOR
        await forged.announce(federator)
        await federator.nothing_on("updates")
        assert client.model_version is None
        federator.key = FEDERATOR
        genuine = LargeModel(1, key=FEDERATOR)
        await genuine.chunks(federator)
        await genuine.announce(federator, sequence=1)
        await until(lambda: client.model_version == 1)


def anchor_of(client):
    return client.agent.voter.anchor


async def test_an_anchor_comes_in_chunks_and_is_kept(mqtt_broker, path, chunk_topics):
    """Each once: after a restart its manifest suffices, though the broker has the chunks no more."""
    async with Federator(mqtt_broker) as federator:
        anchor, newest = LargeModel(3, value=0.5, is_anchor=True), LargeModel(5)
        for large in (anchor, newest):
            await large.chunks(federator)
            await large.announce(federator)
        await announce_round(federator, base=5)
        async with device(mqtt_broker, path) as client:
            await until(lambda: anchor_of(client).current is not None and client.model_version == 5)
            assert anchor_of(client).current.weights == pack_vector(np.full(N_FEATURES, 0.5))
            await until(lambda: not chunk_topics)
        for index in range(anchor.n_chunks):
            await federator.link.publish(TOPICS.anchor_chunk(index), b"", retain=True)
        async with device(mqtt_broker, path) as client:
            await until(lambda: anchor_of(client).current is not None)
            assert not chunk_topics
            client.record_clicks(client.rank(np.random.default_rng(2).random((3, N_FEATURES), np.float32)), [1])
            update = await contributed(federator)
            assert update.vote == Vote(anchor_version=3, value=0)


async def contributed(federator):
    """The update that is offered, once it was asked for and has come in chunks."""
    manifest = decode(await federator.next("chunks"), Manifest)
    await answer(federator, manifest, ReceiptCode.INCOMPLETE, missing=list(range(manifest.n_chunks)))
    assembly = Assembly(manifest)
    while not assembly.complete:
        envelope = open_envelope(await federator.next("chunks"))
        if envelope.kind == "chunk":
            assembly.add(envelope.read(Chunk))
        elif assembly.missing():
            await answer(federator, manifest, ReceiptCode.INCOMPLETE, missing=assembly.missing())
    return open_envelope(assembly.payload(), MAX_CHUNKED_BYTES).read(ModelUpdate)


async def test_while_another_anchor_is_on_its_way_there_is_none(mqtt_broker):
    """The one before is not voted on any more: in a secure sum the vote would count as one on the other."""
    async with Federator(mqtt_broker) as federator, device(mqtt_broker) as client:
        before, after, newest = (LargeModel(3, is_anchor=True), LargeModel(4, is_anchor=True), LargeModel(5))
        for large in (before, newest):
            await large.chunks(federator)
            await large.announce(federator)
        await announce_round(federator, base=5)
        await until(lambda: anchor_of(client).current is not None and client.model_version == 5)
        await after.announce(federator)
        await until(lambda: anchor_of(client).current is None)
        await after.chunks(federator)
        await until(lambda: anchor_of(client).current is not None)
        assert anchor_of(client).current.version == 4


async def test_a_large_anchor_of_anothers_key_is_not_taken(mqtt_broker):
    """Its manifest is the federator's, and what it names is signed by somebody else, or as the newest model."""
    credentials = identity()
    async with Federator(mqtt_broker, key=FEDERATOR) as federator, enrolled(mqtt_broker, credentials) as client:
        for number, key, is_anchor in ((1, STRANGER, True), (2, FEDERATOR, False)):
            forged = LargeModel(3, 0.5 + number, key, is_anchor=is_anchor)
            with capture_logs() as logs:
                for index in range(forged.n_chunks):
                    chunk = chunk_of(forged.manifest, forged.payload, index)
                    await federator.say(TOPICS.anchor_chunk(index), chunk, retain=True, sequence=number)
                await federator.say(TOPICS.anchor, forged.manifest, retain=True, sequence=number)
                await until(lambda seen=logs: any("bad_signature" in one.get("cause", "") for one in seen))
            assert anchor_of(client).key is None


async def contributing(federator, client):
    """Have ``client`` make an update of the large ranker; returns the manifest that it offers."""
    return open_envelope(await offered(federator, client)).read(Manifest)


async def offered(federator, client):
    large = LargeModel(0)
    await large.chunks(federator)
    await large.announce(federator)
    await announce_round(federator)
    await client.next_round(timeout_s=PATIENCE_S)
    client.record_clicks(client.rank(np.ones((1, N_FEATURES), np.float32)), [0])
    return await federator.next("chunks")


async def answer(federator, manifest, code, **more):
    receipt = UpdateReceipt(
        federation="mail", client_id="device-7", update_id=None, payload_digest=manifest.digest[:16], code=code, **more
    )
    await federator.say(INBOX, receipt)


async def parts(federator, n):
    envelopes = [open_envelope(await federator.next("chunks")) for _ in range(n)]
    return [envelope.read(Manifest if envelope.kind == "manifest" else Chunk) for envelope in envelopes]


async def test_what_is_asked_for_is_sent_a_few_at_a_time(mqtt_broker):
    """So many chunks, then the same offer again; together they are the update, whose receipt ends it."""
    async with Federator(mqtt_broker) as federator, device(mqtt_broker) as client:
        manifest = await contributing(federator, client)
        assembly = Assembly(manifest)
        while not assembly.complete:
            missing = assembly.missing()
            # What a receipt asks for may be anything; chunks that are not there are not sent.
            await answer(federator, manifest, ReceiptCode.INCOMPLETE, missing=[*missing, manifest.n_chunks, 999])
            for part in await parts(federator, min(WINDOW, len(missing))):
                assert assembly.add(part)
            if not assembly.complete:
                assert await parts(federator, 1) == [manifest]
        await federator.nothing_on("chunks")
        update = open_envelope(assembly.payload(), MAX_CHUNKED_BYTES).read(ModelUpdate)
        assert update.body.dim == N_FEATURES
        await federator.accept(update, client)
        assert federator.n_heard("updates") == 0


@pytest.mark.parametrize(
    ("code", "named_by"), [(ReceiptCode.TOO_LARGE, "the update"), (ReceiptCode.REVOKED, "the offer")]
)
async def test_a_refused_offer_ends_the_update(mqtt_broker, code, named_by):
    """Named by the update's digest, or by that of the offer where it could not be read; its clicks wait."""
    async with Federator(mqtt_broker) as federator, device(mqtt_broker) as client:
        offer = await offered(federator, client)
        manifest = open_envelope(offer).read(Manifest)
        digest = manifest.digest[:16] if named_by == "the update" else payload_digest(offer)
        receipt = UpdateReceipt(
            federation="mail", client_id="device-7", update_id=None, payload_digest=digest, code=code
        )
        await federator.say(INBOX, receipt)
        assert not (await client.wait_settled(PATIENCE_S)).is_pending
        assert client.n_waiting == 1
