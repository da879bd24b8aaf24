"""Interactions as rows of a device's store: arrays are stored as bytes, and restored bit for bit."""

import contextlib
import itertools
import sqlite3
from collections.abc import Callable
from typing import Final

import numpy as np

from foltr.core.learning.gate import Source
from foltr.core.learning.interaction import Interaction
from foltr.core.learning.rewards import ListRewards, first_click_reward
from foltr.edge_client.store.bounds import CountingBounds

Within = Callable[[sqlite3.Cursor], None]
"""Called in the transaction that stores a list."""


UNNUMBERED: Final = 0
"""The id of an interaction that is not stored yet."""


def insert_interaction(
    cursor: sqlite3.Cursor,
    serp_id: str,
    shown: Interaction,
    schema_hash: bytes | None,
    rewards: ListRewards | None,
    recorded_at: int,
) -> int | None:
    """Insert an interaction and return its number; None if this result list is stored already.

    Args:
        schema_hash: of the schema of its features; None without one.
        rewards: of the list; None if nobody should know them.
        recorded_at: epoch seconds.
    """
    values = (
        serp_id,
        len(shown.features),
        shown.features.astype("<f4", copy=False).tobytes(),
        shown.ranking.astype("<i8", copy=False).tobytes(),
        shown.clicks.astype("u1").tobytes(),
        shown.variant,
        shown.base_version,
        None if shown.reversals is None else shown.reversals.astype("<f8", copy=False).tobytes(),
        shown.log_probability,
        schema_hash,
        *((None, None) if rewards is None else (rewards.base_reward, rewards.credit)),
        str(shown.source),
        recorded_at,
    )
    cursor.execute(
        "INSERT OR IGNORE INTO interactions "
        "(serp_id, n_documents, features, ranking, clicks, variant, base_version, reversals, log_probability, "
        "schema_hash, base_reward, credit, source, recorded_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        values,
    )
    return cursor.lastrowid if cursor.rowcount == 1 else None


def delete_waiting(cursor: sqlite3.Cursor, serp_id: str, learned: int) -> tuple[float | None] | None:
    """Delete a list's interaction if it waits; return its credit, which stays: the gate has counted it. Else None.

    Args:
        learned: the number above which interactions wait.
    """
    found = cursor.execute("SELECT id, credit FROM interactions WHERE serp_id = ? AND id > ?", (serp_id, learned))
    row = found.fetchone()
    if row is None:
        return None
    cursor.execute("DELETE FROM interactions WHERE id = ?", row[:1])
    return (row[1],)


def count_above(db: sqlite3.Connection, above: int, schema_hash: bytes | None) -> int:
    """Count the interactions with a number above this one and features of this schema."""
    count = db.execute("SELECT count(*) FROM interactions WHERE id > ? AND schema_hash IS ?", (above, schema_hash))
    return int(count.fetchone()[0])


def recorded_since(db: sqlite3.Connection, above: int, since: float) -> list[tuple[int, int]]:
    """Return the newest interactions above a number that were recorded later, oldest first, each with its moment."""
    newest_first = "SELECT id, recorded_at FROM interactions WHERE id > ? ORDER BY id DESC"
    with contextlib.closing(db.execute(newest_first, (above,))) as rows:
        return list(itertools.takewhile(lambda row: row[1] > since, rows))[::-1]


def make_room(cursor: sqlite3.Cursor, bounds: CountingBounds, limit: int) -> int:
    """Delete the oldest that wait, until at most ``limit`` are left of those that do not count; return how many."""
    above = cursor.execute("SELECT count(*) FROM interactions WHERE id > ?", (bounds.counted,))
    n_too_many = above.fetchone()[0] - limit
    if n_too_many <= 0:
        return 0
    cursor.execute(
        "DELETE FROM interactions WHERE id IN (SELECT id FROM interactions WHERE id > ? ORDER BY id LIMIT ?)",
        (bounds.learned, n_too_many),
    )
    return cursor.rowcount


def delete_spent(cursor: sqlite3.Cursor, floor: int) -> None:
    """Delete those up to the floor, except if the pending update covers them."""
    if floor:
        cursor.execute(
            "DELETE FROM interactions WHERE id <= ? "
            "AND NOT EXISTS (SELECT 1 FROM pending_update WHERE after < interactions.id)",
            (floor,),
        )


def trim_kept(cursor: sqlite3.Cursor, counted: int, limit: int) -> None:
    """Delete the oldest that count, until at most ``limit`` are left of those up to ``counted``."""
    if counted > limit:
        cursor.execute(
            "DELETE FROM interactions WHERE id <= "
            "(SELECT id FROM interactions WHERE id <= ? ORDER BY id DESC LIMIT 1 OFFSET ?)",
            (counted, limit),
        )


def number_above(cursor: sqlite3.Cursor, newest: int, watermark: int, *, is_new: bool) -> int:
    """Make sure that the next interaction is numbered above the watermark; return the newest number.

    A store without a watermark is new: its interactions have counted nowhere, and get new numbers. A store behind the
    watermark is older than what was sent from it.
    """
    if is_new and watermark:
        # In two steps, so that no number exists twice in between.
        cursor.execute("UPDATE interactions SET id = -id")
        cursor.execute("UPDATE interactions SET id = ? - id", (watermark,))
    following = newest + watermark if is_new else max(newest, watermark)
    if following != newest:
        cursor.execute("DELETE FROM sqlite_sequence WHERE name = 'interactions'")
        cursor.execute("INSERT INTO sqlite_sequence (name, seq) VALUES ('interactions', ?)", (following,))
    return following


def read_earned(
    database: sqlite3.Connection, ids: tuple[int, int], schema_hash: bytes | None, credits_since: int
) -> list[ListRewards]:
    """Return the rewards of the interactions from one id to another that have a base reward.

    Args:
        credits_since: the oldest model whose lists' credits count.
    """
    rows = database.execute(
        "SELECT clicks, base_reward, CASE WHEN base_version >= ? THEN coalesce(credit, 0.0) ELSE 0.0 END "
        "FROM interactions "
        "WHERE id BETWEEN ? AND ? AND schema_hash IS ? AND base_reward IS NOT NULL ORDER BY id",
        (credits_since, *ids, schema_hash),
    )
    return [
        ListRewards(first_click_reward(np.frombuffer(clicks, "u1").astype(np.bool_)), *others)
        for clicks, *others in rows
    ]


def read_interactions(
    database: sqlite3.Connection, which: str, parameters: tuple[int | bytes | None, ...]
) -> list[Interaction]:
    """Return the interactions that a clause of SQL selects."""
    rows = database.execute(
        "SELECT id, n_documents, features, ranking, clicks, variant, base_version, reversals, "  # noqa: S608 (our own)
        f"log_probability, source FROM interactions {which}",
        parameters,
    )
    # Copies: arrays on bytes are read-only, for which kernels would be compiled a second time.
    return [
        Interaction(
            row_id,
            np.frombuffer(features, "<f4").reshape(n_documents, -1).copy(),
            np.frombuffer(ranking, "<i8").copy(),
            np.frombuffer(clicks, "u1").astype(np.bool_),
            variant,
            version,
            None if reversals is None else np.frombuffer(reversals, "<f8").copy(),
            log_probability,
            Source(source),
        )
        for row_id, n_documents, features, ranking, clicks, variant, version, reversals, log_probability, source in rows
    ]
