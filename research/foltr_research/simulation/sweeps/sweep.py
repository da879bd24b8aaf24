"""Runs many configurations, each once: in this process, in several, or on a Dask or Ray cluster.

A run is a function of its configuration and data, not of the machine. Finished runs are kept in a folder at once, one
file for each configuration, and are not repeated unless the data or the code that they use has changed.
"""

import hashlib
import itertools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foltr.core.errors import DataError, FoltrError, SettingsError
from foltr.core.user_files import FileKind, read_json_file
from foltr_research.simulation.clients.loading import check_data_name, forget_own_data, unchanged_data
from foltr_research.simulation.config import SimulationConfig, check_config
from foltr_research.simulation.fingerprints import Program, fingerprints_of_data, programs_of
from foltr_research.simulation.method_names import check_name_of_method, simulated_parameters_of
from foltr_research.simulation.plugins import load_installed, load_named, pack, unpack
from foltr_research.simulation.results import SimulationResult, config_columns, rows_of
from foltr_research.simulation.sweeps.executors import BACKENDS, Backend, Outcome, Values, executed
from foltr_research.simulation.sweeps.tables import check_folder

_PARAMETER = "parameters."
# Fields that hold named parameters; a sweep may vary a single one of these.
_NESTED = (_PARAMETER, "aggregation_parameters.", "attack_parameters.")


@dataclass(frozen=True)
class SweepRow:
    """One configuration and its result, as `SimulationResult.to_dict` makes it, or its error."""

    config: SimulationConfig
    result: dict[str, Any] | None
    error: str | None


def run_config(config: SimulationConfig) -> SimulationResult:
    """Load the data of a configuration, make its population and run it."""
    from foltr_research.simulation.clients.loading import load_experiment, population_for
    from foltr_research.simulation.federated import run

    load_named(config)
    check_data_name(config)
    experiment = load_experiment(config)
    population = population_for(config, experiment)
    return run(config, population, logging_data=experiment.train, description=experiment.description)


def grid(base: SimulationConfig, vary: Mapping[str, Sequence[Any]]) -> list[SimulationConfig]:
    """Return every combination of the values, equal ones once; the last key varies fastest.

    Args:
        vary: values by field of the configuration, or by ``parameters.NAME`` for a parameter of the method; likewise
            ``aggregation_parameters.NAME`` and ``attack_parameters.NAME``.

    Raises:
        SettingsError: unknown field, a parameter that none of the methods has, a key without values, or a value that is
            not allowed.
    """
    for key, values in vary.items():
        if not values:
            raise SettingsError(f"{key}: at least one value is needed")
        if not key.startswith(_NESTED) and key not in SimulationConfig.model_fields:
            raise SettingsError(
                f"{key}: no field or parameter has this name; fields are {', '.join(SimulationConfig.model_fields)}, "
                f"and {_PARAMETER}NAME for a parameter of the method"
            )
    configs = []
    for combination in itertools.product(*vary.values()):
        chosen = dict(zip(vary, combination, strict=True))
        nested: dict[str, dict[str, Any]] = {}
        for key in [key for key in chosen if key.startswith(_NESTED)]:
            name, _, parameter = key.partition(".")
            nested.setdefault(name, dict(getattr(base, name)))[parameter] = chosen.pop(key)
        configs.append(base.changed(**{**nested, **chosen}))
    _check_methods(configs, [key.removeprefix(_PARAMETER) for key in vary if key.startswith(_PARAMETER)])
    return list({config_digest(config): config for config in configs}.values())


def check_sweep(configs: Iterable[SimulationConfig]) -> None:
    """Raise SettingsError before the work starts if no configuration can run: the first one's error.

    If only some cannot, their rows say so: not every method suits every varied setting.
    """
    first: SettingsError | None = None
    for config in configs:
        try:
            load_installed(config)
            check_config(config)
            check_data_name(config)
        except SettingsError as error:
            first = first or error
        else:
            return
    if first is not None:
        raise first


def _check_methods(configs: Iterable[SimulationConfig], parameters: Iterable[str]) -> None:
    configs = list(configs)
    for config in configs:
        load_installed(config)
    methods = list(dict.fromkeys(config.method for config in configs))
    for method in methods:
        check_name_of_method(method)
    known = {method: list(simulated_parameters_of(method)) for method in methods}
    for name in parameters:
        if not any(name in names for names in known.values()):
            listing = "; ".join(f"{method} has {', '.join(names)}" for method, names in known.items())
            raise SettingsError(
                f"{name}: no field or parameter has this name; fields are "
                f"{', '.join(SimulationConfig.model_fields)}; parameters: {listing}"
            )


def run_sweep(
    configs: Iterable[SimulationConfig],
    *,
    folder: Path | None = None,
    jobs: int = 1,
    backend: Backend = "loky",
    scheduler: str | None = None,
    on_start: Callable[[SimulationConfig], None] | None = None,
    on_done: Callable[[SweepRow], None] | None = None,
) -> list[SweepRow]:
    """Run configurations, equal ones once. A failed run becomes a row with its error.

    Args:
        folder: finished runs are kept here and reused unless their data or code has changed; None keeps nothing.
        jobs: concurrent runs; an existing cluster uses its workers.
        scheduler: address of a cluster of Dask or Ray; None starts one on this machine.
        on_start: called, from any thread, with each configuration that a worker begins; not by Ray.
        on_done: called with each finished row, those found in the folder first.

    Returns:
        the rows, in the order of ``configs``.

    Raises:
        SettingsError: the backend is not installed or unknown, the folder cannot be written, or there are no jobs.
        UnavailableError: the cluster cannot be reached, or is lost.
    """
    if backend not in BACKENDS:
        raise SettingsError(f"backend: unknown {backend!r}; known are {', '.join(BACKENDS)}")
    given: Any = jobs  # by callers that are not checked
    if not isinstance(given, int) or given < 1:
        raise SettingsError(f"jobs: {jobs!r:.40}; expected a whole number from 1")
    if folder is not None:
        check_folder(folder)
    forget_own_data()
    by_digest = {config_digest(config): config for config in configs}
    # Taken before the first run, so that changes during a sweep are noticed the next time.
    program_of = dict(zip(by_digest, programs_of(by_digest.values()), strict=True))
    of_data = {} if folder is None else fingerprints_of_data(by_digest)
    key_of = {digest: _key(program_of[digest], data) for digest, data in of_data.items()}
    rows: dict[str, SweepRow] = {}
    for digest, config in by_digest.items():
        kept = None if folder is None else _kept(folder / f"{digest}.json", config, key_of[digest])
        if kept is not None:
            rows[digest] = kept
            if on_done is not None:
                on_done(kept)
    waiting = {digest: config for digest, config in by_digest.items() if digest not in rows}
    twins = _twins(waiting)
    for digest in twins:
        del waiting[digest]
    if waiting:
        # This process has what was registered in it.
        packed = b"" if jobs == 1 and backend == "loky" else pack(waiting.values())
        values = [_values(config, program_of[digest], packed) for digest, config in waiting.items()]
        with executed(
            values,
            _outcome,
            _failed,
            jobs=jobs,
            backend=backend,
            scheduler=scheduler,
            started=_reading(on_start),
        ) as outcomes:
            for digest, result, error in outcomes:
                row = rows[digest] = SweepRow(waiting[digest], result, error)
                if folder is not None:
                    _keep(folder / f"{digest}.json", row, key_of[digest])
                if on_done is not None:
                    on_done(row)
    for digest, twin in twins.items():
        rows[digest] = _with_config(rows[twin], by_digest[digest])
        if folder is not None:
            _keep(folder / f"{digest}.json", rows[digest], key_of[digest])
        if on_done is not None:
            on_done(rows[digest])
    return [rows[digest] for digest in by_digest]


def _reading(on_start: Callable[[SimulationConfig], None] | None) -> Callable[[Values], None]:
    def started(values: Values) -> None:
        if on_start is not None:
            on_start(SimulationConfig.read(values["config"]))

    return started


def _twins(configs: Mapping[str, SimulationConfig]) -> dict[str, str]:
    """Return the runs that equal an earlier one except for an attack that nobody makes, with that one's digest."""
    first: dict[str, str] = {}
    twins: dict[str, str] = {}
    for digest, config in configs.items():
        if config.attack is None or config.attackers:
            continue
        try:
            load_installed(config)
            check_config(config)
        except SettingsError:  # its own error is its result
            continue
        same = config_digest(without_idle_attack(config))
        if same in configs or same in first:
            twins[digest] = same if same in configs else first[same]
        else:
            first[same] = digest
    return twins


def without_idle_attack(config: SimulationConfig) -> SimulationConfig:
    """Return the configuration without its attack if it has no attackers."""
    return config if config.attackers else config.model_copy(update={"attack": None, "attack_parameters": {}})


def _with_config(row: SweepRow, config: SimulationConfig) -> SweepRow:
    """Return the row of an equal run as this configuration's."""
    result = None if row.result is None else {**row.result, "config": config.model_dump(mode="json")}
    return SweepRow(config, result, row.error)


def config_digest(config: SimulationConfig) -> str:
    """Return 32 hexadecimal digits that identify a configuration."""
    return hashlib.sha256(json.dumps(config.model_dump(mode="json"), sort_keys=True).encode()).hexdigest()[:32]


def rows_of_sweep(rows: Iterable[SweepRow]) -> list[dict[str, Any]]:
    """Return tidy rows of all runs, as `rows_of` makes them; for a failed run one with its configuration and error."""
    tidy: list[dict[str, Any]] = []
    for row in rows:
        if row.result is None:
            tidy.append({**config_columns(row.config), "error": row.error})
        else:
            tidy.extend({**one, "error": None} for one in rows_of(row.result))
    return tidy


def _values(config: SimulationConfig, program: Program, packed: bytes) -> Values:
    """Return what a worker gets: a configuration, which program it must have if not all is in the source, plug-ins."""
    must_have = program.digest if program.outside else None
    return {"config": config.model_dump(mode="json"), "program": must_have, "plugins": packed}


def _outcome(values: Values) -> Outcome:
    """Run one configuration in a worker. Plain values in and out, so that every backend can send them."""
    config = SimulationConfig.read(values["config"])
    digest = config_digest(config)
    try:
        unpack(values["plugins"])
        if values["program"] is not None and values["program"] != programs_of([config])[0].digest:
            raise SettingsError(
                "jobs: this worker lacks a plug-in, or something that the program which started it has replaced; "
                "use 1 job, or make it a part of what the worker imports"
            )
        with unchanged_data(config):
            return digest, run_config(config).to_dict(), None
    except FoltrError as error:
        return digest, None, str(error)
    # One failing run must not stop the others; its row has the error.
    except Exception as error:  # noqa: BLE001
        return digest, None, f"{type(error).__name__}: {error}"


def _failed(values: Values, cause: str) -> Outcome:
    """Return the outcome of a configuration whose worker died."""
    return config_digest(SimulationConfig.read(values["config"])), None, cause


def _key(program: Program, data: str) -> dict[str, str]:
    """Return what a kept result depends on besides its configuration."""
    return {"program": program.digest, "data": data}


def _kept(path: Path, config: SimulationConfig, key: Mapping[str, str]) -> SweepRow | None:
    """Return a finished run. None if it is missing, invalid or failed, or of another program or other data."""
    try:
        kept = read_json_file(path, FileKind.RESULT)
        if kept["result"] is None or SimulationConfig.read(kept["config"]) != config:
            return None
        if any(kept[name] != value for name, value in key.items()):
            return None
        return SweepRow(config, kept["result"], None)
    except (OSError, ValueError, KeyError, TypeError, SettingsError):
        return None


def _keep(path: Path, row: SweepRow, key: Mapping[str, str]) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.new")
        content = {"config": row.config.model_dump(mode="json"), **key, "result": row.result, "error": row.error}
        temporary.write_text(json.dumps(content), "utf-8")
        temporary.replace(path)
    except OSError as error:
        raise DataError(f"{path}: a finished run cannot be kept: {error.strerror}") from error
