"""Update bodies in storage and at the door."""

import numpy as np
import pytest

from foltr.core.errors import DataError, MessageError
from foltr.core.methods.bodies import BodySpec, check_body, pack_body, unpack_body
from foltr.core.protocol.fields import pack_vector
from foltr.core.protocol.updates import DenseDelta, EvolutionPair, MaskedVector, PartDelta
from foltr.core.secure.field import MODULUS

DENSE = BodySpec("dense", 4, 0, 4)
PART = BodySpec("part", 6, 0, 4)
ANTITHETIC = BodySpec("evolution", 4, antithetic=True)
ONE_SIDED = BodySpec("evolution", 4)
MASKED = BodySpec("masked", 2, 0, 2)
LAST, BEYOND = ((MODULUS - 1 + i).to_bytes(8, "little") for i in range(2))


def dense(values):
    return DenseDelta(dim=len(values), values=pack_vector(values))


def part(values, dim=6, start=0):
    return PartDelta(dim=dim, start=start, values=pack_vector(values))


def masked(values, proof=b""):
    return MaskedVector(dim=len(values) // 8, values=values, proof=proof, ticket=b"ticket")


def test_what_is_stored_is_what_came():
    """To the bit, a norm proof in the same blob; a row that no release wrote is an error with its encoding in it."""
    for body, dim in [
        (dense([1.0, -2.0, 0.5, 0.0]), 4),
        (part([1.0, -2.0], start=3), 6),
        (EvolutionPair(seed=2**63 - 1, plus=0.1, minus=1 / 3), 4),
        (EvolutionPair(seed=0, plus=1.0), 4),
    ]:
        assert unpack_body(*pack_body(body), dim) == body, (body, dim)
    assert pack_body(masked(2 * LAST, b"proof of")) == ("masked_u64", 2 * LAST + b"proof of")
    for encoding, data in [("dense_f32", b"1234567"), ("part_f32", b"123"), ("evolution", b"short"), ("zip", b"")]:
        with pytest.raises(DataError, match=encoding):
            unpack_body(encoding, data, 4)


def test_a_body_that_fits_passes():
    for body, spec in [
        (dense([0.0, 1e6, -1e6, 1.0]), DENSE),
        (part([0.0, 1.0, 2.0, 3.0]), PART),
        (EvolutionPair(seed=1, plus=0.5, minus=0.0), ANTITHETIC),
        (EvolutionPair(seed=1, plus=0.5), ONE_SIDED),
        (masked(2 * LAST), MASKED),
        (masked(2 * LAST, 3 * LAST), MASKED),
    ]:
        check_body(body, spec)
    for body, spec, code in [
        (dense([0.0] * 5), DENSE, "wrong_shape"),
        (dense([np.nan, 0.0, 0.0, 0.0]), DENSE, "not_finite"),
        (dense([np.inf, 0.0, 0.0, 0.0]), DENSE, "not_finite"),
        (dense([1.1e6, 0.0, 0.0, 0.0]), DENSE, "out_of_range"),
        (dense([1e38, 0.0, 0.0, 0.0]), DENSE, "out_of_range"),  # its square is beyond float32
        (dense([0.0] * 6), PART, "wrong_shape"),
        (part([0.0] * 4, start=1), PART, "wrong_shape"),
        (part([0.0] * 3), PART, "wrong_shape"),
        (part([0.0] * 4, dim=7), PART, "wrong_shape"),
        (EvolutionPair(seed=1, plus=0.5), ANTITHETIC, "stale"),
        (EvolutionPair(seed=1, plus=0.5, minus=0.5), ONE_SIDED, "stale"),
        (EvolutionPair(seed=1, plus=0.5), DENSE, "wrong_shape"),
        (masked(3 * LAST), MASKED, "wrong_shape"),
        (masked(LAST + BEYOND), MASKED, "malformed"),
        (masked(2 * LAST, LAST + BEYOND), MASKED, "malformed"),
        (masked(2 * LAST, b"\xff" * 8), MASKED, "malformed"),
    ]:
        with pytest.raises(MessageError) as caught:
            check_body(body, spec)
        assert caught.value.code == code, (body, spec, code)
