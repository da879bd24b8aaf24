"""What a federation keeps for unlearning: how long updates were, models from before a client, recorded interactions."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foltr.core.methods.base import NextModel
from foltr_research.simulation.runners import State
from foltr_research.simulation.unlearning.kept_interactions import Log
from foltr_research.simulation.unlearning.rounds import Trained


@dataclass(frozen=True, eq=False)
class History:
    """A federation's model and what is kept for unlearning.

    Attributes:
        lengths: (rounds, clients) float64 L2 norms of the updates; NaN where a client was not part of a round, or no
            model came of it.
        before_leaver: the model and the federator's memory before the leaver's first round.
        before_last: those before the last round that made a model.
        updates: (rounds, clients, n_weights) float32 as they were sent, NaN like ``lengths``; None if not kept.
        interactions: by round, those each client learned from, as far as they were recorded.
        crowd: where the clients' random streams stand.
    """

    trained: Trained
    lengths: NDArray[np.float64]
    before_leaver: NextModel
    before_last: NextModel
    updates: NDArray[np.float32] | None
    interactions: Mapping[int, Log]
    crowd: State
