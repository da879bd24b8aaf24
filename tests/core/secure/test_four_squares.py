"""Four squares are found for every number, small ones and large ones."""

import pytest

from foltr.core.secure.four_squares import four_squares


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
