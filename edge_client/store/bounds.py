"""A device's interaction counts, is spent, is pending or waits: bounds on its number say which."""

import hashlib
import math
import sqlite3
import struct
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from foltr.core.errors import DataError

FURTHEST_WATERMARK: Final = 2**47
"""No device has so many interactions: a higher watermark is a lie, and would use up the numbers that messages allow."""
# How many counted updates are remembered: the watermark goes back by one, or as far as a restored database.
_REMEMBERED_UPDATES = 4


@dataclass(frozen=True)
class PendingUpdate:
    """An update without a receipt: the bytes that are sent until it has one.

    Attributes:
        after, through: it covers the interactions above the first and up to the second.
        local_state: what its method keeps on the device, if anything.
    """

    update_id: str
    round: int
    after: int
    through: int
    payload: bytes
    local_state: bytes | None = field(default=None, repr=False)


class SettledRound(NamedTuple):
    """The round of the last settled update: a second update for it is useless, also after a restart.

    Attributes:
        opened_at: in epoch seconds. A round that begins again later has counted nothing, and may be the only one there
            will be. Infinity: unknown, or under a policy, whose ledger has the round.
    """

    round: int = 0
    opened_at: float = 0.0

    @property
    def packed(self) -> bytes | None:
        """Its bytes in a store; None if only this run may exclude the round."""
        return None if math.isinf(self.opened_at) else struct.pack("<Qd", *self)

    @classmethod
    def unpack(cls, packed: bytes | None) -> "SettledRound":
        """Return what `packed` says; None: no round."""
        return cls() if packed is None else cls(*struct.unpack("<Qd", packed))


class Settlement(NamedTuple):
    """What an answer of the federation has changed in the store.

    Attributes:
        watermark_before: None if it was unknown.
        counted: the pending update counts, and is no longer pending.
        given_up: the pending update does not count, and is no longer pending.
        lost: the federation has lost counted updates: its database was restored, or replaced by an empty one.
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
        """Whether some learned interactions must be learned again."""
        return self.given_up or (self.watermark_before is not None and self.watermark < self.watermark_before)


class CountingBounds(NamedTuple):
    """Decide what becomes of an interaction, by its number.

    Attributes:
        watermark: the last counted one; under a policy the last participation. None before the federation reports it.
        floor: the last spent one.
        newest: the highest number given so far.
        policy_hash: of the device's policy, if it is under one.
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
        """The last counted interaction. Under a policy: the last one that is spent."""
        return self.floor if self.under_policy else self.watermark or 0

    @property
    def learned(self) -> int:
        """The last one that counts, is spent, or is in the pending update; those above it wait."""
        if self.under_policy or self.pending is None:
            return max(self.counted, self.floor)
        return max(self.counted, self.floor, self.pending.through)

    def check_watermark(self, watermark: int) -> None:
        """Raise DataError if a watermark is too high for any device, or for this one."""
        through = 0 if self.pending is None else self.pending.through
        if watermark > max(FURTHEST_WATERMARK, self.watermark or 0, self.newest, through):
            raise DataError(
                f"the federator claims that {watermark} interactions count, more than any device has: the device "
                "ignores the answer and asks again. Check who has the federator's key"
            )


def read_bounds(database: sqlite3.Connection, policy: bytes | None) -> CountingBounds:
    """Return the bounds stored in a store's file.

    Args:
        policy: the newest that the device knows, in its signed bytes.
    """
    # The store of a forgotten client has none.
    watermark, floor = database.execute("SELECT watermark, floor FROM bounds").fetchone() or (None, 0)
    pending = database.execute(
        "SELECT update_id, round, after, through, payload, local_state FROM pending_update"
    ).fetchone()
    highest = database.execute("SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'interactions'")
    return CountingBounds(
        watermark,
        floor,
        highest.fetchone()[0],
        None if pending is None else PendingUpdate(*pending),
        None if policy is None else hashlib.sha256(policy).digest(),
    )


def remember_counted(cursor: sqlite3.Cursor, update: PendingUpdate) -> None:
    """Store a counted update, with its local state, and delete the oldest."""
    # Counted updates above its beginning have been taken back before.
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
    """Return the watermark before the newest counted update; only a federation that lost data has a lower one."""
    row = database.execute(
        "SELECT after FROM counted_updates WHERE through <= ? ORDER BY through DESC LIMIT 1", (watermark,)
    ).fetchone()
    return 0 if row is None else int(row[0])


def newest_state(database: sqlite3.Connection, watermark: int) -> bytes | None:
    """Return the local state of the newest counted update that left one."""
    row = database.execute(
        "SELECT local_state FROM counted_updates WHERE through <= ? AND local_state IS NOT NULL "
        "ORDER BY through DESC LIMIT 1",
        (watermark,),
    ).fetchone()
    return None if row is None else bytes(row[0])
