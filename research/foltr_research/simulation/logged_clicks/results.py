"""The result of a replay: metrics by logged time, and how stale the updates were that made the models."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from foltr.core.evaluation.named_metrics import NDCG_AT_10
from foltr_research.simulation.config import SimulationConfig
from foltr_research.simulation.logged_clicks.settings import RoundSettings


class ReplayCurve(NamedTuple):
    """(evaluations,) logged times in epoch seconds, float64; models made until then, int64; the nDCG@10 after each."""

    times: NDArray[np.float64]
    rounds: NDArray[np.int64]
    values: NDArray[np.float64]


class Point(NamedTuple):
    """An evaluation: logged time in epoch seconds, number of models made, and means over test queries by metric."""

    time: float
    round: int
    means: Mapping[str, float]


@dataclass(frozen=True, eq=False)
class Replay:
    """A finished replay.

    Attributes:
        points: the evaluations, by rising time.
        weights: (n_weights,) float32 of the shared ranker at the end.
        staleness: updates in models, by how many models their base was behind.
        refused: refusals by the service's code. A ``busy`` update was sent again.
        users: how many issued a query.
        rounds_abandoned: rounds that ended without a model.
        lists_shown: one for each replayed query.
        lists_counted: those that were part of a model.
        lists_dropped: those that a device dropped; the rest waited at the end for an update, or in one.
        online_rr: the mean reciprocal rank of the logged click in shown lists, 0 if the list does not have it.
    """

    config: SimulationConfig
    settings: RoundSettings
    points: tuple[Point, ...]
    weights: NDArray[np.float32]
    staleness: Counter[int]
    refused: Counter[str]
    users: int
    rounds_abandoned: int
    lists_shown: int
    lists_counted: int
    lists_dropped: int
    online_rr: float

    @property
    def curve(self) -> ReplayCurve:
        times, rounds, means = zip(*self.points, strict=True)
        values = [one[NDCG_AT_10] for one in means]
        return ReplayCurve(np.array(times, np.float64), np.array(rounds, np.int64), np.array(values, np.float64))

    @property
    def mean_staleness(self) -> float:
        """The mean over the updates in models; NaN without any."""
        counted = self.staleness.total()
        return sum(stale * n for stale, n in self.staleness.items()) / counted if counted else float("nan")

    @property
    def rows(self) -> list[dict[str, Any]]:
        """A row for each evaluation: time, round and metrics, and the settings of rounds."""
        settings = self.settings.model_dump()
        return [
            {"time": time, "round": number, "ndcg_at_10": means[NDCG_AT_10]}
            | {name: value for name, value in means.items() if name != NDCG_AT_10}
            | settings
            for time, number, means in self.points
        ]
