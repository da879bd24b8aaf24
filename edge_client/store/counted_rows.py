"""The newest updates that count, as rows of a device's store: the mark may go back by them."""

import sqlite3

from foltr.edge_client.store.bounds import PendingUpdate

# The mark goes back by one update, or as far as a database that was restored.
_REMEMBERED_UPDATES = 4


def remember_counted(cursor: sqlite3.Cursor, update: PendingUpdate) -> None:
    """Keep an update that counts, with its local state, and forget the oldest."""
    # What counted above where it begins was taken back before.
    cursor.execute(
        "DELETE FROM counted_updates WHERE through > ?1 OR through <= "
        "(SELECT through FROM counted_updates WHERE through <= ?1 ORDER BY through DESC LIMIT 1 OFFSET ?2)",
        (update.after, _REMEMBERED_UPDATES - 1),
    )
    cursor.execute(
        "INSERT INTO counted_updates (through, after, local_state) VALUES (?, ?, ?)",
        (update.through, update.after, update.local_state),
    )


def newest_began(database: sqlite3.Connection, mark: int) -> int:
    """Return the mark before the newest update that counts: no federation that lost nothing has a lower one."""
    row = database.execute(
        "SELECT after FROM counted_updates WHERE through <= ? ORDER BY through DESC LIMIT 1", (mark,)
    ).fetchone()
    return 0 if row is None else int(row[0])


def newest_state(database: sqlite3.Connection, mark: int) -> bytes | None:
    """Return the local state of the newest update that counts and left one."""
    row = database.execute(
        "SELECT local_state FROM counted_updates WHERE through <= ? AND local_state IS NOT NULL "
        "ORDER BY through DESC LIMIT 1",
        (mark,),
    ).fetchone()
    return None if row is None else bytes(row[0])
