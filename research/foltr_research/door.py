"""Simulations from Python: ``import foltr_research as fr``, then `simulate`, `sweep` and `replay`.

Keywords are the fields of `SimulationConfig` and the method's parameters. Methods, rules, attacks, click models,
metrics and data may be objects (`foltr_research.simulation.plugins`). What runs is what ``foltr simulate`` and
``foltr sweep`` run.
"""

import difflib
import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from foltr.core.errors import SettingsError, UnavailableError
from foltr.core.user_files import check_file
from foltr_research.reproductions.claims import difference_of
from foltr_research.reproductions.figures import require_matplotlib
from foltr_research.simulation.checkpoint import CheckpointPlan
from foltr_research.simulation.clients.loading import (
    check_data_name,
    forget_own_data,
    load_experiment,
    population_for,
    unchanged_data,
)
from foltr_research.simulation.config import SecureSettings, SimulationConfig, check_config
from foltr_research.simulation.federated import Progress, run
from foltr_research.simulation.logged_clicks.logs import Log
from foltr_research.simulation.logged_clicks.results import Replay
from foltr_research.simulation.logged_clicks.run import OnPoint, replay_log
from foltr_research.simulation.logged_clicks.settings import RoundSettings, check_left_open
from foltr_research.simulation.method_names import check_name_of_method, simulated_parameters_of
from foltr_research.simulation.plugin_checks import checked_arrays
from foltr_research.simulation.plugins import KINDS, Kind, hand_over, load_installed
from foltr_research.simulation.results import SimulationResult
from foltr_research.simulation.sweeps.executors import Backend
from foltr_research.simulation.sweeps.sweep import (
    SweepRow,
    check_sweep,
    config_digest,
    grid,
    rows_of_sweep,
    run_sweep,
    without_idle_attack,
)
from foltr_research.sweep_display import OF_RUNS, SweepDisplay

if TYPE_CHECKING:
    from matplotlib.axes import Axes

OnRound = Callable[[NDArray[np.float32], dict[str, float]], None]
"""Gets the shared ranker's weights; and by name the round, the metrics, interactions and seconds so far."""
Row = dict[str, Any]

_SHORT = {"rule": "aggregation"}
_NESTED = ("parameters.", "aggregation_parameters.", "attack_parameters.")


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
        keys = tuple(_SHORT.get(key, key) for key in given)
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
            raise SettingsError(f"value: {value}: no such column{_near(value, columns)}")
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


def simulate(
    *,
    on_round: OnRound | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    resume: bool = False,
    **settings: Any,
) -> Result:
    """Run a federation in this process.

    Args:
        on_round: called before the first round and after each; after several if they take microseconds.
        checkpoint: the file that the state is saved to, every 100 rounds.
        resume: begin from that file.
        settings: fields of `SimulationConfig`, parameters of the method, and ``rule`` for ``aggregation``.

    Raises:
        SettingsError: an unknown name, or a value that is not allowed.
        DataError: the data cannot be read, learned from or evaluated, or a method changes it in place.
    """
    base, _ = _read(settings, {})
    config = SimulationConfig.read(base)
    load_installed(config)
    check_config(config)
    check_data_name(config)
    if config.attack is not None and not config.attackers:
        raise SettingsError(f"attack: {config.attack} needs attackers; add attackers and their number")
    if on_round is not None and not callable(on_round):
        raise SettingsError(f"on_round: expected a function of weights and metrics, not {on_round!r:.60}")
    plan = _plan(checkpoint, resume=resume)
    forget_own_data()
    experiment = load_experiment(config)
    with unchanged_data(config):
        return Result(
            run(
                config,
                population_for(config, experiment),
                logging_data=experiment.train,
                on_round=None if on_round is None else _plainly(on_round),
                checkpoint=plan,
                description=experiment.description,
            )
        )


def sweep(
    vary: Mapping[str, Iterable[Any]],
    *,
    jobs: int = 1,
    folder: str | os.PathLike[str] | None = None,
    backend: Backend = "loky",
    scheduler: str | None = None,
    on_done: Callable[[SweepRow], None] | None = None,
    **settings: Any,
) -> Sweep:
    """Run every combination of the varied values, and warn of runs that failed.

    If standard error is a terminal, a table there shows which combinations run, are done, and their means so far.

    Args:
        vary: values by setting, e.g. ``{"method": ["fpdgd", MyMethod], "seed": range(1, 4)}``.
        jobs: runs at the same time.
        folder: keeps finished runs; they are not repeated unless the program, the data or your code has changed.
        backend, scheduler: Dask or Ray, and the address of their cluster; see `run_sweep`.
        on_done: called with each finished run.
        settings: those that all runs have, as for `simulate`.

    Raises:
        SettingsError: an unknown name, or no combination can run.
        UnavailableError: the cluster cannot be reached.
    """
    base, varied = _read(settings, vary)
    configs = grid(SimulationConfig.read(base), varied)
    check_sweep(configs)
    kept = None if folder is None else Path(folder)
    on_terminal = Console(stderr=True)
    with SweepDisplay(configs, list(varied), on_terminal, knows_running=backend != "ray", lines=False) as display:

        def tell(row: SweepRow) -> None:
            display.done(row)
            if on_done is not None:
                on_done(row)

        runs = run_sweep(
            configs,
            folder=kept,
            jobs=jobs,
            backend=backend,
            scheduler=scheduler,
            on_start=display.started,
            on_done=tell,
        )
    done = Sweep(tuple(key for key in varied if key not in OF_RUNS), runs)
    failed = [run_.error for run_ in runs if run_.error is not None]
    if failed:
        warnings.warn(f"{len(failed)} of {len(runs)} runs failed, first: {failed[0]}", stacklevel=2)
    return done


def replay(log: Log, *, on_point: OnPoint | None = None, **settings: Any) -> Replay:
    """Replay a log of queries and clicks by its clock: updates arrive when users have searched, and may be late.

    Args:
        log: `SyntheticLog`, `AolLog`, one of yours, or one of them in `Lockstep`.
        on_point: called with each evaluation.
        settings: fields of `RoundSettings`; ``rounds``, after so many models it stops, by default at the end of the
            log; other fields of `SimulationConfig` that a log leaves open, parameters of the method, and ``rule``.

    Raises:
        SettingsError: an unknown name, or a value that is not allowed.
        DataError: the log cannot be read or learned from.
    """
    of_rounds = {name: settings.pop(name) for name in RoundSettings.model_fields.keys() & settings}
    base, _ = _read(settings, {})
    check_left_open(base)
    rounds = RoundSettings.read(of_rounds)
    # The fewest clients of a round: a rule must be of use among them, and their noise must be enough.
    config = SimulationConfig.read({**base, "clients": rounds.min_clients})
    load_installed(config)
    return replay_log(log, config, rounds, most_rounds=base.get("rounds"), on_point=on_point)


def _plan(checkpoint: str | os.PathLike[str] | None, *, resume: bool) -> CheckpointPlan | None:
    """Return where a checkpoint goes. Raises SettingsError before the run if the file could not be written."""
    if checkpoint is None:
        if resume:
            raise SettingsError("resume: it needs checkpoint, the file to resume from")
        return None
    path = Path(checkpoint)
    try:
        check_file(path)
    except SettingsError as error:
        raise SettingsError(f"checkpoint: {error}") from error
    return CheckpointPlan(path, resume=resume)


def _read(
    settings: Mapping[str, Any], vary: Mapping[str, Iterable[Any]]
) -> tuple[dict[str, Any], dict[str, list[Any]]]:
    """Return fields, and varied values by field or ``parameters.NAME``. Objects are replaced by their names."""
    seen: dict[tuple[Kind, str], Any] = {}
    fields = {_SHORT.get(name, name): value for name, value in settings.items()}
    varied = {_SHORT.get(name, name): _several(name, values) for name, values in vary.items()}
    for kind in KINDS:
        if kind in fields:
            fields[kind] = _named(kind, fields[kind], seen)
        if kind in varied:
            varied[kind] = [_named(kind, value, seen) for value in varied[kind]]
    default = SimulationConfig.model_fields["method"].default
    known: dict[str, str] = {}
    for method in varied.get("method", [fields.get("method", default)]):
        load_installed(SimulationConfig(method=method))
        check_name_of_method(method)
        known |= simulated_parameters_of(method)
    parameters = dict(fields.pop("parameters", {}))
    # Without secure sums a method may have parameters of the same names.
    others = (
        set()
        if fields.get("privacy") == "secure" or "privacy" in varied
        else SecureSettings.model_fields.keys() & known
    )
    own = SimulationConfig.model_fields.keys() - others
    for name in [name for name in fields if name not in own]:
        if name not in known:
            raise SettingsError(_unknown(name, known))
        parameters[name] = fields.pop(name)
    for name in [name for name in varied if name not in own and not name.startswith(_NESTED)]:
        if name not in known:
            raise SettingsError(_unknown(name, known))
        varied[f"parameters.{name}"] = varied.pop(name)
    for name in (fields.keys() | {f"parameters.{name}" for name in parameters}) & varied.keys():
        raise SettingsError(f"{name}: set and varied; use only one of the two")
    return fields | ({"parameters": parameters} if parameters else {}), varied


def _several(name: str, values: Iterable[Any]) -> list[Any]:
    # A name's letters are no values.
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise SettingsError(f"{name}: to vary it give a list of values, e.g. [{values!r}], not {values!r}")
    return list(values)


def _named(kind: Kind, value: Any, seen: dict[tuple[Kind, str], Any]) -> Any:
    """Return the name of a value; of several click models or metrics, their names. (metric, k) has a cut-off."""
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if kind == "metrics" and isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], int):
        return f"{_named(kind, value[0], seen)}@{value[1]}"
    if kind in {"clicks", "metrics"} and isinstance(value, list | tuple):
        return [_named(kind, one, seen) for one in value]
    if kind == "data" and not callable(value):
        value = checked_arrays(value)
    name = hand_over(kind, value)
    if kind != "data" and seen.setdefault((kind, name), value) is not value:
        raise SettingsError(f"{kind}: two different objects are called {name}; give each its __name__")
    return name


def _unknown(name: str, parameters: Iterable[str]) -> str:
    names = [*_SHORT, *SimulationConfig.model_fields, *parameters]
    listing = (
        f"settings are {', '.join(SimulationConfig.model_fields)}; parameters of the method: {', '.join(parameters)}; "
        "those of a rule go into aggregation_parameters, of an attack into attack_parameters"
    )
    return f"{name}: no setting or parameter has this name{_near(name, names)}; {listing}"


def _near(name: str, names: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(names), n=1)
    return f"; did you mean {near[0]}?" if near else ""


def _plainly(on_round: OnRound) -> Callable[[Progress], None]:
    def tell(done: Progress) -> None:
        so_far = {"round": done.round, "interactions": done.interactions, "seconds": done.seconds}
        on_round(done.weights, {"ndcg_at_10": done.ndcg_at_10, **done.means, **so_far})

    return tell


def _setting(config: SimulationConfig, key: str) -> Any:
    """Return a field of a configuration, or one of its parameters in the form of a table."""
    field, _, parameter = key.partition(".")
    if field not in SimulationConfig.model_fields:
        if key not in config.parameters:
            raise SettingsError(f"by: {key}: no such setting{_near(key, SimulationConfig.model_fields)}")
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
