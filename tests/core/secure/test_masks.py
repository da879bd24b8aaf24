"""Masks leave the sum of whoever arrived, exactly, and nothing less than it without each helper."""

from itertools import combinations

import numpy as np
import scipy

from foltr.core.secure.field import MODULUS, from_signed, to_signed
from foltr.core.secure.masks import expand_seed, mask_words, open_masks, release_sum, words_below

# Its 13,810th word of 65,536 is 0xffffffff90792e72, not below p: found by looking at three billion words.
SKIPPING_SEED, SKIPPED_AT, SKIPPED = (79_499).to_bytes(32, "big"), 13_809, 0xFFFFFFFF90792E72


class Cohort:
    """Clients that have each masked a vector for all helpers, and helpers with noise."""

    def __init__(self, rng, n_clients, n_helpers, dim=3):
        self.dim = dim
        self.vectors = rng.integers(-(2**40), 2**40, (n_clients, dim))
        self.noise = rng.integers(-(2**50), 2**50, (n_helpers, dim))
        self.seeds = [[rng.bytes(32) for _ in range(n_helpers)] for _ in range(n_clients)]
        self.masked = [
            mask_words(from_signed(vector), seeds) for vector, seeds in zip(self.vectors, self.seeds, strict=True)
        ]

    def answers(self, arrived):
        return [open_masks([self.seeds[i][h] for i in arrived], noise) for h, noise in enumerate(self.noise)]

    def error(self, arrived):
        """The released sum less the vectors' sum and the known noise."""
        released = release_sum([self.masked[i] for i in arrived], self.answers(arrived), self.dim)
        return to_signed(released) - self.vectors[list(arrived)].sum(axis=0) - self.noise.sum(axis=0)


def test_the_sum_is_exact_whoever_arrives(rng):
    for n_helpers in [2, 3]:
        for n_clients in range(1, 8):
            cohort = Cohort(rng, n_clients, n_helpers)
            for size in range(n_clients + 1):
                for arrived in combinations(range(n_clients), size):
                    assert not cohort.error(arrived).any(), (n_helpers, n_clients)


def test_a_masked_vector_and_a_sum_with_one_missing_answer_are_uniform(rng):
    """As is a set that the helpers do not agree on: nothing of the sum is left."""
    cohort = Cohort(rng, 3, 2, dim=4000)
    answers = cohort.answers([0, 1, 2])
    others = [answers[0], cohort.answers([0, 1])[1]]
    for held in (answers[:1], answers[1:], others):
        left = release_sum(cohort.masked, held, cohort.dim)
        assert scipy.stats.kstest(left / MODULUS, "uniform").pvalue > 1e-3
    masked = mask_words(np.zeros(20_000, np.uint64), [rng.bytes(32), rng.bytes(32)])
    assert masked.max() < MODULUS
    assert scipy.stats.kstest(masked / MODULUS, "uniform").pvalue > 1e-3


def test_a_mask_is_the_cipher_in_counter_mode_from_zero():
    """AES-256 of the zero block under the zero key is dc95c078...; the word behind one not below p takes its place."""
    block = bytes.fromhex("dc95c078a2408989ad48a21492842087")
    expected = [int.from_bytes(block[:8], "little"), int.from_bytes(block[8:], "little")]
    assert expand_seed(bytes(32), 2).tolist() == expected
    assert expand_seed(bytes(32), 5)[:2].tolist() == expected
    before = expand_seed(SKIPPING_SEED, SKIPPED_AT)
    words = expand_seed(SKIPPING_SEED, SKIPPED_AT + 10)
    assert SKIPPED >= MODULUS
    assert SKIPPED not in words.tolist()
    assert words.max() < MODULUS
    assert words[:SKIPPED_AT].tolist() == before.tolist()
    assert expand_seed(SKIPPING_SEED, SKIPPED_AT + 1)[-1] == words[SKIPPED_AT]
    words = iter([1, 2**64 - 1, 2, MODULUS, MODULUS, 3, 4])

    def stream(n):
        return b"".join(next(words).to_bytes(8, "little") for _ in range(n // 8))

    assert words_below(stream, 4).tolist() == [1, 2, 3, 4]
