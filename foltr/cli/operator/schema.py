"""``foltr schema``: the features of a federation, in a JSON file and as signed by the operator."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from foltr.cli import options
from foltr.cli.fields import argument, option
from foltr.cli.operator.sending import publish as publish_retained
from foltr.cli.options import OperatorFolder
from foltr.cli.output import check_folder, print_json, print_rows, say
from foltr.core.data.feature_samples import read_feature_sample
from foltr.core.errors import SettingsError
from foltr.core.evaluation.suggested_schema import suggested_schema, unmeasured_schema
from foltr.core.learning.scaling import clipped_share
from foltr.core.operator.next_commands import DEFAULT_OPERATOR_FOLDER
from foltr.core.protocol.schemas import FeatureSchema
from foltr.core.protocol.topics import Topics
from foltr.operations.operator_access import open_authority

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


_SHOWN = {"name", "scaling", "low", "high"}
SchemaFile = Annotated[Path, argument("The schema as JSON: docs/features.md", metavar="FILE")]


def new(
    name: Annotated[str, argument("The schema's name, say of the application")],
    out: Annotated[Path, option("The file to write", metavar="FILE")],
    feature: Annotated[
        list[str] | None, option("A feature's name, once for each column; of a CSV file, which columns")
    ] = None,
    data: Annotated[
        Path | None, option("A sample to measure: CSV with a heading, npz, or LETOR lines", metavar="FILE")
    ] = None,
    json: options.Json = False,
) -> None:
    """Make a schema from names, or from a sample of the application's features, whose ranges are measured.

    Measured bounds are a beginning: check them, and declare those that have a meaning.
    """
    check_folder(out)
    if out.exists():
        raise SettingsError(f"out: {out} exists, and may have bounds that somebody chose; name another file")
    names = feature or []
    if data is None and not names:
        raise SettingsError("data: give a sample of the features to measure, or their names with --feature")
    schema = unmeasured_schema(name, names) if data is None else suggested_schema(name, *_measured(data, names))
    out.write_text(schema.to_json())
    rows = _features(schema)
    if json:
        print_json({**_head(schema), "features": rows, "out": str(out)})
        return
    print_rows(rows, title=f"Schema {schema.name} {schema.version}")
    say(f"wrote {out}: look at the bounds, then: foltr federator run --schema {out}, SearchRanker(schema={str(out)!r})")


def _measured(data: Path, names: list[str]) -> "tuple[list[str], NDArray[np.float64]]":
    """Return a sample's column names and values; for a CSV file, the named columns."""
    sample = read_feature_sample(data)
    n_columns = sample.values.shape[1]
    if sample.names is None:
        if names and len(names) != n_columns:
            raise SettingsError(f"feature: {len(names)} names, but {data} has {n_columns} columns")
        return names or [f"feature {i}" for i in range(1, n_columns + 1)], sample.values
    unknown = [name for name in names if name not in sample.names]
    if unknown:
        raise SettingsError(f"feature: {data} has no column {unknown[0]!r}; it has {', '.join(sample.names)}")
    chosen = names or list(sample.names)
    return chosen, sample.values[:, [sample.names.index(name) for name in chosen]]


def show(file: SchemaFile, json: options.Json = False) -> None:
    """Show the features of a schema, in the order of the columns, and its hash."""
    schema = FeatureSchema.read(file)
    rows = _features(schema)
    if json:
        print_json({**_head(schema), "features": rows})
        return
    print_rows(rows, title=f"Schema {schema.name} {schema.version}")
    say(f"{file} is a schema of {schema.n_features} features; hash {schema.hash.hex()}")


def check(
    file: SchemaFile,
    data: Annotated[Path, option("A sample to check: CSV with a heading, npz, or LETOR lines", metavar="FILE")],
    json: options.Json = False,
) -> None:
    """Compare a schema with a sample of features: which values are outside its bounds, and become 0 or 1."""
    schema = FeatureSchema.read(file)
    _, values = _measured(data, schema.names)
    if values.shape[1] != schema.n_features:
        raise SettingsError(f"data: {data} has {values.shape[1]} columns, and {file} {schema.n_features} features")
    shares = clipped_share(values, schema.bounds).tolist()
    rows = [{**row, "outside": share} for row, share in zip(_features(schema), shares, strict=True)]
    if json:
        print_json({**_head(schema), "documents": len(values), "features": rows})
        return
    print_rows([{**row, "outside": f"{row['outside']:.1%}"} for row in rows], title=f"Schema {schema.name}")
    n_outside = sum(share > 0 for share in shares)
    fits = "all values are within the bounds" if not n_outside else f"{n_outside} features have values outside"
    say(f"{len(values)} documents of {data}: {fits}")


def publish(
    file: SchemaFile, operator: OperatorFolder = DEFAULT_OPERATOR_FOLDER, broker: options.Broker = None
) -> None:
    """Sign a schema and publish it at the broker, so that devices with other features can say what differs."""
    schema = FeatureSchema.read(file)
    with open_authority(operator) as authority:
        authority.issue_schema(schema)
        where = publish_retained(authority, broker, Topics(authority.federation).schema)
        federation = authority.federation
    say(f"published schema {schema.name} {schema.version} of {federation} at {where}: {schema.hash.hex()}")
    say(f"Start its federator with --schema {file}, and give devices the same file")


def _head(schema: "FeatureSchema") -> dict[str, str | int]:
    return {"name": schema.name, "version": schema.version, "hash": schema.hash.hex()}


def _features(schema: FeatureSchema) -> list[dict[str, Any]]:
    return [{"column": i, **one.model_dump(include=_SHOWN)} for i, one in enumerate(schema.features)]
