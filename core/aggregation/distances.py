"""Squared distances between updates, in blocks of rows, by one matrix product.

|x - y|^2 = |x|^2 + |y|^2 - 2 x.y costs one product instead of n^2 d subtractions. It loses all digits if the updates
share a part that is large beside their differences, or if squares leave the range of float32. So the plain product is
tried first. A caller then asks `PairDistances.are_doubtful`, and if they are repeats the work with `careful_distances`:
in float64, relative to the median of each coordinate, which no minority of huge updates moves.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foltr.core.aggregation.coordinates import block_length, median

# A mean squared distance below this part of the squared norm has lost two of float32's seven digits.
_DOUBTFUL = 0.01
_MOST_BYTES = 64 * 1024 * 1024
_CAREFUL_BYTES = 2 * 1024 * 1024
_COLUMNS = 1024


@dataclass(frozen=True, slots=True, eq=False)
class PairDistances:
    """The squared distances among n rows (n, d), computed block by block.

    Attributes:
        squares: (n,) squared norms, of the rows less the centre.
        centre: (d,) float64 for the careful way; None for the plain one.
    """

    rows: NDArray[np.floating]
    squares: NDArray[np.floating]
    centre: NDArray[np.float64] | None = None

    @property
    def block_rows(self) -> int:
        """How many rows of distances to ask for at a time."""
        n = len(self.rows)
        length = block_length(self.rows, n, _MOST_BYTES, part=0.5)
        if self.centre is not None:
            # Each block centres all rows again: with short rows a share of the input would make very many blocks.
            length = max(length // 2, _CAREFUL_BYTES // (8 * n))
        return max(1, min(n, length))

    def less_own_square(self, start: int, stop: int) -> NDArray[np.floating]:
        """(stop - start, n): the squared distances less the squared norm of the first of each pair.

        Enough to order the distances from one row, and saves a pass over them.
        """
        products = self._products(start, stop)
        products *= -2
        products += self.squares
        return products

    def products(self) -> NDArray[np.floating]:
        """(n, n): the products of all rows, equal on both sides of the diagonal to the bit."""
        return self._products(0, len(self.rows))

    def complete(self, products: NDArray[np.floating], start: int, stop: int) -> None:
        """Turn some rows of `products` into squared distances in place, exactly symmetric."""
        products[start:stop] *= -2
        products[start:stop] += self.squares[start:stop, None] + self.squares

    def are_doubtful(self, mean_nearest: NDArray[np.floating]) -> bool:
        """Whether these (n,) means over some of the nearest squared distances of each row are too inaccurate."""
        if self.centre is not None:
            return False
        return not bool((mean_nearest >= _DOUBTFUL * self.squares).all())

    def _products(self, start: int, stop: int) -> NDArray[np.floating]:
        if self.centre is not None:
            return self._careful_products(self.centre, start, stop)
        part = self.rows[start:stop]
        # The product of an array with its own transpose costs half of any other.
        return self.rows @ self.rows.T if len(part) == len(self.rows) else part @ self.rows.T

    def _careful_products(self, centre: NDArray[np.float64], start: int, stop: int) -> NDArray[np.float64]:
        n, dim = self.rows.shape
        products = np.zeros((stop - start, n))
        length = min(_COLUMNS, block_length(self.rows, 2 * n, _MOST_BYTES))
        for left in range(0, dim, length):
            columns = slice(left, left + length)
            block = self.rows[:, columns] - centre[columns]
            part = block[start:stop]
            products += block @ block.T if len(part) == len(block) else part @ block.T
        return products


def plain_distances(rows: NDArray[np.floating]) -> PairDistances | None:
    """The quick way; None if squares of these rows leave the range of their dtype, or are all zero."""
    squares = np.einsum("ij,ij->i", rows, rows)
    largest = squares.max()
    limits = np.finfo(rows.dtype)
    # Above: room for the sum of four of them; below: squares of ordinary rows must stay above the smallest number.
    if not limits.tiny * 1e12 < largest < limits.max / 8:
        return None
    return PairDistances(rows, squares)


def careful_distances(rows: NDArray[np.floating]) -> PairDistances:
    """The accurate way, at three to five times the cost."""
    centre = median(rows, np.ones(len(rows))).vector
    squares = np.empty(len(rows))
    length = block_length(rows, 2 * rows.shape[1], _MOST_BYTES)
    for start in range(0, len(rows), length):
        block = rows[start : start + length] - centre
        squares[start : start + length] = np.einsum("ij,ij->i", block, block)
    return PairDistances(rows, squares, centre)
