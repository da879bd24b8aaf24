"""An interaction: what a device keeps of one shown result list: the candidates, the ranking, the clicks."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foltr.core.learning.gate import Source


@dataclass(frozen=True, eq=False)
class Interaction:
    """One shown result list and the clicks on it.

    Attributes:
        id: the device's number for it, never reused.
        features: (documents, d) float32, all candidates, not only the shown ones.
        ranking: (shown,) int64, indices into ``features``, best first.
        clicks: (shown,) bool.
        variant: which of a method's rankers showed it, e.g. +1 or -1 for a perturbation and its negative.
        base_version: the global model it was shown under; None before the first one.
        reversals: of the list as it was drawn, see `foltr.core.learning.display.DrawnList`; None if unknown, and then
            PDGD cannot learn from it.
        log_probability: of the list as it was drawn; None if unknown.
        source: whose order it was drawn around.
    """

    id: int
    features: NDArray[np.float32]
    ranking: NDArray[np.int64]
    clicks: NDArray[np.bool_]
    variant: int = 0
    base_version: int | None = None
    reversals: NDArray[np.float64] | None = None
    log_probability: float | None = None
    source: Source = Source.BASE
