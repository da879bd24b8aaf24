"""Polynomials modulo p by their values at roots of unity: from values to coefficients, back, and to any other point."""

from functools import lru_cache
from itertools import accumulate

import numpy as np

from foltr.core.secure.coins import Words
from foltr.core.secure.field import MODULUS, add, multiply, powers, root_of_unity, subtract


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
    """Return (n, m) values in between the given ones: at the odd powers of the 2n-th root of unity.

    Args:
        values: (n, m) at the even powers, of polynomials of degree below n.
    """
    coefficients = coefficients_of(values)
    shifts = np.broadcast_to(_powers_of_root(2 * len(values))[: len(values), np.newaxis], coefficients.shape)
    return values_of(multiply(coefficients, shifts))


def weights_at(point: int, n: int) -> tuple[list[int], list[int]]:
    """Return weights with which values at roots of unity add up to the value at a point, for two kinds of polynomials.

    For degree below n, (n,) for the values at the n-th roots r: (t^n - 1) / n * r / (t - r) each. And for degree below
    2n - 1, (2n - 1,) for those at the 2n-th roots except the last: the missing value follows from the others, because
    the coefficient of degree 2n - 1 is zero.

    Args:
        point: t, not a 2n-th root of unity.
        n: a power of two.
    """
    roots = _powers_of_root(2 * n).tolist()
    # r / (t - r); every second one is that of an n-th root.
    shares = [
        root * inverse % MODULUS for root, inverse in zip(roots, _inverses_of_distances(point, roots), strict=True)
    ]
    small, large = ((pow(point, order, MODULUS) - 1) * pow(order, -1, MODULUS) % MODULUS for order in (n, 2 * n))
    weights = [large * share % MODULUS for share in shares]
    last = weights.pop()
    return (
        [small * share % MODULUS for share in shares[::2]],
        [(weight - following * last) % MODULUS for weight, following in zip(weights, roots[1:], strict=True)],
    )


def _inverses_of_distances(point: int, roots: list[int]) -> list[int]:
    """Return each 1 / (t - r): the inverse of the whole product gives the last, and that of one less (Montgomery)."""
    distances = [point - root for root in roots]
    products = list(accumulate(distances, lambda left, right: left * right % MODULUS, initial=1))
    inverse = pow(products.pop(), -1, MODULUS)
    found = []
    for before, distance in zip(reversed(products), reversed(distances), strict=True):
        found.append(inverse * before % MODULUS)
        inverse = inverse * distance % MODULUS
    return found[::-1]


def _transform(values: Words, root: int) -> Words:
    """(n, m): sums over i of the values times root^(i j); halves with even and odd i are computed side by side."""
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
