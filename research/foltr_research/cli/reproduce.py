"""``foltr reproduce``: repeat a paper's experiment and judge its claims."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foltr.cli.output import console, errors
from foltr.core.errors import SettingsError

if TYPE_CHECKING:
    from foltr_research.reproductions.records import CheckedReport

_MOST_MODULES = 6


def reproduce(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="NAME | list | check [FOLDER]",
            help="An experiment, e.g. thesis-3.6; or list for all; or check for stale reports in FOLDER (default: OUT)",
        ),
    ],
    data: Annotated[
        str | None, typer.Option(help="A folder with a learning-to-rank data set, or a name: mslr-sample, synthetic")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the report and the finished runs")] = Path("reproductions"),
    scale: Annotated[str, typer.Option(help="quick: minutes on two cores; full: the paper's own settings")] = "quick",
    jobs: Annotated[int, typer.Option(min=1, max=1024, help="Runs at the same time")] = 1,
    seeds: Annotated[
        str | None, typer.Option(help="How many seeds, or which: 3,5,8 or 1-3; default: the scale's number")
    ] = None,
    rounds: Annotated[int | None, typer.Option(min=1, help="Rounds of every run, instead of the scale's")] = None,
    clients: Annotated[int | None, typer.Option(min=1, help="Clients of every run, instead of the scale's")] = None,
    metric: Annotated[
        str | None,
        typer.Option(help="More metrics on the test queries, with commas, e.g. err@10: the first table again"),
    ] = None,
) -> None:
    """Repeat a paper's experiment: figures, tables, every number, and a verdict on each claim.

    Finished runs are kept in OUT/runs: the same command resumes an interrupted one. A run is repeated if its data or
    code has changed. With check nothing is run: it says which reports are older than their code, and with --data, the
    folder of the data sets, than their data. The exit code is 1 if one is.
    """
    name, *more = words
    if len(more) > (name == "check"):
        raise SettingsError(f"{more[-1]}: it is one argument too many; use --out for where a report goes")
    if name == "check":
        _check(Path(more[0]) if more else out, data)
        return
    from foltr_research.reproductions import harness, registry
    from foltr_research.reproductions.experiment import SCALES
    from foltr_research.reproductions.sizes import Size, read_seeds
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
    measured = () if metric is None else tuple(one.strip() for one in metric.split(","))
    size = Size(chosen, None if seeds is None else read_seeds(seeds), rounds, clients, measured).of(wanted)
    with errors.status(f"{name}: reading the data") as status:
        done = harness.reproduce(
            wanted,
            data,
            out,
            size,
            jobs=jobs,
            on_plan=lambda text: errors.print(f"{name}: {text}", soft_wrap=True, highlight=False),
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
    console.print(f"{len(found)} report{'s' * (len(found) != 1)}, {len(stale)} stale")
    if stale:
        raise typer.Exit(1)


def _tell(one: "CheckedReport", folder: Path) -> None:
    from foltr_research.reproductions.records import duration_text

    lines = [f"stale: {one.path.relative_to(folder)}: {one.reason}"]
    if one.modules:
        more = len(one.modules) - _MOST_MODULES
        lines[0] += f": {', '.join(one.modules[:_MOST_MODULES])}{f' and {more} more' if more > 0 else ''}"
    if one.record is not None:
        time = "" if one.record.seconds is None else f"  # about {duration_text(one.record.seconds)} on one core"
        lines.append(f"  {one.record.command}{time}")
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)
