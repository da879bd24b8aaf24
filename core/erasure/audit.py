"""The audit log: a chain of entries, each with the hash of the one before, so that no past entry changes unseen.

An entry's hash is SHA-256 over JSON of its other fields: ``{"at", "body", "kind", "previous_hash", "seq"}`` with sorted
keys, no spaces and ASCII only, ``at`` in UTC with six digits after the second. Anyone who can write the database can
rewrite the whole chain, or cut off its end; the receipts that people hold name an entry and its hash, and reveal that.

Bodies hold no personal data: an entry is never erased.
"""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from foltr.core.errors import DataError

FIRST_PREVIOUS_HASH = "0" * 64
NEXT_STEP = (
    "Somebody has written to the database by other means than foltr: keep a copy of it as it is, and restore a backup "
    "whose log is whole"
)


@dataclass(frozen=True)
class AuditEntry:
    """One entry of a federation's audit log.

    Attributes:
        seq: 1 for the first entry, one more for each that follows.
        at: when it was written; aware, to the microsecond.
        kind: what happened, one word.
        body: the facts to keep, as JSON.
        previous_hash: the hash of the entry before, 64 hex digits; 64 zeros for the first one.
        hash: 64 hex digits over all of the above.
    """

    seq: int
    at: datetime
    kind: str
    body: dict[str, Any]
    previous_hash: str
    hash: str


def next_entry(previous: AuditEntry | None, at: datetime, kind: str, body: dict[str, Any]) -> AuditEntry:
    """The entry that follows ``previous``; the first one if that is None.

    Raises:
        ValueError: ``at`` has no time zone, or ``body`` holds NaN or infinity.
        TypeError: ``body`` holds what JSON cannot.
    """
    # In the form that the database returns: with text for keys and lists for tuples.
    body = json.loads(_canonical(body))
    seq, previous_hash = (1, FIRST_PREVIOUS_HASH) if previous is None else (previous.seq + 1, previous.hash)
    return AuditEntry(seq, at, kind, body, previous_hash, _hash(seq, at, kind, body, previous_hash))


def check_chain(entries: Iterable[AuditEntry]) -> int:
    """Check that the entries are a chain from the first one on; return their number.

    Raises:
        DataError: an entry was changed, is missing, or is out of order; the message names the first such ``seq``.
    """
    previous = None
    for entry in entries:
        check_follows(previous, entry)
        previous = entry
    return 0 if previous is None else previous.seq


def check_follows(previous: AuditEntry | None, entry: AuditEntry) -> None:
    """Raise DataError if ``entry`` does not follow ``previous`` (None: the beginning); one step of `check_chain`."""
    seq, previous_hash = (1, FIRST_PREVIOUS_HASH) if previous is None else (previous.seq + 1, previous.hash)
    if entry.seq > seq:
        raise DataError(f"audit log: entry {seq} is missing; {entry.seq} is the next there is. {NEXT_STEP}")
    if entry.seq < seq:
        raise DataError(f"audit log: entry {entry.seq} is out of order: it comes after {seq - 1}. {NEXT_STEP}")
    if not _is_whole(entry):
        raise DataError(f"audit log: entry {seq} was changed: its hash is another one's. {NEXT_STEP}")
    if entry.previous_hash != previous_hash:
        # Its own hash is right, so the entry before was rewritten together with its hash.
        wrong = seq if previous is None else previous.seq
        raise DataError(f"audit log: entry {wrong} was changed: entry {seq} was chained to another. {NEXT_STEP}")


def _is_whole(entry: AuditEntry) -> bool:
    try:
        return entry.hash == _hash(entry.seq, entry.at, entry.kind, entry.body, entry.previous_hash)
    except ValueError:  # no entry can have such a body
        return False


def _hash(seq: int, at: datetime, kind: str, body: dict[str, Any], previous_hash: str) -> str:
    if at.tzinfo is None:
        raise ValueError(f"{at!r} has no time zone; the audit log takes aware datetimes only")
    moment = at.astimezone(UTC).isoformat(timespec="microseconds")
    fields = {"at": moment, "body": body, "kind": kind, "previous_hash": previous_hash, "seq": seq}
    return hashlib.sha256(_canonical(fields).encode()).hexdigest()


def _canonical(value: Any) -> str:
    """Return one text for one value. ValueError for NaN and infinity, which JSON lacks."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
