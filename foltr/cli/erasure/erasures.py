"""``foltr erasure list``, ``show``, ``allow-reset``: erasures, and the progress of unlearning."""

import re
from collections.abc import Sequence
from json import loads
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foltr.cli import options
from foltr.cli.database import Listing, print_listing, run_query
from foltr.cli.fields import argument, option
from foltr.cli.operator.sending import send_order
from foltr.cli.options import OperatorFolder
from foltr.cli.output import print_json, print_record, say, to_plain
from foltr.core.erasure.states import FORGET_STATE, UNTIL_ERASED, ErasureState
from foltr.core.errors import DataError, SettingsError
from foltr.core.operator.next_commands import DEFAULT_OPERATOR_FOLDER
from foltr.core.protocol.states import JobState
from foltr.core.protocol.topics import check_name
from foltr.operations.operator_access import open_authority

if TYPE_CHECKING:
    from foltr.storage.database import Database
    from foltr.storage.erasure_records import ErasureRow, HeldReset, UnlearningJobRow

    Told = tuple[ErasureRow, UnlearningJobRow | None, HeldReset | None]
    """An erasure, its job, and the job that is held until the operator orders it."""

# Fields that only the federator can use. They are deleted when a job closes.
_STATE_OF_JOB = ("weights", "optimizer_state", "defence_state", "coverage_sum")
_PSEUDONYM = re.compile(r"[0-9a-f]{32}")
_ALL = 2**31 - 1


def erasures_list(
    db: options.Db = None,
    federation: options.Federation = None,
    limit: options.Limit = None,
    json: options.Json = False,
) -> None:
    """List erasures, newest last: pseudonym, times, and progress of the model without the client.

    Exit code 1: an erasure is not done although its deadline has passed.
    """
    from foltr.storage.activity import count_erasures

    n_overdue = 0

    async def n_all(database: "Database", name: str, _rows: "Sequence[Told]") -> int:
        counts = await count_erasures(database, name)
        return counts.n_erasing + counts.n_waiting + counts.n_unlearning + counts.n_done

    async def read(database: "Database", name: str, most: int) -> "list[Told]":
        nonlocal n_overdue
        n_overdue = (await count_erasures(database, name)).n_overdue
        return await _newest(database, name, most)

    def notes(rows: "Sequence[Told]") -> list[str]:
        overdue = f"{n_overdue} of them are not done, and their deadline has passed" if n_overdue else ""
        held = rows[0][2] if rows else None
        return [sentence for sentence in (overdue, "" if held is None else held.in_words) if sentence]

    columns = {"erasure": _line, "when": _when, "job": lambda told: _progress(told[0], told[1])}
    listing = Listing("Erasures", columns, read, n_all, plain=_in_short, notes=notes)
    print_listing(listing, db, federation, limit, json)
    if n_overdue:
        raise typer.Exit(1)


def erasures_show(
    client: Annotated[str, argument("The client's pseudonym or its own name", metavar="PSEUDONYM|NAME")],
    receipt: Annotated[str | None, option("Write its receipt here; - prints nothing else", metavar="FILE")] = None,
    db: options.Db = None,
    federation: options.Federation = None,
    json: options.Json = False,
) -> None:
    """Show one erasure and its unlearning job, by pseudonym, or by name while the database still has it.

    With --receipt, get its receipt.
    """
    from foltr.storage.erasure.client_rows import rows_of
    from foltr.storage.erasure.unlearning_jobs import load_job

    check_name("client", client)
    if receipt == "-" and json:
        raise SettingsError(
            "receipt: --json cannot be combined with --receipt -, because it has the receipt as a field"
        )

    async def query(database: "Database", name: str) -> None:
        row = await _find(database, name, client)
        if receipt is not None:
            _write(_receipt_of(row), receipt)
            if receipt == "-":
                return
        job = None if row.job is None else await load_job(database, name, row.job)
        named = None if client == row.pseudonym else await rows_of(database, name, client)
        plain_job = _plain_job(job)
        if json:
            print_json({"erasure": _plain(row), "job": plain_job, "rows_of_it": named})
            return
        fingerprint = None if row.key_fingerprint is None else row.key_fingerprint.hex()
        shown = _plain(row) | {"key_fingerprint": fingerprint, "receipt": _receipt_in_words(row)}
        print_record(shown, title=f"Erasure of {row.pseudonym} in {name}")
        if plain_job is not None:
            print_record(plain_job, title=f"Unlearning job {plain_job['number']}")
        say(f"The model without it: {_progress(row, job)}")
        if named is not None:
            say(f"Rows of {client} now: {_where(named)}")
        if receipt is not None:
            say(f"Wrote its receipt; check it: foltr erasure verify {receipt} --key FILE")
        elif row.receipt is not None:
            say(f"Get its receipt: foltr erasure show {row.pseudonym} --receipt FILE")

    run_query(db, federation, query)


def allow_reset(
    job: Annotated[int, argument("Its number, as `foltr erasure list` says", min=1, max=2**31 - 1)],
    operator: OperatorFolder = DEFAULT_OPERATOR_FOLDER,
    broker: options.Broker = None,
) -> None:
    """Order that an unlearning job puts the first model in service: everything learned so far is lost.

    The job waits for this order. `foltr erasure list` says beforehand what is lost, and the answer says it again.
    """
    with open_authority(operator) as authority:
        answer = send_order(authority, authority.allow_reset(job), broker)
    say(f"Order {answer.number} is obeyed: {answer.detail}")


async def _find(database: "Database", name: str, client: str) -> "ErasureRow":
    """Find an erasure by pseudonym, else by name (a name may look like a pseudonym). Raises DataError without one."""
    from foltr.storage.erasure.erasures import find_erasure
    from foltr.storage.pages import erasure_of
    from foltr.storage.queries import get_client

    row = await find_erasure(database, name, client) if _PSEUDONYM.fullmatch(client) else None
    row = row or await erasure_of(database, name, client)
    if row is not None:
        return row
    if await get_client(database, name, client) is not None:
        raise DataError(
            f"{client} of {name} was not forgotten; see: foltr device show {client}. To forget it: foltr erasure "
            f"request {client}"
        )
    raise DataError(f"federation {name!r} has erased no {client!r}, by pseudonym or name; see: foltr erasure list")


def _receipt_of(row: "ErasureRow") -> str:
    """Return the receipt of an erasure. Raises DataError with the reason if it has none."""
    if row.receipt is not None:
        return row.receipt
    if row.state is not ErasureState.DONE:
        raise DataError(
            f"the erasure of {row.pseudonym} is {shown_state(row)}: its receipt is signed when it is done; how far it "
            f"is: foltr erasure show {row.pseudonym}"
        )
    raise DataError(
        f"the erasure of {row.pseudonym} has no receipt: its federator had no key to sign one with. Entry "
        f"{row.audit_seq} of the audit log records it: foltr erasure log"
    )


def _write(receipt: str, file: str) -> None:
    """Write a receipt with a final line break, as `foltr erasure request` does; ``-`` is standard output."""
    if file == "-":
        typer.echo(receipt)
        return
    try:
        Path(file).write_text(receipt + "\n", encoding="ascii")
    except OSError as error:
        raise SettingsError(f"receipt: {file}: {error.strerror}; name a file that can be written") from error


def shown_state(row: "ErasureRow") -> ErasureState:
    """Return the state to show: an erasure is unfinished while its data key exists, even with no rows left."""
    return ErasureState.ERASING if row.state in UNTIL_ERASED else row.state


def _plain(row: "ErasureRow") -> dict[str, Any]:
    """Return an erasure for JSON. ``erased_at`` is null until all stored data is erased."""
    plain: dict[str, Any] = to_plain(row) | {"state": shown_state(row), "forget_state": FORGET_STATE[row.state]}
    return plain | ({"erased_at": None} if row.state in UNTIL_ERASED else {})


def _is_overdue(row: "ErasureRow") -> bool:
    return row.overdue_at is not None and row.state is not ErasureState.DONE


def _line(told: "Told") -> str:
    """Format an erasure as three lines of a cell: 80 columns hold whole pseudonyms and times (UTC)."""
    row = told[0]
    state = f"OVERDUE, {shown_state(row)}" if _is_overdue(row) else str(shown_state(row))
    return f"{row.pseudonym}\n{state}, by {row.requested_by}\n{_receipt_in_words(row)}"


def _when(told: "Told") -> str:
    row = told[0]
    erased = "-" if row.state in UNTIL_ERASED else f"{row.erased_at:%Y-%m-%d %H:%M}"
    completed = "-" if row.completed_at is None else f"{row.completed_at:%Y-%m-%d %H:%M}"
    return f"requested {row.requested_at:%Y-%m-%d %H:%M}\nerased    {erased}\ncompleted {completed}"


def _receipt_in_words(row: "ErasureRow") -> str:
    if row.receipt is not None:
        return "has a receipt"
    return "no receipt: nothing is signed" if row.state is ErasureState.DONE else "no receipt yet"


def _progress(row: "ErasureRow", job: "UnlearningJobRow | None") -> str:
    """Describe the progress of unlearning a client."""
    if row.state in UNTIL_ERASED:
        return "begins when the last of its rows and its data key are deleted"
    if row.first_round is None:
        return "not needed: it was in no model"
    if job is None:
        return "waits for a job" if row.job is None else f"job {row.job}, which the database does not have"
    coverage = "" if job.coverage is None else f", coverage {job.coverage:.0%}"
    steps = f"step {job.step} of {job.n_steps}" if job.n_steps else "nothing needs to be learned again"
    told = f"job {job.number}, {job.strategy}: {steps}{coverage}"
    if job.state is JobState.DONE:
        return f"{told}; made model {job.model_version}"
    if job.state is JobState.RUNNING:
        is_made = job.step == job.n_steps
        return f"{told}; goes into service when the open round ends (foltr rounds deadline)" if is_made else told
    next_one = "; waits for another job" if job.state is JobState.FAILED else ""
    return f"{told}; {job.state}: {job.reason}{next_one}"


def _where(rows: dict[str, int]) -> str:
    """List the number of rows by table, and what to do about those that may remain."""
    told = ", ".join(f"{n} of {table}" for table, n in rows.items()) or "none"
    if "erasures" in rows:
        told += "; its row of clients keeps the name until its device has the answer"
    if "federations" in rows:
        told += "; federations has it in the operator's roster, which voids its enrolment by name"
    return told


async def _newest(database: "Database", name: str, n: int) -> "list[Told]":
    from foltr.storage.erasure.erasures import list_erasures
    from foltr.storage.erasure.gathering import waiting_reset
    from foltr.storage.erasure.unlearning_jobs import list_jobs

    rows = await list_erasures(database, name, limit=n)
    jobs = {job.number: job for job in await list_jobs(database, name, limit=_ALL)}
    held = await waiting_reset(database, name)
    return [(row, None if row.job is None else jobs.get(row.job), held) for row in rows]


def _in_short(told: "Told") -> dict[str, Any]:
    """Return an erasure for JSON, without the client's name and with a flag in place of the receipt."""
    row, job, held = told
    plain = {key: value for key, value in _plain(row).items() if key not in ("client_id", "receipt")}
    waits_for = None if held is None or row.state is not ErasureState.WAITING else to_plain(held)
    return plain | {"has_receipt": row.receipt is not None, "job": _plain_job(job), "held_reset": waits_for}


def _plain_job(job: "UnlearningJobRow | None") -> dict[str, Any] | None:
    if job is None:
        return None
    plain = {key: value for key, value in to_plain(job).items() if key not in _STATE_OF_JOB}
    return plain | {"coverage": job.coverage, "figures": loads(job.figures)}
