"""A result list as a device has shown it."""

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from foltr.core.learning.gate import Source


@dataclass(frozen=True, eq=False)
class Serp:
    """A result list as shown.

    Attributes:
        serp_id: names it to `EdgeClient.record_clicks`, also after a restart.
        ranking: (shown,) int64, indices into the candidates given to `EdgeClient.rank`, best first.
        model_version: the global model that the device had; None before the first one arrived.
        reversals, log_probability: of the list as it was drawn, see `foltr.core.learning.display.DrawnList`.
        variant: which of the method's rankers made it (see `Interaction`).
        source: whose order it was drawn around: the application's, the model's, or both.
        to_credit: (shown,) int8 of an interleaved list, see `foltr.core.learning.gate.interleaving_credits`.
        base_positions: (shown,) int64, the position of each document in the application's order, from 0.
    """

    serp_id: str
    ranking: npt.NDArray[np.int64]
    model_version: int | None
    features: npt.NDArray[np.float32] = field(repr=False)
    reversals: npt.NDArray[np.float64] = field(repr=False)
    log_probability: float = field(repr=False)
    variant: int = 0
    source: Source = Source.BASE
    to_credit: npt.NDArray[np.int8] | None = field(default=None, repr=False)
    base_positions: npt.NDArray[np.int64] | None = field(default=None, repr=False)

    def to_dict(self) -> dict[str, str | list[int]]:
        """Return what a page needs of it, as plain values for JSON: its id, and the ranking."""
        return {"serp_id": self.serp_id, "ranking": self.ranking.tolist()}
