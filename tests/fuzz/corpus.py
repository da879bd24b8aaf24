"""Messages to begin with: every kind, valid, signed by whom it should be and for the topic it belongs on."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from support.secure_policies import policy

from foltr.core.operator.credentials import BrokerAccess, Credentials
from foltr.core.protocol.announcements import (
    ModelAnnouncement,
    NamedErasure,
    RoundAnnouncement,
    Selection,
    UnlearningProgress,
    UnlearningRound,
)
from foltr.core.protocol.audit_heads import AuditHead
from foltr.core.protocol.chunks import chunk_of, manifest_of
from foltr.core.protocol.codec import encode
from foltr.core.protocol.enrolment import issue_enrolment
from foltr.core.protocol.enrolment_requests import DeskHead, EnrolmentAnswer, EnrolmentCode, EnrolmentRequest
from foltr.core.protocol.evaluations import Evaluation, EvaluationRequest
from foltr.core.protocol.fields import CHUNK_BYTES, SCHEMA_VERSION, Message, pack_vector
from foltr.core.protocol.heartbeat import FederatorStatus
from foltr.core.protocol.helper_messages import (
    CheckAnswer,
    CheckRequest,
    HelperRefusal,
    HelperRefusalCode,
    OpenAnswer,
    OpenRequest,
    RefusedTicket,
    SetCommitment,
    TicketFault,
)
from foltr.core.protocol.membership import Enrolment, Forget, Join, Leave, Status
from foltr.core.protocol.messages import MESSAGE_TYPES
from foltr.core.protocol.orders import (
    AllowReset,
    AskNewest,
    DismissProposals,
    ForgetClient,
    ForgetTombstone,
    LiftQuarantine,
    OrderAnswer,
    OrderReply,
    QuarantineClient,
    RevokeClient,
    RotateEnrolmentKey,
    RotateKey,
    SetDeadline,
    VoidOrder,
)
from foltr.core.protocol.paces import Pace
from foltr.core.protocol.policies import HelperKeys, L2NormProof, SecureRound
from foltr.core.protocol.receipts import ErasureNotice, MembershipReceipt, ReceiptCode, UpdateReceipt
from foltr.core.protocol.roster import (
    Authorities,
    FederatorKey,
    KeptEnrolments,
    Revocation,
    Roster,
    Succession,
    SuccessionLink,
)
from foltr.core.protocol.schemas import Feature, FeatureSchema
from foltr.core.protocol.signed_tickets import issue_ticket
from foltr.core.protocol.signing import SigningKey, key_to_text, signed_bytes
from foltr.core.protocol.tickets import Ticket
from foltr.core.protocol.topics import ClientTopic, Topics
from foltr.core.protocol.trainings import (
    EvolutionTraining,
    FedAvgTraining,
    FedIpsTraining,
    FedPerTraining,
    FedProxTraining,
    FpdgdPaperTraining,
    LinearRankerSpec,
    NeuralRankerSpec,
    PdgdTraining,
    PersonalTraining,
)
from foltr.core.protocol.updates import (
    Chunk,
    DenseDelta,
    EvolutionPair,
    Manifest,
    MaskedVector,
    ModelUpdate,
    PartDelta,
    UnlearningUpdate,
    Vote,
)
from foltr.core.secure.accounting import N_EVALUATION, N_VOTES
from foltr.core.secure.norm_proof import proof_shape
from foltr.core.secure.sealing import SEAL_BYTES
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
VOTING = policy(N_FEATURES, key=OPERATOR, helpers=_HELPERS, proofs=True, norm_proof=_VERIFY_KEYS, vote_weight=64)
EVALUATING = policy(
    N_FEATURES,
    key=OPERATOR,
    helpers=_HELPERS,
    proofs=True,
    norm_proof=_VERIFY_KEYS,
    vote_weight=64,
    evaluation_weight=32,
)
_N_BESIDE = (N_VOTES, N_EVALUATION, N_VOTES + N_EVALUATION)
PROOF = proof_shape(N_FEATURES, POLICY.policy.bound)
SCHEMA = FeatureSchema(name="shop", version=3, features=[Feature(name="bm25", scaling="log", high=99.0)])
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
LINEAR, NEURAL = LinearRankerSpec(n_features=N_FEATURES), NeuralRankerSpec(n_features=N_FEATURES, hidden=2)
METHODS = {
    "dense": (PdgdTraining(max_interactions=MAX_INTERACTIONS), LINEAR),
    "part": (FedPerTraining(max_interactions=MAX_INTERACTIONS), NEURAL),
    "evolution": (EvolutionTraining(max_interactions=MAX_INTERACTIONS), LINEAR),
}
_POLICY = pack_vector(np.linspace(0, 1, N_FEATURES))
_OTHER_TRAININGS = (
    FpdgdPaperTraining(n_clients=10),
    FedProxTraining(),
    PersonalTraining(),
    EvolutionTraining(antithetic=False),
    FedIpsTraining(propensities="estimated"),
    FedIpsTraining(logging_policy=_POLICY),
    FedAvgTraining(logging_policy=_POLICY),
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
    yield from (Sample.of(message, topic, OPERATOR) for message, topic in _from_operator())
    yield from (Sample.of(message, TOPICS.helper_answers(HELPER), HELPER_KEY) for message in _from_helper())
    yield from _of_enrolment()


def _of_enrolment() -> Iterator[Sample]:
    """What the holder of a one-time token, and the operator's desk, say."""
    who, reply_key = {"federation": FEDERATION, "token": TOKEN}, bytes([11]) * 32
    request = EnrolmentRequest(**who, public_key=DEVICES[MEMBER].public, reply_key=reply_key, proof=bytes(64))
    yield Sample.of(request, TOPICS.enrolment_request(TOKEN), TOKEN_KEY)
    for code, sealed in ((EnrolmentCode.ENROLLED, b"sealed"), (EnrolmentCode.TOKEN_USED, b"")):
        answer = EnrolmentAnswer(federation=FEDERATION, digest=bytes(32), code=code, sealed=sealed)
        yield Sample.of(answer, TOPICS.enrolment_answer(TOKEN), OPERATOR)
    yield Sample.of(DeskHead(federation=FEDERATION, next_serial=7, written_at=1e9), TOPICS.desk_head, OPERATOR)


def enrolment_of(name: str) -> bytes:
    return issue_enrolment(OPERATOR, FEDERATION, name, DEVICES[name].public, 3, 1e9)


def _from_device(name: str) -> Iterator[tuple[Message, str]]:
    who = {"federation": FEDERATION, "client_id": name}
    values = pack_vector(np.linspace(-1, 1, N_FEATURES))
    update = ModelUpdate(
        **who,
        update_id="0123456789abcdef" * 2,
        round=ROUND,
        base_version=BASE_VERSION,
        after=0,
        through=100_000,
        base_hash=bytes(16),
        n_interactions=5,
        body=DenseDelta(dim=N_FEATURES, values=values),
    )
    yield update.model_copy(update={"vote": Vote(anchor_version=1, value=-1)}), TOPICS.client(name, ClientTopic.UPDATES)
    evaluated = {"evaluation": Evaluation(clicked=0.6, reward=0.4, base_reward=0.3)}
    yield update.model_copy(update=evaluated), TOPICS.client(name, ClientTopic.UPDATES)
    # Messages of this protocol, but no updates of this federation.
    for wrong in (np.full(N_FEATURES, np.nan), np.full(N_FEATURES, 2e6), np.zeros(N_FEATURES + 1)):
        body = DenseDelta(dim=len(wrong), values=pack_vector(wrong))
        yield update.model_copy(update={"body": body}), TOPICS.client(name, ClientTopic.UPDATES)
    greedy = update.model_copy(update={"n_interactions": MAX_INTERACTIONS + 1})
    yield greedy, TOPICS.client(name, ClientTopic.UPDATES)
    # Those of other methods; good, and not.
    base = pack_vector(np.linspace(-1, 1, NEURAL.n_base_weights))
    for other in (
        PartDelta(dim=NEURAL.n_weights, start=0, values=base),
        PartDelta(dim=NEURAL.n_weights, start=1, values=base),
        PartDelta(dim=NEURAL.n_weights, start=0, values=pack_vector(np.full(NEURAL.n_base_weights, np.inf))),
        EvolutionPair(seed=2**63 - 1, plus=0.5, minus=0.25),
        EvolutionPair(seed=0, plus=1.0),
        MaskedVector(dim=N_FEATURES, values=b"\xff" * 8 * N_FEATURES, ticket=b"none"),
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
    learned = UnlearningUpdate(**who, job=1, step=2, n_interactions=3, body=DenseDelta(dim=N_FEATURES, values=values))
    yield learned, TOPICS.client(name, ClientTopic.UNLEARNING)
    yield Manifest(**who, digest=bytes(32), size=3 * CHUNK_BYTES - 5, n_chunks=3), chunks
    yield Chunk(**who, digest=bytes(32), index=2, data=b"part of an update"), chunks


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
            training=PdgdTraining(),
            selection=selection,
        )
        yield announced, TOPICS.round
    secure = SecureRound(policy_hash=POLICY.hash, clip_norm=0.3)
    yield announced.model_copy(update={"secure": secure}), TOPICS.round
    for training in (*(training for training, _ in METHODS.values()), *_OTHER_TRAININGS):
        yield announced.model_copy(update={"training": training}), TOPICS.round
    receipt = UpdateReceipt(
        federation=FEDERATION,
        client_id=MEMBER,
        update_id=None,
        payload_digest=bytes(16),
        code=ReceiptCode.INCOMPLETE,
        detail="two parts are missing",
        retry_after_s=1.5,
        missing=[1, 2],
    )
    yield receipt, inbox
    yield (
        MembershipReceipt(
            federation=FEDERATION,
            client_id=MEMBER,
            code=ReceiptCode.REPLAYED,
            payload_digest=bytes(16),
            newest_sequence=2,
            detail="old",
        ),
        inbox,
    )
    replayed = {"code": ReceiptCode.REPLAYED, "newest_sequence": 2**40, "detail": "old"}
    yield MembershipReceipt(federation=FEDERATION, client_id=MEMBER, **replayed), inbox
    for code, document in ((ReceiptCode.FORGETTING, None), (ReceiptCode.FORGOTTEN, b"a.b.c")):
        yield ErasureNotice(federation=FEDERATION, client_id=MEMBER, code=code, receipt=document), inbox
    step = UnlearningRound(
        federation=FEDERATION,
        job=1,
        step=2,
        open=True,
        ranker=LINEAR,
        weights=pack_vector(np.zeros(LINEAR.n_weights)),
        local_interactions=3,
        erasures=[NamedErasure(audit_seq=1, audit_hash=bytes(32))],
        closes_at=1e9,
        training=PdgdTraining(),
    )
    yield step, TOPICS.unlearning_round
    progress = UnlearningProgress(
        federation=FEDERATION, job=1, state="running", strategy="rollback", step=2, n_steps=9, n_clients=1, coverage=0.5
    )
    yield progress, TOPICS.unlearning_job(1)
    status = FederatorStatus(federation=FEDERATION, online=True, at=1e9, interval_s=30.0, software_version="0.1.0")
    yield status, TOPICS.federator_status
    yield AuditHead(federation=FEDERATION, seq=3, hash=bytes(range(32)), at=1e9), TOPICS.audit_head
    yield EvaluationRequest(federation=FEDERATION), TOPICS.evaluation
    yield Pace(federation=FEDERATION, period_s=3600.0), TOPICS.pace
    answer = OrderAnswer(federation=FEDERATION, number=1, digest=bytes(32), reply=OrderReply.OBEYED, newest=1)
    yield answer, TOPICS.operator_answers
    tickets = [issue_ticket(DEVICES[name], _ticket(name)) for name in DEVICES]
    enrolments = [enrolment_of(name) for name in DEVICES]
    asked = TOPICS.helper_requests(HELPER)
    yield CheckRequest(**_SUM, first=0, tickets=tickets, enrolments=enrolments), asked
    yield OpenRequest(**_SUM, n_tickets=2, kept=b"\xc0", digest=bytes(32)), asked
    yield Manifest(federation=FEDERATION, digest=bytes(32), size=CHUNK_BYTES + 1, n_chunks=2), TOPICS.model
    yield Chunk(federation=FEDERATION, digest=bytes(32), index=0, data=b"\0" * 64), TOPICS.model_chunk(0)


_SUM: dict[str, Any] = {
    "federation": FEDERATION,
    "helper": HELPER,
    "policy_hash": POLICY.hash,
    "round": ROUND,
    "cohort": 0,
}


def _masked(name: str, n_words: int, n_votes: int = 0) -> MaskedVector:
    """A vector, what is beside it, and so many numbers that prove them, under a ticket that is for all of it."""
    values, proof = bytes(range(8 * (N_FEATURES + n_votes))), bytes(range(7)) * 8 * n_words
    proof = proof[: 8 * n_words]
    ticket = _ticket(name).model_copy(update={"digest": hashlib.sha256(values + proof).digest()})
    ticket = issue_ticket(DEVICES[name], ticket)
    return MaskedVector(dim=N_FEATURES + n_votes, values=values, ticket=ticket, proof=proof)


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


def _from_helper() -> Iterator[Message]:
    refused = [RefusedTicket(position=1, fault=TicketFault.NOT_OPENED)]
    yield CheckAnswer(**_SUM, first=0, digest=bytes(32), refused=refused, proofs=bytes(16))
    yield SetCommitment(**_SUM, digest=bytes(32))
    yield OpenAnswer(**_SUM, digest=bytes(32), dim=N_FEATURES, start=0, values=bytes(8 * N_FEATURES))
    yield HelperRefusal(**_SUM, digest=bytes(32), code=HelperRefusalCode.TOO_FEW, detail="3 of 10")


def _from_operator() -> Iterator[tuple[Message, str]]:
    revoked = [Revocation(client_id=name, void_below=3) for name in ("device-1", "device-2")]
    roster = Roster(federation=FEDERATION, version=3, through=2, revoked=revoked, salt=bytes(32), forgotten=[bytes(16)])
    yield roster, TOPICS.roster
    keys = {"federation": FEDERATION, "sequence": 1, "old_key": bytes(32), "new_key": FEDERATOR.public}
    yield FederatorKey(**keys), TOPICS.federator_key
    yield SuccessionLink(**keys), TOPICS.operator_key
    yield Succession(federation=FEDERATION, links=[b"a link"], documents=[bytes(16)]), TOPICS.operator_key
    yield KeptEnrolments(federation=FEDERATION, sequence=1, digests=[bytes(16)]), TOPICS.kept_enrolments
    yield Authorities(federation=FEDERATION, version=1, certificates=["a certificate"]), TOPICS.authorities
    yield POLICY.policy, TOPICS.policy
    yield VOTING.policy, TOPICS.policy
    yield EVALUATING.policy, TOPICS.policy
    yield SCHEMA, TOPICS.schema
    yield RotateKey(**keys), TOPICS.operator
    yield RotateEnrolmentKey(**keys), TOPICS.operator
    yield RevokeClient(federation=FEDERATION, client_id=MEMBER, void_below=2), TOPICS.operator
    yield DismissProposals(federation=FEDERATION, client_id=MEMBER), TOPICS.operator
    yield VoidOrder(federation=FEDERATION, replaces=bytes(32)), TOPICS.operator
    yield AskNewest(federation=FEDERATION, challenge=bytes(16)), TOPICS.operator
    tombstone = ForgetTombstone(
        federation=FEDERATION, salt=bytes(32), tombstone=bytes(16), serial=9, replaces=bytes(32)
    )
    yield tombstone, TOPICS.operator
    yield SetDeadline(federation=FEDERATION, round=ROUND, max_time_s=90.0), TOPICS.operator
    yield AllowReset(federation=FEDERATION, job=3), TOPICS.operator
    yield QuarantineClient(federation=FEDERATION, client_id=MEMBER, reason="it flips signs"), TOPICS.operator
    yield LiftQuarantine(federation=FEDERATION, client_id=MEMBER), TOPICS.operator
    yield ForgetClient(federation=FEDERATION, client_id=MEMBER, serial=9), TOPICS.operator
    enrolment = Enrolment(
        federation=FEDERATION, client_id=MEMBER, public_key=DEVICES[MEMBER].public, serial=3, issued_at=1e9
    )
    yield enrolment, TOPICS.enrolment(MEMBER)
