"""Coins with exact probabilities: what the first digit decides, and what it leaves open."""

import math

import numpy as np
import pytest
import scipy
from hypothesis import given, settings
from hypothesis import strategies as st

from foltr.core.secure import coins

N = 100_000


def prepared(*drawn: int):
    """Entropy that gives these words, and no byte more."""
    left = b"".join(word.to_bytes(8, "little") for word in drawn)

    def give(n: int) -> bytes:
        nonlocal left
        assert n <= len(left)
        given_now, left = left[:n], left[n:]
        return given_now

    return give


@settings(derandomize=True)
@given(st.integers(1, coins.LARGEST_DENOMINATOR), st.data())
def test_binary_digits_are_those_of_the_fraction(denominator, data):
    numerators = data.draw(st.lists(st.integers(0, denominator - 1), min_size=1, max_size=5))
    expected = [(numerator << 64) // denominator for numerator in numerators]
    assert coins.binary_digits(np.array(numerators, np.uint64), denominator).tolist() == expected


def test_a_uniform_number_is_compared_until_a_digit_differs():
    """A third is 0.5555... in digits of 64 bits. 2^64 leaves the remainder 1 by 3: the largest word is drawn again."""
    third = 0x5555555555555555
    assert coins.is_below(1, 3, prepared(third, third, third - 1))
    assert not coins.is_below(1, 3, prepared(third, third + 1))
    assert not coins.is_below(0, 3, prepared(0, 0, 1))
    assert coins.uniform_below(3, 2, prepared(2**64 - 1, 2**64 - 2, 5)).tolist() == [2, 2]
    assert coins.uniform_below(4, 1, prepared(2**64 - 1)).tolist() == [3]


def test_an_open_comparison_is_decided_by_the_fraction_itself():
    """exp(-1/3): the first coin's digit is equal, the next one says heads; the second coin, of 1/6, shows tails."""
    asked = []

    def fraction_of(i):
        asked.append(i)
        return 1, 3

    digits = coins.binary_digits(np.array([1], np.uint64), 3)
    heads = coins.flip_exponential(digits, fraction_of, prepared(int(digits[0]), 0, 2**64 - 1))
    assert asked == [0]
    # Tails at the second coin: an even number of flips, so tails.
    assert heads.tolist() == [False]
    assert coins.flip_exponential(digits, fraction_of, prepared(int(digits[0]), 2**64 - 1)).tolist() == [True]


def test_numbers_below_a_bound_are_equally_likely(rng):
    """Coins show heads as often as the exponential says, runs are geometric, and bits are fair."""
    for bound in [1, 2, 3, 10, 789]:
        drawn = coins.uniform_below(bound, N, rng.bytes)
        counts = np.bincount(drawn.astype(np.int64), minlength=bound)
        assert counts.size == bound, bound
        assert bound == 1 or scipy.stats.chisquare(counts).pvalue > 1e-3, bound
    for numerator, denominator in [(0, 7), (1, 1000), (1, 3), (1, 2), (999, 1000)]:
        digits = np.full(N, (numerator << 64) // denominator, np.uint64)
        heads = int(coins.flip_exponential(digits, lambda _, odds=(numerator, denominator): odds, rng.bytes).sum())
        assert scipy.stats.binomtest(heads, N, math.exp(-numerator / denominator)).pvalue > 1e-3
    drawn = coins.draw_geometric(N, rng.bytes)
    counts = np.bincount(np.minimum(drawn, 8))
    expected = [math.exp(-v) * (1 - math.exp(-1)) for v in range(8)] + [math.exp(-8)]
    assert scipy.stats.chisquare(counts, np.array(expected) * N).pvalue > 1e-3
    assert coins.random_bits(13, rng.bytes).shape == (13,)
    assert scipy.stats.binomtest(int(coins.random_bits(N, rng.bytes).sum()), N).pvalue > 1e-3


def test_bytes_of_a_seed_are_the_cipher_in_counter_mode_from_zero():
    """AES-256 of the zero block under the zero key is dc95c078...; however they are asked for, they go on."""
    entropy = coins.seeded_entropy(bytes(32))
    assert entropy(16) == bytes.fromhex("dc95c078a2408989ad48a21492842087")
    again = coins.seeded_entropy(bytes(32))
    assert again(5) + again(0) + again(27) == bytes.fromhex("dc95c078a2408989ad48a21492842087") + entropy(16)
    for seed in [b"", bytes(31), bytes(16), bytes(33)]:
        with pytest.raises(ValueError, match="a seed has 32 bytes"):
            coins.seeded_entropy(seed)
