"""``foltr reproduce``: repeat a paper's experiment and judge its claims."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foltr.cli.output import console, errors
from foltr.core.errors import SettingsError

if TYPE_CHECKING:
    from foltr_research.reproductions.records import CheckedReport

_OUT = Path("reproductions")
_MOST_MODULES = 6


def reproduce(
    name: Annotated[
        str,
        typer.Argument(help="An experiment, e.g. thesis-3.6; list shows all, check which reports have become stale"),
    ],
    folder: Annotated[Path, typer.Argument(help="With check: a folder of reports", show_default=False)] = _OUT,
    data: Annotated[
        str | None, typer.Option(help="A folder with a learning-to-rank data set, or a name: mslr-sample, synthetic")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the report and the finished runs")] = _OUT,
    scale: Annotated[str, typer.Option(help="quick: minutes on two cores; full: the paper's own settings")] = "quick",
    jobs: Annotated[int, typer.Option(min=1, max=1024, help="Runs at the same time")] = 1,
    seeds: Annotated[int | None, typer.Option(min=1, max=1000, help="Repetitions; default: the scale's number")] = None,
    metric: Annotated[
        str | None,
        typer.Option(help="More metrics on the test queries, with commas, e.g. err@10: the first table again"),
    ] = None,
) -> None:
    """Repeat a paper's experiment: figures, tables, every number, and a verdict on each claim.

    Finished runs are kept in OUT/runs: the same command resumes an interrupted one. A run is repeated if its data or
    code has changed. With check nothing is run: it says which reports in FOLDER are older than their code, and with
    --data, the folder of the data sets, than their data. The exit code is 1 if one is.
    """
    if name == "check":
        _check(folder, data)
        return
    if folder != _OUT:
        raise SettingsError(f"{folder}: only check takes a folder of reports; use --out for where a report goes")
    from foltr_research.reproductions import harness, registry
    from foltr_research.reproductions.experiment import SCALES
    from foltr_research.simulation.sweeps.tables import check_folder

    if name == "list":
        _list()
        return
    wanted = registry.experiment(name)
    chosen = next((known for known in SCALES if known == scale), None)
    if chosen is None:
        raise SettingsError(f"scale: {scale!r} is neither {' nor '.join(SCALES)}")
    if data is None:
        raise SettingsError("data: name a folder or a data set with --data, e.g. --data mslr-sample")
    for folder in (out / "runs", out / name):
        check_folder(folder)
    with errors.status(f"{name}: reading the data") as status:
        done = harness.reproduce(
            wanted,
            data,
            out,
            scale=chosen,
            jobs=jobs,
            seeds=seeds,
            metrics=() if metric is None else tuple(name.strip() for name in metric.split(",")),
            on_done=lambda n_done, n_all: status.update(f"{name}: {n_done} of {n_all} runs"),
        )
    for claim, verdict in done.verdicts:
        console.print(f"{verdict.status}: {claim.text}", markup=False, highlight=False, soft_wrap=True)
    console.print(str(done.folder / "report.md"), soft_wrap=True, highlight=False)


def _list() -> None:
    from foltr_research.reproductions.registry import EXPERIMENTS

    width = max(len(name) for name in EXPERIMENTS)
    for one in EXPERIMENTS.values():
        console.print(f"{one.name:<{width}}  {one.title} ({one.source})", markup=False, highlight=False, soft_wrap=True)


def _check(folder: Path, data: str | None) -> None:
    """Say which reports have become stale, by which modules, and how to make them again."""
    from foltr_research.reproductions.records import check_reports

    found = []
    with errors.status(f"{folder}: reading the code") as status:
        for one in check_reports(folder, None if data is None else Path(data)):
            found.append(one)
            status.update(f"{folder}: {len(found)} reports")
    stale = [one for one in found if one.reason is not None]
    for one in stale:
        _tell(one, folder)
    console.print(f"{len(found)} reports, {len(stale)} stale")
    if stale:
        raise typer.Exit(1)


def _tell(one: "CheckedReport", folder: Path) -> None:
    lines = [f"stale: {one.path.relative_to(folder)}: {one.reason}"]
    if one.modules:
        more = len(one.modules) - _MOST_MODULES
        lines[0] += f": {', '.join(one.modules[:_MOST_MODULES])}{f' and {more} more' if more > 0 else ''}"
    if one.record is not None:
        time = "" if one.record.seconds is None else f"  # about {_minutes(one.record.seconds)} on one core"
        lines.append(f"  {one.record.command}{time}")
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _minutes(seconds: float) -> str:
    minutes = max(1, round(seconds / 60))
    return f"{minutes} minute{'' if minutes == 1 else 's'}" if minutes < 120 else f"{minutes / 60:.0f} hours"
