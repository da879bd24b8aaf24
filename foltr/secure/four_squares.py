"""Every whole number is the sum of four squares (Lagrange, 1770); here four are found."""

import math


def four_squares(number: int) -> tuple[int, int, int, int]:
    """Return four whole numbers, none below zero, whose squares add up to this one.

    The largest root that fits is taken first, and again of what is left: then little is left for the last two, and a
    number that is no sum of two squares leads to the next smaller root. For numbers below 2^62 few are tried.

    Args:
        number: at least 0.
    """
    for first in range(math.isqrt(number), -1, -1):
        left = number - first * first
        if not _is_three_squares(left):
            continue
        for second in range(math.isqrt(left), -1, -1):
            pair = _two_squares(left - second * second)
            if pair is not None:
                return first, second, *pair
    raise ValueError(f"{number} is below zero")


def _is_three_squares(number: int) -> bool:
    """Whether a number is the sum of three squares: it is not 4^a (8b + 7) (Legendre, 1798)."""
    while number and number % 4 == 0:
        number //= 4
    return number % 8 != 7


def _two_squares(number: int) -> tuple[int, int] | None:
    """Two whole numbers whose squares add up to this one, the larger first; None where there are none."""
    for larger in range(math.isqrt(number), -1, -1):
        rest = number - larger * larger
        if rest > larger * larger:
            return None
        smaller = math.isqrt(rest)
        if smaller * smaller == rest:
            return larger, smaller
    return None
