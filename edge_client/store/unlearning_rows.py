"""A device's store counts the answers to steps of unlearning jobs: how many a day, and from which clicks."""

import sqlite3
from collections.abc import Sequence
from typing import Final

SCHEMA: Final = """
-- How many steps of unlearning jobs were answered on the newest day that there was one. Each click has its own count.
CREATE TABLE answered_steps (
    only_one INTEGER PRIMARY KEY CHECK (only_one = 1),
    day INTEGER NOT NULL,  -- by the device's clock, since the epoch, UTC; it never goes back
    steps INTEGER NOT NULL CHECK (steps > 0)
) STRICT;
"""


def n_answered(database: sqlite3.Connection, day: int) -> int:
    """Count the steps that were answered on a day, or on the newest one where the clock was set back behind it."""
    row = database.execute("SELECT steps FROM answered_steps WHERE day >= ?", (day,)).fetchone()
    return 0 if row is None else int(row[0])


def count_answer(cursor: sqlite3.Cursor, day: int, interaction_ids: Sequence[int]) -> None:
    """Count an answer: for the day, and for each of the interactions that it was learned from."""
    cursor.execute(
        "INSERT INTO answered_steps (only_one, day, steps) VALUES (1, ?, 1) ON CONFLICT DO UPDATE "
        "SET steps = CASE WHEN excluded.day > day THEN 1 ELSE steps + 1 END, day = max(day, excluded.day)",
        (day,),
    )
    cursor.executemany(
        "UPDATE interactions SET relearned = relearned + 1 WHERE id = ?", [(one,) for one in interaction_ids]
    )
