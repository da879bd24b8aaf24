"""Clients that send nearly the same, round after round, have the weight of one: copying gains nothing and harms nobody.

FoolsGold looks for alike directions and punishes those who share one (Fung et al. 2020). Here nobody is punished, since
the original looks like a copy: the group counts once.

Shapes: n steps of a round, as sketches of k numbers.
"""

import numpy as np
from numpy.typing import NDArray

COPIES_FADE = 0.9
STEADILY = 0.6
"""In how large a share of its recent rounds a client must have been near another to be a copy."""
_FEWEST_ROUNDS = 4
# Relative to the median squared distance of two updates of the round, from which everything honest ones have in common
# is gone. And relative to that of two updates of their lengths with nothing in common: if lists are hardly explored
# some are tiny, and all tiny ones are near each other.
_NEAR = 0.1
# How many others' distances define the usual one; more would not change it.
_SAMPLE = 256
_PAIRS_AT_A_TIME = 128


def near_another(steps: NDArray[np.float64]) -> NDArray[np.bool_]:
    """(n,) whether another of these steps (n, k) is nearly the same; never for zeros."""
    return _n_near(steps, np.ones(len(steps), np.bool_)) > 0


def weight_shares(
    steps: NDArray[np.float64], copies: NDArray[np.float64], n_rounds: NDArray[np.integer]
) -> NDArray[np.float64]:
    """(n,) in (0, 1]: for steady copies one over the number that are nearly the same in this round; 1 for others.

    If all have the same share it is 1 too. A chain of steps, each near the next, is not a group: its ends are not
    copies of each other.

    Args:
        copies: (n,) fading sum of the rounds in which each was near another, this one included.
        n_rounds: (n,) in which each was compared.
    """
    seen = 1.0 - COPIES_FADE ** np.maximum(n_rounds, 1)
    steady = (copies / seen > STEADILY) & (n_rounds >= _FEWEST_ROUNDS)
    shares = 1.0 / (1.0 + np.where(steady, _n_near(steps, steady), 0)) if steady.any() else np.ones(len(steps))
    return np.ones(len(steps)) if shares.min() == shares.max() else shares


def _n_near(steps: NDArray[np.float64], among: NDArray[np.bool_]) -> NDArray[np.int64]:
    """(n,) how many others of the steps that are ``among`` (n,) are nearly the same as each."""
    squares = np.einsum("ij,ij->i", steps, steps)
    n_near = np.zeros(len(steps), np.int64)
    at = np.flatnonzero(squares > 0.0)
    if len(at) < 2:
        return n_near
    here, square = steps[at], squares[at]
    some = here[np.unique(np.linspace(0, len(here) - 1, min(len(here), _SAMPLE)).astype(np.int64))]
    apart = np.maximum(np.einsum("ij,ij->i", some, some)[:, None] + square - 2.0 * some @ here.T, 0.0)
    usual = float(np.median(apart[:, 1:]))
    others = np.flatnonzero(among[at])
    for start in range(0, len(here), _PAIRS_AT_A_TIME):
        rows = np.arange(start, min(start + _PAIRS_AT_A_TIME, len(here)))
        sizes = square[rows, None] + square[others]
        apart = np.maximum(sizes - 2.0 * here[rows] @ here[others].T, 0.0)
        near = (apart < _NEAR * np.minimum(usual, sizes)) & (rows[:, None] != others)
        n_near[at[rows]] = near.sum(axis=1)
    return n_near
