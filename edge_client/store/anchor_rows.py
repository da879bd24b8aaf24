"""The anchor as rows of a device's store, and what the device knows of the newest model against it."""

import sqlite3
from typing import Final

from foltr.core.learning.comparison import Comparison

AnchorKey = tuple[int, bytes]
"""An anchor's version, and the hash of its weights: a restored federation gives a version to another model."""

SCHEMA: Final = """
-- The older model that the newest is compared with (`foltr.edge_client.votes`).
CREATE TABLE anchor (
    only_one INTEGER PRIMARY KEY CHECK (only_one = 1),
    version INTEGER NOT NULL CHECK (version >= 0),
    hash BLOB NOT NULL CHECK (length(hash) = 16),
    announcement BLOB NOT NULL  -- as it came
) STRICT;
-- What is known of that, as the sums of `foltr.core.learning.comparison.Comparison`; no list is kept for it.
CREATE TABLE comparison (
    only_one INTEGER PRIMARY KEY CHECK (only_one = 1),
    anchor_version INTEGER NOT NULL CHECK (anchor_version >= 0),
    anchor_hash BLOB NOT NULL CHECK (length(anchor_hash) = 16),
    n_lists REAL NOT NULL CHECK (n_lists >= 0),
    weight REAL NOT NULL CHECK (weight >= 0),
    difference REAL NOT NULL,
    square_weight REAL NOT NULL CHECK (square_weight >= 0),
    square_difference REAL NOT NULL,
    square_difference_square REAL NOT NULL CHECK (square_difference_square >= 0)
) STRICT;
"""
_SUMS = "n_lists, weight, difference, square_weight, square_difference, square_difference_square"


def read_anchor(database: sqlite3.Connection) -> bytes | None:
    """Return the announcement of the anchor; None without one."""
    row = database.execute("SELECT announcement FROM anchor").fetchone()
    return None if row is None else bytes(row[0])


def write_anchor(cursor: sqlite3.Cursor, key: AnchorKey, announcement: bytes) -> None:
    """Write an anchor in place of the one before; what was known of another is deleted."""
    cursor.execute(
        "INSERT OR REPLACE INTO anchor (only_one, version, hash, announcement) VALUES (1, ?, ?, ?)",
        (*key, announcement),
    )
    cursor.execute("DELETE FROM comparison WHERE anchor_version <> ? OR anchor_hash <> ?", key)


def delete_anchor(cursor: sqlite3.Cursor, below: int | None = None) -> None:
    """Delete the anchor and what is known of it; where ``below`` is given, only if its version is below that."""
    cursor.execute("DELETE FROM anchor WHERE ?1 IS NULL OR version < ?1", (below,))
    cursor.execute("DELETE FROM comparison WHERE ?1 IS NULL OR anchor_version < ?1", (below,))


def read_comparison(database: sqlite3.Connection, key: AnchorKey) -> Comparison:
    """Return what is known of the newest model against this anchor; nothing where another one's is stored."""
    row = database.execute(
        f"SELECT {_SUMS} FROM comparison WHERE anchor_version = ? AND anchor_hash = ?",  # noqa: S608 (our own)
        key,
    ).fetchone()
    return Comparison() if row is None else Comparison(*row)


def write_comparison(cursor: sqlite3.Cursor, key: AnchorKey, comparison: Comparison) -> None:
    """Write a comparison with this anchor in place of the one before."""
    cursor.execute(
        f"INSERT OR REPLACE INTO comparison (only_one, anchor_version, anchor_hash, {_SUMS}) "  # noqa: S608 (our own)
        "VALUES (1, ?, ?, ?, ?, ?, ?, ?, ?)",
        (*key, *comparison),
    )
