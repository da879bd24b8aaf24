"""A device's store counts the answers to steps of unlearning jobs: how many a day, from which clicks, and what for."""

import sqlite3
from collections.abc import Sequence
from typing import Final

Erasure = tuple[int, bytes]
"""An entry of the audit log, by its number and its hash."""

SCHEMA: Final = """
-- How many steps of unlearning jobs were answered on the newest day that there was one. Each click has its own count.
CREATE TABLE answered_steps (
    only_one INTEGER PRIMARY KEY CHECK (only_one = 1),
    day INTEGER NOT NULL,  -- by the device's clock, since the epoch, UTC; it never goes back
    steps INTEGER NOT NULL CHECK (steps > 0)
) STRICT;
-- Which erasures stood for which jobs that were answered.
CREATE TABLE named_erasures (
    audit_seq INTEGER NOT NULL,  -- of the entry of the federation's audit log
    audit_hash BLOB NOT NULL CHECK (length(audit_hash) = 32),
    job INTEGER NOT NULL,
    PRIMARY KEY (audit_seq, audit_hash, job)
) STRICT, WITHOUT ROWID;
"""


def n_answered(database: sqlite3.Connection, day: int) -> int:
    """Count the steps that were answered on a day, or on the newest one where the clock was set back behind it."""
    row = database.execute("SELECT steps FROM answered_steps WHERE day >= ?", (day,)).fetchone()
    return 0 if row is None else int(row[0])


def jobs_of(database: sqlite3.Connection, erasure: Erasure) -> set[int]:
    """Return the jobs that an erasure stood for."""
    rows = database.execute("SELECT job FROM named_erasures WHERE audit_seq = ? AND audit_hash = ?", erasure)
    return {int(row[0]) for row in rows}


def count_answer(
    cursor: sqlite3.Cursor, day: int, interaction_ids: Sequence[int], job: int, named: Sequence[Erasure]
) -> None:
    """Count an answer: for the day, for each of the interactions it was learned from, and for the job's erasures."""
    cursor.execute(
        "INSERT INTO answered_steps (only_one, day, steps) VALUES (1, ?, 1) ON CONFLICT DO UPDATE "
        "SET steps = CASE WHEN excluded.day > day THEN 1 ELSE steps + 1 END, day = max(day, excluded.day)",
        (day,),
    )
    cursor.executemany(
        "UPDATE interactions SET relearned = relearned + 1 WHERE id = ?", [(one,) for one in interaction_ids]
    )
    cursor.executemany(
        "INSERT OR IGNORE INTO named_erasures (audit_seq, audit_hash, job) VALUES (?, ?, ?)",
        [(*one, job) for one in named],
    )
