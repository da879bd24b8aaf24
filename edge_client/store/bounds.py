"""A device's interaction counts, is spent, is on its way or waits: its number says which, between these bounds."""

import hashlib
import sqlite3
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from foltr.core.errors import DataError

FURTHEST_WATERMARK: Final = 2**47
"""No device has so many interactions, so a federator that says so lies. A message has numbers up to 2^48: a device that
believed a watermark up there could never again number what it has above it."""
# Of the updates that count the newest are remembered: the watermark goes back by one, or as far as a restored database.
_REMEMBERED_UPDATES = 4


@dataclass(frozen=True)
class PendingUpdate:
    """An update that has no receipt yet, as the bytes that are sent until it has one.

    Attributes:
        after, through: it covers the interactions above the one and up to the other.
        local_state: what the device keeps to itself of what it learned, if its method has such a thing.
    """

    update_id: str
    round: int
    after: int
    through: int
    payload: bytes
    local_state: bytes | None = field(default=None, repr=False)


class Settlement(NamedTuple):
    """What an answer of the federator has changed in the store.

    Attributes:
        watermark_before: None where the federation had not told it yet.
        counted: the pending update counts, and is pending no more.
        given_up: the pending update does not count, and is pending no more.
        lost: the federation has lost updates that counted: its database was restored, or replaced by an empty one.
    """

    watermark_before: int | None
    watermark: int
    counted: bool = False
    given_up: bool = False
    lost: bool = False

    @property
    def changed(self) -> bool:
        return self.watermark != self.watermark_before or self.counted or self.given_up

    @property
    def taken_back(self) -> bool:
        """Whether something that was learned is to be learned again."""
        return self.given_up or (self.watermark_before is not None and self.watermark < self.watermark_before)


class Bounds(NamedTuple):
    """Bounds say what becomes of an interaction, by its number.

    Attributes:
        watermark: the last one that counts; under a policy the last participation. None before the federation told it.
        floor: the last one that is spent.
        newest: the last number that was given to any.
        policy_hash: of the policy that the device is under, if it is under one.
    """

    watermark: int | None
    floor: int
    newest: int
    pending: PendingUpdate | None
    policy_hash: bytes | None = None

    @property
    def under_policy(self) -> bool:
        return self.policy_hash is not None

    @property
    def counted(self) -> int:
        """The last one that counts; under a policy none does but those that are spent."""
        return self.floor if self.under_policy else self.watermark or 0

    @property
    def learned(self) -> int:
        """The last one that counts, is spent, or is in the pending update; those above it wait."""
        if self.under_policy or self.pending is None:
            return max(self.counted, self.floor)
        return max(self.counted, self.floor, self.pending.through)

    def check_watermark(self, watermark: int) -> None:
        """Raise DataError where no device can have got as far as a watermark, nor has this one."""
        through = 0 if self.pending is None else self.pending.through
        if watermark > max(FURTHEST_WATERMARK, self.watermark or 0, self.newest, through):
            raise DataError(
                f"the federator says that {watermark} interactions count, more than any device has: the answer is not "
                "taken, and the device asks again. See who has the federator's key"
            )


def read_bounds(database: sqlite3.Connection, policy: bytes | None) -> Bounds:
    """Return the bounds as they are in a store's file.

    Args:
        policy: the newest that the device knows, as it was signed.
    """
    # A store whose client was forgotten has none.
    watermark, floor = database.execute("SELECT watermark, floor FROM bounds").fetchone() or (None, 0)
    pending = database.execute(
        "SELECT update_id, round, after, through, payload, local_state FROM pending_update"
    ).fetchone()
    highest = database.execute("SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'interactions'")
    return Bounds(
        watermark,
        floor,
        highest.fetchone()[0],
        None if pending is None else PendingUpdate(*pending),
        None if policy is None else hashlib.sha256(policy).digest(),
    )


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


def newest_began(database: sqlite3.Connection, watermark: int) -> int:
    """Return the watermark before the newest update that counts: no federation that lost nothing has a lower one."""
    row = database.execute(
        "SELECT after FROM counted_updates WHERE through <= ? ORDER BY through DESC LIMIT 1", (watermark,)
    ).fetchone()
    return 0 if row is None else int(row[0])


def newest_state(database: sqlite3.Connection, watermark: int) -> bytes | None:
    """Return the local state of the newest update that counts and left one."""
    row = database.execute(
        "SELECT local_state FROM counted_updates WHERE through <= ? AND local_state IS NOT NULL "
        "ORDER BY through DESC LIMIT 1",
        (watermark,),
    ).fetchone()
    return None if row is None else bytes(row[0])
