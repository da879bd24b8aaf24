"""A device under a policy, over a link that only notes down what it sends; and what helpers and federator see of it."""

import base64
import hashlib

import numpy as np
from support.broker_links import NotedLink
from support.device_options import grouped
from support.federator_by_hand import N_FEATURES, TOPICS, adding_learner, model, round_on
from support.made_updates import made_update
from support.secure_policies import OPERATOR, SEALING, VERIFY_KEY, policy

from foltr.broker.link import InboundMessage
from foltr.core.operator.credentials import BrokerAccess, device_identity
from foltr.core.protocol.announcements import NamedErasure, UnlearningRound
from foltr.core.protocol.codec import encode, open_envelope
from foltr.core.protocol.fields import pack_vector, payload_digest
from foltr.core.protocol.membership import Join
from foltr.core.protocol.policies import SecureRound
from foltr.core.protocol.receipts import MembershipReceipt, ReceiptCode, UpdateReceipt
from foltr.core.protocol.signed_tickets import read_ticket, ticket_mismatch, ticket_name
from foltr.core.protocol.signing import SigningKey
from foltr.core.protocol.topics import ClientTopic
from foltr.core.protocol.trainings import LinearRankerSpec, PdgdTraining
from foltr.core.protocol.updates import MaskedVector, ModelUpdate
from foltr.core.secure.field import read_words, subtract, to_signed
from foltr.core.secure.masks import add_up_masks
from foltr.core.secure.message_proof import answer_message, is_message_proof_valid
from foltr.core.secure.sealing import seal_info
from foltr.edge_client.agent import Agent
from foltr.edge_client.options import DeviceOptions
from foltr.edge_client.store.store import DeviceStore

FEDERATOR = SigningKey(bytes(range(2, 34)))
CLIP_NORM = 2.0
POLICY = policy()
BOUND = POLICY.policy.bound


def on_grid(*numbers, clip_norm=CLIP_NORM):
    """The integers that stand for one for each number: an update that is not clipped, of whole steps."""
    values = np.zeros(N_FEATURES, np.int64)
    for number in numbers:
        values[number] += round(BOUND / clip_norm)
    return values.tolist()


INBOX, UPDATES, UNLEARNING = (
    TOPICS.client("device-7", topic) for topic in (ClientTopic.INBOX, ClientTopic.UPDATES, ClientTopic.UNLEARNING)
)


def identity(signed=None, serial=1, name="device-7", *, secure=False, broker="mqtt://127.0.0.1"):
    """Credentials with a policy, or none; ``secure``: the enrolment in them is pinned."""
    access = BrokerAccess(broker_url=broker)
    credentials = device_identity(OPERATOR, FEDERATOR.public, "mail", name, serial, access, secure=secure)
    text = None if signed is None else base64.b64encode(signed.signed).decode()
    return credentials.model_copy(update={"policy": text})


def learnable(n=16):
    """A step of an unlearning job that a device with kept clicks answers."""
    return UnlearningRound(
        federation="mail",
        job=1,
        step=1,
        open=True,
        ranker=LinearRankerSpec(n_features=n),
        weights=pack_vector([0.0] * n),
        local_interactions=3,
        erasures=[NamedErasure(audit_seq=1, audit_hash=bytes(32))],
        closes_at=1.0,
        training=PdgdTraining(),
    )


class DeviceUnderPolicy:
    """One device under a policy, its store and its federator's voice; it has joined unless told otherwise."""

    def __init__(self, path, signed=None, *, watermark=0, credentials="of the policy", on_event=None, **options):
        self.path = path
        self.signed = policy() if signed is None else signed
        self.watermark = watermark
        self.credentials = identity(self.signed) if credentials == "of the policy" else credentials
        self.options = {"seed": 1, "learner": adding_learner, **options}
        self._on_event = on_event
        self.sequence = 0
        self.start()

    def start(self):
        """Start on the store as it is, and hear what the broker retains."""
        self.link = NotedLink()
        self.store = DeviceStore(self.path, client_id="device-7", federation="mail", max_interactions=100)
        options = DeviceOptions("mail", "device-7", self.credentials, **grouped(**self.options))
        self.agent = Agent(self.link, self.store, options, on_event=self._on_event)
        self.agent.begin_session()
        self.join()

    def restart(self):
        self.store.close()
        self.start()

    def say(self, topic, message, key=FEDERATOR):
        self.sequence += 1
        payload = encode(message, topic, self.sequence, key)
        self.agent.receive(InboundMessage(topic, payload, retained=False))
        return payload

    def hear_policy(self, signed):
        self.agent.receive(InboundMessage(TOPICS.policy, signed.signed, retained=True))

    def join(self, watermark=None):
        self.watermark = self.watermark if watermark is None else watermark
        join = Join(federation="mail", client_id="device-7", sdk_version="1")
        joined = MembershipReceipt(
            federation="mail",
            client_id="device-7",
            code=ReceiptCode.JOINED,
            payload_digest=payload_digest(self.agent.session.sign(join, ClientTopic.JOIN)),
            counted_through=self.watermark,
        )
        self.say(INBOX, joined)

    def lie(self, watermark, *, at_join):
        """Tell a watermark that is not the client's, in the answer to a join or in a receipt about another update."""
        if at_join:
            true, _ = self.watermark, self.join(watermark)
            self.watermark = true
            return
        self._settle("f" * 32, ReceiptCode.ROUND_ABANDONED, watermark)

    def _settle(self, update_id, code, watermark):
        about = {"federation": "mail", "client_id": "device-7", "update_id": update_id}
        self.say(INBOX, UpdateReceipt(**about, code=code, counted_through=watermark))

    def announce(self, number, *, secure=True, newest=None, training=None, clip_norm=CLIP_NORM, opened_at=0.0):
        """Announce a model and a round on it: under the policy, under another (a `SignedPolicy`), or under none."""
        newest = model() if newest is None else newest
        under = self.signed if secure is True else secure
        self.say(TOPICS.model, newest)
        training = training or PdgdTraining(min_interactions=1, max_interactions=10)
        terms = SecureRound(policy_hash=under.hash, clip_norm=clip_norm) if under else None
        times = {"opened_at": opened_at, "closes_at": opened_at + 1.0}
        self.say(TOPICS.round, round_on(number, newest.version, newest.weights, training, secure=terms, **times))

    def see(self, *numbers, value=1.0, n_features=N_FEATURES):
        for number in numbers:
            features = np.zeros((3, n_features), np.float32)
            features[:, number] = value
            self.agent.record_clicks(self.agent.rank(features, k=3), [0])

    async def sent(self):
        """All that it has sent since this was last asked, by topic; one turn is enough for all that is due."""
        await self.agent.turn()
        return [(topic, payload) for topic, payload, _ in self.link.taken()]

    async def update(self):
        """The one update that it has sent, signed by this device."""
        (payload,) = [payload for topic, payload in await self.sent() if topic == UPDATES]
        envelope = open_envelope(payload)
        assert envelope.is_signed_by(self.credentials.key.public, UPDATES)
        return envelope.read(ModelUpdate)

    async def is_silent(self):
        """Nothing is sent but that it is there."""
        return not [topic for topic, _ in await self.sent() if topic in (UPDATES, UNLEARNING)]

    def answer(self, update, code=ReceiptCode.ACCEPTED):
        """Answer an update; what is accepted counts."""
        if code is ReceiptCode.ACCEPTED:
            self.watermark = update.through
        self._settle(update.update_id, code, self.watermark)

    def open(self, update):
        """(n_summed,) the integers behind the masks, as all helpers and the federator together would find them."""
        return opened(update, self.signed, self.credentials.key.public)


def opened(update, signed, public_key):
    """Check a masked update's ticket and proofs as federator and helpers do, and return (n_summed,) its integers."""
    words, ticket = unmasked(update, signed, public_key)
    _check_proof(words, signed.policy, ticket_name(ticket))
    return to_signed(words[: signed.policy.n_summed])


def unmasked(update, signed, public_key):
    """Check a masked update's ticket, take its masks off, and return all words of it, and the ticket."""
    body, rules = update.body, signed.policy
    assert isinstance(body, MaskedVector)
    ticket = read_ticket(body.ticket, public_key, "mail", update.client_id)
    assert ticket_mismatch(ticket, signed, update.round) is None
    assert ticket.update_id == update.update_id
    assert ticket.participation <= update.through
    assert ticket.digest == hashlib.sha256(body.values + body.proof).digest()
    seeds = []
    for helper, seal in zip(rules.helpers, ticket.seals, strict=True):
        info = seal_info(ticket_name(ticket), helper.name)
        seeds.append(SEALING[helper.name].open(seal, info))
    assert len(set(seeds)) == len(seeds), "who has one seed must not have another"
    assert body.dim == rules.n_summed
    n_words = rules.n_summed + len(body.proof) // 8
    return subtract(read_words(body.values + body.proof, n_words), add_up_masks(seeds, n_words)), ticket


def _check_proof(words, rules, name):
    """Check what is behind the sum's numbers as all verifiers together do: proofs that are theirs, or nothing."""
    shape = rules.message_shape
    if shape is None:
        assert words.size == rules.n_summed
        return
    assert is_message_proof_valid(answer_message(words, VERIFY_KEY, name, shape), shape)


def learned_update(body):
    """An update of a device as it was learned, before it is masked."""
    return made_update(body, round=3, base_version=2, after=4, n_interactions=1)
