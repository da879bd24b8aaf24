"""Simulations from Python: ``import foltr_research as fr``, then `simulate`, `sweep` and `replay`.

Keywords are the fields of `SimulationConfig` and the method's parameters. Methods, rules, attacks, click models,
metrics and data may be objects (`foltr_research.simulation.plugins`). What runs is what ``foltr simulate`` and
``foltr sweep`` run.
"""

import os
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from foltr.core.errors import SettingsError
from foltr.core.user_files import check_file
from foltr_research.finished_runs import SHORT, Result, Sweep, did_you_mean
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
from foltr_research.simulation.sweeps.executors import Backend
from foltr_research.simulation.sweeps.sweep import SweepRow, check_sweep, grid, run_sweep
from foltr_research.sweep_display import OF_RUNS, SweepDisplay

OnRound = Callable[[NDArray[np.float32], dict[str, float]], None]
"""Gets the shared ranker's weights; and by name the round, the metrics, interactions and seconds so far."""

_NESTED = ("parameters.", "aggregation_parameters.", "attack_parameters.")


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
    fields = {SHORT.get(name, name): value for name, value in settings.items()}
    varied = {SHORT.get(name, name): _several(name, values) for name, values in vary.items()}
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
    names = [*SHORT, *SimulationConfig.model_fields, *parameters]
    listing = (
        f"settings are {', '.join(SimulationConfig.model_fields)}; parameters of the method: {', '.join(parameters)}; "
        "those of a rule go into aggregation_parameters, of an attack into attack_parameters"
    )
    return f"{name}: no setting or parameter has this name{did_you_mean(name, names)}; {listing}"


def _plainly(on_round: OnRound) -> Callable[[Progress], None]:
    def tell(done: Progress) -> None:
        so_far = {"round": done.round, "interactions": done.interactions, "seconds": done.seconds}
        on_round(done.weights, {"ndcg_at_10": done.ndcg_at_10, **done.means, **so_far})

    return tell
