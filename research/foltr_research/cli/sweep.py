"""``foltr sweep``: many simulations, on several processors or machines, into one table."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

import typer

from foltr.cli.fields import option_name, takes_fields
from foltr.cli.output import check_writable, console
from foltr.core.errors import SettingsError
from foltr_research.cli import simulation_options as given
from foltr_research.simulation.config import SimulationConfig

if TYPE_CHECKING:
    from foltr_research.finished_runs import Sweep
    from foltr_research.simulation.sweeps.executors import Backend
    from foltr_research.simulation.sweeps.sweep import SweepRow

# Fields that `foltr sweep` varies with dedicated options.
_OWN_OPTIONS = {"seed": "--seeds", "fold": "--folds"}
_MOST_NUMBERS = 10_000
_PICTURES = (".png", ".svg", ".pdf")
_MEASURES = {"round", "mean", "low", "high", "n"}


@takes_fields(SimulationConfig, given.FIELDS, given.OPTIONS)
def sweep(
    context: typer.Context,
    out: Annotated[Path, typer.Option("--out", help="Write tidy rows of all runs to this file, .parquet or .csv")],
    folds: Annotated[str | None, typer.Option("--folds", help="Folds of the data set, e.g. 1,2,3 or 1-3")] = None,
    seeds: Annotated[str, typer.Option("--seeds", help="1,2,3 or 1-3")] = "1",
    vary: Annotated[
        list[str] | None,
        typer.Option(
            "--vary",
            metavar="NAME=VALUE,VALUE",
            help="An option of `foltr simulate`, or a parameter of the method; every combination is run. "
            "aggregation_parameters.NAME and attack_parameters.NAME are those of a rule and an attack. May be "
            "given several times; several click models in one run: perfect+navigational",
        ),
    ] = None,
    choose_by: Annotated[
        Literal["validation"] | None,
        typer.Option(
            "--choose-by",
            help="Choose the varied parameters by the first metric on the validation queries, for each fold and each "
            "combination of the other varied options; then run the chosen ones on the test queries",
        ),
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", min=1, max=1024, help="Runs at the same time")] = 1,
    backend: Annotated[str, typer.Option("--backend", help="loky, dask or ray")] = "loky",
    scheduler: Annotated[
        str | None,
        typer.Option(
            "--scheduler",
            help="The address of a running cluster, e.g. tcp://host:8786 (Dask) or host:6379 (Ray); default: one on "
            "this machine",
        ),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(
            "--plot", help="Draw nDCG@10 over the rounds, means with 95 % intervals, to this .png, .svg or .pdf"
        ),
    ] = None,
    **values: Any,
) -> None:
    """Run every combination of folds, seeds and varied values; finished runs are kept beside the table."""
    from foltr_research.finished_runs import Sweep
    from foltr_research.simulation.sweeps.choosing import chosen_configs, parameters_to_choose
    from foltr_research.simulation.sweeps.sweep import check_sweep, grid, rows_of_sweep, run_sweep
    from foltr_research.simulation.sweeps.tables import check_folder, check_table_path, write_table
    from foltr_research.sweep_display import SweepDisplay

    check_table_path(out)
    folder = out.with_name(f"{out.name}.runs")
    check_folder(folder)
    if plot is not None:
        _check_plot(plot)
    if scheduler is not None and backend == "loky":
        raise SettingsError("--scheduler: only for --backend dask or ray")
    base = given.read_config(values)
    again = _read_variations(vary or ())
    _check_given_once(context, again, base)
    varied: dict[str, list[Any]] = {}
    if folds is not None:
        varied["fold"] = _read_numbers(folds, "--folds")
    varied.update(again)
    varied["seed"] = _read_numbers(seeds, "--seeds")
    to_choose = [] if choose_by is None else parameters_to_choose(varied)
    configs = grid(base if choose_by is None else base.changed(evaluate_on=choose_by), varied)
    check_sweep(configs)

    def run_all(configs: "Sequence[SimulationConfig]") -> "list[SweepRow]":
        runs = "1 run" if len(configs) == 1 else f"{len(configs)} runs"
        console.print(f"{runs}, kept in {folder} as they finish", soft_wrap=True, highlight=False)
        knows_running = backend != "ray"
        with SweepDisplay(configs, list(varied), console, knows_running=knows_running, lines=True) as display:
            return run_sweep(
                configs,
                folder=folder,
                jobs=jobs,
                # `run_sweep` refuses an unknown backend with a message.
                backend=cast("Backend", backend),
                scheduler=scheduler,
                on_start=display.started,
                on_done=display.done,
            )

    rows = measured = run_all(configs)
    if choose_by is not None and (chosen := chosen_configs(rows, to_choose)):
        console.print("Chosen by validation queries; now on test queries:", soft_wrap=True, highlight=False)
        measured = run_all(chosen)
        rows = [*rows, *measured]
    try:
        write_table(out, rows_of_sweep(rows), {"configs": [row.config.model_dump(mode="json") for row in rows]})
    except SettingsError as error:
        raise SettingsError(
            f"{error}; the runs are kept in {folder}, so the same command only writes the table"
        ) from error
    console.print(f"Rows: {out}", soft_wrap=True, highlight=False)
    done = Sweep(tuple(key for key in varied if key not in _OWN_OPTIONS), measured)
    if any(row.result is not None for row in measured):
        _report(done, () if "metrics" in varied else base.other_metrics)
        if plot is not None:
            _draw(done, plot)
    n_failed = sum(row.error is not None for row in rows)
    if n_failed:
        console.print(f"{n_failed} of {len(rows)} runs failed; the column error says why", style="red", highlight=False)
        raise typer.Exit(1)


def _read_variations(assignments: Sequence[str]) -> dict[str, list[Any]]:
    varied: dict[str, list[Any]] = {}
    for assignment in assignments:
        name, separator, values = assignment.partition("=")
        name = name.strip().replace("-", "_")
        if not separator or not values:
            raise SettingsError(f"--vary: {assignment!r} is not NAME=VALUE,VALUE")
        key = name if name in SimulationConfig.model_fields or "." in name else f"parameters.{name}"
        if name in _OWN_OPTIONS:
            raise SettingsError(f"--vary {name}: use {_OWN_OPTIONS[name]} {values}")
        if key in varied:
            raise SettingsError(f"--vary {name}: given twice; use one --vary {name}=VALUE,VALUE with all values")
        items = [value.strip() for value in values.split(",")]
        # Commas separate values, so a list within one run is joined with plus signs.
        varied[key] = [item.split("+") for item in items] if name in {"clicks", "quantities"} else items
    return varied


def _read_numbers(text: str, option: str) -> list[str]:
    """Return the numbers of ``1,2,5-7``, still as text. Raises SettingsError for another form."""
    numbers: list[str] = []
    for part in text.split(","):
        found = re.fullmatch(r"\s*(\d{1,19})(?:-(\d{1,19}))?\s*", part)
        first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
        if not 0 <= last - first < _MOST_NUMBERS:
            raise SettingsError(f"{option}: {part!r} is neither a number nor a range such as 1-3")
        numbers += map(str, range(first, last + 1))
    return numbers


def _report(done: "Sweep", others: Iterable[str]) -> None:
    """Print the last means of each combination of varied values: nDCG@10, and other metrics that were asked for."""
    for column, shown in (("ndcg_at_10", "nDCG@10"), *((name, name) for name in others)):
        rows = done.means(value=column)
        last = {tuple(row[name] for name in row if name not in _MEASURES): row for row in rows}
        for named, row in last.items():
            interval = "" if row["low"] is None else f" ({row['low']:.4f} to {row['high']:.4f})"
            runs = "1 run" if row["n"] == 1 else f"{row['n']} runs"
            console.print(
                f"{' '.join(map(str, (*named, shown)))} {row['mean']:.4f}{interval}, round {row['round']}, {runs}",
                soft_wrap=True,
                highlight=False,
            )


def _check_plot(path: Path) -> None:
    """Raise SettingsError or UnavailableError before the work starts if no figure can be written there."""
    from foltr_research.reproductions.figures import require_matplotlib

    if path.suffix not in _PICTURES:
        raise SettingsError(f"--plot: {path}: figures are written as {', '.join(_PICTURES)}")
    check_writable(path, "--plot", replaced=False)
    require_matplotlib()


def _draw(done: "Sweep", path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(layout="constrained")
    done.plot(ax=figure.subplots())
    try:
        figure.savefig(path, dpi=150)
    except OSError as error:
        raise SettingsError(f"--plot: {path}: {error.strerror or error}; the rows are written") from error
    console.print(f"Figure: {path}", soft_wrap=True, highlight=False)


def _check_given_once(context: typer.Context, varied: Iterable[str], base: SimulationConfig) -> None:
    """Raise SettingsError for a field that is both varied and set."""
    for key in varied:
        field, _, parameter = key.partition(".")
        if field not in given.FIELDS:
            continue
        option = option_name(SimulationConfig, field, given.OPTIONS)
        if parameter and parameter in getattr(base, field):
            name = parameter if field == "parameters" else key
            raise SettingsError(f"--vary {name}: {option} {parameter} sets one value; use only one of the two")
        source = context.get_parameter_source(key)
        if source is not None and source.name == "COMMANDLINE":
            raise SettingsError(f"--vary {key}: {option} sets one value; use only one of the two")
