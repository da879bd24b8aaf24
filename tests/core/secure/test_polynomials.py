"""Polynomials by their values are those by their coefficients, as plain integers compute them."""

import numpy as np
import pytest

from foltr.core.secure.field import MODULUS, root_of_unity
from foltr.core.secure.four_squares import four_squares
from foltr.core.secure.norm_sums import combine
from foltr.core.secure.polynomials import coefficients_of, odd_values, values_of, weights_at


def at(coefficients: list[int], point: int) -> int:
    return sum(c * pow(point, i, MODULUS) for i, c in enumerate(coefficients)) % MODULUS


def drawn(n: int, m: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, MODULUS, (n, m), np.uint64)


def test_values_are_those_at_the_roots():
    """At the powers of the root of unity, which is of that order, between them, and back to the coefficients."""
    for n in [1, 2, 4, 8, 64]:
        coefficients, root = drawn(n, 3, n), root_of_unity(2 * n)
        values = values_of(coefficients)
        for j in range(3):
            column = coefficients[:, j].tolist()
            assert values[:, j].tolist() == [at(column, pow(root, 2 * i, MODULUS)) for i in range(n)], n
            assert odd_values(values)[:, j].tolist() == [at(column, pow(root, 2 * i + 1, MODULUS)) for i in range(n)], n
        assert np.array_equal(coefficients_of(values), coefficients), n
    for order in (2, 4, 256, 2**32):
        assert pow(root_of_unity(order), order // 2, MODULUS) == MODULUS - 1


def test_weights_lead_to_any_other_point():
    """Of degree below n, and of a degree below 2n - 1 without the last value. At 0, too, which is no root of unity."""
    for n in [2, 4, 8, 128]:
        for point in [0, 9, 2**32, MODULUS - 2]:
            of_wires, of_gadget = (np.array(weights, np.uint64) for weights in weights_at(point, n))
            short, long = drawn(n, 1, point % 97), drawn(2 * n, 1, point % 89)
            long[-1] = 0
            assert combine(of_wires, values_of(short)).tolist() == [at(short[:, 0].tolist(), point)], (n, point)
            assert combine(of_gadget, values_of(long)[:-1]).tolist() == [at(long[:, 0].tolist(), point)], (n, point)


def test_the_squares_add_up():
    """Below 3,000, of those that need all four, of the largest of a bound, and with many factors of four."""
    numbers = [*range(3000), *(4**a * (8 * b + 7) for a in range(12) for b in range(20)), 2**62 - 1, (2**31 - 1) ** 2]
    for number in numbers:
        squares = four_squares(number)
        assert min(squares) >= 0
        assert sum(square * square for square in squares) == number
    for number in (2**64 - 2**32, 7 * 4**28, 3 * 4**30, (2**32 - 5) ** 2 + 7 * 4**15, 2**62):
        assert sum(square * square for square in four_squares(number)) == number
    with pytest.raises(ValueError, match="nonnegative"):
        four_squares(-1)
