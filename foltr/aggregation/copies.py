"""Clients that send nearly the same in a round have the weight of one: who copies adds nothing, and harms nobody.

FoolsGold looks for alike directions and punishes those who share one (Fung et al. 2020). Here nobody is punished, since
who was copied looks like a copy: the group is counted once, whoever of it was first.
"""

import numpy as np
from numpy.typing import NDArray

# Relative to the median squared distance of two updates of the round: whatever honest ones have in common, there it is
# gone. And relative to that of two so long that have nothing in common: where lists are hardly explored some are tiny,
# and all tiny ones are near each other, whatever they say.
_NEAR = 0.1
# Others whose distances say what is usual; more would say the same.
_SAMPLE = 256
_PAIRS_AT_A_TIME = 128


def shares_of_copies(steps: NDArray[np.float64]) -> NDArray[np.float64]:
    """(n,) in (0, 1]: one over how many of these steps (n, k) are nearly the same as each, itself included.

    A chain of steps each near the next is no group: who is near one end is none of the other's copies.
    """
    squares = np.einsum("ij,ij->i", steps, steps)
    alive = squares > 0.0
    at = np.flatnonzero(alive)
    shares = np.ones(len(steps))
    if len(at) < 2:
        return shares
    here, square = steps[at], squares[at]
    some = here[np.unique(np.linspace(0, len(here) - 1, min(len(here), _SAMPLE)).astype(np.int64))]
    apart = np.maximum(np.einsum("ij,ij->i", some, some)[:, None] + square - 2.0 * some @ here.T, 0.0)
    usual = float(np.median(apart[:, 1:]))
    for start in range(0, len(here), _PAIRS_AT_A_TIME):
        rows = slice(start, start + _PAIRS_AT_A_TIME)
        apart = np.maximum(square[rows, None] + square - 2.0 * here[rows] @ here.T, 0.0)
        near = apart < _NEAR * np.minimum(usual, square[rows, None] + square)
        near[np.arange(near.shape[0]), np.arange(len(here))[rows]] = True
        shares[at[rows]] = 1.0 / near.sum(axis=1)
    return shares
