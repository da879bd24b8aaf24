"""Writes rows of results as CSV, or as Parquet through pyarrow, and checks paths beforehand."""

import contextlib
import csv
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from foltr.core.errors import SettingsError
from foltr.core.extras import install_command
from foltr.core.user_files import check_file

SUFFIXES = (".parquet", ".csv")


def check_folder(path: Path) -> None:
    """Raise SettingsError before the work starts if a folder cannot be created or written to."""
    existing = path.absolute()
    try:
        while not existing.exists() and existing != existing.parent:
            existing = existing.parent
        if not existing.is_dir():
            raise SettingsError(f"{path}: {existing} is a file; expected a folder, or nothing of this name")
    except OSError as error:
        raise SettingsError(f"{path}: it cannot be written to: {error.strerror}") from error
    if not os.access(existing, os.W_OK | os.X_OK):
        raise SettingsError(f"{path}: it cannot be written to: no permission for {existing}")


def check_table_path(path: Path) -> None:
    """Raise SettingsError before the work starts if `write_table` could not write the file."""
    if path.suffix not in SUFFIXES:
        raise SettingsError(f"{path}: results are written as {' or '.join(SUFFIXES)}")
    check_file(path)
    if path.suffix == ".parquet":
        try:
            import pyarrow.parquet  # noqa: F401
        except ImportError as error:
            raise SettingsError(
                f"{path}: Parquet needs pyarrow: {install_command('sweeps', 'foltr-research')}; or write .csv"
            ) from error


def write_table(path: Path, rows: Sequence[Mapping[str, Any]], metadata: Mapping[str, Any]) -> None:
    """Write rows, all columns that any of them has, in the order of their first appearance; replaces the file at once.

    Args:
        metadata: JSON-serialisable; goes into a Parquet file under the key ``foltr``, and is left out of a CSV.

    Raises:
        SettingsError: as `check_table_path`, or writing failed.
    """
    check_table_path(path)
    temporary = path.with_name(f".{path.name}.new")
    try:
        _write(temporary, rows, metadata, parquet=path.suffix == ".parquet")
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise SettingsError(f"{path}: the rows cannot be written: {error.strerror or error}") from error


def _write(path: Path, rows: Sequence[Mapping[str, Any]], metadata: Mapping[str, Any], *, parquet: bool) -> None:
    columns = list(dict.fromkeys(name for row in rows for name in row))
    if not parquet:
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, columns)
            writer.writeheader()
            writer.writerows(rows)
        return
    import pyarrow as pa
    from pyarrow import parquet as format_

    arrays = {name: [row.get(name) for row in rows] for name in columns}
    format_.write_table(pa.table(arrays).replace_schema_metadata({"foltr": json.dumps(metadata)}), path)
