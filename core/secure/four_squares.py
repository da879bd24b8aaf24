"""Every whole number is the sum of four squares (Lagrange, 1770); here four are found."""

import math


def four_squares(number: int) -> tuple[int, int, int, int]:
    """Return four whole numbers, none below zero, whose squares add up to this one.

    Takes the largest root that fits first, and again for the rest: then little is left for the last two. A rest that is
    not a sum of two squares leads to the next smaller root; for numbers below 2^64 few are tried. Factors of four are
    removed before each step; otherwise only roots that are multiples of a large power of two might work.

    Args:
        number: at least 0.
    """
    number, scale = _without_fours(number)
    for first in range(math.isqrt(number), -1, -1):
        others = _three_squares(number - first * first)
        if others is not None:
            return scale * first, scale * others[0], scale * others[1], scale * others[2]
    raise AssertionError(f"{number} is the sum of four squares")


def _three_squares(number: int) -> tuple[int, int, int] | None:
    """Return three whole numbers whose squares add up to this one; None for 4^a (8b + 7) (Legendre, 1798)."""
    number, scale = _without_fours(number)
    if number % 8 == 7:
        return None
    for first in range(math.isqrt(number), -1, -1):
        pair = _two_squares(number - first * first)
        if pair is not None:
            return scale * first, scale * pair[0], scale * pair[1]
    raise AssertionError(f"{number} is the sum of three squares")


def _without_fours(number: int) -> tuple[int, int]:
    """Return the number without its factors of four, and the root of these factors."""
    scale = 1
    while number > 0 and number % 4 == 0:
        number, scale = number // 4, 2 * scale
    return number, scale


def _two_squares(number: int) -> tuple[int, int] | None:
    """Return two whole numbers whose squares add up to this one, the larger first; None if impossible."""
    for larger in range(math.isqrt(number), -1, -1):
        rest = number - larger * larger
        if rest > larger * larger:
            return None
        smaller = math.isqrt(rest)
        if smaller * smaller == rest:
            return larger, smaller
    return None
