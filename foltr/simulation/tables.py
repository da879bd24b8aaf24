"""Rows of results as a file: CSV as it is, Parquet through pyarrow."""

import csv
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from foltr.errors import SettingsError

SUFFIXES = (".parquet", ".csv")


def check_table_path(path: Path) -> None:
    """SettingsError, before the work is done, where `write_table` could not write the file."""
    if path.suffix not in SUFFIXES:
        raise SettingsError(f"{path}: results are written as {' or '.join(SUFFIXES)}")
    if not path.absolute().parent.is_dir():
        raise SettingsError(f"{path}: there is no folder {path.parent}")
    if path.suffix == ".parquet":
        try:
            import pyarrow.parquet  # noqa: F401
        except ImportError as error:
            raise SettingsError(
                f"{path}: Parquet needs pyarrow, of the extra 'research': pip install 'foltr[research]'; or write .csv"
            ) from error


def write_table(path: Path, rows: Sequence[Mapping[str, Any]], metadata: Mapping[str, Any]) -> None:
    """Write rows, all columns that any of them has, in the order of their first appearance; replaces the file at once.

    Args:
        metadata: JSON-serialisable; goes into a Parquet file under the key ``foltr``, and is left out of a CSV.

    Raises:
        SettingsError: as `check_table_path`.
    """
    check_table_path(path)
    columns = list(dict.fromkeys(name for row in rows for name in row))
    temporary = path.with_name(f".{path.name}.new")
    if path.suffix == ".csv":
        with temporary.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, columns)
            writer.writeheader()
            writer.writerows(rows)
    else:
        import pyarrow as pa
        from pyarrow import parquet

        arrays = {name: [row.get(name) for row in rows] for name in columns}
        table = pa.table(arrays).replace_schema_metadata({"foltr": json.dumps(metadata)})
        parquet.write_table(table, temporary)
    temporary.replace(path)
