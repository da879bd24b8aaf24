"""Masks: a masked vector reveals nothing by itself, and the masks leave the sum when each helper opens their sum.

A client sends y = q + PRG(s_1) + ... + PRG(s_c) modulo p, and gives the seed s_h to helper h alone. For a set of
clients the helper answers a_h = sum of PRG(s_h) - its noise, and sum of y - sum of the a_h is the sum of the q with the
noise of all helpers in it. It is additive secret sharing with one long share and short ones: the trust model of Prio
(Corrigan-Gibbs & Boneh, NSDI 2017). While one helper keeps its seeds secret, each y is a uniformly random vector to
everybody else. A client that vanishes is in neither sum, so nothing has to be repaired.

PRG is AES-256 in counter mode from the zero block on (`seeded_entropy`), read as little-endian words; words not below p
are skipped, so that the rest is uniform.
"""

from collections.abc import Iterable
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from foltr.core.secure.coins import Entropy, Words, seeded_entropy
from foltr.core.secure.field import MODULUS, add_up, from_signed, subtract


def mask_words(words: Words, seeds: Iterable[bytes]) -> Words:
    """Return (n,) a client's numbers behind a mask for each helper.

    Args:
        words: (n,) below p: the client's integers modulo p, and the numbers that go with them.
        seeds: one for each helper, fresh and used for nothing else.
    """
    return add_up(chain([words], (expand_seed(seed, words.size) for seed in seeds)), words.size)


def open_masks(seeds: Iterable[bytes], noise: NDArray[np.int64]) -> Words:
    """Return (d,) a helper's answer: the sum of a set's masks less its own noise.

    Args:
        seeds: those that the clients of the set have sealed to this helper.
        noise: (d,) the whole noise, or zeros if the clients have added it.
    """
    return subtract(add_up_masks(seeds, noise.size), from_signed(noise))


def release_sum(masked: Iterable[Words], answers: Iterable[Words], dim: int) -> Words:
    """Return (d,) the sum of the clients' integers with the helpers' noise in it, modulo p.

    Read as signed integers (`to_signed`) it is that sum if it is below p / 2.

    Args:
        masked: what the clients of the set have sent.
        answers: those of all helpers, for exactly this set; without one of them the result is uniformly random.
        dim: d.
    """
    return subtract(add_up(masked, dim), add_up(answers, dim))


def add_up_masks(seeds: Iterable[bytes], dim: int) -> Words:
    """Return (d,) the sum of the masks of these seeds, with only one in memory at a time."""
    return add_up((expand_seed(seed, dim) for seed in seeds), dim)


def expand_seed(seed: bytes, dim: int) -> Words:
    """Return (d,) uniform numbers below p that follow from a seed of 32 bytes."""
    return words_below(seeded_entropy(seed), dim)


def words_below(stream: Entropy, dim: int) -> Words:
    """Return (d,) the first words of a stream of bytes that are below p."""
    words = np.frombuffer(stream(8 * dim), "<u8")
    below = words < np.uint64(MODULUS)
    if below.all():
        return words.astype(np.uint64, copy=False)
    kept = words[below].astype(np.uint64)
    return np.concatenate([kept, words_below(stream, dim - kept.size)])
