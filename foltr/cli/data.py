"""``foltr data``: get real ranking data by package name. Also finds the data for other commands."""

from typing import Annotated

import typer

from foltr.cli.fields import argument
from foltr.cli.output import console
from foltr.core.data.mslr_sample import fetch_mslr_sample
from foltr.core.data.sources import MSLR_SAMPLE, SYNTHETIC, LoadedData, load_data
from foltr.core.errors import DataError, SettingsError, UnavailableError

app = typer.Typer(help="Get ranking data.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Get ranking data."""


@app.command("get")
def get(
    name: Annotated[str, argument("mslr-sample: genuine rows of MSLR-WEB10K, 2 MB")],
) -> None:
    """Fetch a data set from your configured package index into the cache and print its folder."""
    if name != "mslr-sample":
        raise SettingsError(f"name: unknown data set {name!r}; the only one is mslr-sample")

    with console.status("Fetching"):
        folder = fetch_mslr_sample()
    console.print(str(folder), soft_wrap=True, highlight=False)


def find_data(name: str | None, seed: int, fold: int | None = None, *, normalise: bool = True) -> LoadedData:
    """Load data as `foltr.core.data.sources.load_data`. Default: the MSLR sample, else synthetic data."""
    if name is None and fold is not None:
        raise SettingsError(f"fold {fold}: only a folder has folds; expected --data with a folder")
    sample = name in (None, MSLR_SAMPLE)
    try:
        with console.status("Fetching the MSLR-WEB10K sample (once, 2 MB)" if sample else "Reading the data"):
            return load_data(MSLR_SAMPLE if name is None else name, seed, fold, normalise=normalise)
    except (UnavailableError, DataError) as error:
        if name is not None:
            raise
        console.print(f"No real data: {error}", style="yellow", markup=False, soft_wrap=True)
        console.print("Using a generated, synthetic data set instead: its figures mean little.", style="yellow")
        return load_data(SYNTHETIC, seed)
