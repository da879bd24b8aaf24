"""Every message that crosses a process boundary, with its units and shapes.

A message is a frozen model; on the wire it is a msgpack map ``{"v": schema version, "kind": name, "nonce": number,
"body": msgpack of the fields, "signature": bytes}``. The body is an opaque byte string inside the envelope so that
it is signed as it stands. Bytes are checked where they enter (`foltr.protocol.codec`) and trusted afterwards.
"""

import hashlib
from enum import StrEnum
from typing import Annotated, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

# 1 had no nonces and no signatures; 2 knew one method, FPDGD, and linear rankers only.
SCHEMA_VERSION = 3
# No single weight of a ranker over features in [0, 1] moves this far in a round; what does would end learning.
MAX_ABS_DELTA = 1e6
# Brokers cut off packets at 1-2 MB by default; what is larger is sent in chunks.
MAX_MESSAGE_BYTES = 256 * 1024
CHUNK_BYTES = 192 * 1024
MAX_DIM = 4_000_000
MAX_CHUNKED_BYTES = 4 * MAX_DIM + 4096

# A name is one level of an MQTT topic, so the separators and wildcards of MQTT cannot be in it.
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
Name = Annotated[str, StringConstraints(pattern=NAME_PATTERN)]
# 32 hex digits: a UUID without dashes.
UpdateId = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")]
# Bounded so that no count overflows a signed 64-bit SQL column, nor a sum of a million of them.
Count = Annotated[int, Field(ge=0, le=2**31 - 1)]
# Text for people. Printable: PostgreSQL stores no NUL, and terminals obey escape sequences.
_PRINTABLE = r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029]*$"
Detail = Annotated[str, StringConstraints(max_length=500, pattern=_PRINTABLE)]
Timestamp = Annotated[float, Field(ge=0, le=1e11, allow_inf_nan=False)]
Dim = Annotated[int, Field(ge=1, le=MAX_DIM)]
Nonce = Annotated[int, Field(ge=0, le=2**63 - 1)]
PublicKey = Annotated[bytes, Field(min_length=32, max_length=32)]
Sha256 = Annotated[bytes, Field(min_length=32, max_length=32)]
ChunkIndex = Annotated[int, Field(ge=0, lt=1000)]


class ReceiptCode(StrEnum):
    """Why a message was taken or refused. Stable: clients of other versions rely on the spelling."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    ALREADY_CONTRIBUTED = "already_contributed"
    LATE = "late"
    STALE = "stale"
    UNKNOWN_ROUND = "unknown_round"
    UNKNOWN_CLIENT = "unknown_client"
    CLIENT_MISMATCH = "client_mismatch"
    WRONG_FEDERATION = "wrong_federation"
    MALFORMED = "malformed"
    WRONG_SHAPE = "wrong_shape"
    OUT_OF_RANGE = "out_of_range"
    NOT_FINITE = "not_finite"
    TOO_LARGE = "too_large"
    UNSUPPORTED_VERSION = "unsupported_version"
    BAD_SIGNATURE = "bad_signature"
    NOT_ENROLLED = "not_enrolled"
    REVOKED = "revoked"
    QUARANTINED = "quarantined"
    REPLAYED = "replayed"
    NOT_SELECTED = "not_selected"
    INCOMPLETE = "incomplete"
    BUSY = "busy"
    FORGETTING = "forgetting"
    FORGOTTEN = "forgotten"
    JOINED = "joined"
    LEFT = "left"


class DeviceReaction(StrEnum):
    """What a device does with its pending update once it has the receipt."""

    FORGET_UPDATE = "forget_update"  # it counts: the interactions in it are spent
    RETRAIN = "retrain"  # it does not count: its interactions go into a later update
    SEND_AGAIN = "send_again"  # not decided yet: send the same update_id again
    SEND_CHUNKS = "send_chunks"  # parts of it are missing: send those
    JOIN_AGAIN = "join_again"  # not a member: join, then send the same update_id again
    DISCARD = "discard"  # it can never count, nor can its interactions: drop both and log it


REACTIONS: dict[ReceiptCode, DeviceReaction] = {
    ReceiptCode.ACCEPTED: DeviceReaction.FORGET_UPDATE,
    ReceiptCode.DUPLICATE: DeviceReaction.FORGET_UPDATE,
    ReceiptCode.ALREADY_CONTRIBUTED: DeviceReaction.RETRAIN,
    ReceiptCode.LATE: DeviceReaction.RETRAIN,
    ReceiptCode.STALE: DeviceReaction.RETRAIN,
    ReceiptCode.UNKNOWN_ROUND: DeviceReaction.RETRAIN,
    ReceiptCode.UNKNOWN_CLIENT: DeviceReaction.JOIN_AGAIN,
    ReceiptCode.CLIENT_MISMATCH: DeviceReaction.DISCARD,
    ReceiptCode.WRONG_FEDERATION: DeviceReaction.DISCARD,
    ReceiptCode.MALFORMED: DeviceReaction.DISCARD,
    ReceiptCode.TOO_LARGE: DeviceReaction.DISCARD,
    ReceiptCode.WRONG_SHAPE: DeviceReaction.DISCARD,
    ReceiptCode.OUT_OF_RANGE: DeviceReaction.DISCARD,
    ReceiptCode.NOT_FINITE: DeviceReaction.DISCARD,
    # The interactions stay: they can be sent once the device's software is newer.
    ReceiptCode.UNSUPPORTED_VERSION: DeviceReaction.RETRAIN,
    # The clicks are the user's, whatever became of the device's key.
    ReceiptCode.BAD_SIGNATURE: DeviceReaction.RETRAIN,
    ReceiptCode.NOT_ENROLLED: DeviceReaction.JOIN_AGAIN,
    ReceiptCode.REVOKED: DeviceReaction.RETRAIN,
    # The next round's update asks again: that is how a device learns that it was let out.
    ReceiptCode.QUARANTINED: DeviceReaction.RETRAIN,
    ReceiptCode.REPLAYED: DeviceReaction.RETRAIN,
    ReceiptCode.NOT_SELECTED: DeviceReaction.RETRAIN,
    ReceiptCode.INCOMPLETE: DeviceReaction.SEND_CHUNKS,
    ReceiptCode.BUSY: DeviceReaction.SEND_AGAIN,
    # Whoever it was is to be forgotten, and so is what it clicked.
    ReceiptCode.FORGETTING: DeviceReaction.DISCARD,
    ReceiptCode.FORGOTTEN: DeviceReaction.DISCARD,
}

# What an operator, or a device's owner, should know of each; `docs/errors.md` is made from it.
EXPLANATIONS: dict[ReceiptCode, str] = {
    ReceiptCode.ACCEPTED: "The update is stored and counts in its round.",
    ReceiptCode.DUPLICATE: "This very update was stored before; it counts once.",
    ReceiptCode.ALREADY_CONTRIBUTED: "The round has another update of this client.",
    ReceiptCode.LATE: "The round was over, full or past its deadline when the update arrived.",
    ReceiptCode.STALE: "The update was trained on another model than the round's, or on one too old.",
    ReceiptCode.UNKNOWN_ROUND: "The round named has not been opened here; was the database restored from a backup?",
    ReceiptCode.UNKNOWN_CLIENT: "The client has not joined; it joins by itself and sends again.",
    ReceiptCode.CLIENT_MISMATCH: "The message names another client than its topic.",
    ReceiptCode.WRONG_FEDERATION: "The message names another federation than its topic.",
    ReceiptCode.MALFORMED: "The bytes are not a message of this protocol; the detail says where.",
    ReceiptCode.WRONG_SHAPE: "The update is of another kind or size than this federation asks for.",
    ReceiptCode.OUT_OF_RANGE: "A value is beyond what is possible, or more interactions are claimed than announced.",
    ReceiptCode.NOT_FINITE: "The update holds NaN or infinity.",
    ReceiptCode.TOO_LARGE: "The message is larger than the protocol allows, or than this federation's ranker needs.",
    ReceiptCode.UNSUPPORTED_VERSION: "The peer speaks another version of the protocol; upgrade the older of the two.",
    ReceiptCode.BAD_SIGNATURE: "No signature, or not this client's: a forgery, or another key than was enrolled.",
    ReceiptCode.NOT_ENROLLED: "The client shows no enrolment signed by this federation's operator: `foltr enrol`.",
    ReceiptCode.REVOKED: "The client's enrolment was revoked, or a newer one has replaced it.",
    ReceiptCode.QUARANTINED: "The operator keeps this client's updates out of the rounds until it is let out again.",
    ReceiptCode.REPLAYED: "The message is older than one already seen from this client.",
    ReceiptCode.NOT_SELECTED: "The round asked other clients; the selection can be checked from its seed.",
    ReceiptCode.INCOMPLETE: "Chunks of a large update are missing; the receipt lists them.",
    ReceiptCode.BUSY: "The federator has more to do than it can take, or this client sends too much; not a loss.",
    ReceiptCode.FORGETTING: "The client's data is erased; the model without it is still being made.",
    ReceiptCode.FORGOTTEN: "The client was forgotten; its name is not used again, and its receipt is still to be had.",
    ReceiptCode.JOINED: "The client is a member.",
    ReceiptCode.LEFT: "The client is a member no more.",
}


class Message(BaseModel):
    """Base of all messages: frozen, strict, no unknown fields."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")
    kind_name: ClassVar[str]
    # How many items a list in it may have; a reader makes no room for more.
    longest_list: ClassVar[int] = 0


class Join(Message):
    """Device to federator: take me into the federation. Idempotent; sent at every connection.

    ``enrolment`` is an `Enrolment` as the operator signed it (see `foltr.protocol.enrolment`); None where the
    federation takes anyone.
    """

    kind_name: ClassVar[str] = "join"
    federation: Name
    client_id: Name
    sdk_version: Annotated[str, StringConstraints(max_length=64, pattern=_PRINTABLE)]
    enrolment: Annotated[bytes, Field(max_length=1024)] | None = None


class Leave(Message):
    """Device to federator: I contribute no more. What was contributed stays."""

    kind_name: ClassVar[str] = "leave"
    federation: Name
    client_id: Name


class Status(Message):
    """Device to federator, retained; ``online=False`` is also the device's last will."""

    kind_name: ClassVar[str] = "status"
    federation: Name
    client_id: Name
    online: bool


class LinearRankerSpec(Message):
    """A linear ranker: the score of a document is the dot product of its features and the weights."""

    kind: Literal["linear"] = "linear"
    n_features: Dim

    @property
    def n_weights(self) -> int:
        return self.n_features


class NeuralRankerSpec(Message):
    """A ranker with one hidden layer of sigmoid units and no output bias (see `foltr.learning.neural` for the
    layout)."""

    kind: Literal["neural"] = "neural"
    n_features: Dim
    hidden: Annotated[int, Field(ge=1, le=4096)] = 64

    @model_validator(mode="after")
    def _weights_can_be_sent(self) -> "NeuralRankerSpec":
        if self.n_weights > MAX_DIM:
            raise ValueError(f"{self.n_weights} weights; at most {MAX_DIM}")
        return self

    @property
    def n_weights(self) -> int:
        return self.hidden * (self.n_features + 2)

    @property
    def n_base_weights(self) -> int:
        """Those of the hidden layer, which come first."""
        return self.hidden * (self.n_features + 1)


RankerSpec = Annotated[LinearRankerSpec | NeuralRankerSpec, Field(discriminator="kind")]

Rate = Annotated[float, Field(gt=0, le=100, allow_inf_nan=False)]


class _Training(Message):
    """What every method's devices are told. An update holds at least ``min_interactions``, and of a backlog the oldest
    ``max_interactions``."""

    serp_length: Annotated[int, Field(ge=1, le=1000)] = 10
    min_interactions: Annotated[int, Field(ge=1, le=100_000)] = 5
    max_interactions: Annotated[int, Field(ge=1, le=100_000)] = 5

    @model_validator(mode="after")
    def _bounds_are_ordered(self) -> Self:
        if self.max_interactions < self.min_interactions:
            raise ValueError(
                f"max_interactions ({self.max_interactions}) is below min_interactions ({self.min_interactions})"
            )
        return self


class PdgdTraining(_Training):
    """FPDGD (fpdgd-2021, Algorithm 2): one PDGD step for each interaction."""

    kind: Literal["pdgd"] = "pdgd"
    learning_rate: Rate = 0.1


class FpdgdPaperTraining(_Training):
    """FPDGD with the noise of its paper (fpdgd-2021, Algorithm 3); `foltr.learning.laplace_shares` says what it
    protects."""

    kind: Literal["fpdgd-paper"] = "fpdgd-paper"
    learning_rate: Rate = 0.1
    sensitivity: Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)] = 5.0
    epsilon: Annotated[float, Field(gt=0, le=1e6, allow_inf_nan=False)] = 4.5
    # How many shares make up the noise.
    n_clients: Annotated[int, Field(ge=1, le=10_000_000)]


class FedProxTraining(_Training):
    """FPDGD whose local steps are drawn towards the global model (thesis, Section 4.3.3; Li et al. 2020)."""

    kind: Literal["fedprox"] = "fedprox"
    learning_rate: Rate = 0.1
    mu: Annotated[float, Field(ge=0, le=100, allow_inf_nan=False)] = 0.01


class FedPerTraining(_Training):
    """FPDGD that shares the hidden layer only (thesis, Section 4.3.3; Arivazhagan et al. 2019)."""

    kind: Literal["fedper"] = "fedper"
    learning_rate: Rate = 0.1


class PersonalTraining(_Training):
    """FPDGD with personal linear weights that never leave the device, as far as clicks speak for them
    (`foltr.methods.personal`)."""

    kind: Literal["fpdgd-personal"] = "fpdgd-personal"
    learning_rate: Rate = 0.1
    personal_learning_rate: Rate = 0.2


class EvolutionTraining(_Training):
    """FOLtR-ES (thesis, Section 3.1.1; Kharitonov 2019): reciprocal ranks under perturbed weights."""

    kind: Literal["foltr-es"] = "foltr-es"
    # Standard deviation of the perturbation of a weight.
    noise_scale: Annotated[float, Field(ge=1e-6, le=100, allow_inf_nan=False)] = 0.01
    antithetic: bool = True
    # The probability that a metric is sent as it is.
    keep_probability: Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)] = 0.9
    server_learning_rate: Rate = 0.001


class FedIpsTraining(_Training):
    """FedIPS (fedips-2021, Algorithm 1): clicks weighted by the inverse propensity of their position."""

    kind: Literal["fedips"] = "fedips"
    serp_length: Annotated[int, Field(ge=1, le=1000)] = 5
    learning_rate: Rate = 0.001
    server_learning_rate: Rate = 1.0
    propensities: Literal["known", "estimated"] = "known"
    # Of the relevance function that estimated propensities need; at the ranker's rate it would hardly move.
    relevance_learning_rate: Rate = 0.3
    # Known propensities are (1 / rank) ** position_bias unless an application knows its user's own.
    position_bias: Annotated[float, Field(ge=0, le=10, allow_inf_nan=False)] = 1.0
    # Little-endian float32 weights of the linear ranker that lists are shown by; empty: the newest model.
    logging_policy: Annotated[bytes, Field(max_length=65_536)] = b""


class FedAvgTraining(_Training):
    """FedIPS without weights, its biased baseline (fedips-2021, Section 4)."""

    kind: Literal["fedavg"] = "fedavg"
    serp_length: Annotated[int, Field(ge=1, le=1000)] = 5
    learning_rate: Rate = 0.001
    server_learning_rate: Rate = 1.0
    logging_policy: Annotated[bytes, Field(max_length=65_536)] = b""


Training = Annotated[
    PdgdTraining
    | FpdgdPaperTraining
    | FedProxTraining
    | FedPerTraining
    | PersonalTraining
    | EvolutionTraining
    | FedIpsTraining
    | FedAvgTraining,
    Field(discriminator="kind"),
]


class ModelAnnouncement(Message):
    """Federator to all, retained: the newest global model.

    ``weights`` is a little-endian float32 vector: ``ranker.n_weights`` entries of the ranker, then ``n_auxiliary``
    that only training uses.
    """

    kind_name: ClassVar[str] = "model"
    federation: Name
    version: Count
    ranker: RankerSpec
    n_auxiliary: Annotated[int, Field(ge=0, le=MAX_DIM)] = 0
    weights: bytes

    @model_validator(mode="after")
    def _weights_fit_the_ranker(self) -> "ModelAnnouncement":
        _check_vector_length(self.weights, self.ranker.n_weights + self.n_auxiliary)
        return self


class Selection(Message):
    """Who may contribute to a round: clients whose ticket is at most ``cutoff``
    (see `foltr.protocol.client_selection`).

    The round's seed follows from the federation's first seed and the round's number alone, so nobody chose it for
    this round; ``cutoff`` is the ``n_selected``-th lowest ticket of the ``n_eligible`` clients online at the opening.
    """

    kind_name: ClassVar[str] = "selection"
    first_seed: Sha256
    cutoff: Annotated[bytes, Field(min_length=8, max_length=8)]
    n_selected: Count
    n_eligible: Count


class RoundAnnouncement(Message):
    """Federator to all, retained: the newest round and whether it takes updates.

    ``opened_at`` and ``closes_at`` are seconds since the epoch by the federator's clock; a device needs
    neither to take part, so its own clock may be wrong.
    """

    kind_name: ClassVar[str] = "round"
    federation: Name
    round: Count
    open: bool
    base_version: Count
    opened_at: Timestamp
    closes_at: Timestamp
    training: Training
    # None: whoever comes.
    selection: Selection | None = None


class DenseDelta(Message):
    """Update body: local weights minus global weights, little-endian float32, ``dim`` entries."""

    kind: Literal["dense"] = "dense"
    dim: Dim
    values: bytes

    @model_validator(mode="after")
    def _values_fit_dim(self) -> "DenseDelta":
        _check_vector_length(self.values, self.dim)
        return self


class PartDelta(Message):
    """Update body of a device that shares a part of its weights: entries ``start`` and on of ``dim``."""

    kind: Literal["part"] = "part"
    dim: Dim
    start: Annotated[int, Field(ge=0, lt=MAX_DIM)]
    values: bytes

    @model_validator(mode="after")
    def _values_are_inside(self) -> "PartDelta":
        n_values, rest = divmod(len(self.values), 4)
        if rest or not 1 <= n_values <= self.dim - self.start:
            raise ValueError(f"{len(self.values)} bytes from entry {self.start} of {self.dim} float32 values")
        return self


class EvolutionPair(Message):
    """Update body of FOLtR-ES: the seed of a perturbation and the mean metric under it (and under its negative)."""

    kind: Literal["evolution"] = "evolution"
    seed: Nonce
    plus: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
    # None where the perturbation was not mirrored.
    minus: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = None


UpdateBody = Annotated[DenseDelta | PartDelta | EvolutionPair, Field(discriminator="kind")]


class ModelUpdate(Message):
    """Device to federator: what the device learned in one round; resent unchanged until receipted.

    This is all that leaves a device after a round: the body and how many interactions made it.
    """

    kind_name: ClassVar[str] = "update"
    federation: Name
    client_id: Name
    update_id: UpdateId
    round: Count
    base_version: Count
    n_interactions: Annotated[int, Field(ge=1, le=100_000)]
    body: UpdateBody


class UpdateReceipt(Message):
    """Federator to one device, sent after the SQL commit: the only acknowledgement there is.

    ``update_id`` is None where the update could not be read far enough to know it. ``payload_digest`` then says
    which bytes are meant: anyone may have sent them, and a device must not drop a good update for another's junk.
    """

    kind_name: ClassVar[str] = "update_receipt"
    longest_list: ClassVar[int] = 1000
    federation: Name
    client_id: Name
    update_id: UpdateId | None
    payload_digest: Annotated[bytes, Field(min_length=16, max_length=16)] | None = None
    code: Annotated[ReceiptCode, Field(strict=False)]
    detail: Detail = ""
    retry_after_s: Annotated[float, Field(ge=0, le=86_400, allow_inf_nan=False)] | None = None
    # With ``incomplete``: the chunks that have not arrived.
    missing: Annotated[list[ChunkIndex], Field(max_length=1000)] | None = None


class MembershipReceipt(Message):
    """Federator to one device: the answer to a join or a leave (``joined``, ``left``, or why not).

    ``nonce`` is that of the message answered; with ``replayed`` ``newest_nonce`` says what to rise above.
    """

    kind_name: ClassVar[str] = "membership_receipt"
    federation: Name
    client_id: Name
    code: Annotated[ReceiptCode, Field(strict=False)]
    nonce: Nonce | None = None
    newest_nonce: Nonce | None = None
    detail: Detail = ""


class Forget(Message):
    """Device to federator, retained until it is obeyed: erase me, and unlearn what I contributed.

    It is valid for ever, for a name that was forgotten is not used again.
    """

    kind_name: ClassVar[str] = "forget"
    federation: Name
    client_id: Name


class ErasureNotice(Message):
    """Federator to one device, once it is stored: how far its erasure is, or why there is none.

    ``forgetting``: all of it is erased but what is in the model. ``forgotten``: that too; ``receipt`` is the signed
    document (`foltr.erasure.receipt`). With both the device deletes what it keeps for the federation.
    """

    kind_name: ClassVar[str] = "erasure_notice"
    federation: Name
    client_id: Name
    code: Annotated[ReceiptCode, Field(strict=False)]
    receipt: Annotated[bytes, Field(max_length=65_536)] | None = None
    detail: Detail = ""


class UnlearningRound(Message):
    """Federator to all, retained: a step of an unlearning job (`foltr.unlearning`), or that there is none now.

    A device that was asked learns ``n_local`` of the interactions it has kept from ``weights``, and answers with the
    delta. ``weights`` and ``n_auxiliary`` are as in `ModelAnnouncement`; ``closes_at`` as in `RoundAnnouncement`.
    """

    kind_name: ClassVar[str] = "unlearning_round"
    federation: Name
    job: Count
    step: Count
    open: bool
    ranker: RankerSpec
    n_auxiliary: Annotated[int, Field(ge=0, le=MAX_DIM)] = 0
    weights: bytes
    n_local: Annotated[int, Field(ge=1, le=100_000)]
    closes_at: Timestamp
    training: Training

    @model_validator(mode="after")
    def _weights_fit_the_ranker(self) -> "UnlearningRound":
        _check_vector_length(self.weights, self.ranker.n_weights + self.n_auxiliary)
        return self


class UnlearningUpdate(Message):
    """Device to federator: what it learned in a step of an unlearning job; sent again with every announcement of it."""

    kind_name: ClassVar[str] = "unlearning_update"
    federation: Name
    client_id: Name
    job: Count
    step: Count
    n_interactions: Annotated[int, Field(ge=1, le=100_000)]
    body: UpdateBody


class UnlearningProgress(Message):
    """Federator to all, retained on the job's own topic: how far it is. ``coverage`` is the mean over its steps."""

    kind_name: ClassVar[str] = "unlearning_progress"
    federation: Name
    job: Count
    state: Literal["running", "paused", "done"]
    strategy: Literal["fed_eraser", "rollback", "retrain"]
    step: Count
    n_steps: Count
    n_clients: Count
    coverage: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = None
    model_version: Count | None = None
    detail: Detail = ""


class Manifest(Message):
    """What stands for a message too large for one packet: a sealed envelope that comes in chunks.

    From a device it is an offer: the federator answers ``incomplete`` with the chunks it lacks, until it has all.
    From the federator it is retained in place of the model, whose chunks are retained beside it.
    """

    kind_name: ClassVar[str] = "manifest"
    federation: Name
    client_id: Name | None = None
    digest: Sha256
    size: Annotated[int, Field(ge=1, le=MAX_CHUNKED_BYTES)]
    n_chunks: Annotated[int, Field(ge=1, le=1000)]

    @model_validator(mode="after")
    def _chunks_fit_the_size(self) -> "Manifest":
        if self.n_chunks != -(-self.size // CHUNK_BYTES):
            raise ValueError(f"{self.n_chunks} chunks for {self.size} bytes")
        return self


class Chunk(Message):
    """Bytes ``index * CHUNK_BYTES`` and on of the message with this digest."""

    kind_name: ClassVar[str] = "chunk"
    federation: Name
    client_id: Name | None = None
    digest: Sha256
    index: ChunkIndex
    data: Annotated[bytes, Field(min_length=1, max_length=CHUNK_BYTES)]


class Enrolment(Message):
    """Operator's statement: this key is this client's. Shown by the device when it joins.

    ``serial`` rises with every enrolment of a federation; a client's newer one replaces its older ones.
    """

    kind_name: ClassVar[str] = "enrolment"
    federation: Name
    client_id: Name
    public_key: PublicKey
    serial: Annotated[int, Field(ge=1, le=2**31 - 1)]
    issued_at: Timestamp


class Revocation(Message):
    """Every enrolment of ``client_id`` up to ``serial`` is void."""

    kind_name: ClassVar[str] = "revocation"
    client_id: Name
    serial: Annotated[int, Field(ge=1, le=2**31 - 1)]


class Roster(Message):
    """Operator to federator and all, retained: which enrolments are void. A higher ``version`` replaces a lower."""

    kind_name: ClassVar[str] = "roster"
    # Read only once the operator's signature is checked.
    longest_list: ClassVar[int] = 1_000_000
    federation: Name
    version: Annotated[int, Field(ge=1, le=2**31 - 1)]
    issued_at: Timestamp
    n_enrolled: Count
    revoked: list[Revocation]


class SetDeadline(Message):
    """Operator to federator: give this round ``max_time_s`` seconds from its opening instead of what was set."""

    kind_name: ClassVar[str] = "set_deadline"
    federation: Name
    round: Count
    max_time_s: Annotated[float, Field(gt=0, le=30 * 86_400, allow_inf_nan=False)]


class QuarantineClient(Message):
    """Operator to federator: take no update of this client until `LiftQuarantine`. It stays a member."""

    kind_name: ClassVar[str] = "quarantine_client"
    federation: Name
    client_id: Name
    reason: Annotated[Detail, Field(min_length=1)]


class LiftQuarantine(Message):
    """Operator to federator: take this client's updates again."""

    kind_name: ClassVar[str] = "lift_quarantine"
    federation: Name
    client_id: Name


class ForgetClient(Message):
    """Operator to federator: forget this client, as if it had asked itself (`Forget`)."""

    kind_name: ClassVar[str] = "forget_client"
    federation: Name
    client_id: Name


Order = SetDeadline | QuarantineClient | LiftQuarantine | ForgetClient

MESSAGE_TYPES: dict[str, type[Message]] = {
    message_type.kind_name: message_type
    for message_type in (
        Join,
        Leave,
        Status,
        ModelAnnouncement,
        RoundAnnouncement,
        ModelUpdate,
        UpdateReceipt,
        MembershipReceipt,
        Manifest,
        Chunk,
        Enrolment,
        Roster,
        SetDeadline,
        QuarantineClient,
        LiftQuarantine,
        Forget,
        ForgetClient,
        ErasureNotice,
        UnlearningRound,
        UnlearningUpdate,
        UnlearningProgress,
    )
}


def payload_digest(payload: bytes) -> bytes:
    """16 bytes that stand for a message that could not be read: the beginning of its SHA-256."""
    return hashlib.sha256(payload).digest()[:16]


def pack_vector(values: npt.ArrayLike) -> bytes:
    """The wire form of a vector: little-endian float32."""
    return np.ascontiguousarray(values, dtype="<f4").tobytes()


def unpack_vector(data: bytes) -> npt.NDArray[np.float32]:
    """A read-only float32 view of a wire vector, without a copy."""
    return np.frombuffer(data, dtype="<f4")


def _check_vector_length(data: bytes, dim: int) -> None:
    if len(data) != 4 * dim:
        raise ValueError(f"{len(data)} bytes for {dim} float32 values; expected {4 * dim}")
