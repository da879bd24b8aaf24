"""Norm proofs: a device's one message also proves that its masked integers have an L2 norm within C_int.

The scheme proves what PINE proves (arXiv 2311.10237) without its Fiat-Shamir transform: verifiers with a common secret
key choose the challenge. Its parts are published, their composition is ours and **unaudited**; docs/privacy.md has the
arguments.

The proof is about V = q, a, m, w, G: the encoding q, four squares a with sum q^2 + sum a^2 = B = C_int^2, noise m for
the check against wraparound, and a fully linear proof (Boneh et al., CRYPTO 2019; `FlpBBCGGI19` of
draft-irtf-cfrg-vdaf-20, with one gadget that adds up L squares, called P - 1 times): wire polynomials f_l that begin
with random w_l, and G = sum of their squares. It is sent behind the masks of the secure sum, so every verifier has a
share of it. An answer is linear in the share, and the sum of all answers decides:

- v = sum of G(alpha^k), which is B;
- f_l(t) and G(t) at a secret point t: G is the sum of the squares of the f_l;
- z = R x + m with secret rows R of -1, 0, 1: small only if the equation holds without wraparound.

No device learns R or t, and no device that keeps the bound is rejected.
"""

import contextlib
import hmac
import math
import os
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

from foltr.core.numerics.compiled import plain_functions
from foltr.core.secure.accounting import LARGEST_PROJECTION, MASK_DEVIATION, N_SQUARES, check_masks
from foltr.core.secure.coins import Entropy, Words, seeded_entropy
from foltr.core.secure.field import MODULUS, add, from_signed, join_halves, multiply, sum_of, to_signed
from foltr.core.secure.four_squares import four_squares
from foltr.core.secure.masks import words_below
from foltr.core.secure.noise import draw_gaussian
from foltr.core.secure.norm_sums import combine, sum_halves
from foltr.core.secure.polynomials import odd_values, weights_at

ROWS: Final = 96
"""Rows of R. A sum of squares that wraps around passes one with 0.6733 at most, and all with 2^-54."""
LEAST_COMPILED: Final = 5_000
"""From so many numbers on machine code saves a verifier more than its loading costs once: a second and 120 MB."""
VERIFY_KEY_BYTES: Final = 32
_POINT: Final = b"foltr norm proof point 1\n"
_PROJECTION: Final = b"foltr norm proof rows 1\n"


@dataclass(frozen=True)
class ProofShape:
    """How long a proof is, and its parts.

    Attributes:
        dim: d, of the encoding.
        bound: C_int.
        degree: P, a power of two, the number of points of a wire.
    """

    dim: int
    bound: int
    degree: int

    @property
    def n_inputs(self) -> int:
        """D: the encoding and four squares."""
        return self.dim + N_SQUARES

    @cached_property
    def n_wires(self) -> int:
        """L: each wire takes P - 1 of the inputs, and begins with a random number."""
        return -(-self.n_inputs // (self.degree - 1))

    @property
    def n_proof(self) -> int:
        """How many numbers of the proof follow the encoding."""
        return N_SQUARES + ROWS + self.n_wires + 2 * self.degree - 1

    @property
    def n_values(self) -> int:
        """How many numbers a device sends."""
        return self.dim + self.n_proof

    @property
    def n_answer(self) -> int:
        """How many numbers a verifier's answer about a share has."""
        return self.n_wires + 2 + ROWS

    @cached_property
    def largest_mask(self) -> int:
        """The largest size of an entry of m: with any projection of an honest vector it stays within T."""
        return LARGEST_PROJECTION - math.isqrt(self.n_inputs * self.bound**2) - 1


@lru_cache(maxsize=32)
def proof_shape(dim: int, bound: int) -> ProofShape:
    """Return the shape with the shortest proof: the smallest P of the best ones.

    Raises:
        SettingsError: a projection of an honest vector can be longer than an eightieth of T. Then so much of m would be
            cut off that z reveals more than is charged for it.
    """
    check_masks(dim, bound)
    degrees = (2**k for k in range(1, (dim + N_SQUARES).bit_length() + 2))
    return min((ProofShape(dim, bound, degree) for degree in degrees), key=lambda shape: shape.n_proof)


def prove_norm(encoded: NDArray[np.int64], shape: ProofShape, entropy: Entropy = os.urandom) -> Words:
    """Return (n_proof,) the proof that a device sends after its encoding, before masking.

    Args:
        encoded: (dim,) with an L2 norm within the bound.
        entropy: gives random bytes, which must be unpredictable to protect the device.
    """
    squares = four_squares(shape.bound**2 - int(encoded @ encoded))
    return prove_sum(np.concatenate([from_signed(encoded), np.array(squares, np.uint64)]), shape, entropy)


def prove_sum(inputs: Words, shape: ProofShape, entropy: Entropy) -> Words:
    """Return (n_proof,) a proof of the sum modulo p of the squares of (n_inputs,) numbers, for any sum."""
    first = words_below(entropy, shape.n_wires)
    wires = _wires_of(inputs, first, shape)
    found = np.empty(2 * shape.degree, np.uint64)
    found[0::2] = _sums_of_squares(wires)
    found[1::2] = _sums_of_squares(odd_values(wires))
    return np.concatenate([inputs[shape.dim :], from_signed(_draw_mask(shape, entropy)), first, found[:-1]])


@dataclass(frozen=True)
class Challenge:
    """The verifiers' common questions about one message.

    Attributes:
        point: t, not a 2P-th root of unity.
        bits: (n_groups, 2, ROWS) bytes: row j of R has at number 8g + k the sum of bits k of (g, 0, j) and (g, 1, j),
            less 1.
    """

    point: int
    bits: NDArray[np.uint8]


def challenge_for(verify_key: bytes, ticket: bytes, shape: ProofShape) -> Challenge:
    """Return a message's challenge: unpredictable without the key, and the same each time.

    Args:
        verify_key: of the policy, 32 bytes.
        ticket: 32 bytes that identify the message's ticket.
    """
    points = seeded_entropy(hmac.digest(verify_key, _POINT + ticket, "sha256"))
    point = 1
    while pow(point, 2 * shape.degree, MODULUS) == 1:
        point = int(words_below(points, 1)[0])
    n_groups = -(-shape.n_inputs // 8)
    stream = seeded_entropy(hmac.digest(verify_key, _PROJECTION + ticket, "sha256"))
    return Challenge(point, np.frombuffer(stream(2 * ROWS * n_groups), np.uint8).reshape(n_groups, 2, ROWS))


def answer_share(share: Words, challenge: Challenge, shape: ProofShape) -> Words:
    """Return (n_answer,) a verifier's answer about its share: v, f_l(t), G(t), z. It is linear in the share.

    Args:
        share: (n_values,).
    """
    inputs, masks, first, found = np.split(share, np.cumsum([shape.n_inputs, ROWS, shape.n_wires]))
    of_wires, of_gadget = weights_at(challenge.point, shape.degree)
    with contextlib.nullcontext() if shape.dim >= LEAST_COMPILED else plain_functions():
        at_point = combine(np.array(of_wires, np.uint64), _wires_of(inputs, first, shape))
        projected = _project(inputs, challenge.bits)
    values = found.tolist()
    gadget = sum(value * weight for value, weight in zip(values, of_gadget, strict=True)) % MODULUS
    total = np.array([sum(values[2::2]) % MODULUS], np.uint64)
    return np.concatenate([total, at_point, np.array([gadget], np.uint64), add(projected, masks)])


def is_norm_proof_valid(total: Words, shape: ProofShape) -> bool:
    """Whether the verifiers' answers add up to a norm within the bound.

    Args:
        total: (n_answer,), the sum of all answers.
    """
    at_point, gadget, projected = total[1 : 1 + shape.n_wires], total[1 + shape.n_wires], total[2 + shape.n_wires :]
    return bool(
        total[0] == shape.bound**2
        and _sums_of_squares(at_point) == gadget
        and (np.abs(to_signed(projected)) <= LARGEST_PROJECTION).all()
    )


def is_disagreement(n_failed: int, n_checked: int) -> bool:
    """Whether more than half of a cohort's proofs fail, so that a verifier is suspected of lying, and no device."""
    return 2 * n_failed > n_checked


def _wires_of(inputs: Words, first: Words, shape: ProofShape) -> Words:
    """(P, L): the values of the wire polynomials at the powers of alpha."""
    wires = np.zeros((shape.degree, shape.n_wires), np.uint64)
    wires[0] = first
    wires.reshape(-1)[shape.n_wires : shape.n_wires + shape.n_inputs] = inputs
    return wires


def _sums_of_squares(wires: Words) -> Words:
    """(...,): over the last axis of (..., L), the gadget's output for one value of each wire."""
    return sum_of(multiply(wires, wires))


def _draw_mask(shape: ProofShape, entropy: Entropy) -> NDArray[np.int64]:
    """(ROWS,): discrete Gaussian numbers, redrawn if too large."""
    drawn = draw_gaussian(ROWS, MASK_DEVIATION**2, entropy)
    while (large := np.flatnonzero(np.abs(drawn) > shape.largest_mask)).size:
        drawn[large] = draw_gaussian(large.size, MASK_DEVIATION**2, entropy)
    return drawn


def _project(inputs: Words, bits: NDArray[np.uint8]) -> Words:
    """(ROWS,): R x modulo p, from sums of halves that fit 64 bits."""
    low, high = from_signed(sum_halves(inputs, bits)).T
    return join_halves(low, high)
