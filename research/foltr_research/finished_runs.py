"""Finished runs, as `foltr_research.door` returns them: curves, tables of means, plots and data frames."""

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from foltr.core.errors import SettingsError, UnavailableError
from foltr_research.reproductions.claims import difference_of
from foltr_research.reproductions.figures import require_matplotlib
from foltr_research.simulation.config import SimulationConfig
from foltr_research.simulation.results import SimulationResult
from foltr_research.simulation.sweeps.sweep import SweepRow, config_digest, rows_of_sweep, without_idle_attack

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Row = dict[str, Any]

SHORT: Final = {"rule": "aggregation"}
"""Names of settings that are shorter than those of `SimulationConfig`."""


class Curve(NamedTuple):
    """(evaluations,) int64 rounds, and the nDCG@10 after each."""

    rounds: NDArray[np.int64]
    values: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Result:
    """A finished run; ``details`` has everything that was measured."""

    details: SimulationResult

    def __repr__(self) -> str:
        round_, value = self.details.ndcg_at_10[-1]
        return f"Result({self.details.config.method}, round {round_}: nDCG@10 {value:.4f})"

    @property
    def curve(self) -> Curve:
        rounds, values = zip(*self.details.ndcg_at_10, strict=True)
        return Curve(np.array(rounds, np.int64), np.array(values, np.float64))

    @property
    def weights(self) -> NDArray[np.float32]:
        """(n_weights,) of the shared ranker at the end."""
        return self.details.weights

    @property
    def rows(self) -> list[Row]:
        """A row for each evaluated round, with the configuration."""
        return self.details.rows()

    def to_pandas(self) -> Any:
        """Return `rows` as a DataFrame. Raises UnavailableError without pandas."""
        return _data_frame(self.rows)

    def plot(self, ax: "Axes | None" = None, label: str | None = None) -> "Axes":
        """Draw the curve, by default into the present axes. Raises UnavailableError without matplotlib."""
        axes = _axes(ax)
        axes.plot(*self.curve, label=label or self.details.config.method)
        return _labelled(axes, "ndcg_at_10")


@dataclass(frozen=True, eq=False)
class Sweep:
    """Finished runs.

    Attributes:
        varied: names of the settings that differ, without seed and fold.
        runs: configurations with their results or errors.
    """

    varied: tuple[str, ...]
    runs: list[SweepRow]

    @property
    def rows(self) -> list[Row]:
        """A row for each run and evaluated round, as in ``foltr sweep --out``; for a failed run one with its error."""
        return rows_of_sweep(self.runs)

    def to_pandas(self) -> Any:
        """Return `rows` as a DataFrame. Raises UnavailableError without pandas."""
        return _data_frame(self.rows)

    def table(self, by: str | Sequence[str] | None = None, value: str = "ndcg_at_10") -> Any:
        """Return the means over seeds, folds and what is not in ``by``: a DataFrame, or rows without pandas.

        Columns are those of ``by`` (default: all of `varied`), round, mean, low and high of the 95 % interval by
        Student's t (None for one run), and n, the number of runs; without attackers an attack makes no further one.

        Args:
            value: a column of `rows`.

        Raises:
            SettingsError: unknown columns, or no run has succeeded.
        """
        rows = self.means(by, value)
        try:
            return _data_frame(rows)
        except UnavailableError:
            return rows

    def plot(
        self, by: str | Sequence[str] | None = None, value: str = "ndcg_at_10", ax: "Axes | None" = None
    ) -> "Axes":
        """Draw the means over the rounds, with their intervals: a line for each value of ``by``; see `table`."""
        axes, rows = _axes(ax), self.means(by, value)
        names = [name for name in rows[0] if name not in {"round", "mean", "low", "high", "n"}]
        lines: dict[str, list[Row]] = {}
        for row in rows:
            lines.setdefault(", ".join(str(row[name]) for name in names), []).append(row)
        for label, points in lines.items():
            rounds = [point["round"] for point in points]
            (line,) = axes.plot(rounds, [point["mean"] for point in points], label=label)
            if points[0]["low"] is not None:
                low, high = ([point[edge] for point in points] for edge in ("low", "high"))
                axes.fill_between(rounds, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
        return _labelled(axes, value)

    def means(self, by: str | Sequence[str] | None = None, value: str = "ndcg_at_10") -> list[Row]:
        """Return the rows of `table`."""
        given = self.varied if by is None else (by,) if isinstance(by, str) else tuple(by)
        keys = tuple(SHORT.get(key, key) for key in given)
        groups: dict[tuple[Any, ...], list[float]] = {}
        counted, columns = set[tuple[Any, ...]](), set[str]()
        for run_ in self.runs:
            if run_.result is None:
                continue
            chosen = tuple(_setting(run_.config, key) for key in keys)
            # Attacks that nobody makes are one run, listed under each of them.
            same = (*chosen, config_digest(without_idle_attack(run_.config)))
            if same in counted:
                continue
            counted.add(same)
            for row in rows_of_sweep([run_]):
                columns |= row.keys()
                # Of runs with several metrics only some have this one.
                found = row.get(value)
                if isinstance(found, str):
                    raise SettingsError(f"value: {value}: it has no numbers, but {found!r:.40}")
                if found is not None:
                    groups.setdefault((*chosen, row["round"]), []).append(found)
        if columns and value not in columns:
            raise SettingsError(f"value: {value}: no such column{did_you_mean(value, columns)}")
        if not groups:
            raise SettingsError(f"no run has {value}; the errors: {self._errors() or 'none'}")
        rows = []
        for group, values in groups.items():
            over = difference_of(np.array(values, np.float64))
            width = over.margin() if over.n > 1 else None
            low, high = (None, None) if width is None else (over.mean - width, over.mean + width)
            named = dict(zip([key.rpartition(".")[2] for key in keys], group, strict=False))
            rows.append({**named, "round": group[-1], "mean": over.mean, "low": low, "high": high, "n": over.n})
        return rows

    def _errors(self) -> str:
        return "; ".join(dict.fromkeys(run_.error for run_ in self.runs if run_.error is not None))


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """Return the end of a message that names what was meant; empty if no name is like it."""
    near = difflib.get_close_matches(name, list(names), n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _setting(config: SimulationConfig, key: str) -> Any:
    """Return a field of a configuration, or one of its parameters in the form of a table."""
    field, _, parameter = key.partition(".")
    if field not in SimulationConfig.model_fields:
        if key not in config.parameters:
            raise SettingsError(f"by: {key}: no such setting{did_you_mean(key, SimulationConfig.model_fields)}")
        return config.parameters[key]
    value = getattr(config, field)
    value = value.get(parameter) if parameter else value
    return "+".join(map(str, value)) if isinstance(value, tuple) else value


def _data_frame(rows: list[Row]) -> Any:
    try:
        import pandas as pd
    except ImportError as error:
        raise UnavailableError("pandas is not installed: pip install pandas; without it use rows") from error
    return pd.DataFrame(rows)


def _axes(ax: "Axes | None") -> "Axes":
    require_matplotlib()
    from matplotlib import pyplot as plt

    return plt.gca() if ax is None else ax


def _labelled(axes: "Axes", value: str) -> "Axes":
    axes.set_xlabel("round")
    axes.set_ylabel("nDCG@10" if value == "ndcg_at_10" else value)
    if axes.get_legend_handles_labels()[0]:
        axes.legend()
    return axes
