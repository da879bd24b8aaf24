"""Rankers too large for one message: updates and models in chunks over a real broker, cut off in the middle."""

import asyncio
import contextlib
from collections import Counter
from functools import partial

import numpy as np
import pytest
from support.databases import open_migrated
from support.servers import ProvisionedMosquitto
from support.waiting import PATIENCE_S, until

from foltr.broker.address import BrokerAddress
from foltr.broker.link import MqttLink
from foltr.core.operator.credentials import BrokerAccess, device_identity
from foltr.core.protocol.codec import open_envelope
from foltr.core.protocol.fields import CHUNK_BYTES, unpack_vector
from foltr.core.protocol.receipts import ReceiptCode
from foltr.core.protocol.signing import SigningKey
from foltr.core.protocol.topics import ClientTopic, Topics
from foltr.core.protocol.trainings import PdgdTraining
from foltr.core.protocol.updates import Chunk, Manifest
from foltr.edge_client.client import EdgeClient
from foltr.edge_client.messaging.transfer import WINDOW
from foltr.edge_client.options import Experiment
from foltr.federator.plan import FederationPlan
from foltr.federator.round import RoundPolicy
from foltr.federator.service import FederatorService
from foltr.storage.models import list_models
from foltr.storage.queries import count_rejections, list_contributions, list_rounds

pytestmark = pytest.mark.usefixtures("patient_devices")

FEDERATION = "large"
TOPICS = Topics(FEDERATION)
N_FEATURES = 200_000
N_CHUNKS = -(-4 * N_FEATURES // CHUNK_BYTES)
ONE_EACH = PdgdTraining(min_interactions=1, max_interactions=1)
OPERATOR, FEDERATOR = SigningKey.generate(), SigningKey.generate()
FEATURES = np.ones((2, N_FEATURES), np.float32)


@pytest.fixture
async def database(tmp_path):
    async with await open_migrated(f"sqlite:///{tmp_path / 'foltr.sqlite'}") as opened:
        yield opened


def service(broker, database, *, n_clients=1, n_rounds=1):
    plan = FederationPlan(
        FEDERATION,
        N_FEATURES,
        RoundPolicy(n_clients, n_clients, 0, 3600),
        ONE_EACH,
        stop_after_round=n_rounds,
        enrolment_key=OPERATOR.public,
    )
    address = broker if isinstance(broker, BrokerAddress) else BrokerAddress.parse(broker)
    return FederatorService(plan, database, address, key=FEDERATOR, give_up_after_s=PATIENCE_S)


def identity(broker, i=0):
    access = broker if isinstance(broker, BrokerAccess) else BrokerAccess(broker_url=broker)
    return device_identity(OPERATOR, FEDERATOR.public, FEDERATION, f"device-{i}", i + 1, access)


class Wire:
    """What a device publishes and is sent in chunks, and to which it subscribes; ``then`` is called after two."""

    def __init__(self, then=None):
        self.chunks, self.offers = [], []
        self.models, self.fetched, self.subscribed = [], Counter(), set()
        self._then = then

    def see_published(self, topic, payload):
        if not topic.endswith(f"/{ClientTopic.CHUNKS}"):
            return
        envelope = open_envelope(payload)
        if envelope.kind == Manifest.kind_name:
            self.offers.append(envelope.read(Manifest))
            return
        self.chunks.append(envelope.read(Chunk).index)
        if len(self.chunks) == 2 and self._then is not None:
            self._then()

    def see_received(self, message):
        if not message.topic.startswith(TOPICS.model):
            return
        envelope = open_envelope(message.payload)
        if envelope.kind == Manifest.kind_name:
            self.models.append(envelope.read(Manifest))
        else:
            self.fetched[envelope.read(Chunk).digest] += 1


class WatchedLink(MqttLink):
    """A device's link that tells a `Wire` what it does."""

    def __init__(self, wire, address, *, on_message, **options):
        def take(message):
            wire.see_received(message)
            on_message(message)

        super().__init__(address, on_message=take, **options)
        self._wire = wire

    async def publish(self, topic, payload, **options):
        await super().publish(topic, payload, **options)
        self._wire.see_published(topic, payload)

    async def subscribe(self, topics):
        self._wire.subscribed.update(topics)
        await super().subscribe(topics)

    async def unsubscribe(self, topics):
        await super().unsubscribe(topics)
        self._wire.subscribed.difference_update(topics)


def device(credentials, i=0, wire=None):
    """A device that adds ``2^i`` to the first weight, the same to the last, and one to those in between."""

    def learn(weights, interaction, training):  # noqa: ARG001 (the signature is the learner's)
        delta = np.ones_like(weights)
        delta[[0, -1]] = 2.0**i
        return weights + delta

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("foltr.edge_client.runtime.MqttLink", partial(WatchedLink, wire or Wire()))
        return EdgeClient(credentials, store=":memory:", experiment=Experiment(learner=learn, seed=i))


async def take_part(client):
    """One interaction in every round to the last."""
    newest = 0
    while (round_ := await client.next_round(after=newest, timeout_s=PATIENCE_S)).open:
        newest = round_.round
        client.record_clicks(client.rank(FEATURES), [0])
    assert not (await client.wait_settled(PATIENCE_S)).is_pending


@pytest.fixture
def one_at_a_time(monkeypatch):
    """One chunk, then the question what is missing: so that there is a middle to be cut in."""
    monkeypatch.setattr("foltr.edge_client.messaging.outbox.WINDOW", 1)


async def test_two_devices_and_two_rounds(mqtt_broker, database):
    """Every update and every model arrives whole: exact means, nothing refused, no chunk sent twice."""
    running = service(mqtt_broker, database, n_clients=2, n_rounds=2)
    wires = [Wire(), Wire()]
    clients = [device(identity(mqtt_broker, i), i, wire=wire) for i, wire in enumerate(wires)]
    async with asyncio.TaskGroup() as group, contextlib.AsyncExitStack() as stack:
        group.create_task(running.run())
        for client in clients:
            await stack.enter_async_context(client)
        devices = [group.create_task(take_part(client)) for client in clients]
        await asyncio.gather(*devices)
        await until(lambda: [client.model_version for client in clients] == [2, 2])
        # Nobody stays subscribed to what would come twice.
        await until(lambda: [wire.subscribed for wire in wires] == [set(), set()])
    for client, wire in zip(clients, wires, strict=True):
        assert client.receipts == {ReceiptCode.INCOMPLETE: 4, ReceiptCode.ACCEPTED: 2}
        assert Counter(wire.chunks) == dict.fromkeys(range(N_CHUNKS), 2)
        assert len(wire.offers) == 2 * -(-N_CHUNKS // WINDOW)
    assert [row.state for row in await list_rounds(database, FEDERATION)] == ["completed"] * 2
    assert await count_rejections(database, FEDERATION) == {}
    for model in await list_models(database, FEDERATION):
        weights = unpack_vector(model.weights)
        assert weights[[0, -1]].tolist() == [1.5 * model.version] * 2
        assert set(weights[1:-1].tolist()) == {float(model.version)}


async def test_chunks_pass_the_access_list(tmp_path_factory, database):
    """As `foltr broker config` sets a broker up: its limits take the parts, and a device may read the model's."""
    broker = ProvisionedMosquitto(tmp_path_factory.mktemp("mosquitto"), "mtls", federation=FEDERATION)
    broker.start()
    try:
        (access,) = broker.enrol("device-0")
        client = device(identity(access))
        running = service(BrokerAddress.of(broker.service("federator")), database)
        async with asyncio.TaskGroup() as group, client:
            group.create_task(running.run())
            await take_part(client)
            await until(lambda: client.model_version == 1)
        assert client.receipts[ReceiptCode.ACCEPTED] == 1
    finally:
        broker.stop()


@pytest.mark.usefixtures("one_at_a_time")
async def test_a_connection_cut_in_the_middle_is_taken_up_there(mosquitto_server, database):
    """The broker goes down after two chunks: afterwards only those are sent that were not acknowledged."""
    url = mosquitto_server.url

    def restart():
        mosquitto_server.stop()
        mosquitto_server.start()

    wire = Wire(restart)
    client = device(identity(url), wire=wire)
    async with asyncio.TaskGroup() as group:
        group.create_task(service(url, database).run())
        async with client:
            await take_part(client)
    assert client.receipts[ReceiptCode.ACCEPTED] == 1
    assert sorted(set(wire.chunks)) == list(range(N_CHUNKS))
    # At most the one that was under way when the connection ended is sent twice.
    assert len(wire.chunks) <= N_CHUNKS + 1
    assert len(await list_contributions(database, FEDERATION)) == 1


@pytest.mark.usefixtures("one_at_a_time")
async def test_a_federator_that_is_restarted_in_the_middle_asks_for_all(mosquitto_server, database):
    """The same update comes in chunks again and counts once; the model that the device has is not fetched again."""
    url = mosquitto_server.url
    first = service(url, database)
    wire = Wire(first.stop)
    client = device(identity(url), wire=wire)
    async with client:
        ended = asyncio.create_task(first.run())
        await client.next_round(timeout_s=PATIENCE_S)
        client.record_clicks(client.rank(FEATURES), [0])
        await ended
        n_before = len(wire.chunks)
        assert 2 <= n_before < N_CHUNKS
        second = asyncio.create_task(service(url, database).run())
        assert not (await client.wait_settled(PATIENCE_S)).is_pending
        await second
    assert client.receipts[ReceiptCode.ACCEPTED] == 1
    assert sorted(set(wire.chunks[n_before:])) == list(range(N_CHUNKS))
    assert len({offer.digest for offer in wire.offers}) == 1
    assert len(await list_contributions(database, FEDERATION)) == 1
    assert wire.fetched[wire.models[0].digest] == N_CHUNKS
