"""Checks that a federation's audit log is complete and agrees with the tables, receipts and published heads."""

from collections.abc import AsyncIterator, Awaitable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

from foltr.core.erasure.audit import NEXT_STEP, AuditEntry, check_follows
from foltr.core.erasure.receipt import unverified_fields, verify_receipt
from foltr.core.erasure.states import ErasureState
from foltr.core.errors import DataError
from foltr.storage.database import Database
from foltr.storage.erasure.audit_log import stream_audit
from foltr.storage.erasure.erasures import list_erasures
from foltr.storage.erasure.unlearning_jobs import list_jobs
from foltr.storage.erasure_records import ErasureRow, UnlearningJobRow

T = TypeVar("T")

_ALL = 2**31 - 1
_N_TOLD = 3
# Fields that an entry shares with the row stored with it. The last one is the time.
_SAME = {
    "client_erased": (
        *("requested_by", "requested_at", "n_rounds", "n_updates", "n_events", "erased_digest"),
        "erased_at",
    ),
    "erasure_completed": ("key_destroyed", "completed_at"),
    "job_started": ("strategy", "start_version", "start_round", "created_at"),
}


@dataclass(frozen=True)
class NamedEntry:
    """An entry known from outside the database. ``who`` describes the source."""

    who: str
    seq: int
    hash: str


@dataclass
class CheckedLog:
    """A log whose hash chain is intact, and the erasures stored before it was read.

    Attributes:
        last: the last entry, None if the log is empty.
        hashes: hashes of the entries that outside sources name, by number, if present.
        erased, completed: entries of erasures that began and that completed, by pseudonym.
        jobs: entries of unlearning jobs that began, by number.
    """

    erasures: list[ErasureRow]
    last: AuditEntry | None = None
    hashes: dict[int, str] = field(default_factory=dict)
    erased: dict[str, AuditEntry] = field(default_factory=dict)
    completed: dict[str, AuditEntry] = field(default_factory=dict)
    jobs: dict[int, AuditEntry] = field(default_factory=dict)

    @property
    def n_entries(self) -> int:
        return 0 if self.last is None else self.last.seq


async def check_log(database: Database, name: str, named: Sequence[NamedEntry], key: bytes | None) -> CheckedLog:
    """Check that no entry was changed or removed, and that tables and outside sources agree with the log.

    The federator may run meanwhile. Rows read before the log must have entries, and entries must have rows afterwards.

    Args:
        key: the federator's public key, which must have signed every stored receipt; None skips signatures.

    Raises:
        DataError: something differs; the message names the entry or the erasure.
    """
    log = CheckedLog(await _read(list_erasures(database, name, limit=_ALL)))
    await _read_log(log, database, name, {each.seq for each in named})
    rows = {row.pseudonym: row for row in await _read(list_erasures(database, name, limit=_ALL))}
    jobs = {job.number: job for job in await _read(list_jobs(database, name, limit=_ALL))}
    for each in named:
        _check_named(each, log)
    found = [*_entries_without_row(log, rows, jobs), *_rows_without_entry(log, key)]
    if found:
        others = f"; and {len(found) - _N_TOLD} more" if len(found) > _N_TOLD else ""
        raise DataError(
            f"audit log: it and the table of erasures differ: {'; '.join(found[:_N_TOLD])}{others}. {NEXT_STEP}"
        )
    return log


async def stream_entries(database: Database, name: str) -> AsyncIterator[AuditEntry]:
    """Yield the entries in order. Raises DataError at the first unreadable one."""
    seq = 0
    try:
        async for entry in stream_audit(database, name):
            seq = entry.seq
            yield entry
    except (ValueError, RecursionError) as error:
        # A row written by other means than foltr may contain invalid JSON or an invalid time.
        raise DataError(
            f"audit log: an entry from {seq + 1} on was changed: it cannot be read ({error!s:.80}). {NEXT_STEP}"
        ) from error


def content_of(entry: AuditEntry) -> dict[str, Any]:
    """Return an entry's content. Empty if it is not a JSON object, as in a forged entry."""
    said: Any = entry.body
    return said if isinstance(said, dict) else {}


async def _read_log(log: CheckedLog, database: Database, name: str, numbers: set[int]) -> None:
    async for entry in stream_entries(database, name):
        check_follows(log.last, entry)
        log.last = entry
        if entry.seq in numbers:
            log.hashes[entry.seq] = entry.hash
        said = content_of(entry)
        if entry.kind == "client_erased":
            log.erased[str(said.get("pseudonym"))] = entry
        elif entry.kind == "erasure_completed":
            log.completed[str(said.get("pseudonym"))] = entry
        elif entry.kind == "job_started":
            log.jobs[int(said.get("job", 0))] = entry


async def _read(rows: Awaitable[list[T]]) -> list[T]:
    """Await rows of a table. Raises DataError if one holds a value that foltr never writes."""
    try:
        return await rows
    except (ValueError, TypeError) as error:
        raise DataError(f"audit log: a table beside it cannot be read ({error!s:.80}). {NEXT_STEP}") from error


def _check_named(named: NamedEntry, log: CheckedLog) -> None:
    there = log.hashes.get(named.seq)
    if there == named.hash:
        return
    what = f"the log ends with entry {log.n_entries}" if there is None else "the entry there has another hash"
    raise DataError(
        f"audit log: {named.who} names entry {named.seq}, but {what}: the log was cut or rewritten since, or this "
        "database is an older copy; restore a later backup and check it"
    )


def _entries_without_row(
    log: CheckedLog, rows: dict[str, ErasureRow], jobs: dict[int, UnlearningJobRow]
) -> Iterable[str]:
    """Describe entries that have no row in the tables of erasures and jobs, which were read after the log."""
    for number, entry in log.jobs.items():
        job = jobs.get(number)
        if job is None:
            yield f"entry {entry.seq} says that unlearning job {number} began, and its row is missing"
        yield from _difference(entry, job, f"of unlearning job {number}")
    for pseudonym, entry in {**log.completed, **log.erased}.items():
        if pseudonym not in rows:
            yield f"entry {entry.seq} says that {pseudonym} was erased, and its row is missing"
    for pseudonym, entry in log.erased.items():
        yield from _difference(entry, rows.get(pseudonym), f"of {pseudonym}")
    for pseudonym, entry in log.completed.items():
        row = rows.get(pseudonym)
        if row is not None and row.audit_seq != entry.seq:
            named = f"is {row.state}" if row.audit_seq is None else f"names entry {row.audit_seq}"
            yield f"entry {entry.seq} says that the erasure of {pseudonym} was completed, and its row {named}"
        else:
            yield from _difference(entry, row, f"of {pseudonym}")


def _rows_without_entry(log: CheckedLog, key: bytes | None) -> Iterable[str]:
    """Describe rows read before the log that have no entry, and receipts that belong to another entry."""
    for row in log.erasures:
        # A running erasure gets its entry together with its last row.
        if row.pseudonym not in log.erased and row.state is not ErasureState.ERASING:
            yield f"{row.pseudonym} is {row.state}, and the entry that says that it was erased is missing"
        if row.audit_seq is None:
            continue
        completed = log.completed.get(row.pseudonym)
        if completed is None:
            yield f"{row.pseudonym} is done, and entry {row.audit_seq}, which says so, is missing"
        elif row.receipt is not None and not _is_of(row.receipt, row, completed):
            yield f"the stored receipt of {row.pseudonym} does not name entry {completed.seq} and its hash"
        elif key is not None and not _is_signed(row.receipt, key):
            yield f"the erasure of {row.pseudonym} is done, but has no receipt signed with this key"


def _is_signed(receipt: str | None, key: bytes) -> bool:
    try:
        return receipt is not None and verify_receipt(receipt, key) is not None
    except DataError:
        return False


def _is_of(receipt: str, row: ErasureRow, entry: AuditEntry) -> bool:
    """Return whether a stored receipt belongs to an erasure and to the entry that completes it."""
    try:
        told = unverified_fields(receipt)
    except DataError:
        return False
    place = (row.federation, row.pseudonym, entry.seq, entry.hash)
    return tuple(told.get(name) for name in ("federation", "pseudonym", "audit_seq", "audit_hash")) == place


def _difference(entry: AuditEntry, row: ErasureRow | UnlearningJobRow | None, which: str) -> Iterable[str]:
    """Yield a line if the row exists and contradicts the entry."""
    if row is None:
        return
    *names, when = _SAME[entry.kind]
    said = {**content_of(entry), when: _as_said(entry.at)}
    fields = [name for name in (*names, when) if said.get(name) != _as_said(getattr(row, name))]
    if fields:
        yield f"entry {entry.seq} and the row {which} differ in {', '.join(fields)}"


def _as_said(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value
