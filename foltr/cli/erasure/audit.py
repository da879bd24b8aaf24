"""``foltr audit``: the log of erasures, whether it is whole, and whether the table of erasures says the same."""

from collections.abc import AsyncIterator, Awaitable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from foltr.cli import options
from foltr.cli.erasure.receipts import KEY_HELP, public_key_of, verify_receipt_file
from foltr.cli.history.query import reason_as_json, run_query
from foltr.cli.output import console, print_json, to_plain
from foltr.erasure.states import ErasureState
from foltr.errors import DataError, SettingsError

if TYPE_CHECKING:
    from foltr.erasure.audit import AuditEntry
    from foltr.erasure.receipt import ErasureReceipt
    from storage.database import Database
    from storage.erasure.records import ErasureRow, UnlearningJobRow

T = TypeVar("T")

app = typer.Typer(help="Look at the log of erasures, and check it.", no_args_is_help=True)

_ALL = 2**31 - 1
_N_TOLD = 3
# What an entry and the row that was stored with it have in common; the last is when.
_SAME = {
    "client_erased": (
        *("requested_by", "requested_at", "n_rounds", "n_updates", "n_events", "erased_digest"),
        "erased_at",
    ),
    "erasure_completed": ("key_destroyed", "completed_at"),
    "job_started": ("strategy", "start_version", "start_round", "created_at"),
}


@dataclass
class _Log:
    """An audit log whose entries are a chain.

    Attributes:
        last: None if it is empty.
        at_place: the entry with the number that a receipt names; None if there is none.
        erased, completed: the entries that tell of erasures that began and that were done, by pseudonym.
        jobs: those that tell of unlearning jobs that began, by number.
    """

    last: "AuditEntry | None" = None
    at_place: "AuditEntry | None" = None
    erased: dict[str, "AuditEntry"] = field(default_factory=dict)
    completed: dict[str, "AuditEntry"] = field(default_factory=dict)
    jobs: dict[int, "AuditEntry"] = field(default_factory=dict)


@app.command("list")
def audit_list(db: options.Db = None, federation: options.Federation = None, json: options.Json = False) -> None:
    """The entries, oldest first: number, time in UTC, kind, whom or which job it is about, and what else it says.

    With --json their hashes, too.
    """

    async def query(database: "Database", name: str) -> None:
        entries = [entry async for entry in _entries(database, name)]
        if json:
            print_json(entries)
            return
        if not entries:
            _say(f"The audit log of {name} is empty.")
            return
        _say(_columns("entry", "at", "kind", "about", "what else it says"))
        for entry in entries:
            _say(_line(entry))

    run_query(db, federation, query)


@app.command("verify")
def audit_verify(
    db: options.Db = None,
    federation: options.Federation = None,
    receipt: Annotated[
        str | None, typer.Option("--receipt", metavar="FILE", help="A receipt whose place in the log to check")
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", metavar="TEXT|FILE", help=f"{KEY_HELP}; checks every stored receipt, too")
    ] = None,
    json: options.Json = False,
) -> None:
    """Check that no entry was changed or taken out, and that the table of erasures and a receipt agree with the log.

    Exit code 1 if not; the line on standard error names the entry or the erasure.
    """
    if receipt is not None and key is None:
        raise SettingsError("receipt: name the federator's public key with --key, too")

    with reason_as_json(json, {"verified": False}):
        found = None if receipt is None or key is None else verify_receipt_file(receipt, key)
        named = federation or (None if found is None else found.federation)
        public_key = None if key is None else public_key_of(key)
        run_query(db, named, lambda database, name: _verify(database, name, found, public_key, json=json))


async def _verify(
    database: "Database", name: str, found: "ErasureReceipt | None", key: bytes | None, *, json: bool
) -> None:
    from storage.erasure.erasures import list_erasures
    from storage.erasure.unlearning_jobs import list_jobs

    if found is not None and found.federation != name:
        raise SettingsError(
            f"federation: the receipt is one of {found.federation!r}, the log that of {name!r}; "
            f"choose with --federation {found.federation}"
        )
    # The federator may run: what was there before has its entries, and what the log tells of is there afterwards.
    before = await _read(list_erasures(database, name, limit=_ALL))
    log = await _checked_log(database, name, None if found is None else found.audit_seq)
    after = await _read(list_erasures(database, name, limit=_ALL))
    jobs = {job.number: job for job in await _read(list_jobs(database, name, limit=_ALL))}
    n_entries = 0 if log.last is None else log.last.seq
    if found is not None:
        _check_place(found, n_entries, log.at_place)
    rows = {row.pseudonym: row for row in after}
    _check_agreement([*_entries_without_row(log, rows, jobs), *_rows_without_entry(log, before, key)])
    last_hash = None if log.last is None else log.last.hash
    if json:
        counts = {"entries": n_entries, "erasures": len(before)}
        print_json({"verified": True, "federation": name, **counts, "last_hash": last_hash})
        return
    many = "1 entry, which is whole" if n_entries == 1 else f"{n_entries} entries, all whole and in order"
    _say(f"The audit log of {name} " + (f"has {many}." if n_entries else "is empty."))
    if last_hash is not None:
        _say(f"Its last hash is {last_hash}. Noted elsewhere, it shows later whether all of this is still there.")
    n_done = sum(row.state is ErasureState.DONE for row in before)
    _say(f"The table of erasures agrees with it: {len(before)} in all, {n_done} done.")
    if key is not None:
        _say(f"The holder of the key has signed {sum(row.receipt is not None for row in before)} stored receipts.")
    if found is not None:
        _say(f"The receipt of {found.pseudonym} is entry {found.audit_seq}, as it says.")


async def _entries(database: "Database", name: str) -> "AsyncIterator[AuditEntry]":
    """The entries in their order; DataError at the first that cannot be read."""
    from foltr.erasure.audit import NEXT_STEP
    from storage.erasure.audit_log import stream_audit

    seq = 0
    try:
        async for entry in stream_audit(database, name):
            seq = entry.seq
            yield entry
    except (ValueError, RecursionError) as error:
        # Whoever writes by other means than foltr may write what is no JSON, or no time.
        raise DataError(
            f"audit log: an entry from {seq + 1} on was changed: it cannot be read ({error!s:.80}). {NEXT_STEP}"
        ) from error


async def _checked_log(database: "Database", name: str, seq: int | None) -> _Log:
    """An audit log with the entry of the number ``seq``; DataError if it is not whole."""
    from foltr.erasure.audit import check_follows

    log = _Log()
    async for entry in _entries(database, name):
        check_follows(log.last, entry)
        log.last = entry
        if entry.seq == seq:
            log.at_place = entry
        if entry.kind == "client_erased":
            log.erased[_pseudonym(entry)] = entry
        elif entry.kind == "erasure_completed":
            log.completed[_pseudonym(entry)] = entry
        elif entry.kind == "job_started":
            log.jobs[int(_content(entry).get("job", 0))] = entry
    return log


def _check_place(receipt: "ErasureReceipt", n_entries: int, there: "AuditEntry | None") -> None:
    """DataError if ``there``, the entry of the number that a receipt names, is not the one it names."""
    if there is not None and there.hash == receipt.audit_hash:
        return
    what = f"the log ends with entry {n_entries}" if there is None else "the entry there has another hash"
    raise DataError(
        f"audit log: the receipt of {receipt.pseudonym} names entry {receipt.audit_seq}, and {what}: the log was cut "
        "off or written anew since, or this database is an older copy; restore a later backup and check it"
    )


async def _read(rows: Awaitable[list[T]]) -> list[T]:
    """Rows of a table; DataError where one holds what foltr never writes there."""
    from foltr.erasure.audit import NEXT_STEP

    try:
        return await rows
    except (ValueError, TypeError) as error:
        raise DataError(f"audit log: a table beside it cannot be read ({error!s:.80}). {NEXT_STEP}") from error


def _check_agreement(found: list[str]) -> None:
    """DataError that says which entries and rows do not agree, if any do not."""
    from foltr.erasure.audit import NEXT_STEP

    if not found:
        return
    others = f"; and {len(found) - _N_TOLD} more" if len(found) > _N_TOLD else ""
    raise DataError(
        f"audit log: it and the table of erasures differ: {'; '.join(found[:_N_TOLD])}{others}. {NEXT_STEP}"
    )


def _entries_without_row(log: _Log, rows: dict[str, "ErasureRow"], jobs: dict[int, "UnlearningJobRow"]) -> list[str]:
    """What the log tells of and the tables of erasures and jobs do not, as they are since the log was read."""
    found = []
    for number, entry in log.jobs.items():
        job = jobs.get(number)
        if job is None:
            found.append(f"entry {entry.seq} says that unlearning job {number} began, and its row is missing")
        found += _difference(entry, job, f"of unlearning job {number}")
    for pseudonym, entry in {**log.completed, **log.erased}.items():
        if pseudonym not in rows:
            found.append(f"entry {entry.seq} says that {pseudonym} was erased, and its row is missing")
    for pseudonym, entry in log.erased.items():
        found += _difference(entry, rows.get(pseudonym), f"of {pseudonym}")
    for pseudonym, entry in log.completed.items():
        if pseudonym in rows and rows[pseudonym].audit_seq == entry.seq:
            found += _difference(entry, rows[pseudonym], f"of {pseudonym}")
        elif pseudonym in rows:
            there = rows[pseudonym].audit_seq
            named = f"is {rows[pseudonym].state}" if there is None else f"names entry {there}"
            found.append(f"entry {entry.seq} says that the erasure of {pseudonym} was completed, and its row {named}")
    return found


def _rows_without_entry(log: _Log, rows: Sequence["ErasureRow"], key: bytes | None) -> list[str]:
    """What the table told of before the log was read and the log does not, and receipts that are of another entry.

    Args:
        key: what every receipt was signed with; None checks no signature.
    """
    found = []
    for row in rows:
        if row.pseudonym not in log.erased:
            found.append(f"{row.pseudonym} is {row.state}, and the entry that says that it was erased is missing")
        if row.audit_seq is None:
            continue
        completed = log.completed.get(row.pseudonym)
        if completed is None:
            found.append(f"{row.pseudonym} is done, and entry {row.audit_seq}, which says so, is missing")
        elif row.receipt is not None and not _is_of(row.receipt, row, completed):
            found.append(f"the stored receipt of {row.pseudonym} does not name entry {completed.seq} and its hash")
        elif key is not None and not _is_signed(row.receipt, key):
            found.append(f"the erasure of {row.pseudonym} is done, and has no receipt that the key's holder signed")
    return found


def _is_signed(receipt: str | None, key: bytes) -> bool:
    from foltr.erasure.receipt import verify_receipt

    try:
        return receipt is not None and verify_receipt(receipt, key) is not None
    except DataError:
        return False


def _is_of(receipt: str, row: "ErasureRow", entry: "AuditEntry") -> bool:
    """Whether a stored receipt says that it is of an erasure and of the entry that completes it."""
    from foltr.erasure.receipt import unverified_fields

    try:
        told = unverified_fields(receipt)
    except DataError:
        return False
    place = (row.federation, row.pseudonym, entry.seq, entry.hash)
    return tuple(told.get(name) for name in ("federation", "pseudonym", "audit_seq", "audit_hash")) == place


def _difference(entry: "AuditEntry", row: "ErasureRow | UnlearningJobRow | None", which: str) -> list[str]:
    """One line where the row is there and says something else than the entry."""
    if row is None:
        return []
    *names, when = _SAME[entry.kind]
    said = {**_content(entry), when: to_plain(entry.at)}
    fields = [name for name in (*names, when) if said.get(name) != to_plain(getattr(row, name))]
    return [f"entry {entry.seq} and the row {which} differ in {', '.join(fields)}"] if fields else []


def _content(entry: "AuditEntry") -> dict[str, Any]:
    """What an entry says; nothing where whoever wrote the chain anew put no JSON object there."""
    said: Any = entry.body
    return said if isinstance(said, dict) else {}


def _pseudonym(entry: "AuditEntry") -> str:
    return str(_content(entry).get("pseudonym"))


def _line(entry: "AuditEntry") -> str:
    """An entry in columns; the last one is as long as it is."""
    said = _content(entry)
    about = str(said["pseudonym"]) if "pseudonym" in said else f"job {said.get('job')}"
    others = ", ".join(f"{name} {value}" for name, value in said.items() if name not in ("pseudonym", "job"))
    return _columns(str(entry.seq), f"{entry.at:%Y-%m-%d %H:%M:%S}", entry.kind, about, others)


def _columns(seq: str, at: str, kind: str, about: str, others: str) -> str:
    return f"{seq:>5}  {at:<19}  {kind:<17}  {about:<32}  {others}"


def _say(text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)
