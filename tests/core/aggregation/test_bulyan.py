"""Bulyan chooses as by its definition, also where scores and distances tie."""

import numpy as np

from foltr.core.aggregation.bulyan import bulyan
from foltr.core.aggregation.krum import least


def chosen_by_definition(rows: np.ndarray, m: int) -> set[int]:
    """Krum's choice among those that are left, again and again; every sum made anew."""
    distances = ((rows[:, None] - rows[None]) ** 2).sum(axis=-1)
    np.fill_diagonal(distances, np.inf)
    left, chosen = list(range(len(rows))), set()
    for _ in range(len(rows) - 2 * m):
        n_near = max(1, len(left) - m - 2)
        scores = np.array([np.sort(distances[i, left])[:n_near].sum() for i in left])
        best = left[int(scores.argmin()) if n_near > 1 else least(scores)]
        left.remove(best)
        chosen.add(best)
    return chosen


def test_equal_distances_are_counted_once() -> None:
    """Whole numbers, of which every sum is exact and many are equal; some updates are copies of each other."""
    for dtype in [np.float32, np.float64]:
        for distinct in [2, 9]:
            for n, dim, m in [(31, 35, 5), (48, 31, 5), (70, 41, 3), (92, 10, 1), (106, 16, 2)]:
                for seed in range(4):
                    rng = np.random.default_rng([n, seed])
                    rows = rng.integers(0, distinct, size=(n, dim)).astype(np.float64)
                    rows[: n // 6] = rows[-1]
                    found = bulyan(rows.astype(dtype), m).shares
                    assert found is not None, (dtype, distinct, n, dim, m)
                    assert set(np.flatnonzero(found).tolist()) == chosen_by_definition(rows, m)
