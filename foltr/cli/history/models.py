"""``foltr models``: the stored versions of the model."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np

from foltr.cli import options
from foltr.cli.database import Listing, print_listing, run_query
from foltr.cli.fields import argument, option
from foltr.cli.output import check_folder, say
from foltr.core.errors import SettingsError
from foltr.core.methods.initial_models import InitialModel
from foltr.core.protocol.fields import unpack_vector
from foltr.core.protocol.schemas import FeatureSchema

if TYPE_CHECKING:
    from foltr.storage.database import Database
    from foltr.storage.records import ModelRow

ModelVersion = Annotated[int | None, option("Default: the newest", "--version", min=0, max=2**31 - 1)]


def _made_by(row: "ModelRow") -> str:
    if row.restored_version is not None:
        return f"rollback to {row.restored_version}"
    if row.unlearning_job is not None:
        return f"unlearning job {row.unlearning_job}"
    return "-" if row.round is None else f"round {row.round}"


_COLUMNS = {
    "version": lambda row: row.version,
    "base": lambda row: row.base_version,
    "made_by": _made_by,
    "created_at": lambda row: row.created_at,
    "published": lambda row: "no" if row.published_at is None else "yes",
    "withdrawn": lambda row: None if row.withdrawn_at is None else f"{row.withdrawn_at:%Y-%m-%d}",
}


def models_list(
    db: options.Db = None,
    federation: options.Federation = None,
    limit: options.Limit = None,
    json: options.Json = False,
) -> None:
    """The model versions, newest last."""
    from foltr.storage.models import list_models

    async def read(database: "Database", name: str, most: int) -> "list[ModelRow]":
        return await list_models(database, name, limit=most)

    async def n_all(_database: "Database", _name: str, rows: "Sequence[ModelRow]") -> int:
        return rows[-1].version + 1 if rows else 0

    listing = Listing("Models", _COLUMNS, read, n_all)
    print_listing(listing, db, federation, limit, json)


def models_export(
    out: Annotated[Path, option("The .npy file to write: float32, one weight per feature")],
    version: ModelVersion = None,
    db: options.Db = None,
    federation: options.Federation = None,
) -> None:
    """Write the weights of one model version as a NumPy array."""

    async def query(database: "Database", name: str) -> None:
        model = await _find_model(database, name, version)
        np.save(out, unpack_vector(model.weights))
        say(f"wrote version {model.version} ({model.n_values} weights) to {out}")

    check_folder(out)
    run_query(db, federation, query)


def models_from_feature(
    name: Annotated[str, argument("The feature, as the schema calls it", metavar="NAME")],
    schema: Annotated[Path, option("The feature schema as JSON", metavar="FILE")],
    out: Annotated[Path, option("The file to write, for the setting initial_model", metavar="FILE")],
    weight: Annotated[
        float,
        option(
            "Weight of the feature in [0, 1]: the larger, the longer clicks take to change its order", min=-1e6, max=1e6
        ),
    ] = 8.0,
) -> None:
    """Write a first model that ranks by one feature, e.g. the score of your present search."""
    check_folder(out)
    features = FeatureSchema.read(schema)
    if name not in features.names:
        raise SettingsError(f"name: {name!r} is not a feature of {schema}; it has {', '.join(features.names)}")
    weights = np.array([weight * (one == name) for one in features.names])
    out.write_text(InitialModel.of(features, weights).to_json())
    say(f"wrote a model that ranks by {name!r} to {out}")


async def _find_model(database: "Database", name: str, version: int | None) -> "ModelRow":
    """Return one version, or the newest. Raises SettingsError if it is missing or its weights are deleted."""
    from foltr.storage.models import get_model, latest_model

    model = await (latest_model(database, name) if version is None else get_model(database, name, version))
    if model is None:
        raise SettingsError(f"federation {name!r} has no model {version}; see: foltr models list")
    if model.withdrawn_at is not None:
        raise SettingsError(
            f"version: {model.version} was withdrawn on {model.withdrawn_at:%Y-%m-%d}: it had learned from a "
            "client that was forgotten, and its weights are deleted; see: foltr models list"
        )
    return model
