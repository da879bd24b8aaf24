"""Messages to begin with: every kind, valid, signed by whom it should be and for the topic it belongs on."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from support.made_updates import made_update
from support.secure_policies import policy
from support.wire_messages import MESSAGES

from foltr.core.operator.credentials import BrokerAccess, Credentials
from foltr.core.protocol import trainings, updates
from foltr.core.protocol.announcements import ModelAnnouncement, RoundAnnouncement, Selection
from foltr.core.protocol.chunks import chunk_of, manifest_of
from foltr.core.protocol.codec import encode
from foltr.core.protocol.enrolment import issue_enrolment
from foltr.core.protocol.evaluations import Evaluation
from foltr.core.protocol.fields import CHUNK_BYTES, SCHEMA_VERSION, SEAL_BYTES, Message, pack_vector
from foltr.core.protocol.membership import Forget, Join, Leave, Status
from foltr.core.protocol.messages import MESSAGE_TYPES
from foltr.core.protocol.policies import HelperKeys, L2NormProof, SecureRound
from foltr.core.protocol.receipts import ErasureNotice, MembershipReceipt, ReceiptCode
from foltr.core.protocol.signed_tickets import issue_ticket
from foltr.core.protocol.signing import SigningKey, key_to_text, signed_bytes
from foltr.core.protocol.tickets import Ticket
from foltr.core.protocol.topics import ClientTopic, Topics
from foltr.core.secure.accounting import N_CREDITS, N_EVALUATION, N_VOTES
from foltr.core.secure.norm_proof import proof_shape
from foltr.core.secure.vote_proof import PROOFS_A_VOTE

FEDERATION, MEMBER, STRANGER = "mail", "device-7", "device-8"
N_FEATURES, MAX_INTERACTIONS = 16, 100
ROUND, BASE_VERSION = 4, 2
# Fixed keys: a failing input must fail again in another process, its signature included.
OPERATOR, FEDERATOR = SigningKey(bytes([1]) * 32), SigningKey(bytes([2]) * 32)
DEVICES = {MEMBER: SigningKey(bytes([3]) * 32), STRANGER: SigningKey(bytes([4]) * 32)}
TOPICS = Topics(FEDERATION)
HELPER, HELPER_KEY = "north", SigningKey(bytes([5]) * 32)
TOKEN, TOKEN_KEY = "0123456789abcdef", SigningKey(bytes([10]) * 32)
_HELPERS = [
    HelperKeys(name=name, signing_key=key, sealing_key=bytes([i + 7]) * 32, epoch_keys=[bytes([i + 7]) * 32])
    for i, (name, key) in enumerate({HELPER: HELPER_KEY.public, "south": bytes([6]) * 32}.items())
]
_VERIFY_KEYS = L2NormProof(
    federator_key=bytes([8]) * 32, federator_seal=bytes(SEAL_BYTES), helper_seals=[bytes(SEAL_BYTES)] * 2
)
POLICY = policy(N_FEATURES, key=OPERATOR, helpers=_HELPERS, proofs=True, norm_proof=_VERIFY_KEYS)
_N_BESIDE = (N_VOTES, *(n + more for n in (N_EVALUATION, N_VOTES + N_EVALUATION) for more in (0, N_CREDITS)))
PROOF = proof_shape(N_FEATURES, POLICY.policy.bound)
CREDENTIALS = Credentials(
    role="device",
    federation=FEDERATION,
    name=MEMBER,
    broker=BrokerAccess(broker_url="mqtt://127.0.0.1:1"),
    signing_key=DEVICES[MEMBER].to_text(),
    enrolment_key=key_to_text(OPERATOR.public),
    federator_key=key_to_text(FEDERATOR.public),
)
# The federations that are fuzzed: one of each kind of update.
LINEAR, NEURAL = (
    trainings.LinearRankerSpec(n_features=N_FEATURES),
    trainings.NeuralRankerSpec(n_features=N_FEATURES, hidden=2),
)
METHODS = {
    "dense": (trainings.PdgdTraining(max_interactions=MAX_INTERACTIONS), LINEAR),
    "part": (trainings.FedPerTraining(max_interactions=MAX_INTERACTIONS), NEURAL),
    "evolution": (trainings.EvolutionTraining(max_interactions=MAX_INTERACTIONS), LINEAR),
}
_POLICY = pack_vector(np.linspace(0, 1, N_FEATURES))
_OTHER_TRAININGS = (
    trainings.FpdgdPaperTraining(n_clients=10),
    trainings.FedProxTraining(),
    trainings.PersonalTraining(),
    trainings.EvolutionTraining(antithetic=False),
    trainings.FedIpsTraining(propensities="estimated"),
    trainings.FedIpsTraining(logging_policy=_POLICY),
    trainings.FedAvgTraining(logging_policy=_POLICY),
)
# Above what the fuzzed federator has seen, so that a message is not refused for its age alone.
SEQUENCE = 1_000


@dataclass(frozen=True)
class Sample:
    """A message taken apart: the fields of its envelope and of its body, and how it is signed."""

    topic: str
    fields: dict[str, Any]
    envelope: dict[str, Any] = field(default_factory=dict)
    key: SigningKey | None = None

    @classmethod
    def of(cls, message: Message, topic: str, key: SigningKey | None) -> "Sample":
        envelope = {"v": SCHEMA_VERSION, "kind": message.kind_name, "sequence": SEQUENCE}
        return cls(topic, message.model_dump(), envelope, key)

    @cached_property
    def payload(self) -> bytes:
        return encode(MESSAGE_TYPES[self.envelope["kind"]].model_validate(self.fields), self.topic, SEQUENCE, self.key)

    def signature(self, envelope: dict[str, Any], body: bytes) -> bytes:
        """Of another body, by the same sender: even who has a key may send anything."""
        kind, sequence = envelope.get("kind"), envelope.get("sequence")
        if self.key is None or not isinstance(kind, str) or type(sequence) is not int or not 0 <= sequence < 2**63:
            return b""
        return self.key.sign(signed_bytes(self.topic, kind.encode(errors="replace").decode(), sequence, body))


def messages() -> Iterator[Sample]:
    """One or more of every kind."""
    for name, key in DEVICES.items():
        for message, topic in _from_device(name):
            signed = Sample.of(message, topic, key)
            yield signed
            yield replace(signed, key=None)
    yield from (Sample.of(message, topic, FEDERATOR) for message, topic in _from_federator())
    own = tuple(TOPICS.client(MEMBER, topic) for topic in ClientTopic if topic is not ClientTopic.INBOX)
    yield from (Sample.of(message, topic, _signer_of(topic)) for message, topic in MESSAGES if topic not in own)


def _signer_of(topic: str) -> SigningKey:
    """Whose word counts on a topic."""
    if topic == TOPICS.helper_answers(HELPER):
        return HELPER_KEY
    if topic == TOPICS.ticket(MEMBER):
        return DEVICES[MEMBER]
    if topic == TOPICS.enrolment_request(TOKEN):
        return TOKEN_KEY
    of_operator = (TOPICS.roster, TOPICS.federator_key, TOPICS.operator_key, TOPICS.kept_enrolments, TOPICS.authorities)
    of_operator += (TOPICS.operator, TOPICS.policy, TOPICS.schema, TOPICS.enrolment(MEMBER), TOPICS.desk_head)
    return OPERATOR if topic in (*of_operator, TOPICS.enrolment_answer(TOKEN)) else FEDERATOR


def enrolment_of(name: str) -> bytes:
    return issue_enrolment(OPERATOR, FEDERATION, name, DEVICES[name].public, 3, 1e9)


def _from_device(name: str) -> Iterator[tuple[Message, str]]:
    who = {"federation": FEDERATION, "client_id": name}
    values = pack_vector(np.linspace(-1, 1, N_FEATURES))
    fields = {"update_id": "0123456789abcdef" * 2, "round": ROUND, "base_version": BASE_VERSION, "through": 100_000}
    update = made_update(updates.DenseDelta(dim=N_FEATURES, values=values), **who, **fields)
    yield (
        update.model_copy(update={"vote": updates.Vote(anchor_version=1, value=-1)}),
        TOPICS.client(name, ClientTopic.UPDATES),
    )
    evaluated = {"evaluation": Evaluation(clicked=0.6, reward=0.4, base_reward=0.3)}
    yield update.model_copy(update=evaluated), TOPICS.client(name, ClientTopic.UPDATES)
    # Messages of this protocol, but no updates of this federation.
    for wrong in (np.full(N_FEATURES, np.nan), np.full(N_FEATURES, 2e6), np.zeros(N_FEATURES + 1)):
        body = updates.DenseDelta(dim=len(wrong), values=pack_vector(wrong))
        yield update.model_copy(update={"body": body}), TOPICS.client(name, ClientTopic.UPDATES)
    greedy = update.model_copy(update={"n_interactions": MAX_INTERACTIONS + 1})
    yield greedy, TOPICS.client(name, ClientTopic.UPDATES)
    # Those of other methods; good, and not.
    base = pack_vector(np.linspace(-1, 1, NEURAL.n_base_weights))
    for other in (
        updates.PartDelta(dim=NEURAL.n_weights, start=0, values=base),
        updates.PartDelta(dim=NEURAL.n_weights, start=1, values=base),
        updates.PartDelta(dim=NEURAL.n_weights, start=0, values=pack_vector(np.full(NEURAL.n_base_weights, np.inf))),
        updates.EvolutionPair(seed=2**63 - 1, plus=0.5, minus=0.25),
        updates.EvolutionPair(seed=0, plus=1.0),
        updates.MaskedVector(dim=N_FEATURES, values=b"\xff" * 8 * N_FEATURES, ticket=b"none"),
        _masked(name, 0),
        _masked(name, PROOF.n_proof),
        _masked(name, PROOF.n_proof).model_copy(update={"proof": b"\xff" * 8 * PROOF.n_proof}),
        *(_masked(name, PROOF.n_proof + PROOFS_A_VOTE * n, n_votes=n) for n in _N_BESIDE),
        _masked(name, PROOF.n_proof, n_votes=1),
    ):
        yield update.model_copy(update={"body": other}), TOPICS.client(name, ClientTopic.UPDATES)
    for n_words in (0, PROOF.n_proof - 1, PROOF.n_proof):
        counted = {"through": 1, "n_interactions": 1, "body": _masked(name, n_words)}
        yield update.model_copy(update=counted), TOPICS.client(name, ClientTopic.UPDATES)
    chunks = TOPICS.client(name, ClientTopic.CHUNKS)
    whole = encode(update, TOPICS.client(name, ClientTopic.UPDATES), SEQUENCE, DEVICES[name])
    offer = manifest_of(whole, FEDERATION, name)
    yield offer, chunks
    yield chunk_of(offer, whole, 0), chunks
    yield Join(**who, sdk_version="0.1.0", enrolment=enrolment_of(name)), TOPICS.client(name, ClientTopic.JOIN)
    yield Join(**who, sdk_version="0.1.0"), TOPICS.client(name, ClientTopic.JOIN)
    yield Leave(**who), TOPICS.client(name, ClientTopic.LEAVE)
    for online in (True, False):
        yield Status(**who, online=online), TOPICS.client(name, ClientTopic.STATUS)
    yield update, TOPICS.client(name, ClientTopic.UPDATES)
    yield _ticket(name), TOPICS.ticket(name)
    yield Forget(**who), TOPICS.client(name, ClientTopic.FORGET)
    learned = updates.UnlearningUpdate(
        **who, job=1, step=2, n_interactions=3, body=updates.DenseDelta(dim=N_FEATURES, values=values)
    )
    yield learned, TOPICS.client(name, ClientTopic.UNLEARNING)
    yield updates.Manifest(**who, digest=bytes(32), size=3 * CHUNK_BYTES - 5, n_chunks=3), chunks
    yield updates.Chunk(**who, digest=bytes(32), index=2, data=b"part of an update"), chunks


def _from_federator() -> Iterator[tuple[Message, str]]:
    inbox = TOPICS.client(MEMBER, ClientTopic.INBOX)
    model = ModelAnnouncement(
        federation=FEDERATION, version=2, ranker=LINEAR, weights=pack_vector(np.zeros(LINEAR.n_weights))
    )
    yield model, TOPICS.model
    neural = {"ranker": NEURAL, "n_auxiliary": 1, "weights": pack_vector(np.ones(NEURAL.n_weights + 1))}
    yield model.model_copy(update=neural), TOPICS.model
    whole = encode(model, TOPICS.model, SEQUENCE, FEDERATOR)
    yield manifest_of(whole, FEDERATION), TOPICS.model
    yield chunk_of(manifest_of(whole, FEDERATION), whole, 0), TOPICS.model_chunk(0)
    yield model, TOPICS.anchor
    yield manifest_of(encode(model, TOPICS.anchor, SEQUENCE, FEDERATOR), FEDERATION), TOPICS.anchor
    for selection in (None, Selection(first_seed=bytes(32), cutoff=bytes(8), n_selected=3, n_eligible=9)):
        announced = RoundAnnouncement(
            federation=FEDERATION,
            round=ROUND,
            open=True,
            base_version=BASE_VERSION,
            base_hash=bytes(16),
            withdraws_below=0,
            opened_at=1e9,
            closes_at=1e9 + 600,
            training=trainings.PdgdTraining(),
            selection=selection,
        )
        yield announced, TOPICS.round
    secure = SecureRound(policy_hash=POLICY.hash, clip_norm=0.3)
    yield announced.model_copy(update={"secure": secure}), TOPICS.round
    for training in (*(training for training, _ in METHODS.values()), *_OTHER_TRAININGS):
        yield announced.model_copy(update={"training": training}), TOPICS.round
    who = {"federation": FEDERATION, "client_id": MEMBER}
    replayed = {"code": ReceiptCode.REPLAYED, "newest_sequence": 2**40, "detail": "old"}
    yield MembershipReceipt(**who, **replayed), inbox
    yield ErasureNotice(**who, code=ReceiptCode.FORGETTING), inbox


def _masked(name: str, n_words: int, n_votes: int = 0) -> updates.MaskedVector:
    """A vector, what is beside it, and so many numbers that prove them, under a ticket that is for all of it."""
    values, proof = bytes(range(8 * (N_FEATURES + n_votes))), bytes(range(7)) * 8 * n_words
    proof = proof[: 8 * n_words]
    ticket = _ticket(name).model_copy(update={"digest": hashlib.sha256(values + proof).digest()})
    ticket = issue_ticket(DEVICES[name], ticket)
    return updates.MaskedVector(dim=N_FEATURES + n_votes, values=values, ticket=ticket, proof=proof)


def _ticket(name: str) -> Ticket:
    return Ticket(
        federation=FEDERATION,
        client_id=name,
        round=ROUND,
        cohort=0,
        policy_hash=POLICY.hash,
        update_id="0123456789abcdef" * 2,
        participation=1,
        digest=bytes(32),
        seals=[bytes(SEAL_BYTES)] * 2,
    )
