"""Update bodies in their stored form, and whether one fits its federation."""

import math
import struct
from dataclasses import dataclass
from typing import Literal

import numpy as np

from foltr.core.errors import DataError, MessageError
from foltr.core.protocol.fields import MAX_ABS_DELTA, unpack_vector
from foltr.core.protocol.receipts import ReceiptCode
from foltr.core.protocol.updates import DenseDelta, EvolutionPair, MaskedVector, PartDelta, UpdateBody
from foltr.core.secure.accounting import N_CREDITS, N_EVALUATION, N_VOTES
from foltr.core.secure.field import read_words
from foltr.core.secure.message_proof import MessageShape
from foltr.core.secure.norm_proof import proof_shape

DENSE, PART, EVOLUTION, MASKED = "dense_f32", "part_f32", "evolution", "masked_u64"
# A sum of squares below this proves that no value is too large, despite rounding.
_CERTAINLY_SMALL = (MAX_ABS_DELTA / 2) ** 2
_N_BESIDE = (N_VOTES, *(n + credits_ for n in (N_EVALUATION, N_VOTES + N_EVALUATION) for credits_ in (0, N_CREDITS)))
_START = struct.Struct("<Q")
_PAIR = struct.Struct("<Qdd")


@dataclass(frozen=True)
class BodySpec:
    """The form of a federation's updates.

    Attributes:
        dim: entries of the model.
        start, n_values: which of them an update covers.
        antithetic: of an evolution pair: both metrics are present.
    """

    kind: Literal["dense", "part", "evolution", "masked"]
    dim: int
    start: int = 0
    n_values: int = 0
    antithetic: bool = False

    @property
    def n_bytes(self) -> int:
        """The most bytes of an update's values, including everything that a policy may ask for beside them."""
        if self.kind != "masked":
            return 4 * self.n_values
        # The length of proofs does not depend on the bound, or on any weight.
        return 8 * MessageShape(proof_shape(self.n_values, 1), 1, 1, 1).n_values


def check_body(body: UpdateBody, spec: BodySpec) -> None:
    """Raise MessageError with the receipt's code if ``body`` is not of the federation's form."""
    if body.kind != spec.kind:
        raise MessageError(ReceiptCode.WRONG_SHAPE, f"an update of kind {body.kind}; this federation's are {spec.kind}")
    if isinstance(body, EvolutionPair):
        if (body.minus is not None) is not spec.antithetic:
            # Stale: it may have been announced before the federator restarted with other settings.
            raise MessageError(
                ReceiptCode.STALE,
                "one metric; antithetic pairs are asked for" if spec.antithetic else "an antithetic pair",
            )
        return
    # The policy of the round decides what must follow a masked vector, and whether it needs a proof.
    if body.dim != spec.dim and not (isinstance(body, MaskedVector) and body.dim - spec.dim in _N_BESIDE):
        raise MessageError(ReceiptCode.WRONG_SHAPE, f"{body.dim} values; the ranker has {spec.dim}")
    if isinstance(body, MaskedVector):
        read_words(body.values + body.proof, body.dim + len(body.proof) // 8)
        return
    values = unpack_vector(body.values)
    if isinstance(body, PartDelta) and (body.start, len(values)) != (spec.start, spec.n_values):
        raise MessageError(
            ReceiptCode.WRONG_SHAPE,
            f"{len(values)} values from {body.start}; shared are {spec.n_values} from {spec.start}",
        )
    # One call instead of four suffices for nearly all; NaN and infinity fail it. `@` would warn of overflow.
    if np.vdot(values, values) <= _CERTAINLY_SMALL:
        return
    if not np.isfinite(values).all():
        raise MessageError(ReceiptCode.NOT_FINITE, "the update holds NaN or infinity")
    if np.abs(values).max() > MAX_ABS_DELTA:
        raise MessageError(ReceiptCode.OUT_OF_RANGE, f"a weight changed by more than {MAX_ABS_DELTA:g}")


def pack_body(body: UpdateBody) -> tuple[str, bytes]:
    """Return the name of the encoding, and the bytes; a masked vector without its ticket, which is stored separately.

    A masked vector's proofs are stored after it, so that they are protected, deleted and erased together.
    """
    match body:
        case DenseDelta():
            return DENSE, body.values
        case PartDelta():
            return PART, _START.pack(body.start) + body.values
        case EvolutionPair():
            return EVOLUTION, _PAIR.pack(body.seed, body.plus, math.nan if body.minus is None else body.minus)
        case MaskedVector():
            return MASKED, body.values + body.proof


def unpack_body(encoding: str, data: bytes, dim: int) -> UpdateBody:
    """Reverse `pack_body` for a model of ``dim`` entries; DataError for other bytes.

    A masked vector says nothing by itself, and cannot be aggregated as an update.
    """
    try:
        if encoding == DENSE:
            return DenseDelta(dim=dim, values=data)
        if encoding == PART:
            return PartDelta(dim=dim, start=_START.unpack_from(data)[0], values=data[_START.size :])
        if encoding == EVOLUTION:
            seed, plus, minus = _PAIR.unpack(data)
            return EvolutionPair(seed=seed, plus=plus, minus=None if math.isnan(minus) else minus)
    except (struct.error, ValueError) as error:
        raise DataError(f"a stored update of encoding {encoding} is damaged: {error}") from error
    raise DataError(f"a stored update has the unknown encoding {encoding!r}")
