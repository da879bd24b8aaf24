"""A gate as rows of a device's store: whether it is open, its evidence, and the rewards of each source's lists."""

import sqlite3
from typing import Final

from foltr.core.learning.gate import FadingMean, Gate, ShownCount, Source

_EVIDENCE: Final = ("credits", "of_base", "of_model")


def read_gate(database: sqlite3.Connection) -> Gate:
    """Return the stored gate; a new one if none is stored."""
    is_open = database.execute("SELECT is_open FROM gate").fetchone()
    evidence = {
        name: FadingMean(*numbers)
        for name, *numbers in database.execute("SELECT name, weight, weight_squares, total, squares FROM gate_evidence")
    }
    counts = {
        Source(source): ShownCount(*numbers)
        for source, *numbers in database.execute("SELECT source, lists, clicked, reciprocal_ranks FROM shown_lists")
    }
    credits_, of_base, of_model = (evidence.get(name, FadingMean()) for name in _EVIDENCE)
    return Gate(is_open is not None and bool(is_open[0]), credits_, of_base, of_model, counts)


def write_gate(cursor: sqlite3.Cursor, gate: Gate, before: Gate | None = None) -> None:
    """Write a gate in place of the one before.

    Args:
        before: what was written last, whose equal rows are skipped; None if unknown.
    """
    if before is None or gate.is_open is not before.is_open:
        cursor.execute("INSERT OR REPLACE INTO gate (only_one, is_open) VALUES (1, ?)", (int(gate.is_open),))
    means: dict[str, FadingMean] = {name: getattr(gate, name) for name in _EVIDENCE}
    for name, one in means.items():
        if before is None or one != getattr(before, name):
            cursor.execute(_PUT_EVIDENCE, (name, *one))
    for source, count in gate.counts.items():
        if before is None or count != before.counts.get(source):
            cursor.execute(_PUT_COUNT, (source, *count))


# An existing row is updated in place: replacing it would touch its index too.
_PUT_EVIDENCE: Final = (
    "INSERT INTO gate_evidence (name, weight, weight_squares, total, squares) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO "
    "UPDATE SET (weight, weight_squares, total, squares) = "
    "(excluded.weight, excluded.weight_squares, excluded.total, excluded.squares)"
)
_PUT_COUNT: Final = (
    "INSERT INTO shown_lists (source, lists, clicked, reciprocal_ranks) VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET "
    "(lists, clicked, reciprocal_ranks) = (excluded.lists, excluded.clicked, excluded.reciprocal_ranks)"
)
