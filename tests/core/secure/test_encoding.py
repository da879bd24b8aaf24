"""Encoded updates keep within their bound whatever they are, and their sum stands for the updates' mean."""

import math
import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as of_numpy

from foltr.core.errors import SettingsError
from foltr.core.secure.accounting import N_EVALUATION
from foltr.core.secure.encoding import bound_for, clip_norm_for, decode_mean, encode_l1, encode_l2
from foltr.core.secure.evaluation import encode_evaluation, longest_evaluation
from foltr.core.secure.field import add_up, from_signed

C = 0.15
ENCODINGS = [(encode_l2, 2), (encode_l1, 1)]


def length(encoded, power):
    """Of integers, as the bound has it: nothing is rounded."""
    return sum(abs(one) ** power for one in encoded.tolist())


def ones(n):
    """Draws as near to 1 as they come: whatever can be rounded up is."""
    return b"\xff" * n


def test_the_bound_and_the_clip_norm_follow_the_formulas():
    """max(256, ceil(4 sqrt(d))) and 0.15 sqrt(B) (learning rate / 0.1)."""
    for dim, bound in [(1, 256), (136, 256), (4096, 256), (4097, 257), (20_000, 566)]:
        assert bound_for(dim) == bound == max(256, math.ceil(4 * math.sqrt(dim))), (dim, bound)
    assert clip_norm_for(4, 0.1) == pytest.approx(0.3)
    assert clip_norm_for(1, 0.02) == pytest.approx(0.03)


@pytest.mark.parametrize(("encode", "power"), ENCODINGS)
@settings(derandomize=True)
@given(
    update=of_numpy.arrays(np.float64, st.integers(0, 40), elements=st.floats(width=64)),
    clip_norm=st.sampled_from([1e-300, 1e-3, 0.15, 1e9]),
    bound=st.sampled_from([1, 3, 256]),
    entropy=st.sampled_from([ones, bytes, np.random.default_rng(3).bytes]),
)
def test_no_update_is_encoded_beyond_the_bound(encode, power, update, clip_norm, bound, entropy):
    """Not finite, tiny or huge, and with the worst draws; checked in integers."""
    encoded = encode(update, clip_norm, bound, entropy)
    assert encoded.shape == update.shape
    assert encoded.dtype == np.int64
    assert length(encoded, power) <= bound**power


def test_a_long_update_is_shortened_to_the_bound(rng):
    """Fifty times C: the direction stays, the norm is the bound but for rounding, which adds less than one."""
    for encode, power in ENCODINGS:
        for dim in [1, 136, 20_000]:
            direction = rng.normal(size=dim)
            update = direction * 50 * C / np.linalg.norm(direction, power)
            bound = bound_for(dim)
            encoded = encode(update, C, bound, rng.bytes)
            assert (0.98 * bound) ** power <= length(encoded, power) <= bound**power, (encode, power, dim)
            if dim <= 136:
                cosine = encoded @ update / np.linalg.norm(encoded) / np.linalg.norm(update)
                assert cosine > 0.99 if power == 2 else cosine > 0.9, (encode, power, dim)
    update = np.full(10_000, 0.01)
    encoded = encode_l1(update, 200.0, 200, rng.bytes)
    assert 99 <= length(encoded, 1) <= 101


def test_encodings_are_the_update_on_average(rng):
    """Each coordinate of the mean of thousands is within five deviations of the update over the grid's step."""
    for encode, power in ENCODINGS:
        for scale in [0.5, 1.0]:
            direction = rng.normal(size=30)
            update = scale * 0.98 * C * direction / np.linalg.norm(direction, power)
            encoded = np.array([encode(update, C, 256, rng.bytes) for _ in range(4000)])
            expected = update * 256 / C
            # A coordinate between two grid points deviates by at most half a step.
            assert np.abs(encoded.mean(axis=0) - expected).max() < 5 * 0.5 / math.sqrt(4000), (encode, power, scale)


def test_zeros_and_what_is_not_finite_are_encoded_as_zeros():
    """An update on the grid is encoded exactly, and a clip without a length is refused."""
    for encode in [encode_l2, encode_l1]:
        for value in [math.nan, math.inf, -math.inf]:
            assert encode(np.array([1.0, value, 2.0]), C, 256, ones).tolist() == [0, 0, 0], (encode, value)
        assert encode(np.zeros(5, np.float32), C, 256, ones).tolist() == [0] * 5, encode
        assert encode(np.array([3, -2, 0, 100]), 256.0, 256, os.urandom).tolist() == [3, -2, 0, 100], "on the grid"
        assert encode(np.array([0.0, -77.0]), 1.0, 256, os.urandom).tolist() == [0, -256], encode
        for clip_norm in [0.0, -1.0, math.nan, math.inf]:
            with pytest.raises(SettingsError, match="clip_norm"):
                encode(np.ones(3), clip_norm, 256, ones)


def test_a_sum_is_decoded_to_the_mean(rng):
    updates = rng.normal(size=(50, 20)) * C / 10
    encoded = [from_signed(encode_l2(update, C, 256, rng.bytes)) for update in updates]
    mean = decode_mean(add_up(encoded, 20), 50, C, 256)
    assert np.abs(mean - updates.mean(axis=0)).max() < 5 * 0.5 * (C / 256) / math.sqrt(50)
    assert mean.dtype == np.float64


WEIGHT = 32


def drawing(share):
    """Random bytes that are so large a part of the largest number."""
    return lambda n: min(2**64 - 1, int(share * 2**64)).to_bytes(n, "little")


def test_one_draw_decides_all_three(rng):
    """So nothing is earned without a click, and the difference of two has the variance of their difference alone."""
    means, n = (0.6, 0.5, 0.45), 5_000
    clicked, reward, base = np.array([encode_evaluation(means, 1, rng.bytes) for _ in range(n)]).T
    assert (clicked >= reward).all()
    assert (reward >= base).all()
    asked = []
    encode_evaluation(means, 1, lambda n: asked.append(n) or bytes(n))
    assert len(asked) == 1


def test_what_is_sure_is_sure_and_a_probability_is_the_mean_to_the_last_digit():
    """Who says nothing looks like who was not clicked; the longest has all three at the weight."""
    for share in [0.0, 0.25, 0.5, 1.0]:
        assert encode_evaluation((1.0, 0.0, 1.0), WEIGHT, drawing(share)).tolist() == [WEIGHT, 0, WEIGHT], share
    for share, earned in [(0.24, True), (0.25, False), (0.26, False)]:
        assert encode_evaluation((0.25,) * 3, WEIGHT, drawing(share)).tolist() == [WEIGHT * earned] * 3, (share, earned)
    assert encode_evaluation(None, WEIGHT, os.urandom).tolist() == [0, 0, 0]
    assert encode_evaluation((0.0, 0.0, 0.0), WEIGHT, os.urandom).tolist() == [0, 0, 0]
    assert encode_evaluation((1.0, 1.0, 1.0), 0, os.urandom).size == 0
    assert longest_evaluation(WEIGHT).tolist() == encode_evaluation((1.0,) * 3, WEIGHT, os.urandom).tolist()
    assert longest_evaluation(WEIGHT).size == N_EVALUATION
    assert longest_evaluation(0).size == 0
