"""Updates carry what a device has learned: their bodies, and the chunks of large ones."""

from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import Field, model_validator

from foltr.core.protocol.evaluations import Evaluation
from foltr.core.protocol.fields import (
    CHUNK_BYTES,
    MAX_CHUNKED_BYTES,
    MAX_DIM,
    ChunkIndex,
    Count,
    Dim,
    InFederation,
    Message,
    ModelHash,
    Name,
    OfClient,
    Seed,
    Sha256,
    UpdateId,
    Watermark,
    check_vector_length,
)
from foltr.core.protocol.policies import MAX_SECURE_DIM
from foltr.core.protocol.tickets import MAX_TICKET_BYTES
from foltr.core.secure.message_proof import MessageShape
from foltr.core.secure.norm_proof import proof_shape

_LONGEST: Final = MessageShape(proof_shape(MAX_SECURE_DIM, 1), vote_weight=1, evaluation_weight=1, credit_weight=1)
MAX_PROOF_BYTES: Final = 8 * _LONGEST.n_proof
"""The longest norm proof, that of the longest vector with any bound, plus those of votes, evaluations and credits."""


class DenseDelta(Message):
    """Update body: local weights minus global weights, little-endian float32, ``dim`` entries."""

    kind: Literal["dense"] = "dense"
    dim: Dim
    values: bytes

    @model_validator(mode="after")
    def _values_fit_dim(self) -> "DenseDelta":
        check_vector_length(self.values, self.dim)
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
    seed: Seed
    plus: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
    # None unless the perturbation is antithetic.
    minus: Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)] | None = None


class MaskedVector(Message):
    """Update body of a secure sum: integers behind a mask for each helper, ``dim`` little-endian words of 64 bits.

    Attributes:
        dim: how many numbers go into the sum: those of the update, and those of vote, evaluation and credit if the
            policy asks for them.
        ticket: a `foltr.core.protocol.tickets.Ticket` as the device signed it.
        proof: under a policy with norm proofs, that the integers are no longer than its bound, and each extra number is
            one of those allowed, behind the same masks (`foltr.core.secure.message_proof`), in 64-bit words too; else
            empty.
    """

    kind: Literal["masked"] = "masked"
    dim: Annotated[int, Field(ge=1, le=MAX_SECURE_DIM)]
    values: bytes
    ticket: Annotated[bytes, Field(min_length=1, max_length=MAX_TICKET_BYTES)]
    proof: Annotated[bytes, Field(max_length=MAX_PROOF_BYTES)] = b""

    @model_validator(mode="after")
    def _values_fit_dim(self) -> "MaskedVector":
        if len(self.values) != 8 * self.dim:
            raise ValueError(f"{len(self.values)} bytes for {self.dim} words of 64 bits; expected {8 * self.dim}")
        return self

    @model_validator(mode="after")
    def _proof_is_of_whole_words(self) -> "MaskedVector":
        if len(self.proof) % 8:
            raise ValueError(f"a proof of {len(self.proof)} bytes is not of whole words of 64 bits")
        return self


UpdateBody = Annotated[DenseDelta | PartDelta | EvolutionPair | MaskedVector, Field(discriminator="kind")]


class Vote(Message):
    """What a device has found of the newest model against the anchor: -1 worse, 0 neither, 1 better.

    It is about the anchor of that version, and about nothing else.
    """

    anchor_version: Count
    value: Annotated[int, Field(ge=-1, le=1)]


class ModelUpdate(OfClient):
    """Device to federator: what the device learned in one round; resent unchanged until receipted.

    This is all that leaves a device after a round: the body, how many interactions made it, and which they are: it
    covers those of the device's interactions that are above ``after``, up to ``through``. Some of them may be missing
    from it (e.g. dropped by the device), and none is in a later one. It has a ``vote`` if the device compares models,
    and an ``evaluation`` if the federator asks for one.
    """

    kind_name: ClassVar[str] = "update"
    update_id: UpdateId
    round: Count
    base_version: Count
    # The client's watermark as far as the device knows it.
    after: Watermark
    through: Watermark
    base_hash: ModelHash
    n_interactions: Annotated[int, Field(ge=1, le=100_000)]
    body: UpdateBody
    # None: the device does not compare models.
    vote: Vote | None = None
    # None: not requested, or the device does not report.
    evaluation: Evaluation | None = None

    @model_validator(mode="after")
    def _covers_its_interactions(self) -> "ModelUpdate":
        if self.n_interactions > self.through - self.after:
            raise ValueError(f"{self.n_interactions} interactions above {self.after} up to {self.through}")
        return self

    @model_validator(mode="after")
    def _masked_says_nothing_in_the_open(self) -> "ModelUpdate":
        if not isinstance(self.body, MaskedVector):
            return self
        if self.vote is not None:
            raise ValueError("a vote beside a masked body: the federator would see it")
        if self.evaluation is not None:
            raise ValueError("an evaluation beside a masked body: the federator would see it")
        return self

    def packed(self) -> dict[str, Any]:
        # Its fields are flat, so pydantic is not needed for each.
        fields = self.__dict__.copy()
        for name in ("body", "vote", "evaluation"):
            part: Message | None = fields[name]
            fields[name] = None if part is None else part.__dict__
        return fields


class UnlearningUpdate(OfClient):
    """Device to federator: what it learned in a step of an unlearning job; sent again with every announcement of it."""

    kind_name: ClassVar[str] = "unlearning_update"
    job: Count
    step: Count
    n_interactions: Annotated[int, Field(ge=1, le=100_000)]
    body: UpdateBody


class Manifest(InFederation):
    """The manifest of a message too large for one packet: a signed envelope that comes in chunks.

    From a device it is an offer: the federator answers ``incomplete`` with the chunks it lacks, until it has all. From
    the federator it is retained in place of the model, whose chunks are retained beside it.
    """

    kind_name: ClassVar[str] = "manifest"
    client_id: Name | None = None
    digest: Sha256
    size: Annotated[int, Field(ge=1, le=MAX_CHUNKED_BYTES)]
    n_chunks: Annotated[int, Field(ge=1, le=1000)]

    @model_validator(mode="after")
    def _chunks_fit_the_size(self) -> "Manifest":
        if self.n_chunks != -(-self.size // CHUNK_BYTES):
            raise ValueError(f"{self.n_chunks} chunks for {self.size} bytes")
        return self


class Chunk(InFederation):
    """Bytes ``index * CHUNK_BYTES`` and on of the message with this digest."""

    kind_name: ClassVar[str] = "chunk"
    client_id: Name | None = None
    digest: Sha256
    index: ChunkIndex
    data: Annotated[bytes, Field(min_length=1, max_length=CHUNK_BYTES)]
