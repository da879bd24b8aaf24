"""What a federation keeps for unlearning: lengths of updates, models from before a client, recorded interactions."""

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
        lengths: (rounds, clients) float64 L2 norms of the updates; NaN for a client that was not in a round, or a round
            without a model.
        before_leaver: the model and the federator's memory before the leaver's first round.
        before_last: those before the last round that made a model.
        updates: (rounds, clients, n_weights) float32 as sent, NaN like ``lengths``; None if not kept.
        interactions: those each client learned from, by round, if recorded.
        crowd: state of the clients' random streams.
    """

    trained: Trained
    lengths: NDArray[np.float64]
    before_leaver: NextModel
    before_last: NextModel
    updates: NDArray[np.float32] | None
    interactions: Mapping[int, Log]
    crowd: State
