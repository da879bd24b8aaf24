"""What the soundness of one message comes to over all messages of a federation, by the bounds in docs/privacy.md."""

import math
from fractions import Fraction

from foltr.core.secure.field import MODULUS
from foltr.core.secure.norm_proof import LARGEST_PROJECTION, ROWS, proof_shape

LARGEST_DIM = 474_000
"""Longer vectors cannot have norm proofs."""
DIMS = (1, 136, 1000, 20_000, LARGEST_DIM)


def of_polynomials(dim):
    """How many of the points accept a G that is not the sum of squares."""
    degree = proof_shape(dim, 4).degree
    return Fraction(2 * degree - 2, MODULUS - 2 * degree)


def of_projections():
    """How often all rows let a vector through whose norm is right modulo p alone (Paley and Zygmund)."""
    theta = Fraction((2 * LARGEST_PROJECTION) ** 2 * 2, MODULUS)
    a_row = max(Fraction(1, 2), 1 - (1 - theta) ** 2 / 3)
    return a_row**ROWS


def of_message(dim):
    """A message is one of the cases; with votes and evaluations each of their numbers may be false alone."""
    of_number = Fraction(2, MODULUS - 1)
    return max(of_polynomials(dim), of_projections(), of_number)


def test_a_long_vector_is_accepted_with_at_most_2_to_the_minus_54():
    """Over all messages it is at most as many times that of one: each has a challenge that nothing before it tells."""
    for dim, bits in (*((dim, 54) for dim in DIMS), (1_997_546, 53)):  # the longest that a small bound allows
        assert of_message(dim) <= Fraction(1, 2**bits), dim
        assert 2 * LARGEST_PROJECTION * (dim + 4) < MODULUS // 4, dim
    for n_messages, at_most in [(1, 54), (200_000, 36.3), (10**7, 30.7)]:
        whole = max(of_message(dim) for dim in DIMS) * n_messages
        assert math.log2(whole) <= -at_most, (n_messages, at_most)
