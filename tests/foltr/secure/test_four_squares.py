"""Four squares are found for every number, small ones and large ones."""

from foltr.secure.four_squares import four_squares


def test_the_squares_add_up():
    """Of each number below 3,000, of those that need all four, and of the largest that a bound has."""
    numbers = [*range(3000), *(4**a * (8 * b + 7) for a in range(12) for b in range(20)), 2**62 - 1, (2**31 - 1) ** 2]
    for number in numbers:
        squares = four_squares(number)
        assert min(squares) >= 0
        assert sum(square * square for square in squares) == number
