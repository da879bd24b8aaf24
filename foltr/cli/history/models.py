"""``foltr models``: the model versions that the database holds."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

from foltr.cli import options
from foltr.cli.history.query import run_query
from foltr.cli.output import console, print_rows
from foltr.errors import SettingsError
from foltr.protocol.fields import unpack_vector

if TYPE_CHECKING:
    from storage.database import Database

app = typer.Typer(help="Look at model versions, and export one.", no_args_is_help=True)

_MODEL_COLUMNS = ("version", "base_version", "round", "created_at", "published_at", "withdrawn_at")


@app.command("list")
def models_list(
    db: options.Db = None,
    federation: options.Federation = None,
    limit: options.Limit = 1000,
    json: options.Json = False,
) -> None:
    """The model versions, newest last."""
    from storage.models import list_models

    async def query(database: "Database", name: str) -> None:
        rows = await list_models(database, name, limit=limit)
        print_rows(rows, _MODEL_COLUMNS, title=f"Models of {name}", as_json=json)

    run_query(db, federation, query)


@app.command("export")
def models_export(
    out: Annotated[Path, typer.Option("--out", help="The .npy file to write: float32, one weight a feature")],
    version: Annotated[int | None, typer.Option(min=0, help="The version; default: the newest")] = None,
    db: options.Db = None,
    federation: options.Federation = None,
) -> None:
    """Write the weights of one model version as a NumPy array."""
    from storage.models import get_model, latest_model

    async def query(database: "Database", name: str) -> None:
        model = await (latest_model(database, name) if version is None else get_model(database, name, version))
        if model is None:
            raise SettingsError(f"federation {name!r} has no model {version}; see: foltr models list")
        if model.withdrawn_at is not None:
            raise SettingsError(
                f"version: {model.version} was withdrawn on {model.withdrawn_at:%Y-%m-%d}: a client that was forgotten "
                "was in it, and its weights are deleted; see: foltr models list"
            )
        np.save(out, unpack_vector(model.weights))
        console.print(f"wrote version {model.version} ({model.n_values} weights) to {out}", soft_wrap=True)

    if not out.resolve().parent.is_dir():
        raise SettingsError(f"out: there is no folder {out.resolve().parent}")
    run_query(db, federation, query)
