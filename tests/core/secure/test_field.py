"""Arithmetic modulo p is that of integers of any size."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foltr.core.errors import MessageError
from foltr.core.secure.field import (
    MODULUS,
    add,
    add_up,
    from_signed,
    multiply,
    read_words,
    subtract,
    sum_of,
    to_signed,
    write_words,
)

EDGES = [0, 1, 2**32 - 2, 2**32 - 1, 2**32, 2**63, MODULUS // 2, MODULUS // 2 + 1, MODULUS - 2**32, MODULUS - 1]
numbers = st.lists(st.tuples(*2 * [st.sampled_from(EDGES) | st.integers(0, MODULUS - 1)]), min_size=1)


@settings(derandomize=True)
@given(numbers)
def test_sums_differences_and_products_are_those_of_integers(pairs):
    left, right = (np.array(side, np.uint64) for side in zip(*pairs, strict=True))
    assert add_up([left, right], len(pairs)).tolist() == [(a + b) % MODULUS for a, b in pairs]
    assert add(left, right).tolist() == [(a + b) % MODULUS for a, b in pairs]
    assert subtract(left, right).tolist() == [(a - b) % MODULUS for a, b in pairs]
    products = multiply(left, right)
    assert products.tolist() == [a * b % MODULUS for a, b in pairs]
    assert int(sum_of(products)) == sum(a * b for a, b in pairs) % MODULUS


@settings(derandomize=True)
@given(st.lists(st.tuples(*3 * [st.sampled_from(EDGES) | st.integers(0, MODULUS - 1)]), max_size=40))
def test_a_sum_of_many_is_that_of_integers(vectors):
    total = add_up([np.array(vector, np.uint64) for vector in vectors], 3)
    assert total.tolist() == [sum(vector[i] for vector in vectors) % MODULUS for i in range(3)]
    minus_one = np.full(2, MODULUS - 1, np.uint64)
    assert to_signed(add_up((minus_one for _ in range(5000)), 2)).tolist() == [-5000, -5000]


@settings(derandomize=True)
@given(st.lists(st.integers(-(MODULUS // 2), MODULUS // 2), min_size=1))
def test_integers_around_zero_come_back(values):
    signed = np.array(values, np.int64)
    assert from_signed(signed).tolist() == [value % MODULUS for value in values]
    assert to_signed(from_signed(signed)).tolist() == values


def test_words_are_read_as_they_were_written():
    """The low byte first; another length, p itself or the largest word would let one vector have two names."""
    words = np.array([1, 2**32, MODULUS - 1], np.uint64)
    assert write_words(words) == b"".join(number.to_bytes(8, "little") for number in words.tolist())
    assert read_words(write_words(words), 3).tolist() == words.tolist()
    good = np.array([0, MODULUS - 1], "<u8").tobytes()
    assert read_words(good, 2).tolist() == [0, MODULUS - 1]
    assert read_words(b"", 0).tolist() == []
    for word in (MODULUS, 2**64 - 1):
        with pytest.raises(MessageError, match="number 1 of a masked vector is not below"):
            read_words(np.array([0, word], "<u8").tobytes(), 2)
    for data in (good[:-1], good + b"\0", b""):
        with pytest.raises(MessageError, match="has 16 bytes"):
            read_words(data, 2)
