"""``foltr schema``: the features of a federation, as a JSON file says them and as the operator signs them."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foltr.cli import options
from foltr.cli.operator.access import DEFAULT_OPERATOR_FOLDER, OperatorFolder, open_authority
from foltr.cli.operator.sending import publish_schema, say
from foltr.cli.output import print_json, print_rows

if TYPE_CHECKING:
    from foltr.protocol.schemas import FeatureSchema

app = typer.Typer(help="Look at a feature schema, check it, and publish it.", no_args_is_help=True)

SchemaFile = Annotated[Path, typer.Argument(metavar="FILE", help="The schema as JSON: docs/features.md")]


@dataclass(frozen=True)
class FeatureRecord:
    """One feature as ``foltr schema show`` prints it."""

    column: int
    name: str
    scaling: str
    low: float | None
    high: float | None


@dataclass(frozen=True)
class UseRecord:
    """What logged data has of one feature: the extremes, and which share of the values the bounds cut off."""

    name: str
    scaling: str
    least: float
    greatest: float
    clipped: float


@app.callback()
def _group() -> None:
    """Look at a feature schema, check it, and publish it."""


@app.command("show")
def show(file: SchemaFile, json: options.Json = False) -> None:
    """The features of a schema, in the order of the columns, and its hash."""
    from foltr.protocol.schemas import FeatureSchema

    schema = FeatureSchema.read(file)
    rows = [FeatureRecord(i, one.name, one.scaling, one.low, one.high) for i, one in enumerate(schema.features)]
    if json:
        print_json({"name": schema.name, "version": schema.version, "hash": schema.hash.hex(), "features": rows})
        return
    print_rows(rows, ("column", "name", "scaling", "low", "high"), title=_title(schema), as_json=False)
    say(f"hash {schema.hash.hex()}")


@app.command("check")
def check(
    file: SchemaFile,
    data: Annotated[
        Path | None, typer.Option("--data", metavar="FILE", help="Logged data, as LETOR lines of features as they are")
    ] = None,
    json: options.Json = False,
) -> None:
    """Whether a file is a schema; with data, how much of each feature its bounds cut off."""
    from foltr.protocol.schemas import FeatureSchema

    schema = FeatureSchema.read(file)
    rows = [] if data is None else _use_of(schema, data)
    if json:
        print_json({"name": schema.name, "version": schema.version, "hash": schema.hash.hex(), "features": rows})
        return
    if rows:
        print_rows(rows, ("name", "scaling", "least", "greatest", "clipped"), title=_title(schema), as_json=False)
    say(f"{file} is a schema of {schema.n_features} features; hash {schema.hash.hex()}")


@app.command("publish")
def publish(
    file: SchemaFile, operator: OperatorFolder = DEFAULT_OPERATOR_FOLDER, broker: options.Broker = None
) -> None:
    """Sign a schema, and retain it at the broker: devices with other features can say what differs."""
    from foltr.protocol.schemas import FeatureSchema

    schema = FeatureSchema.read(file)
    with open_authority(operator) as authority:
        authority.issue_schema(schema)
        where = publish_schema(authority, broker)
        federation = authority.federation
    say(f"published schema {schema.name} {schema.version} of {federation} at {where}: {schema.hash.hex()}")
    say(f"Its federator is started with --schema {file}, and devices have the same file")


def _use_of(schema: "FeatureSchema", data: Path) -> list[UseRecord]:
    from foltr.data.letor import load_raw
    from foltr.learning.scaling import clipped_share

    values = load_raw(data, schema.n_features).features.astype("float64")
    shares = clipped_share(values, schema.bounds)
    return [
        UseRecord(one.name, one.scaling, float(column.min()), float(column.max()), float(share))
        for one, column, share in zip(schema.features, values.T, shares, strict=True)
    ]


def _title(schema: "FeatureSchema") -> str:
    return f"Schema {schema.name} {schema.version}"
