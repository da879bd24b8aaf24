"""Arithmetic modulo p = 2^64 - 2^32 + 1, on arrays of 64-bit words.

The prime is Field64 of the verifiable distributed aggregation functions of the IETF (VDAF), so that proofs about shared
numbers can use the same sharing. Nearly every 64-bit word is a number below p, and 2^64 is 2^32 - 1 modulo p, so a sum
is a sum of words with a correction for each carry.
"""

from collections.abc import Iterable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from foltr.core.errors import MessageError
from foltr.core.secure.coins import Words

MODULUS: Final = 2**64 - 2**32 + 1
GENERATOR: Final = 7
"""Its powers are all numbers but zero."""
P: Final = np.uint64(MODULUS)
HALF: Final = np.uint64(32)
"""Half a word, in bits."""
LOW: Final = np.uint64(2**32 - 1)
"""The low half of a word."""
CARRY: Final = np.uint64(2**64 - MODULUS)
"""2^64 modulo p."""


def read_words(data: bytes, dim: int) -> Words:
    """Return (dim,) numbers below p from a peer's bytes: little-endian words of 64 bits.

    Raises:
        MessageError: it is of another length, or a word is not below p: such a word would be a second form of a number.
    """
    if len(data) != 8 * dim:
        raise MessageError("malformed", f"a masked vector of {dim} numbers has {8 * dim} bytes, not {len(data)}")
    words = np.frombuffer(data, "<u8").astype(np.uint64)
    if words.size and words.max() >= P:
        raise MessageError("malformed", f"number {int(words.argmax())} of a masked vector is not below {MODULUS}")
    return words


def write_words(words: Words) -> bytes:
    """Return numbers in the form for sending and storing: little-endian words of 64 bits."""
    return words.astype("<u8", copy=False).tobytes()


def from_signed(values: NDArray[np.int64]) -> Words:
    """Return signed integers modulo p."""
    words = values.astype(np.uint64)
    words -= _where(values < 0, CARRY)
    return words


def to_signed(words: Words) -> NDArray[np.int64]:
    """Return the signed integers, from -(p - 1) / 2 to (p - 1) / 2, that equal these numbers modulo p."""
    lifted = _where(words > np.uint64(MODULUS // 2), CARRY)
    lifted += words
    return lifted.view(np.int64)


def subtract(left: Words, right: Words) -> Words:
    """Return the differences modulo p of numbers below p."""
    difference = _where(left < right, P)
    difference += left
    difference -= right
    return difference


def add(left: Words, right: Words) -> Words:
    """Return the sums modulo p of numbers below p."""
    total = left + right
    total += _where(total < left, CARRY)  # for 2^64; the sum was at most 2p - 2, so this does not carry
    total -= _where(total >= P, P)
    return total


def multiply(left: Words, right: Words) -> Words:
    """Return the products modulo p of numbers below p.

    A product has 128 bits, four words of 32. Modulo p a unit of the third word is 2^32 - 1, and of the fourth -1.
    """
    left_low, left_high = left & LOW, left >> HALF
    right_low, right_high = right & LOW, right >> HALF
    low = left_low * right_low
    first = left_low * right_high + (low >> HALF)
    second = left_high * right_low + (first & LOW)
    high = left_high * right_high + (first >> HALF) + (second >> HALF)
    low = (second << HALF) | (low & LOW)
    fourth, third = high >> HALF, high & LOW
    rest = low - fourth
    rest -= _where(low < fourth, CARRY)
    third = (third << HALF) - third
    product: Words = rest + third
    product += _where(product < third, CARRY)
    product -= _where(product >= P, P)
    return product


def sum_of(words: Words) -> Words:
    """Return (...,) the sums modulo p over the last axis of (..., n) numbers below p, n below 2^31."""
    # With the axis kept: for a single number NumPy makes a scalar, which warns when it wraps around.
    low = (words & LOW).sum(axis=-1, dtype=np.uint64, keepdims=True)
    high = (words >> HALF).sum(axis=-1, dtype=np.uint64, keepdims=True)
    low -= _where(low >= P, P)
    total: Words = join_halves(low, high)[..., 0]
    return total


def join_halves(low: Words, high: Words) -> Words:
    """Return low + 2^32 high modulo p, of numbers below p."""
    return add(multiply(high, np.full_like(high, 2**32)), low)


def powers(base: int, n: int) -> Words:
    """Return (n,) the powers 0 to n - 1 of a number, modulo p."""
    found, power = np.empty(n, np.uint64), 1
    for i in range(n):
        found[i] = power
        power = power * base % MODULUS
    return found


def root_of_unity(order: int) -> int:
    """Return 7^((p - 1) / order), a number of exactly this order; it is a power of two up to 2^32."""
    return pow(GENERATOR, (MODULUS - 1) // order, MODULUS)


def add_up(vectors: Iterable[Words], dim: int) -> Words:
    """Return (dim,) the sum modulo p of vectors of numbers below p, added one after another.

    Args:
        vectors: each (dim,), fewer than 2^32 of them.
        dim: of each, and of an empty sum.
    """
    total, carries = np.zeros(dim, np.uint64), np.zeros(dim, np.uint32)
    for vector in vectors:
        total += vector
        carries += total < vector
    part = _where(total >= P, P)
    total -= part
    # 2^64 times the carries, each 2^32 - 1 modulo p: below p together.
    np.multiply(carries, CARRY, out=part)
    total += part
    np.multiply((total < part) | (total >= P), P, out=part)
    total -= part
    return total


def _where(condition: NDArray[np.bool_], word: np.uint64) -> Words:
    """(n,): the word if the condition holds, else zero; without branches, which random words mispredict.

    This module avoids new arrays: of some sizes each comes from the system page by page, which takes as long as twenty
    additions.
    """
    words = condition.astype(np.uint64)
    words *= word
    return words
