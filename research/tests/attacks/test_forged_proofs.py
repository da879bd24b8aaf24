"""The forged proof is as good as can be: only the projections find it, each with a probability of one half."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from foltr.core.secure.coins import seeded_entropy
from foltr.core.secure.field import MODULUS, from_signed, to_signed
from foltr.core.secure.norm_proof import (
    LARGEST_PROJECTION,
    ROWS,
    answer_share,
    challenge_for,
    is_norm_proof_valid,
    proof_shape,
)
from foltr_research.attacks.forged_proofs import forge_norm_proof, square_root

SHAPE = proof_shape(46, 256)


@given(st.integers(0, MODULUS - 1))
def test_a_root_is_a_root(number):
    """Of each number or, as 7 is no square, of seven times that."""
    root = square_root(number)
    seventh = square_root(7 * number)
    assert (root is None) != (seventh is None) or number == 0
    if root is not None:
        assert root * root % MODULUS == number
    else:
        assert seventh * seventh % MODULUS == 7 * number % MODULUS


def test_roots_at_the_edges():
    """Zero and one, and -1, which is a square modulo p."""
    for number in [0, 1, 4, MODULUS - 1]:
        assert square_root(number) ** 2 % MODULUS == number


def answers_to(encoded, challenges):
    forged = forge_norm_proof(encoded, SHAPE, seeded_entropy(bytes(32)))
    whole = np.concatenate([from_signed(encoded), forged])
    return [answer_share(whole, challenge_for(bytes(32), bytes([i] * 32), SHAPE), SHAPE) for i in range(challenges)]


def test_what_is_far_too_long_is_found_by_its_projections_alone():
    """All else adds up; half of the rows miss the huge number, so none of these messages passes all 96."""
    encoded = np.full(SHAPE.dim, -1900, np.int64)
    answers = answers_to(encoded, 40)
    within = np.array([np.abs(to_signed(one[-ROWS:])) <= LARGEST_PROJECTION for one in answers])
    assert 0.45 < within.mean() < 0.55
    for one in answers:
        assert not is_norm_proof_valid(one, SHAPE)
        one[-ROWS:] = 0
        assert is_norm_proof_valid(one, SHAPE)
