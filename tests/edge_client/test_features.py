"""A device whose features are not the federation's: it keeps its clicks, ranks in the order given and says so."""

import contextlib
from types import SimpleNamespace

import numpy as np
import pytest
from structlog.testing import capture_logs
from support.broker_links import NotedLink
from support.device_options import grouped
from support.device_under_policy import learnable
from support.federator_by_hand import N_FEATURES, TOPICS, adding_learner, content, model, round_on

from foltr.broker.link import InboundMessage
from foltr.core.operator.credentials import BrokerAccess, Credentials
from foltr.core.protocol.codec import decode, encode
from foltr.core.protocol.explorations import SamplingExploration
from foltr.core.protocol.fields import pack_vector, payload_digest
from foltr.core.protocol.policies import SecureRound
from foltr.core.protocol.receipts import MembershipReceipt, ReceiptCode
from foltr.core.protocol.schemas import Feature, FeatureSchema
from foltr.core.protocol.signed_documents import issue_schema
from foltr.core.protocol.signing import SigningKey, key_to_text
from foltr.core.protocol.topics import ClientTopic
from foltr.core.protocol.trainings import PdgdTraining
from foltr.core.protocol.updates import ModelUpdate
from foltr.edge_client.agent import Agent
from foltr.edge_client.events import ModelInUse
from foltr.edge_client.features import Features
from foltr.edge_client.options import DeviceOptions
from foltr.edge_client.participation import Objection, objection_to
from foltr.edge_client.store.store import DeviceStore
from foltr.edge_client.trust import Trust

INBOX, JOIN, UPDATES = (
    TOPICS.client("device-7", topic) for topic in (ClientTopic.INBOX, ClientTopic.JOIN, ClientTopic.UPDATES)
)
OURS = FeatureSchema(
    name="shop", version=1, features=[Feature(name=f"f{i}", scaling="ratio") for i in range(N_FEATURES)]
)
THEIRS = OURS.model_copy(update={"version": 2, "features": [*OURS.features[1:], OURS.features[0]]})
WIDER = OURS.model_copy(update={"features": [*OURS.features, Feature(name="new", scaling="ratio")]})


def hash_of(schema):
    return None if schema is None else schema.hash


class Device:
    """An agent whose store outlives it; ``with`` is one start of the application."""

    def __init__(self, path):
        self._path = path
        self.link = NotedLink()
        self.agent = None

    @contextlib.contextmanager
    def started(self, schema, on_event=None, **options):
        fields = {"client_id": "device-7", "federation": "mail", "max_interactions": 100}
        with contextlib.closing(DeviceStore(self._path, **fields)) as store:
            options = {"seed": 1, "learner": adding_learner, **options}
            chosen = DeviceOptions("mail", "device-7", schema=schema, **grouped(**options))
            self.agent = Agent(self.link, store, chosen, on_event=on_event)
            yield self

    def hear(self, topic, message):
        self.agent.receive(InboundMessage(topic, encode(message, topic), retained=False))

    def hear_of(self, schema, number=1, n_features=N_FEATURES):
        announced = model(number - 1, n_features).model_copy(update={"schema_hash": hash_of(schema)})
        self.hear(TOPICS.model, announced)
        self.hear(TOPICS.round, round_of(schema, number, announced.weights))

    async def updates(self):
        """Join if that is asked for, and return what is sent then."""
        await self.agent.turn()
        sent = self.link.taken()
        for topic, payload, _ in sent:
            if topic == JOIN:
                fields = {"federation": "mail", "client_id": "device-7", "counted_through": 0}
                self.hear(
                    INBOX, MembershipReceipt(**fields, code=ReceiptCode.JOINED, payload_digest=payload_digest(payload))
                )
        await self.agent.turn()
        return [decode(payload, ModelUpdate) for topic, payload, _ in sent + self.link.taken() if topic == UPDATES]

    def see(self, *numbers):
        """Click on the last one of three lists, told apart by the feature that is 1; return what was shown."""
        shown = []
        for number in numbers:
            features = np.zeros(
                (3, self.agent.features.schema.n_features if self.agent.features.schema else N_FEATURES)
            )
            features[:, number] = 1.0
            serp = self.agent.rank(features, 3)
            self.agent.record_clicks(serp, [2])
            shown.append(serp.ranking.tolist())
        return shown


def round_of(schema, number=1, weights=None, **fields):
    weights = pack_vector([0.0] * N_FEATURES) if weights is None else weights
    training = PdgdTraining(min_interactions=2, max_interactions=50)
    return round_on(number, number - 1, weights, training, schema_hash=hash_of(schema), **fields)


@pytest.fixture
def device(path):
    return Device(path)


@pytest.mark.parametrize(
    ("own", "announced", "n_features"),
    [
        (OURS, THEIRS, N_FEATURES),
        (OURS, WIDER, N_FEATURES + 1),
        (WIDER, OURS, N_FEATURES),
        (OURS, None, N_FEATURES),
        (None, OURS, N_FEATURES),
    ],
)
async def test_a_device_with_other_features_keeps_its_clicks_and_says_so(device, own, announced, n_features):
    """The order given is shown, nothing is sent, nothing raises, and the log has it once."""
    with device.started(own), capture_logs() as logs:
        device.hear_of(announced, n_features=n_features)
        assert device.see(*range(10)) == [[0, 1, 2]] * 10
        device.hear_of(announced, 2, n_features)
        assert await device.updates() == []
        assert device.agent.store.n_waiting() == 10
        assert device.agent.schema_difference is not None
        assert device.agent.weights is None
        assert device.agent.scores(np.zeros((2, n_features if own is None else own.n_features))).tolist() == [0, 0]
        said = [line for line in logs if line["log_level"] == "warning"]
        assert [(line["event"], line["cause"]) for line in said] == [("round_declined", Objection.OTHER_SCHEMA)]
        assert said[0]["difference"] == device.agent.schema_difference


async def test_the_order_is_the_applications_unless_it_asks_to_explore(device):
    """By its own scores; what the federation would explore by is not followed, what the application says is."""
    with device.started(OURS):
        device.hear_of(THEIRS)
        rank, features = device.agent.rank, np.zeros((4, N_FEATURES))
        for _ in range(20):
            serp = rank(features, 3, base=[0.1, 3.0, 2.0, -1.0])
            assert (serp.ranking.tolist(), serp.source, serp.model_version) == ([1, 2, 0], "base", None)
        assert (
            len({tuple(rank(features, 4, exploration=SamplingExploration()).ranking.tolist()) for _ in range(20)}) > 1
        )


async def test_once_the_schemas_agree_the_clicks_are_learned(device):
    """Those that waited go into the first update, which is sent even if others are declared later."""
    told = []
    with device.started(OURS, on_event=told.append):
        device.hear_of(THEIRS)
        device.see(1, 2, 3)
        assert told == []
        device.hear_of(OURS, 2)
        (update,) = await device.updates()
        assert ModelInUse(1) in told
        assert content(update) == [1, 2, 3]
        assert device.agent.schema_difference is None
        assert device.agent.trainer.working_model.base_version == 1
    with device.started(THEIRS):
        assert await device.updates() == [update]


async def test_clicks_under_another_schema_are_never_learned(device):
    """They keep their own through restarts, wait for a federation of theirs, and go with what is counted above them."""
    with device.started(OURS):
        device.see(1, 2)
    with device.started(THEIRS):
        device.hear_of(THEIRS)
        assert device.agent.store.n_waiting() == 0
        device.see(3)
        assert await device.updates() == []
    with device.started(OURS):
        assert device.agent.store.n_waiting() == 2
    with device.started(THEIRS):
        device.hear_of(THEIRS)
        device.see(4)
        (update,) = await device.updates()
        assert content(update) == [3, 4]
        assert (update.after, update.through) == (0, 4)
    with device.started(OURS):
        assert device.agent.store.n_waiting() == 0


async def test_a_step_of_unlearning_other_features_is_not_answered(device):
    """What is kept says nothing of them."""
    with device.started(OURS):
        device.hear_of(OURS)
        device.see(1, 2, 3)
        await device.updates()
        device.agent.store.settle(3)
        for schema, answered in ((THEIRS, False), (OURS, True)):
            device.hear(TOPICS.unlearning_round, learnable().model_copy(update={"schema_hash": schema.hash}))
            assert (device.agent.relearning.due is not None) is answered


POLICY_ROUND = SecureRound(policy_hash=bytes(32), clip_norm=1.0)


def test_a_policy_comes_first_and_then_the_features():
    """A round may be objected to for both; what would be seen matters more."""
    round_ = round_of(THEIRS)
    assert objection_to(round_, None, THEIRS.hash) is None
    assert objection_to(round_, None, OURS.hash) is Objection.OTHER_SCHEMA
    assert objection_to(round_, None, None) is Objection.OTHER_SCHEMA
    secure, policy = round_of(THEIRS, secure=POLICY_ROUND), SimpleNamespace(hash=bytes(32))
    assert objection_to(secure, None, OURS.hash) is Objection.NO_POLICY
    assert objection_to(secure, SimpleNamespace(hash=b"1" * 32), OURS.hash) is Objection.OTHER_POLICY
    assert objection_to(secure, policy, OURS.hash) is Objection.OTHER_SCHEMA
    assert objection_to(secure, policy, THEIRS.hash) is None


OPERATOR = SigningKey.generate()
CREDENTIALS = Credentials(
    role="device",
    federation="mail",
    name="device-7",
    broker=BrokerAccess(broker_url="mqtt://127.0.0.1:1"),
    signing_key=SigningKey.generate().to_text(),
    enrolment_key=key_to_text(OPERATOR.public),
    federator_key=key_to_text(SigningKey.generate().public),
)
TRUST = Trust(CREDENTIALS, DeviceStore(":memory:", client_id=None, federation=None, max_interactions=1))


def schema_of(*features, name="shop", version=1):
    return FeatureSchema(name=name, version=version, features=list(features))


PRICE, AGE = Feature(name="price", scaling="ratio"), Feature(name="age", scaling="per_query")


@pytest.mark.parametrize(
    ("own", "published", "words"),
    [
        (schema_of(PRICE), schema_of(PRICE, AGE, version=2), "1 features here and 2 there"),
        (schema_of(PRICE, AGE), schema_of(AGE, PRICE, version=2), "column 0 is 'price' here and 'age' there"),
        (
            schema_of(PRICE),
            schema_of(Feature(name="price", scaling="log", high=9), version=2),
            "'price' is scaled differently",
        ),
        (schema_of(PRICE), schema_of(PRICE, version=2), "the same features under another name or version"),
        (None, schema_of(PRICE), "this application has no schema, and the federation shop 1"),
    ],
)
def test_what_the_operator_has_signed_says_what_differs(own, published, words):
    """Without it there are hashes to compare."""
    features = Features(own, TRUST)
    assert published.hash.hex()[:16] in features.difference(published.hash)
    features.receive_published(issue_schema(OPERATOR, published, "mail").signed)
    assert words in features.difference(published.hash)
    assert features.difference(hash_of(own)) is None


def test_only_the_operator_is_believed():
    """Nobody without credentials; not another key, another federation's, an older version, nor anything else."""
    own, published = schema_of(PRICE), schema_of(PRICE, AGE, version=2)
    signed = issue_schema(OPERATOR, published, "mail").signed
    for trust, payload in (
        (None, signed),
        (TRUST, issue_schema(SigningKey.generate(), published, "mail").signed),
        (TRUST, issue_schema(OPERATOR, published, "web").signed),
        (TRUST, b"schema"),
        (TRUST, b""),
    ):
        features = Features(own, trust)
        features.receive_published(payload)
        assert "the one with hash" in features.difference(published.hash)
    features = Features(own, TRUST)
    features.receive_published(issue_schema(OPERATOR, schema_of(AGE, version=3), "mail").signed)
    features.receive_published(signed)
    assert "the one with hash" in features.difference(published.hash)
    assert "the federation none" in features.difference(None)
