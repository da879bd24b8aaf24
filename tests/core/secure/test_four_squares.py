"""Four squares are found for every number, small ones and large ones."""

import pytest

from foltr.core.secure.four_squares import four_squares


def test_the_squares_add_up():
    """Of each number below 3,000, of those that need all four, and of the largest that a bound has."""
    numbers = [*range(3000), *(4**a * (8 * b + 7) for a in range(12) for b in range(20)), 2**62 - 1, (2**31 - 1) ** 2]
    for number in numbers:
        squares = four_squares(number)
        assert min(squares) >= 0
        assert sum(square * square for square in squares) == number


def test_numbers_with_many_factors_of_four_take_no_longer():
    """All roots of such a number are multiples of a large power of two: only what is left without it is searched."""
    for number in (2**64 - 2**32, 7 * 4**28, 3 * 4**30, (2**32 - 5) ** 2 + 7 * 4**15, 2**62):
        assert sum(square * square for square in four_squares(number)) == number


def test_below_zero_there_are_none():
    with pytest.raises(ValueError, match="nonnegative"):
        four_squares(-1)
