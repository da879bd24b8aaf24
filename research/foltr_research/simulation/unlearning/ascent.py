"""Projected gradient ascent: a client increases its own loss, near a model that knew less of it.

Halimi et al., Federated unlearning: how to efficiently erase a client in FL? (2022).
"""

import numpy as np
from numpy.typing import NDArray


def projected(weights: NDArray[np.floating], centre: NDArray[np.floating], radius: float) -> NDArray[np.float64]:
    """Return the nearest point to (d,) weights within the L2 ball around (d,) a centre."""
    exact = weights.astype(np.float64)
    away = exact - centre
    distance = float(np.linalg.norm(away))
    if distance <= radius:
        return exact
    nearest: NDArray[np.float64] = centre + away * (radius / distance)
    return nearest
