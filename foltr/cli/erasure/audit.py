"""``foltr audit``: the log of erasures, whether it is whole, and whether the table of erasures says the same."""

from collections.abc import AsyncIterator, Awaitable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from foltr.cli import options
from foltr.cli.erasure.heads import SignedHead, audit_head, published_head
from foltr.cli.erasure.noted import DEFAULT, Noted, note, read_noted
from foltr.cli.erasure.receipts import KEY_HELP, public_key_of, verify_receipt_file
from foltr.cli.history.query import reason_as_json, run_query
from foltr.cli.history.streams import check_stream, stream_records
from foltr.cli.output import print_json, say, to_plain
from foltr.cli.settings import Settings, load_settings
from foltr.erasure.states import ErasureState
from foltr.errors import DataError, MessageError, SettingsError, UnavailableError
from foltr.protocol.signing import key_to_text

if TYPE_CHECKING:
    from foltr.erasure.audit import AuditEntry
    from foltr.erasure.receipt import ErasureReceipt
    from storage.database import Database
    from storage.erasure.records import ErasureRow, UnlearningJobRow

T = TypeVar("T")

app = typer.Typer(help="Look at the log of erasures, and check it.", no_args_is_help=True)
app.command("head")(audit_head)

_ALL = 2**31 - 1
_N_TOLD = 3
# What an entry and the row that was stored with it have in common; the last is when.
_SAME = {
    "client_erased": (
        "requested_by",
        "requested_at",
        "n_rounds",
        "n_updates",
        "n_events",
        "erased_digest",
        "erased_at",
    ),
    "erasure_completed": ("key_destroyed", "completed_at"),
    "job_started": ("strategy", "start_version", "start_round", "created_at"),
}


@dataclass(frozen=True)
class _Place:
    """An entry that somebody names who is not the database.

    Attributes:
        who: in words.
        is_noted: it was, in the file of noted entries.
    """

    who: str
    seq: int
    hash: str
    is_noted: bool = False


@dataclass
class _Log:
    """An audit log whose entries are a chain.

    Attributes:
        last: None if it is empty.
        hashes: of the entries that somebody names, by number; of those that are there.
        erased, completed: the entries that tell of erasures that began and that were done, by pseudonym.
        jobs: those that tell of unlearning jobs that began, by number.
    """

    last: "AuditEntry | None" = None
    hashes: dict[int, str] = field(default_factory=dict)
    erased: dict[str, "AuditEntry"] = field(default_factory=dict)
    completed: dict[str, "AuditEntry"] = field(default_factory=dict)
    jobs: dict[int, "AuditEntry"] = field(default_factory=dict)


@app.command("list")
def audit_list(
    db: options.Db = None,
    federation: options.Federation = None,
    watch: options.WatchLines = False,
    json: options.Json = False,
    jsonl: options.Jsonl = False,
) -> None:
    """List the entries, oldest first: number, time in UTC, kind, whom or which job it is about, and what else it says.

    With --json their hashes, too.
    """
    check_stream(watch=watch, json=json, jsonl=jsonl)
    if jsonl:

        async def read(database: "Database", name: str, _most: int) -> "list[AuditEntry]":
            return [entry async for entry in _entries(database, name)]

        stream_records(db, federation, read, "seq", None, watch=watch)
        return

    async def query(database: "Database", name: str) -> None:
        entries = [entry async for entry in _entries(database, name)]
        if json:
            print_json(entries)
            return
        if not entries:
            say(f"The audit log of {name} is empty.")
            return
        say(_columns("entry", "at", "kind", "about", "what else it says"))
        for entry in entries:
            say(_line(entry))

    run_query(db, federation, query)


@app.command("verify")
def audit_verify(
    db: options.Db = None,
    federation: options.Federation = None,
    receipt: Annotated[
        list[str] | None,
        typer.Option("--receipt", metavar="FILE", help="A receipt whose place in the log to check; may be repeated"),
    ] = None,
    key: Annotated[
        str | None, typer.Option("--key", metavar="TEXT|FILE", help=f"{KEY_HELP}; checks every stored receipt, too")
    ] = None,
    broker: options.Broker = None,
    credentials: options.Credentials = None,
    noted: Noted = DEFAULT,
    json: options.Json = False,
) -> None:
    """Check that no entry was changed or taken out, and that what was said elsewhere is in the log.

    The log is compared with the tables of erasures and unlearning jobs, with the receipts that are named, with what was
    noted under --key, and with what the federator has published where a broker is named or the operator's folder is
    here. The exit code is 1 if something differs; the line on standard error names the entry or the erasure.
    """
    if receipt and key is None:
        raise SettingsError("receipt: name the federator's public key with --key, too")

    with reason_as_json(json, {"verified": False}):
        public_key = None if key is None else public_key_of(key)
        found = [] if key is None else [verify_receipt_file(one, key) for one in receipt or ()]
        named = federation or (found[0].federation if found else None)
        settings = load_settings(broker_url=broker, credentials=credentials)
        witnesses = _Witnesses(found, public_key, noted, settings)
        run_query(db, named, lambda database, name: _verify(database, name, witnesses, json=json))


@dataclass(frozen=True)
class _Witnesses:
    """Who knows of a log beside the database.

    Attributes:
        receipts: those that are named; their signatures are right.
        key: the federator's; None checks nothing that is signed.
        noted: the file of entries that were noted.
        settings: which may name a broker.
    """

    receipts: "list[ErasureReceipt]"
    key: bytes | None
    noted: Path
    settings: Settings


async def _verify(database: "Database", name: str, witnesses: _Witnesses, *, json: bool) -> None:
    from storage.erasure.erasures import list_erasures
    from storage.erasure.unlearning_jobs import list_jobs

    for found in witnesses.receipts:
        if found.federation != name:
            raise SettingsError(
                f"federation: the receipt is one of {found.federation!r}, the log that of {name!r}; "
                f"choose with --federation {found.federation}"
            )
    # First: what is published is in the log by then.
    published, why_not = await _published(witnesses, name)
    places = _places(witnesses, name, published)
    # The federator may run: what was there before has its entries, and what the log tells of is there afterwards.
    before = await _read(list_erasures(database, name, limit=_ALL))
    log = await _checked_log(database, name, {place.seq for place in places})
    after = await _read(list_erasures(database, name, limit=_ALL))
    jobs = {job.number: job for job in await _read(list_jobs(database, name, limit=_ALL))}
    for place in places:
        _check_place(place, log)
    rows = {row.pseudonym: row for row in after}
    _check_agreement([*_entries_without_row(log, rows, jobs), *_rows_without_entry(log, before, witnesses.key)])
    if published is not None:
        note(witnesses.noted, [published.entry])
    told = _Told(name, before, log, places, published, why_not)
    if json:
        print_json(told.as_json())
        return
    for sentence in told.in_words(witnesses):
        say(sentence)


async def _published(witnesses: _Witnesses, name: str) -> "tuple[SignedHead | None, str]":
    """The head that is published; or None, and why nothing was compared with it."""
    try:
        return await published_head(witnesses.settings, name, witnesses.key), ""
    except (UnavailableError, MessageError) as error:
        return None, str(error)
    except SettingsError as error:
        if witnesses.settings.credentials is not None:
            raise
        return None, str(error)  # nobody has named that file, or the broker on this command line


def _places(witnesses: _Witnesses, name: str, published: "SignedHead | None") -> list[_Place]:
    """What everybody but the database says."""
    places = [_Place(f"the receipt of {one.pseudonym}", one.audit_seq, one.audit_hash) for one in witnesses.receipts]
    if published is not None:
        places.append(_Place(f"the head at {published.source}", published.head.seq, published.head.hash.hex()))
    if witnesses.key is not None:
        mine = (name, key_to_text(witnesses.key))
        noted = [entry for entry in read_noted(witnesses.noted) if (entry.federation, entry.key) == mine]
        places += [
            _Place(f"{entry.source}, as noted in {witnesses.noted},", entry.seq, entry.hash, True) for entry in noted
        ]
    return [place for place in places if place.seq > 0]  # an empty log is the beginning of every other


@dataclass(frozen=True)
class _Told:
    """What is told of a log in which nothing is wrong."""

    federation: str
    erasures: "list[ErasureRow]"
    log: _Log
    places: list[_Place]
    published: "SignedHead | None"
    why_not: str

    @property
    def _n_entries(self) -> int:
        return 0 if self.log.last is None else self.log.last.seq

    def as_json(self) -> dict[str, Any]:
        last_hash = None if self.log.last is None else self.log.last.hash
        counts = {"entries": self._n_entries, "erasures": len(self.erasures), "places": len(self.places)}
        head = None if self.published is None else self.published.head.seq
        return {"verified": True, "federation": self.federation, **counts, "last_hash": last_hash, "published": head}

    def in_words(self, witnesses: _Witnesses) -> list[str]:
        n_entries, n_done = self._n_entries, sum(row.state is ErasureState.DONE for row in self.erasures)
        many = "1 entry, which is whole" if n_entries == 1 else f"{n_entries} entries, all whole and in order"
        lines = [f"The audit log of {self.federation} " + (f"has {many}." if n_entries else "is empty.")]
        if self.log.last is not None:
            lines.append(
                f"Its last hash is {self.log.last.hash}. Noted elsewhere, it shows later whether all of this is still "
                "there."
            )
        lines.append(f"The table of erasures agrees with it: {len(self.erasures)} in all, {n_done} done.")
        if witnesses.key is not None:
            n_signed = sum(row.receipt is not None for row in self.erasures)
            lines.append(f"The holder of the key has signed {n_signed} stored receipts.")
        named = [place for place in self.places if not place.is_noted]
        lines += [f"{place.who[0].upper()}{place.who[1:]} is entry {place.seq}, as it says." for place in named]
        if len(named) < len(self.places):
            lines.append(f"What was noted in {witnesses.noted} is in it: {len(self.places) - len(named)} in all.")
        if self.published is None:
            lines.append(f"What the federator has published was not compared: {self.why_not}.")
        return lines


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


async def _checked_log(database: "Database", name: str, numbers: set[int]) -> _Log:
    """An audit log with the hashes of the entries of these numbers; DataError if it is not whole."""
    from foltr.erasure.audit import check_follows

    log = _Log()
    async for entry in _entries(database, name):
        check_follows(log.last, entry)
        log.last = entry
        if entry.seq in numbers:
            log.hashes[entry.seq] = entry.hash
        if entry.kind == "client_erased":
            log.erased[_pseudonym(entry)] = entry
        elif entry.kind == "erasure_completed":
            log.completed[_pseudonym(entry)] = entry
        elif entry.kind == "job_started":
            log.jobs[int(_content(entry).get("job", 0))] = entry
    return log


def _check_place(place: _Place, log: _Log) -> None:
    """DataError if the log has not the entry that somebody names."""
    there = log.hashes.get(place.seq)
    if there == place.hash:
        return
    n_entries = 0 if log.last is None else log.last.seq
    what = f"the log ends with entry {n_entries}" if there is None else "the entry there has another hash"
    raise DataError(
        f"audit log: {place.who} names entry {place.seq}, and {what}: the log was cut "
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
        # Whoever is being erased has its entry with the last row of it.
        if row.pseudonym not in log.erased and row.state is not ErasureState.ERASING:
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
