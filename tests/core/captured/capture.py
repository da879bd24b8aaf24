"""One message of each kind, and the key that signs them; `clients/vectors/messages.json` has their bytes."""

from pathlib import Path

from foltr.core.learning.scaling import Scaling
from foltr.core.protocol.announcements import (
    ModelAnnouncement,
    NamedErasure,
    RoundAnnouncement,
    Selection,
    UnlearningProgress,
    UnlearningRound,
)
from foltr.core.protocol.audit_heads import AuditHead
from foltr.core.protocol.codec import encode
from foltr.core.protocol.enrolment_requests import DeskHead, EnrolmentAnswer, EnrolmentCode, EnrolmentRequest
from foltr.core.protocol.evaluations import Evaluation, EvaluationRequest
from foltr.core.protocol.explorations import (
    InterleavingExploration,
    SamplingExploration,
    ShareExploration,
    SwapsExploration,
)
from foltr.core.protocol.fields import CHUNK_BYTES, Message, pack_vector
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
from foltr.core.protocol.policies import (
    GammaNoise,
    GaussianNoise,
    HelperKeys,
    L2NormProof,
    Policy,
    SecureEvaluation,
    SecureRound,
    SecureVotes,
)
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
from foltr.core.protocol.signing import SigningKey
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
    Training,
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
    UpdateBody,
    Vote,
)

FOLDER = Path(__file__).parent
KEY = SigningKey(bytes(range(32)))
FIRST_SEQUENCE = 2**40
UPDATE_ID = "0123456789abcdef" * 2
CLIENT = {"federation": "mail", "client_id": "device-7"}
_TOPICS = Topics("mail")
_VERIFY_KEYS = L2NormProof(
    federator_key=bytes([33]) * 32,
    federator_seal=bytes(range(80)),
    helper_seals=[bytes(range(start, start + 80)) for start in (1, 2)],
)


def _own(topic: ClientTopic) -> str:
    return _TOPICS.client("device-7", topic)


def _round(training: Training) -> tuple[Message, str]:
    selection = Selection(first_seed=bytes(range(32)), cutoff=bytes(range(8)), n_selected=10, n_eligible=100)
    announced = RoundAnnouncement(
        federation="mail",
        round=4,
        open=True,
        base_version=3,
        base_hash=bytes(range(16)),
        withdraws_below=2,
        opened_at=1000.5,
        closes_at=1600.5,
        training=training,
        selection=selection,
        secure=SecureRound(policy_hash=bytes(range(32)), clip_norm=0.25),
        schema_hash=bytes(range(32)),
    )
    return announced, _TOPICS.round


def _update(body: UpdateBody, vote: Vote | None = None, evaluation: Evaluation | None = None) -> tuple[Message, str]:
    update = ModelUpdate(
        **CLIENT,
        update_id=UPDATE_ID,
        round=4,
        base_version=3,
        base_hash=bytes(16),
        after=7,
        through=12,
        n_interactions=5,
        body=body,
        vote=vote,
        evaluation=evaluation,
    )
    return update, _own(ClientTopic.UPDATES)


def _policy(
    noise: GaussianNoise | GammaNoise,
    norm_proof: L2NormProof | None = None,
    votes: SecureVotes | None = None,
    evaluation: SecureEvaluation | None = None,
) -> tuple[Message, str]:
    policy = Policy(
        federation="mail",
        version=3,
        issued_at=1000.5,
        helpers=[
            HelperKeys(
                name=name,
                signing_key=bytes([i]) * 32,
                sealing_key=bytes([i + 16]) * 32,
                epoch_keys=[bytes([i + 16]) * 32],
            )
            for i, name in enumerate(("north", "south"))
        ],
        noise=noise,
        dim=2,
        bound=256,
        n_min=100,
        n_max=10_000,
        n_interactions=5,
        epoch_s=10**10,
        max_participations=20,
        period=4,
        cohorts=1,
        epsilon=8.0,
        delta=1e-6,
        norm_proof=norm_proof,
        votes=votes,
        evaluation=evaluation,
    )
    return policy, _TOPICS.policy


_OF_HELPER = {
    "federation": "mail",
    "helper": "north",
    "policy_hash": bytes(range(32)),
    "round": 4,
    "cohort": 0,
}
_TOKEN = "0123456789abcdef"  # noqa: S105 (its name)
_KEYS = {"federation": "mail", "sequence": 2, "old_key": bytes(32), "new_key": KEY.public}
_BOUNDS = {"serp_length": 10, "min_interactions": 5, "max_interactions": 8}
# Written out: a default that changes is no other message.
_USUAL = {**_BOUNDS, "exploration": SwapsExploration(probability=0.05)}
# Every message with all its fields set, and the topic it is signed for.
MESSAGES: list[tuple[Message, str]] = [
    (Join(**CLIENT, sdk_version="0.3.0", enrolment=b"an enrolment"), _own(ClientTopic.JOIN)),
    (Leave(**CLIENT), _own(ClientTopic.LEAVE)),
    (Status(**CLIENT, online=True), _own(ClientTopic.STATUS)),
    (
        ModelAnnouncement(
            federation="mail",
            version=3,
            ranker=LinearRankerSpec(n_features=2),
            weights=pack_vector([1.0, -2.5]),
            schema_hash=bytes(range(32)),
        ),
        _TOPICS.model,
    ),
    _round(PdgdTraining(**_USUAL, learning_rate=0.1)),
    _update(DenseDelta(dim=2, values=pack_vector([0.5, -0.25]))),
    (
        UpdateReceipt(
            **CLIENT,
            update_id=UPDATE_ID,
            payload_digest=bytes(range(16)),
            code=ReceiptCode.INCOMPLETE,
            detail="chunks",
            counted_through=7,
            retry_after_s=2.0,
            missing=[0, 2],
        ),
        _own(ClientTopic.INBOX),
    ),
    (
        MembershipReceipt(
            **CLIENT,
            code=ReceiptCode.REPLAYED,
            payload_digest=bytes(range(16)),
            newest_sequence=FIRST_SEQUENCE + 9,
            counted_through=7,
            detail="older",
        ),
        _own(ClientTopic.INBOX),
    ),
    (
        Manifest(**CLIENT, digest=bytes(range(32)), size=CHUNK_BYTES + 1, n_chunks=2),
        _own(ClientTopic.UPDATES),
    ),
    (Chunk(**CLIENT, digest=bytes(range(32)), index=1, data=b"the last"), _own(ClientTopic.CHUNKS)),
    (
        Enrolment(**CLIENT, public_key=KEY.public, serial=12, issued_at=1000.5),
        _TOPICS.enrolment("device-7"),
    ),
    (
        Roster(
            federation="mail",
            version=3,
            through=7,
            revoked=[Revocation(client_id="device-8", void_below=12)],
            salt=bytes(range(32)),
            forgotten=[bytes(range(16))],
        ),
        _TOPICS.roster,
    ),
    (FederatorKey(**_KEYS), _TOPICS.federator_key),
    (
        Authorities(federation="mail", version=2, certificates=["--one--\n", "--two--\n"]),
        _TOPICS.authorities,
    ),
    (SuccessionLink(**_KEYS), _TOPICS.operator_key),
    (Succession(federation="mail", links=[b"a link", b"another"], documents=[bytes(range(16))]), _TOPICS.operator_key),
    (KeptEnrolments(federation="mail", sequence=2, digests=[bytes(range(16))]), _TOPICS.kept_enrolments),
    (SetDeadline(federation="mail", round=4, max_time_s=90.5), _TOPICS.operator),
    (RevokeClient(**CLIENT, void_below=12), _TOPICS.operator),
    (QuarantineClient(**CLIENT, reason="it flips signs"), _TOPICS.operator),
    (LiftQuarantine(**CLIENT), _TOPICS.operator),
    (DismissProposals(**CLIENT), _TOPICS.operator),
    (ForgetClient(**CLIENT, serial=11), _TOPICS.operator),
    (
        ForgetTombstone(
            federation="mail",
            salt=bytes(range(32)),
            tombstone=bytes(range(16)),
            serial=11,
            replaces=bytes(range(32)),
        ),
        _TOPICS.operator,
    ),
    (VoidOrder(federation="mail", replaces=bytes(range(32))), _TOPICS.operator),
    (RotateKey(**_KEYS), _TOPICS.operator),
    (RotateEnrolmentKey(**_KEYS), _TOPICS.operator),
    (AllowReset(federation="mail", job=3), _TOPICS.operator),
    (AskNewest(federation="mail", challenge=bytes(range(16))), _TOPICS.operator),
    (
        OrderAnswer(
            federation="mail",
            number=7,
            digest=bytes(range(32)),
            reply=OrderReply.REFUSED,
            code=ReceiptCode.UNKNOWN_CLIENT,
            detail="no client of this name has ever joined",
            challenge=bytes(range(16)),
            newest=7,
            newest_digest=bytes(range(32)),
            roster_version=3,
            newest_serial=12,
        ),
        _TOPICS.operator_answers,
    ),
    (Forget(**CLIENT), _own(ClientTopic.FORGET)),
    (
        ErasureNotice(**CLIENT, code=ReceiptCode.FORGOTTEN, receipt=b"header.payload.signature", detail="unlearned"),
        _own(ClientTopic.INBOX),
    ),
    (
        UnlearningRound(
            federation="mail",
            job=2,
            step=3,
            open=True,
            ranker=LinearRankerSpec(n_features=1),
            n_auxiliary=1,
            weights=pack_vector([0.5, -0.25]),
            local_interactions=3,
            erasures=[NamedErasure(audit_seq=7, audit_hash=bytes(range(32)))],
            closes_at=1600.5,
            training=PdgdTraining(**_USUAL, learning_rate=0.1),
            schema_hash=bytes(range(32)),
        ),
        _TOPICS.unlearning_round,
    ),
    (
        UnlearningUpdate(
            **CLIENT, job=2, step=3, n_interactions=3, body=DenseDelta(dim=2, values=pack_vector([0.5, -0.25]))
        ),
        _own(ClientTopic.UNLEARNING),
    ),
    (
        UnlearningProgress(
            federation="mail",
            job=2,
            state="done",
            strategy="fed_eraser",
            step=10,
            n_steps=10,
            n_clients=2,
            coverage=0.75,
            model_version=41,
            detail="caught up",
        ),
        _TOPICS.unlearning_job(2),
    ),
    _policy(GaussianNoise(variance=622_754)),
    (
        FeatureSchema(
            name="shop",
            version=3,
            features=[
                Feature(name="price", scaling=Scaling.MIN_MAX, low=-2.0, high=6.0),
                Feature(name="bm25", scaling=Scaling.LOG, high=99.0),
            ],
        ),
        _TOPICS.schema,
    ),
    (
        Ticket(
            **CLIENT,
            round=4,
            cohort=0,
            policy_hash=bytes(range(32)),
            update_id=UPDATE_ID,
            participation=7,
            digest=bytes(range(32)),
            seals=[bytes(80), b"\x01" * 80],
        ),
        _TOPICS.ticket("device-7"),
    ),
    (
        CheckRequest(**_OF_HELPER, first=256, tickets=[b"a ticket"], enrolments=[b"an enrolment"]),
        _TOPICS.helper_requests("north"),
    ),
    (
        CheckAnswer(
            **_OF_HELPER,
            first=256,
            digest=bytes(range(32)),
            refused=[RefusedTicket(position=256, fault=TicketFault.NOT_OPENED)],
            proofs=bytes(range(16)),
        ),
        _TOPICS.helper_answers("north"),
    ),
    (
        OpenRequest(
            **_OF_HELPER,
            n_tickets=257,
            kept=b"\xff" * 32 + b"\x00",
            digest=bytes(range(32)),
            commitments=[bytes(range(64))],
        ),
        _TOPICS.helper_requests("north"),
    ),
    (SetCommitment(**_OF_HELPER, digest=bytes(range(32))), _TOPICS.helper_answers("north")),
    (
        OpenAnswer(**_OF_HELPER, digest=bytes(range(32)), dim=2, start=0, values=bytes(range(16))),
        _TOPICS.helper_answers("north"),
    ),
    (
        HelperRefusal(
            **_OF_HELPER,
            digest=bytes(range(32)),
            code=HelperRefusalCode.TOO_FEW,
            detail="99 clients; 100 are asked for",
        ),
        _TOPICS.helper_answers("north"),
    ),
    (
        FederatorStatus(federation="mail", online=True, at=1000.5, interval_s=30.0, software_version="0.1.0"),
        _TOPICS.federator_status,
    ),
    (AuditHead(federation="mail", seq=7, hash=bytes(range(32)), at=1000.5), _TOPICS.audit_head),
    (EvaluationRequest(federation="mail"), _TOPICS.evaluation),
    (
        EnrolmentRequest(
            federation="mail",
            token=_TOKEN,
            public_key=KEY.public,
            reply_key=bytes(range(32)),
            proof=bytes(range(64)),
        ),
        _TOPICS.enrolment_request(_TOKEN),
    ),
    (
        EnrolmentAnswer(
            federation="mail",
            digest=bytes(range(32)),
            code=EnrolmentCode.ENROLLED,
            detail=EnrolmentCode.ENROLLED.meaning,
            sealed=bytes(range(49)),
        ),
        _TOPICS.enrolment_answer(_TOKEN),
    ),
    (DeskHead(federation="mail", next_serial=12, written_at=1000.5), _TOPICS.desk_head),
    (Pace(federation="mail", period_s=3600.5), _TOPICS.pace),
]
# The other methods', and the other ranker.
VARIANTS: list[tuple[Message, str]] = [
    (
        ModelAnnouncement(
            federation="mail",
            version=3,
            ranker=NeuralRankerSpec(n_features=1, hidden=2),
            n_auxiliary=1,
            weights=pack_vector(range(7)),
        ),
        _TOPICS.model,
    ),
    _round(
        FpdgdPaperTraining(
            **_BOUNDS,
            learning_rate=0.1,
            sensitivity=3.0,
            epsilon=2.3,
            n_clients=1000,
            exploration=SamplingExploration(),
        )
    ),
    _round(FedProxTraining(**_BOUNDS, learning_rate=0.1, mu=0.01, exploration=ShareExploration(share=0.2))),
    _round(FedPerTraining(**_BOUNDS, learning_rate=0.1, exploration=InterleavingExploration())),
    _round(
        PersonalTraining(
            **_BOUNDS,
            learning_rate=0.1,
            personal_learning_rate=0.05,
            exploration=SamplingExploration(temperature=0.5),
        )
    ),
    _round(
        EvolutionTraining(
            **_USUAL, noise_scale=0.01, antithetic=True, truth_probability=0.9, server_learning_rate=0.001
        )
    ),
    _round(
        FedIpsTraining(
            **_USUAL,
            learning_rate=0.001,
            server_learning_rate=0.5,
            propensities="estimated",
            relevance_learning_rate=0.25,
            position_bias=1.5,
            logging_policy=pack_vector([0.5, 0.25]),
        )
    ),
    _round(
        FedAvgTraining(**_USUAL, learning_rate=0.001, server_learning_rate=0.5, logging_policy=pack_vector([0.5, 0.25]))
    ),
    _update(PartDelta(dim=4, start=1, values=pack_vector([0.5, -0.25]))),
    _update(EvolutionPair(seed=2**62, plus=0.5, minus=0.25)),
    _update(MaskedVector(dim=2, values=bytes(range(16)), ticket=b"a ticket")),
    _update(MaskedVector(dim=2, values=bytes(range(16)), proof=bytes(range(16, 40)), ticket=b"a ticket")),
    _update(DenseDelta(dim=2, values=pack_vector([0.5, -0.25])), Vote(anchor_version=2, value=-1)),
    _update(
        DenseDelta(dim=3, values=pack_vector([0.5, -1.0, 2.25])),
        evaluation=Evaluation(clicked=0.75, reward=0.5, base_reward=0.25),
    ),
    _policy(GammaNoise(scale=640, n_shares=80)),
    _policy(GaussianNoise(variance=622_756), _VERIFY_KEYS),
    _policy(GaussianNoise(variance=661_679), _VERIFY_KEYS, SecureVotes(weight=64)),
    _policy(GaussianNoise(variance=690_871), _VERIFY_KEYS, SecureVotes(weight=64), SecureEvaluation(weight=32)),
    (
        ModelAnnouncement(
            federation="mail",
            version=0,
            ranker=NeuralRankerSpec(n_features=1, hidden=2, activation="relu"),
            weights=pack_vector(range(6)),
        ),
        _TOPICS.model,
    ),
    (
        Enrolment(**CLIENT, public_key=KEY.public, serial=12, issued_at=1000.5, secure=True),
        _TOPICS.enrolment("device-7"),
    ),
]


def name_of(message: Message) -> str:
    """The name of its file: the kind, and whose variant it is where there are several."""
    match message:
        case ModelAnnouncement(ranker=NeuralRankerSpec(activation="relu")):
            return "model-relu"
        case ModelAnnouncement(ranker=NeuralRankerSpec()):
            return "model-neural"
        case RoundAnnouncement(training=training) if not isinstance(training, PdgdTraining):
            return f"round-{training.kind}"
        case ModelUpdate(body=MaskedVector(proof=proof)) if proof:
            return "update-masked-proven"
        case ModelUpdate(vote=Vote()):
            return "update-vote"
        case ModelUpdate(evaluation=Evaluation()):
            return "update-evaluation"
        case ModelUpdate(body=body) if not isinstance(body, DenseDelta):
            return f"update-{body.kind}"
        case Enrolment(secure=True):
            return "enrolment-secure"
        case Policy(noise=GammaNoise()):
            return "policy-gamma"
        case Policy(evaluation=SecureEvaluation()):
            return "policy-evaluation"
        case Policy(votes=SecureVotes()):
            return "policy-votes"
        case Policy(norm_proof=L2NormProof()):
            return "policy-l2"
    return message.kind_name


def signed(message: Message, topic: str, sequence: int = FIRST_SEQUENCE) -> bytes:
    return encode(message, topic, sequence, KEY)
