"""Turns an experiment, which is data, into runs and a report.

Every run is a `SimulationConfig`. `foltr_research.simulation.sweeps.sweep` runs them and keeps finished ones, so an
interrupted reproduction can continue, and experiments share equal runs.
"""

import platform
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from foltr.core.errors import DataError, FoltrError
from foltr_research.reproductions.claims import Claim, Verdict
from foltr_research.reproductions.experiment import Experiment, Scale, Variant
from foltr_research.reproductions.figures import require_matplotlib
from foltr_research.reproductions.outcomes import DataProfile, Labels, Outcome, Results
from foltr_research.reproductions.records import (
    Record,
    checkout_commit,
    code_of,
    data_digest,
    duration_text,
    record_path,
)
from foltr_research.reproductions.report import write_report
from foltr_research.reproductions.sizes import Size, judged
from foltr_research.simulation.clients.loading import load_experiment
from foltr_research.simulation.config import SYNTHETIC_INTENTS, SimulationConfig, check_config
from foltr_research.simulation.digests.live import outside_code
from foltr_research.simulation.digests.used_code import installed_sources, names_of
from foltr_research.simulation.fingerprints import is_made_here, versions
from foltr_research.simulation.sweeps.sweep import config_digest, run_sweep


@dataclass(frozen=True)
class Reproduction:
    """The folder of a reproduction, and its verdicts."""

    folder: Path
    verdicts: tuple[tuple[Claim, Verdict], ...]


@dataclass(frozen=True)
class _Planned:
    labels: Labels
    config: SimulationConfig
    is_first: bool
    """Whether no run before it is of the same variant."""


def reproduce(
    experiment: Experiment,
    data: str,
    out: Path,
    size: Size = Size(),  # noqa: B008 (frozen)
    *,
    jobs: int = 1,
    on_plan: Callable[[str], None] | None = None,
    on_done: Callable[[int, int], None] | None = None,
) -> Reproduction:
    """Run what is missing and write the report with its record into ``out`` / the experiment's name.

    Args:
        data: a folder or a name, as `SimulationConfig.data`.
        on_plan: called before the first run with its size, and how long it takes if a former report of it is there.
        on_done: called with the numbers of finished and of all runs.

    Raises:
        SettingsError: invalid scale or seeds, or the experiment cannot have this size.
        DataError: the data lacks what the experiment needs.
        UnavailableError: matplotlib is not installed.
        FoltrError: a run failed.
    """
    size = size.of(experiment)
    experiment = with_metrics(experiment, size.metrics)
    require_matplotlib()
    profile = profile_data(data, size.scale)
    check_data(experiment, profile)
    began = time.perf_counter()
    planned = plan(experiment, size.scale, profile, size.chosen_seeds, size.changes)
    if size.changes:
        quick = experiment.grid("quick", profile)
        experiment = judged(
            experiment, size, quick, [Variant(one.labels, one.config) for one in planned if one.is_first]
        )
    seconds, commit = time.perf_counter() - began, checkout_commit()
    # Read before the first run: the code may change before the last.
    code_of(installed_sources(), experiment.base or experiment.name, _names([one.config for one in planned]))
    folder = out / experiment.name
    if on_plan is not None:
        on_plan(_outlook(planned, profile, record_path(folder / "report.md"), size.options, jobs))
    found = _run(planned, out / "runs", jobs, on_done)
    # Equal runs of several variants are one result.
    seconds += sum(run["seconds"]["wall"] for run in {id(run): run for run in found}.values())
    outcomes = tuple(
        Outcome(one.labels, one.config.fold, one.config.seed, one.config, result)
        for one, result in zip(planned, found, strict=True)
    )
    if experiment.more is not None:
        began = time.perf_counter()
        outcomes += tuple(experiment.more(size.scale, profile, len(size.chosen_seeds)))
        seconds += time.perf_counter() - began
    results = Results(outcomes, profile)
    verdicts = write_report(experiment, results, folder, size)
    record = _record(experiment, results, size)
    made = {"seconds": round(seconds, 1), "interactions": _n_interactions(planned), "commit": commit}
    text = record.model_copy(update=made).model_dump_json(indent=1)
    record_path(folder / "report.md").write_text(text + "\n", encoding="utf-8")
    return Reproduction(folder, verdicts)


def _outlook(planned: Sequence[_Planned], data: DataProfile, former: Path, options: str, jobs: int) -> str:
    """Return the size of what is going to run, what it replaces, and an estimate of the time from a former report."""
    n_interactions = _n_interactions(planned)
    folds = f", folds {', '.join(map(str, data.folds))}" if data.folds else ""
    text = f"{len(planned)} runs on {data.name}{folds}, {n_interactions:,} interactions"
    try:
        record = Record.model_validate_json(former.read_bytes())
    except (OSError, ValueError):
        return f"{text}; a report at quick scale first lets it estimate the time"
    if (record.data, record.options) != (data.name, options):
        text += (
            f"; replaces the report on {record.data}, {record.options}, whose runs stay in {former.parents[1] / 'runs'}"
        )
    if record.seconds is None or not record.interactions:
        return text
    return f"{text}; about {duration_text(record.seconds / record.interactions * n_interactions / jobs)}"


def _n_interactions(planned: Sequence[_Planned]) -> int:
    """Return the interactions of different runs."""
    configs = {config_digest(one.config): one.config for one in planned}.values()
    return sum((one.participants or one.clients) * one.interactions * one.rounds for one in configs)


def _names(configs: Iterable[SimulationConfig]) -> list[str]:
    return sorted(set().union(*(names_of(config.model_dump(mode="json")) for config in configs)))


def _record(experiment: Experiment, results: Results, size: Size) -> Record:
    """Return what a report is made from: the program as it was read, and the data's files."""
    names = _names(one.config for one in results)
    code = code_of(installed_sources(), experiment.base or experiment.name, names)
    return Record(
        experiment=experiment.name,
        base=experiment.base,
        data=results.data.name,
        folds=results.data.folds,
        files="" if is_made_here(results.data.data) else data_digest(Path(results.data.data), results.data.folds),
        options=size.options,
        seconds=None,
        interactions=None,
        commit=None,
        versions={"Python": platform.python_version(), **versions()},
        names=tuple(names),
        code=code,
        outside=tuple(outside_code(installed_sources().bindings(code))),
    )


def profile_data(data: str, scale: Scale) -> DataProfile:
    """Return the data's folds (at quick scale only the first), size, grades, and whether it has intents.

    Raises:
        DataError: it cannot be read.
    """
    folder = Path(data)
    intents = data == SYNTHETIC_INTENTS or (folder / "1.txt").is_file()
    folds = tuple(sorted(int(one.name[4:]) for one in folder.glob("Fold*") if one.name[4:].isdigit()))
    folds = folds[:1] if scale == "quick" else folds
    _check_folds(folder, folds)
    config = SimulationConfig(data=data, fold=folds[0] if folds else None, population="type1" if intents else "iid")
    loaded = load_experiment(config)
    return DataProfile(
        name=_name(folder, folds),
        data=data,
        folds=folds,
        n_grades=loaded.n_grades,
        n_features=loaded.train.n_features,
        n_train_queries=loaded.train.n_queries,
        n_test_queries=loaded.test.n_queries,
        n_test_evaluated=sum(bool(loaded.test.query(i).relevance.any()) for i in range(loaded.test.n_queries)),
        intents=intents,
    )


def with_metrics(experiment: Experiment, metrics: Sequence[str]) -> Experiment:
    """Return an experiment whose runs measure more, and whose report repeats its first table for each metric."""
    if not metrics:
        return experiment

    def grid(scale: Scale, data: DataProfile) -> list[Variant]:
        found = experiment.grid(scale, data)
        return [replace(one, config=one.config.changed(metrics=(*one.config.metrics, *metrics))) for one in found]

    tables = tuple(
        replace(table, title=f"{name} on the test queries after the last round", metric=name)
        for name in metrics
        for table in experiment.tables[:1]
    )
    return replace(experiment, grid=grid, tables=(*experiment.tables, *tables))


def _check_folds(folder: Path, folds: Sequence[int]) -> None:
    """Raise DataError before hours of runs if a fold lacks a file that the first one has."""
    files = [{one.name for one in (folder / f"Fold{fold}").glob("*.txt") if one.stat().st_size} for fold in folds]
    for fold, there in zip(folds, files, strict=True):
        if missing := files[0] - there:
            raise DataError(f"{folder / f'Fold{fold}'}: {', '.join(sorted(missing))} is missing or empty")


def check_data(experiment: Experiment, data: DataProfile) -> None:
    """Raise DataError if the data lacks what the experiment needs."""
    if experiment.needs_intents and not data.intents:
        raise DataError(
            f"{experiment.name} needs labels per intent: a folder with 1.txt to 4.txt, or {SYNTHETIC_INTENTS}; "
            f"{data.name} has none"
        )
    if not experiment.needs_intents and data.intents:
        raise DataError(f"{experiment.name} needs a learning-to-rank data set; {data.name} has labels per intent")
    if experiment.needs_grades is not None and data.n_grades != experiment.needs_grades:
        raise DataError(
            f"{experiment.name} needs {experiment.needs_grades} relevance grades; {data.name} has {data.n_grades}"
        )


def plan(
    experiment: Experiment,
    scale: Scale,
    data: DataProfile,
    seeds: int | Sequence[int],
    changes: Mapping[str, int] | None = None,
) -> list[_Planned]:
    """Return every run: each variant with each seed. Raises SettingsError for an invalid configuration.

    Args:
        seeds: how many, or which.
        changes: settings that every run has instead of the scale's.
    """
    chosen = range(1, seeds + 1) if isinstance(seeds, int) else seeds
    planned = []
    for variant in experiment.grid(scale, data):
        for i, seed in enumerate(chosen):
            fold = data.folds[(seed - 1) % len(data.folds)] if data.folds else None
            config = variant.config.changed(data=data.data, fold=fold, seed=seed, **(changes or {}))
            check_config(config)
            planned.append(_Planned(variant.labels, config, i == 0))
    return planned


def _run(
    planned: Sequence[_Planned], folder: Path, jobs: int, on_done: Callable[[int, int], None] | None
) -> list[Mapping[str, Any]]:
    """Return the results in the order of the plan."""
    # Variants with different names may be the same run.
    digests = [config_digest(one.config) for one in planned]
    distinct = dict(zip(digests, planned, strict=True))
    n_done = 0

    def done(_: object) -> None:
        nonlocal n_done
        n_done += 1
        if on_done:
            on_done(n_done, len(distinct))

    folder.mkdir(parents=True, exist_ok=True)
    rows = run_sweep([one.config for one in distinct.values()], folder=folder, jobs=jobs, on_done=done)
    failed = [(one, row.error) for one, row in zip(distinct.values(), rows, strict=True) if row.result is None]
    if failed:
        first, error = failed[0]
        raise FoltrError(
            f"{len(failed)} of {len(rows)} runs failed, first {', '.join(first.labels.values())}, "
            f"seed {first.config.seed}: {error}. The others are kept; run the command again"
        )
    found = {digest: row.result for digest, row in zip(distinct, rows, strict=True) if row.result is not None}
    return [found[digest] for digest in digests]


def _name(folder: Path, folds: tuple[int, ...]) -> str:
    """Return a data set's name from its folder's."""
    name = folder.resolve().name if folder.exists() else str(folder)
    if name.startswith("Fold"):
        return f"{folder.resolve().parent.name}/{name}"
    return f"{name}/Fold{folds[0]}" if len(folds) == 1 else name
