"""``foltr reproduce``: repeat a paper's experiment and judge its claims."""

from pathlib import Path
from typing import Annotated

import typer

from foltr.cli.output import console, errors
from foltr.core.errors import SettingsError


def reproduce(
    name: Annotated[str, typer.Argument(help="An experiment, e.g. thesis-3.6, or list to show all")],
    data: Annotated[
        str | None, typer.Option(help="A folder with a learning-to-rank data set, or a name: mslr-sample, synthetic")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the report and the finished runs")] = Path("reproductions"),
    scale: Annotated[str, typer.Option(help="quick: minutes on two cores; full: the paper's own settings")] = "quick",
    jobs: Annotated[int, typer.Option(min=1, max=1024, help="Runs at the same time")] = 1,
    seeds: Annotated[int | None, typer.Option(min=1, max=1000, help="Repetitions; default: the scale's number")] = None,
    metric: Annotated[
        str | None,
        typer.Option(help="More metrics on the test queries, with commas, e.g. err@10: the first table again"),
    ] = None,
) -> None:
    """Repeat a paper's experiment: figures, tables, every number, and a verdict on each claim.

    Finished runs are kept in OUT/runs: the same command resumes an interrupted one. They are run again when the data or
    the program has changed.
    """
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
