"""A norm proof is accepted of whoever keeps the bound, and of nobody else."""

import math
import os

import numpy as np
import pytest

from foltr.core.errors import SettingsError
from foltr.core.secure.accounting import LARGEST_PROJECTION, MASK_DEVIATION, NORM_PROOF_DELTA, check_masks
from foltr.core.secure.encoding import bound_for, encode_l2
from foltr.core.secure.field import add, from_signed, multiply, subtract, sum_of
from foltr.core.secure.masks import expand_seed, mask_words
from foltr.core.secure.norm_proof import (
    ROWS,
    ProofShape,
    answer_share,
    challenge_for,
    is_norm_proof_valid,
    proof_shape,
    prove_norm,
)
from foltr.core.secure.norm_sums import combine
from foltr.core.secure.polynomials import odd_values, weights_at

VERIFY_KEY, TICKET = bytes(range(32)), bytes(32)


def accepted(values: np.ndarray, shape: ProofShape, n_helpers: int = 2) -> bool:
    """Whether federator and helpers together accept what a device has masked."""
    seeds = [os.urandom(32) for _ in range(n_helpers)]
    challenge = challenge_for(VERIFY_KEY, TICKET, shape)
    total = answer_share(mask_words(values, seeds), challenge, shape)
    for seed in seeds:
        share = subtract(np.zeros(shape.n_values, np.uint64), expand_seed(seed, shape.n_values))
        total = add(total, answer_share(share, challenge, shape))
    return is_norm_proof_valid(total, shape)


def honest(dim: int, rng: np.random.Generator) -> tuple[np.ndarray, ProofShape]:
    """(n_values,) at the bound, as an honest device sends it before the masks."""
    shape = proof_shape(dim, bound_for(dim))
    encoded = encode_l2(rng.normal(size=dim), 1e-6, shape.bound, rng.bytes)
    return np.concatenate([from_signed(encoded), prove_norm(encoded, shape)]), shape


def test_gadget_polynomials_are_those_of_the_draft():
    """Values of G and of the wires at a point, as the reference code of draft-irtf-cfrg-vdaf-20 has them."""
    wires = np.array([[7, 8], [1, 2], [3, 4], [5, 6]], np.uint64)
    found = np.empty(8, np.uint64)
    found[0::2] = sum_of(multiply(wires, wires))
    between = odd_values(wires)
    found[1::2] = sum_of(multiply(between, between))
    assert found[:7].tolist() == [*(113, 5018170599418903, 5, 18441677519833792552, 25, 5114928562164759, 61)]
    of_wires, of_gadget = (np.array(weights, np.uint64) for weights in weights_at(9, 4))
    assert combine(of_wires, wires).tolist() == [18244082086182912824, 18244082086182912825]
    assert combine(of_gadget, found[:7, np.newaxis]).tolist() == [14960957803211317302]
    assert int(sum_of(found[2:7:2])) == 91


def test_an_honest_device_is_accepted():
    for dim in [1, 46, 136, 1000]:
        values, shape = honest(dim, np.random.default_rng(dim))
        assert accepted(values, shape), dim


def test_one_more_anywhere_is_rejected():
    """In the encoding, the squares, the first wire values, G: each is bound by the equation or by the secret point."""
    for part in ["encoding", "squares", "first", "gadget"]:
        values, shape = honest(136, np.random.default_rng(1))
        at = {"encoding": 5, "squares": 137, "first": shape.n_inputs + 96, "gadget": shape.n_values - 3}[part]
        values[at] = add(values[at : at + 1], np.ones(1, np.uint64))[0]
        assert not accepted(values, shape), part


def test_shapes_are_the_shortest_and_there_is_one_for_what_a_policy_can_ask_for():
    """Up to the longest vector of whose norm there are proofs; a larger bound has neither policy nor shape."""
    small, large = proof_shape(136, 256), proof_shape(20_000, 566)
    assert (small.degree, small.n_wires, small.n_answer) == (8, 20, 118)
    assert (large.degree, large.n_wires, large.n_answer) == (128, 158, 256)
    for dim, bound in [(1_997_546, 1343), (13, 460_363), (136, 160_420)]:
        check_masks(dim, bound)
        assert proof_shape(dim, bound).largest_mask > 78 * LARGEST_PROJECTION // 80, (dim, bound)
        for refuse in (check_masks, proof_shape):
            with pytest.raises(SettingsError, match="too long for the masks"):
                refuse(dim, bound + 1)


def test_delta_covers_long_projections_and_cut_masks():
    """For the longest vectors that a policy may have, of which masks are cut most; 1 for what is discrete."""
    room = LARGEST_PROJECTION / 80
    cut = LARGEST_PROJECTION - room - 1
    beyond = ROWS * math.erfc((cut - 2 * room - 1) / MASK_DEVIATION / math.sqrt(2)) / 2
    longer = math.exp(-(255 - ROWS) / 2) * (255 / ROWS) ** (ROWS / 2)
    kept = 1 - ROWS * math.erfc((cut - 1) / MASK_DEVIATION / math.sqrt(2))
    for delta in (1e-6, 1e-3):
        assert beyond + longer + delta * (1 / kept - 1) < NORM_PROOF_DELTA
