"""``foltr receipt verify`` and ``foltr audit verify``: what an erasure left, checked by whoever doubts it."""

import sys
from json import loads
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foltr.cli import options
from foltr.cli.output import console, print_json
from foltr.credentials import read_credentials
from foltr.errors import DataError, SettingsError
from foltr.identity import key_from_text, key_to_text

if TYPE_CHECKING:
    from foltr.erasure.audit import AuditEntry
    from foltr.erasure.receipt import ErasureReceipt
    from storage.database import Database

receipt_app = typer.Typer(help="Check the receipt of an erasure.", no_args_is_help=True)
audit_app = typer.Typer(help="Check the log of erasures.", no_args_is_help=True)

_KEY_HELP = "The federator's public key: base64 text, a file with that, or a credentials file, which names it"
_WHERE_KEYS_ARE = "the federator's public key is `federator_key` in the credentials of every device of the federation"
# A credentials file holds certificates, too.
_MAX_KEY_FILE_BYTES = 64 * 1024


@receipt_app.command("verify")
def receipt_verify(
    file: Annotated[str, typer.Argument(help="The file with the receipt; - reads standard input")],
    key: Annotated[str, typer.Option("--key", metavar="TEXT|FILE", help=_KEY_HELP)],
    json: options.Json = False,
) -> None:
    """Check offline that the federator signed this receipt, and print what it says."""
    receipt, public_key = _verified(file, key)
    if json:
        print_json({"valid": True, "federator_key": key_to_text(public_key), "receipt": receipt.model_dump()})
        return
    for sentence in _in_words(receipt):
        _say(sentence)
    _say(f"The signature is right: the holder of the key {key_to_text(public_key)} signed this very text.")
    _say("What a receipt proves and what it does not: docs/erasure.md")


@audit_app.command("verify")
def audit_verify(
    db: options.Db = None,
    federation: options.Federation = None,
    receipt: Annotated[
        str | None, typer.Option("--receipt", metavar="FILE", help="A receipt whose place in the log to check")
    ] = None,
    key: Annotated[str | None, typer.Option("--key", metavar="TEXT|FILE", help=f"{_KEY_HELP}; with --receipt")] = None,
    json: options.Json = False,
) -> None:
    """Check that no entry of the audit log was changed or taken out, and that a receipt has its place in it."""
    if (receipt is None) != (key is None):
        raise SettingsError("receipt: name it with --receipt and the federator's public key with --key, or neither")
    found = None if receipt is None or key is None else _verified(receipt, key)[0]
    from foltr.cli.history import run_query

    async def query(database: "Database", name: str) -> None:
        if found is not None and found.federation != name:
            raise SettingsError(
                f"federation: the receipt is one of {found.federation!r}, the log that of {name!r}; "
                f"choose with --federation {found.federation}"
            )
        last, there = await _checked_log(database, name, None if found is None else found.audit_seq)
        n_entries = 0 if last is None else last.seq
        if found is not None:
            _check_place(found, n_entries, there)
        if json:
            last_hash = None if last is None else last.hash
            print_json({"valid": True, "federation": name, "entries": n_entries, "last_hash": last_hash})
            return
        many = "1 entry, which is whole" if n_entries == 1 else f"{n_entries} entries, all whole and in order"
        _say(f"The audit log of {name} " + (f"has {many}." if n_entries else "is empty."))
        if last is not None:
            _say(f"Its last hash is {last.hash}. Noted elsewhere, it shows later whether all of this is still there.")
        if found is not None:
            _say(f"The receipt of {found.pseudonym} is entry {found.audit_seq}, as it says.")

    run_query(db, federation or (None if found is None else found.federation), query)


async def _checked_log(
    database: "Database", name: str, seq: int | None
) -> "tuple[AuditEntry | None, AuditEntry | None]":
    """The last entry of an audit log and the one with the number ``seq``; DataError if the log is not whole."""
    from foltr.erasure.audit import NEXT_STEP, check_follows
    from storage.audit import stream_audit

    last, found = None, None
    try:
        async for entry in stream_audit(database, name):
            check_follows(last, entry)
            last = entry
            if entry.seq == seq:
                found = entry
    except (ValueError, RecursionError) as error:
        # Whoever writes by other means than foltr may write what is no JSON, or no time.
        first = 1 if last is None else last.seq + 1
        raise DataError(
            f"audit log: an entry from {first} on was changed: it cannot be read ({error!s:.80}). {NEXT_STEP}"
        ) from error
    return last, found


def _check_place(receipt: "ErasureReceipt", n_entries: int, there: "AuditEntry | None") -> None:
    """DataError if ``there``, the entry of the number that a receipt names, is not the one it names."""
    if there is not None and there.hash == receipt.audit_hash:
        return
    what = f"the log ends with entry {n_entries}" if there is None else "the entry there has another hash"
    raise DataError(
        f"audit log: the receipt of {receipt.pseudonym} names entry {receipt.audit_seq}, and {what}: the log was cut "
        "off or written anew since, or this database is an older copy; restore a later backup and check it"
    )


def _verified(file: str, key: str) -> tuple["ErasureReceipt", bytes]:
    """The receipt in a file and the key that it was found to be signed by."""
    from foltr.erasure.receipt import verify_receipt

    public_key = _public_key(key)
    return verify_receipt(_read_receipt(file), public_key), public_key


def _read_receipt(file: str) -> str:
    """The text in a file or on standard input, without blanks and line breaks around it."""
    from foltr.erasure.receipt import MAX_RECEIPT_BYTES

    # One byte beyond what a receipt may have, so that a wrong file is not read whole to be refused.
    if file == "-":
        content = sys.stdin.buffer.read(MAX_RECEIPT_BYTES + 1)
    else:
        content = _read(
            "receipt", file, MAX_RECEIPT_BYTES + 1, "name the file with the receipt, or - for standard input"
        )
    try:
        text = content.decode("ascii")
    except UnicodeDecodeError as error:
        raise DataError(f"receipt: {file} is not the text of a receipt; ask for the file as it was issued") from error
    # What is too large stays so: `verify_receipt` refuses it, and says what is allowed.
    return text if len(text) > MAX_RECEIPT_BYTES else text.strip()


def _public_key(text: str) -> bytes:
    """The federator's public key: ``text`` itself, what the file of that name holds, or what those credentials name.

    Raises:
        SettingsError: it is none of these.
    """
    try:
        return key_from_text("key", text)
    except SettingsError:
        pass  # then it is the name of a file
    path = Path(text)
    content = _read("key", text, _MAX_KEY_FILE_BYTES, _WHERE_KEYS_ARE).decode("utf-8", "replace").strip()
    if not content.startswith("{"):
        try:
            return key_from_text("key", content)
        except SettingsError as error:
            raise SettingsError(f"key: {path} holds no key, base64 text of 32 bytes; {_WHERE_KEYS_ARE}") from error
    try:
        role = loads(content)["role"]
    except (ValueError, KeyError, RecursionError):
        role = None
    if role not in ("device", "federator", "operator"):
        raise SettingsError(f"key: {path} is no credentials file as `foltr enrol` writes it; {_WHERE_KEYS_ARE}")
    return read_credentials(path, role).federator_public_key


def _read(what: str, file: str, n_bytes: int, next_step: str) -> bytes:
    """The first ``n_bytes`` of a file; SettingsError that ends with ``next_step`` if it cannot be read."""
    try:
        with Path(file).open("rb") as opened:
            return opened.read(n_bytes)
    except (OSError, ValueError) as error:
        cause = getattr(error, "strerror", None) or "no file has such a name"
        raise SettingsError(f"{what}: {file:.200}: {cause}; {next_step}") from error


def _in_words(receipt: "ErasureReceipt") -> list[str]:
    """What a receipt says, for people: all of it."""
    who = f"in the federation {receipt.federation}, for the client with the pseudonym {receipt.pseudonym}"
    when = f"erased {receipt.erased_at}, completed {receipt.completed_at}"
    key = "the key they were encrypted with exists no more" if receipt.key_destroyed else "no key was destroyed"
    lines = [
        f"Receipt of an erasure {who}.",
        f"Requested by the {receipt.requested_by} {receipt.requested_at}, {when}.",
        f"Erased: {receipt.n_updates} updates of {receipt.n_rounds} rounds, {receipt.n_events} events; {key}.",
        f"SHA-256 of the updates: {receipt.erased_digest}",
    ]
    if receipt.strategy == "none":
        lines.append("It had taught no model, so there was none to unlearn.")
    else:
        coverage = "" if receipt.coverage is None else f", coverage {receipt.coverage:.0%}"
        how = f"{receipt.strategy}, {receipt.rounds_replayed} rounds replayed{coverage}"
        lines.append(
            f"Model {receipt.model_after}, made without the client ({how}), replaced model {receipt.model_before}."
        )
        lines.append(f"Models whose weights are deleted: {receipt.models_withdrawn}.")
    if receipt.figures:
        lines.append("Figures: " + ", ".join(f"{name} {value:g}" for name, value in sorted(receipt.figures.items())))
    return [*lines, f"Audit log: entry {receipt.audit_seq}, hash {receipt.audit_hash}"]


def _say(text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)
