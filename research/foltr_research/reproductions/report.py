"""Writes a reproduction's report: tables, figures, claims beside findings, and every number.

Only the claims are written by hand. Findings and verdicts come from the results.
"""

import csv
import json
import platform
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from math import isnan
from pathlib import Path

import numpy as np

from foltr_research.reproductions.claims import Claim, Status, Verdict
from foltr_research.reproductions.experiment import Experiment, Table
from foltr_research.reproductions.figures import draw
from foltr_research.reproductions.outcomes import METRICS, Labels, Outcome, Results
from foltr_research.reproductions.significance import LEGEND, bonferroni, marker, paired_t_test

_VERSIONS = ("numpy", "numba", "matplotlib")


def write_report(
    experiment: Experiment, results: Results, folder: Path, *, scale: str, n_seeds: int
) -> tuple[tuple[Claim, Verdict], ...]:
    """Write ``report.md``, its figures, ``runs.csv``, ``curves.csv`` and the experiment's own numbers; return verdicts.

    Raises:
        UnavailableError: matplotlib is not installed.
    """
    folder.mkdir(parents=True, exist_ok=True)
    verdicts = tuple((claim, claim.check(results)) for claim in experiment.claims)
    for figure in experiment.figures:
        draw(figure, results, folder / figure.file)
    _write_csv(_runs(results), folder / "runs.csv")
    _write_csv(_curves(results), folder / "curves.csv")
    for file, rows in experiment.numbers.items():
        _write_csv(rows(results), folder / file)
    text = "\n".join(_report(experiment, results, verdicts, scale, n_seeds))
    (folder / "report.md").write_text(text + "\n", encoding="utf-8")
    return verdicts


def table_markdown(table: Table, results: Results) -> str:
    """Return a table with cells of mean ± standard deviation, and a marker if a table has a baseline."""
    chosen = results.select(table.where)
    columns = chosen.combinations(table.columns)
    names = _rows(table, chosen)
    places = [{**labels, **column} for labels in names for column in columns]
    cells = iter([_cell(_exactly(chosen, place, table), table) for place in places])
    marks = iter(_markers(table, chosen, places))
    rows = [
        [*(labels.get(key, "-") for key in table.rows), *(f"{next(cells)} {next(marks)}".strip() for _ in columns)]
        for labels in names
    ]
    return markdown([*table.rows, *(", ".join(labels.values()) for labels in columns)], rows, len(table.rows))


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]], n_names: int) -> str:
    """Return a table whose first columns are names and whose others are numbers."""
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * n_names + "---:|" * (len(header) - n_names)]
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def _runs(results: Results) -> Iterator[Sequence[object]]:
    """Yield a line for each run: labels, fold, seed, every metric, costs, and the configuration as JSON."""
    keys, metrics = _label_keys(results), [*METRICS, *_measured(results)]
    yield [*keys, "fold", "seed", *metrics, "interactions", "seconds", "bytes_up", "bytes_down", "configuration"]
    for one in results:
        values = [f"{one.value(metric):.6g}" for metric in metrics]
        sent = one.result["bytes"]
        spent = [one.result["interactions"], one.result["seconds"]["learning"], sent["up"], sent["down"]]
        # The folder's name instead of its path, which has no meaning on another machine.
        configuration = json.dumps({**one.config.model_dump(mode="json"), "data": results.data.name}, sort_keys=True)
        yield [*_names(one, keys), one.fold, one.seed, *values, *spent, configuration]


def _curves(results: Results) -> Iterator[Sequence[object]]:
    """Yield a line for each point of each run's curves."""
    keys = _label_keys(results)
    yield [*keys, "fold", "seed", "metric", "round", "value"]
    for one in results:
        for metric in ("offline", "shown", "max_rr", *one.result.get("metrics", ())):
            for at, value in METRICS[metric].curve(one.result):
                yield [*_names(one, keys), one.fold, one.seed, metric, f"{at:g}", f"{value:.5g}"]


def _write_csv(rows: Iterable[Sequence[object]], path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)


def _report(
    experiment: Experiment,
    results: Results,
    verdicts: Sequence[tuple[Claim, Verdict]],
    scale: str,
    n_seeds: int,
) -> list[str]:
    lines = [f"# {experiment.name}: {experiment.title}", "", f"After {experiment.source}.", ""]
    if verdicts:
        counts = {status: sum(verdict.status is status for _, verdict in verdicts) for status in Status}
        numbers = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
        lines += ["## Claims", "", f"{len(verdicts)} claims: {numbers}.", ""]
        for i, (claim, verdict) in enumerate(verdicts, start=1):
            lines += [f"{i}. **{verdict.status}**: {claim.text} ({claim.source})"]
            lines += [f"   - Criterion: {claim.criterion}.", f"   - Found: {verdict.found}.", ""]
    lines += ["## Setting", "", f"- The paper: {experiment.setting}", *_setting_here(results, scale, n_seeds), ""]
    if experiment.differences:
        lines += ["What differs besides data set, rounds and repetitions:", ""]
        lines += [f"- {difference}" for difference in experiment.differences] + [""]
    for figure in experiment.figures:
        title = figure.title or METRICS[figure.metric].label
        lines += [f"![{title}]({figure.file})", ""]
    if experiment.figures:
        lines += ["Lines are means over seeds, bands one standard deviation.", ""]
    for table in experiment.tables:
        lines += [f"## {table.title}", "", _caption(table), "", table_markdown(table, results)]
    for section in experiment.sections:
        lines += [f"## {section.title}", "", section.text(results)]
    if experiment.published:
        lines += ["## Published levels, for orientation", "", *(f"- {line}" for line in experiment.published), ""]
    command = f"foltr reproduce {experiment.name} --data DIR --out DIR --scale {scale} --seeds {n_seeds}"
    command += f" --metric {','.join(experiment.metrics)}" if experiment.metrics else ""
    lines += ["## Again", "", f"`{command}`", "", f"Made with {_versions()}.", ""]
    lines += [
        "Differences are given as mean ± standard error over seeds; `runs.csv` has every number and configuration."
    ]
    return lines


def _setting_here(results: Results, scale: str, n_seeds: int) -> list[str]:
    data, configs = results.data, [one.config for one in results]
    folds = f", folds {', '.join(map(str, data.folds))}" if data.folds else ""
    return [
        (
            f"- Here: {data.name}{folds}: {data.n_train_queries} training queries, {data.n_features} features, "
            f"{data.n_grades} grades; nDCG@10 over the {data.n_test_evaluated} of {data.n_test_queries} test queries "
            "with a relevant document."
        ),
        (
            f"- Scale `{scale}`: {len(configs)} runs, {n_seeds} seed{'s' if n_seeds != 1 else ''} each; "
            f"{_values([config.participants or config.clients for config in configs])} clients in a round, "
            f"{_values([config.interactions for config in configs])} interactions each, "
            f"{_values([config.rounds for config in configs])} rounds; "
            f"{sum(one.result['interactions'] for one in results):,} interactions in all."
        ),
    ]


def _caption(table: Table) -> str:
    caption = "Mean ± standard deviation over seeds."
    if table.baseline is None:
        return caption
    names = ", ".join(table.baseline.values())
    return (
        f"{caption} {LEGEND}: above and below {names}, by a two-sided t test, paired by seed, with Bonferroni's "
        "correction for the comparisons in this table."
    )


def _values(numbers: Sequence[int]) -> str:
    found = sorted(set(numbers))
    return "/".join(map(str, found)) if len(found) < 7 else f"{found[0]} to {found[-1]}"


def _rows(table: Table, results: Results) -> list[dict[str, str]]:
    """Return the occurring rows in the order of the grid. A run that lacks a label has a row without it."""
    found = dict.fromkeys(tuple((key, one.labels[key]) for key in table.rows if key in one.labels) for one in results)
    return [dict(pairs) for pairs in found]


def _exactly(results: Results, labels: Labels, table: Table) -> Results:
    """Return the runs with these labels. Exclude those that have more of the row's labels than the row."""
    there, absent = results.select(labels), [key for key in table.rows if key not in labels]
    return Results(tuple(one for one in there if not any(key in one.labels for key in absent)), results.data)


def _markers(table: Table, results: Results, places: Sequence[Labels]) -> list[str]:
    """Return the marker of each cell: its runs against those of the baseline, corrected for all such cells."""
    pairs = []
    for place in places:
        base = {**place, **(table.baseline or {})}
        own, other = (_exactly(results, at, table).by_seed(table.metric) for at in (place, base))
        seeds = sorted(own.keys() & other.keys()) if base != place else []
        pairs.append((np.array([own[seed] for seed in seeds]), np.array([other[seed] for seed in seeds])))
    n_compared = sum(len(own) > 1 for own, _ in pairs)
    return [
        marker(float((own - other).sum()), bonferroni(paired_t_test(own, other), n_compared)) for own, other in pairs
    ]


def _cell(runs: Results, table: Table) -> str:
    if not len(runs) or isnan(runs.mean(table.metric)):
        # lambdarank shows no lists, so it has no online metrics.
        return "-"
    mean, sd = (f"{value:.{table.digits}f}" for value in (runs.mean(table.metric), runs.sd(table.metric)))
    return f"{mean} ± {sd}" if len(runs) > 1 else mean


def _measured(results: Results) -> list[str]:
    """Return the metrics that any run measured beside nDCG@10."""
    return list(dict.fromkeys(name for one in results for name in one.result.get("metrics", ())))


def _label_keys(results: Results) -> list[str]:
    return list(dict.fromkeys(key for one in results for key in one.labels))


def _names(one: Outcome, keys: Sequence[str]) -> list[str]:
    return [one.labels.get(key, "") for key in keys]


def _versions() -> str:
    from foltr.core.version import __version__

    found = [f"foltr {__version__}", f"Python {platform.python_version()}"]
    for name in _VERSIONS:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return ", ".join(found)
