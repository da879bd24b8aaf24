"""Polynomials modulo p by their values at roots of unity: from values to coefficients, back, and to any other point."""

from functools import lru_cache

import numpy as np

from foltr.secure.coins import Words
from foltr.secure.field import MODULUS, add, multiply, powers, root_of_unity, subtract


def values_of(coefficients: Words) -> Words:
    """Return (n, m) the values of m polynomials at the powers of the n-th root of unity, from 0 on.

    Args:
        coefficients: (n, m), the lowest first; n is a power of two.
    """
    return _transform(coefficients, root_of_unity(len(coefficients)))


def coefficients_of(values: Words) -> Words:
    """Return (n, m) the coefficients of the polynomials that have these values (`values_of`)."""
    n = len(values)
    raised = _transform(values, pow(root_of_unity(n), -1, MODULUS))
    return multiply(raised, np.full_like(raised, pow(n, -1, MODULUS)))


def odd_values(values: Words) -> Words:
    """Return (n, m) values between those that are given: at the odd powers of the 2n-th root of unity.

    Args:
        values: (n, m) at the even powers, of polynomials of degree below n.
    """
    coefficients = coefficients_of(values)
    shifts = np.broadcast_to(_powers_of_root(2 * len(values))[: len(values), np.newaxis], coefficients.shape)
    return values_of(multiply(coefficients, shifts))


def weights_at(point: int, n: int) -> Words:
    """Return (n,) with which the values at the n-th roots of unity add up to the value at a point.

    They are (t^n - 1) / n * r / (t - r) for each root r, of polynomials of degree below n.

    Args:
        point: t, which is no n-th root of unity.
        n: a power of two.
    """
    roots = _powers_of_root(n)
    factor = (pow(point, n, MODULUS) - 1) * pow(n, -1, MODULUS) % MODULUS
    inverses = inverses_of(subtract(np.full(n, point, np.uint64), roots))
    return multiply(multiply(inverses, roots), np.full(n, factor, np.uint64))


def weights_without_last(point: int, n: int) -> Words:
    """Return (n - 1,) as `weights_at`, of polynomials of degree below n - 1: their value at the last root is not asked.

    It follows from the others: the coefficient of degree n - 1 is zero.
    """
    weights = weights_at(point, n)
    following = np.roll(_powers_of_root(n), -1)[: n - 1]
    return subtract(weights[: n - 1], multiply(following, np.full(n - 1, weights[n - 1], np.uint64)))


def inverses_of(numbers: Words) -> Words:
    """Return (n,) the inverses modulo p of numbers that are not zero."""
    return np.array([pow(number, -1, MODULUS) for number in numbers.tolist()], np.uint64)


def _transform(values: Words, root: int) -> Words:
    """(n, m): sums over i of the values times root^(i j); halves with even and odd i go side by side."""
    n, m = values.shape
    if n == 1:
        return values
    halves = _transform(np.concatenate([values[0::2], values[1::2]], axis=1), root * root % MODULUS)
    even, odd = halves[:, :m], halves[:, m:]
    odd = multiply(odd, np.broadcast_to(powers(root, n // 2)[:, np.newaxis], odd.shape))
    return np.concatenate([add(even, odd), subtract(even, odd)])


@lru_cache(maxsize=32)
def _powers_of_root(n: int) -> Words:
    return powers(root_of_unity(n), n)
