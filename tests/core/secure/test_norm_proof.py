"""Shapes of norm proofs, and the delta that they are charged."""

import math

import pytest

from foltr.core.errors import SettingsError
from foltr.core.secure.accounting import LARGEST_PROJECTION, MASK_DEVIATION, NORM_PROOF_DELTA, check_masks
from foltr.core.secure.norm_proof import ROWS, proof_shape


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
