"""A device's ledger: what it has spent of its user's privacy by participating in secure sums, for life.

An entry is stored in the transaction that stores the update, so everything sent is charged, and is never deleted. When
the client is forgotten one entry stays, with the totals.
"""

import sqlite3
from collections.abc import Iterable
from dataclasses import astuple, dataclass

from foltr.core.errors import DataError
from foltr.core.secure.ledger import NOTHING, Charge, Spent


@dataclass(frozen=True)
class LedgerEntry:
    """A participation in a round; or the total of a forgotten client.

    Attributes:
        number: of the participation, or of the last one.
        charge: of all of them.
        round, policy_version, policy_hash: of a single one.
    """

    number: int
    charge: Charge
    round: int | None = None
    policy_version: int | None = None
    policy_hash: bytes | None = None


def read_entries(database: sqlite3.Connection) -> list[LedgerEntry]:
    """Return the whole ledger, in the order of its numbers."""
    rows = database.execute(
        "SELECT participation, rho, epsilon, proof_rho, delta, round, policy_version, policy_hash FROM participations "
        "ORDER BY participation"
    )
    return [LedgerEntry(number, Charge(*row[:4]), *row[4:]) for number, *row in rows]


def spent_in(entries: Iterable[LedgerEntry]) -> Spent:
    """Return the sum of the entries."""
    spent = Spent()
    for entry in entries:
        spent = Spent(entry.number, spent.charge + entry.charge)
    return spent


def add_entry(cursor: sqlite3.Cursor, entry: LedgerEntry) -> None:
    """Charge a participation.

    Raises:
        DataError: it is not the next one.
    """
    last = spent_in(read_entries(cursor.connection)).last
    if entry.number != last + 1:
        raise DataError(f"participation {entry.number} does not follow {last}, the last of this ledger")
    _insert(cursor, entry)


def keep_totals(cursor: sqlite3.Cursor) -> None:
    """Replace all entries by one: how many there were, and their total cost."""
    spent = spent_in(read_entries(cursor.connection))
    cursor.execute("DELETE FROM participations")
    if spent.charge != NOTHING:
        _insert(cursor, LedgerEntry(spent.last, spent.charge))


def _insert(cursor: sqlite3.Cursor, entry: LedgerEntry) -> None:
    cursor.execute(
        "INSERT INTO participations "
        "(participation, round, policy_version, policy_hash, rho, epsilon, proof_rho, delta) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (entry.number, entry.round, entry.policy_version, entry.policy_hash, *astuple(entry.charge)),
    )
