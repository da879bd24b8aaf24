"""Outcomes of an experiment's runs: numbers of one run, and of several with the same labels."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foltr.core.evaluation.named_metrics import NDCG_AT_10, read_metric
from foltr_research.simulation.config import SimulationConfig

Labels = Mapping[str, str]
Run = Mapping[str, Any]

# Points of a curve with one value per round. More would blur at the width of a figure.
_CURVE_POINTS = 40
_END = 10  # the last tenth of the rounds
_BEGINNING = 5  # the first fifth
_LATE = 0.75  # the rounds after this share of them


@dataclass(frozen=True)
class DataProfile:
    """The properties of the data that an experiment's grid and claims depend on.

    Attributes:
        name: for reports; never a path.
        data: for `SimulationConfig.data`.
        folds: to spread the seeds over; empty if the data has none.
        n_grades: 2, 3 or 5.
        n_test_evaluated: test queries with a relevant document, over which nDCG@10 is averaged.
        intents: whether the labels are per intent.
    """

    name: str
    data: str
    folds: tuple[int, ...]
    n_grades: int
    n_features: int
    n_train_queries: int
    n_test_queries: int
    n_test_evaluated: int
    intents: bool = False


@dataclass(frozen=True)
class Metric:
    """A number of a run, and its curve.

    Attributes:
        label: for axes and headings.
        value: of a run, from `SimulationResult.to_dict()`.
        curve: (points, 2): round and value.
    """

    label: str
    value: Callable[[Run], float]
    curve: Callable[[Run], NDArray[np.float64]]


@dataclass(frozen=True, eq=False)
class Outcome:
    """One finished run."""

    labels: Labels
    fold: int | None
    seed: int
    config: SimulationConfig
    result: Run

    def value(self, metric: str) -> float:
        return METRICS[metric].value(self.result)


@dataclass(frozen=True, eq=False)
class Curve:
    """(points,) rounds, mean and standard deviation over the runs."""

    rounds: NDArray[np.float64]
    mean: NDArray[np.float64]
    sd: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Results:
    """The runs of an experiment, or some of them."""

    outcomes: tuple[Outcome, ...]
    data: DataProfile

    def __iter__(self) -> Iterator[Outcome]:
        return iter(self.outcomes)

    def __len__(self) -> int:
        return len(self.outcomes)

    def select(self, labels: Labels) -> "Results":
        """Return the runs that have all of ``labels``."""
        wanted = labels.items()
        return Results(tuple(one for one in self.outcomes if wanted <= one.labels.items()), self.data)

    def labels(self, key: str) -> tuple[str, ...]:
        """Return the values of one label, in the order of the grid."""
        return tuple(dict.fromkeys(one.labels[key] for one in self.outcomes if key in one.labels))

    def combinations(self, keys: Sequence[str]) -> tuple[dict[str, str], ...]:
        """Return the occurring combinations of several labels, in the order of the grid."""
        found = dict.fromkeys(
            tuple((key, one.labels[key]) for key in keys)
            for one in self.outcomes
            if all(key in one.labels for key in keys)
        )
        return tuple(dict(pairs) for pairs in found)

    def by_seed(self, metric: str) -> dict[int, float]:
        return {one.seed: one.value(metric) for one in self.outcomes}

    def values(self, metric: str) -> NDArray[np.float64]:
        """(runs,) in order of seed."""
        found = sorted((one.seed, one.value(metric)) for one in self.outcomes)
        return np.array([value for _, value in found], np.float64)

    def mean(self, metric: str) -> float:
        return float(self.values(metric).mean()) if self.outcomes else float("nan")

    def sd(self, metric: str) -> float:
        """Standard deviation over the runs; 0 for a single one."""
        return float(self.values(metric).std(ddof=1)) if len(self.outcomes) > 1 else 0.0

    def curve(self, metric: str) -> Curve:
        """Return the mean curve of the selected runs, which must have the same number of rounds."""
        curves = [METRICS[metric].curve(one.result) for one in self.outcomes]
        values = np.stack([curve[:, 1] for curve in curves])
        spread = values.std(axis=0, ddof=1) if len(curves) > 1 else np.zeros(values.shape[1])
        return Curve(curves[0][:, 0], values.mean(axis=0), spread)


def _series(key: str) -> Callable[[Run], NDArray[np.float64]]:
    """Return a reader of a curve stored as points."""

    def curve(run: Run) -> NDArray[np.float64]:
        return np.array([(point["round"], point["value"]) for point in run[key]], np.float64)

    return curve


def _per_round(key: str) -> Callable[[Run], NDArray[np.float64]]:
    """Return a reader of a curve stored as one value per round. It averages equal stretches of rounds."""

    def curve(run: Run) -> NDArray[np.float64]:
        values = _numbers(run[key])
        stretches = np.array_split(np.arange(len(values)), min(_CURVE_POINTS, len(values)))
        return np.array([(stretch.mean() + 1, _mean(values[stretch])) for stretch in stretches])

    return curve


def _last(points: Sequence[Mapping[str, float]]) -> float:
    return float(points[-1]["value"])


def _late(points: Sequence[Mapping[str, float]]) -> float:
    """Return the mean evaluation after three quarters of the rounds: with few test queries the last one is noisy."""
    after = _LATE * points[-1]["round"]
    return float(np.mean([point["value"] for point in points if point["round"] > after]))


def _last_tenth(key: str) -> Callable[[Run], float]:
    def value(run: Run) -> float:
        values = _numbers(run[key])
        return _mean(values[-max(1, len(values) // _END) :])

    return value


def _first_fifth(key: str) -> Callable[[Run], float]:
    def value(run: Run) -> float:
        values = _numbers(run[key])
        return _mean(values[: max(1, len(values) // _BEGINNING)])

    return value


def _numbers(values: Sequence[float | None]) -> NDArray[np.float64]:
    return np.array([np.nan if value is None else value for value in values], np.float64)


def _mean(values: NDArray[np.float64]) -> float:
    """Return the mean of the rounds with shown lists."""
    shown = values[~np.isnan(values)]
    return float(shown.mean()) if len(shown) else float("nan")


_OF_EVERY_RUN: dict[str, Metric] = {
    "offline": Metric("nDCG@10 on the test set", lambda run: _last(run["ndcg_at_10"]), _series("ndcg_at_10")),
    "late": Metric(
        "nDCG@10 on the test set, last quarter of the rounds",
        lambda run: _late(run["ndcg_at_10"]),
        _series("ndcg_at_10"),
    ),
    "offline-mean": Metric(
        "nDCG@10 on the test set, mean of the curve",
        lambda run: float(np.mean([point["value"] for point in run["ndcg_at_10"] if point["round"] > 0])),
        _series("ndcg_at_10"),
    ),
    "global": Metric(
        "nDCG@10 of the shared ranker",
        lambda run: _last(run["ndcg_at_10_global"] or run["ndcg_at_10"]),
        lambda run: _series("ndcg_at_10_global" if run["ndcg_at_10_global"] else "ndcg_at_10")(run),
    ),
    "online": Metric(
        "discounted online nDCG@10",
        lambda run: float("nan") if run["online_ndcg"] is None else float(run["online_ndcg"]),
        _per_round("online_per_round"),
    ),
    "shown": Metric("nDCG@10 of the lists shown", _last_tenth("online_per_round"), _per_round("online_per_round")),
    "max_rr": Metric("MaxRR of the clicks", _last_tenth("max_rr"), _per_round("max_rr")),
    "max_rr-early": Metric("MaxRR of the clicks, first fifth", _first_fifth("max_rr"), _per_round("max_rr")),
}


class _Metrics(dict[str, Metric]):
    """Beside its entries it has every metric that runs may measure with nDCG@10, e.g. ``err@10``: NaN without."""

    def __missing__(self, name: str) -> Metric:
        if name == NDCG_AT_10:
            return self["offline"]
        read_metric(name)
        return Metric(
            f"{name} on the test set",
            lambda run: _last(run["metrics"][name]) if name in run.get("metrics", ()) else float("nan"),
            lambda run: _series(name)(run["metrics"]),
        )


METRICS: dict[str, Metric] = _Metrics(_OF_EVERY_RUN)
