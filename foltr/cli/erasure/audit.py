"""``foltr erasure log``, ``log-head``, ``verify-log``, ``verify``: the audit log and receipts."""

import asyncio
import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from foltr.cli import options
from foltr.cli.database import Listing, print_listing, reason_as_json, run_query
from foltr.cli.fields import argument, option
from foltr.cli.history.heartbeat import broker_to_ask
from foltr.cli.operator.identities import read_any_credentials
from foltr.cli.output import report
from foltr.cli.settings import Settings, load_settings
from foltr.core.erasure.audit import AuditEntry
from foltr.core.erasure.receipt import ErasureReceipt, verify_receipt
from foltr.core.erasure.states import NOTHING_UNLEARNED, ErasureState
from foltr.core.errors import MessageError, SettingsError, UnavailableError
from foltr.core.operator.next_commands import DEFAULT_OPERATOR_FOLDER
from foltr.core.protocol.signing import key_to_text
from foltr.operations.audit_heads import PublishedHead, published_head
from foltr.operations.receipt_files import public_key_of, read_receipt

if TYPE_CHECKING:
    from foltr.operations.erasure_log import CheckedLog, NamedEntry
    from foltr.storage.database import Database

_ENTRY = re.compile(r"([0-9]{1,18}):([0-9a-f]{64})")
_COLUMNS = {
    "entry": lambda entry: entry.seq,
    "at": lambda entry: f"{entry.at:%Y-%m-%d %H:%M:%S}",
    "kind": lambda entry: entry.kind,
    "about": lambda entry: _about(entry)[0],
    "says": lambda entry: _about(entry)[1],
}


KEY_HELP = "The federator's public key: base64 text, a file with that, or a credentials file, which names it"
# The kind of digest, by version of the receipt.
_DIGESTS = {1: "SHA-256", 2: "Chain of SHA-256"}


def audit_log(
    db: options.Db = None,
    federation: options.Federation = None,
    limit: options.Limit = None,
    json: options.Json = False,
) -> None:
    """List the entries of the log of erasures, oldest first. With --json their hashes, too."""
    from foltr.operations.erasure_log import stream_entries

    async def read(database: "Database", name: str, most: int) -> "list[AuditEntry]":
        entries = [entry async for entry in stream_entries(database, name)]
        return entries if limit is None else entries[-most:]

    async def n_all(_database: "Database", _name: str, entries: "Sequence[AuditEntry]") -> int:
        return entries[-1].seq if entries else 0

    listing = Listing("Entries of the audit log", _COLUMNS, read, n_all)
    print_listing(listing, db, federation, limit, json)


def _about(entry: "AuditEntry") -> tuple[str, str]:
    """Return which client or job an entry is about, and its remaining content."""
    from foltr.operations.erasure_log import content_of

    said = content_of(entry)
    about = str(said["pseudonym"]) if "pseudonym" in said else f"job {said.get('job')}"
    return about, ", ".join(f"{name} {value}" for name, value in said.items() if name not in ("pseudonym", "job"))


def verify_log(
    db: options.Db = None,
    federation: options.Federation = None,
    receipt: Annotated[
        list[str] | None, option("A receipt that must be in the log; may be repeated", metavar="FILE")
    ] = None,
    entry: Annotated[
        list[str] | None,
        option("An entry that must be in the log, as log-head printed it; may be repeated", metavar="NUMBER:HASH"),
    ] = None,
    key: Annotated[str | None, option(f"{KEY_HELP}; checks every stored receipt, too", metavar="TEXT|FILE")] = None,
    broker: options.Broker = None,
    credentials: options.Credentials = None,
    json: options.Json = False,
) -> None:
    """Check that no entry was changed or removed, and that entries known from elsewhere are in the log.

    The log is compared with the tables of erasures and unlearning jobs, with the given receipts and entries, and
    with what the federator has published if a broker is named or the operator's folder is here. Exit code 1:
    something differs; the line on standard error names the entry or the erasure.
    """
    if receipt and key is None:
        raise SettingsError("receipt: name the federator's public key with --key, too")
    noted = [_noted(text) for text in entry or ()]
    with reason_as_json(json, {"verified": False}):
        public_key = None if key is None else public_key_of(key)
        receipts = [] if public_key is None else [_verified(one, public_key) for one in receipt or ()]
        named = federation or (receipts[0].federation if receipts else None)
        settings = load_settings(broker_url=broker, credentials=credentials)

        async def query(database: "Database", name: str) -> None:
            await _verify(database, name, _Witnesses(receipts, noted, public_key, settings), json=json)

        run_query(db, named, query)


@dataclass(frozen=True)
class _Witnesses:
    """Sources that know the log besides the database.

    Attributes:
        receipts: the named receipts, with verified signatures.
        noted: entry numbers and hashes that somebody has written down.
        key: the federator's public key; None checks no signatures.
        settings: they may name a broker.
    """

    receipts: list[ErasureReceipt]
    noted: list[tuple[int, str]]
    key: bytes | None
    settings: Settings


def _noted(text: str) -> tuple[int, str]:
    matched = _ENTRY.fullmatch(text)
    if matched is None:
        raise SettingsError(f"entry: {text!r:.90} is not NUMBER:HASH, with 64 hex digits; see: foltr erasure log-head")
    return int(matched[1]), matched[2]


async def _verify(database: "Database", name: str, witnesses: _Witnesses, *, json: bool) -> None:
    from foltr.operations.erasure_log import check_log

    for found in witnesses.receipts:
        if found.federation != name:
            raise SettingsError(
                f"federation: the receipt is one of {found.federation!r}, the log that of {name!r}; "
                f"choose with --federation {found.federation}"
            )
    # Fetched before the log is read, so the published entry must be in it.
    published, why_not = await _published(witnesses, name)
    # An empty log is a prefix of every log.
    named = [each for each in _named_entries(witnesses, published) if each.seq > 0]
    log = await check_log(database, name, named, witnesses.key)
    result = {
        "verified": True,
        "federation": name,
        "entries": log.n_entries,
        "erasures": len(log.erasures),
        "places": len(named),
        "last_hash": None if log.last is None else log.last.hash,
        "published": None if published is None else published.head.seq,
    }
    report(json, result, *_in_words(name, log, named, is_signed=witnesses.key is not None), why_not)


async def _published(witnesses: _Witnesses, name: str) -> tuple[PublishedHead | None, str]:
    """Return the published head; or None, and a sentence why it was not compared."""
    try:
        return await ask_head(witnesses.settings, name, witnesses.key), ""
    except (UnavailableError, MessageError, SettingsError) as error:
        # The unreadable file or broker was not named on this command line.
        if isinstance(error, SettingsError) and witnesses.settings.credentials is not None:
            raise
        return None, f"What the federator has published was not compared: {error}."


def _named_entries(witnesses: _Witnesses, published: PublishedHead | None) -> "Iterator[NamedEntry]":
    """Yield entries known from outside the database."""
    from foltr.operations.erasure_log import NamedEntry

    for one in witnesses.receipts:
        yield NamedEntry(f"the receipt of {one.pseudonym}", one.audit_seq, one.audit_hash)
    if published is not None:
        yield NamedEntry(f"the head at {published.source}", published.head.seq, published.head.hash.hex())
    for seq, hash_ in witnesses.noted:
        yield NamedEntry("what was noted", seq, hash_)


def _in_words(name: str, log: "CheckedLog", named: "Sequence[NamedEntry]", *, is_signed: bool) -> Iterator[str]:
    many = "1 entry, which is whole" if log.n_entries == 1 else f"{log.n_entries} entries, all whole and in order"
    yield f"The audit log of {name} " + (f"has {many}." if log.n_entries else "is empty.")
    if log.last is not None:
        yield f"Note this elsewhere, to check later that nothing was cut: --entry {log.n_entries}:{log.last.hash}"
    n_done = sum(row.state is ErasureState.DONE for row in log.erasures)
    yield f"The table of erasures agrees with it: {len(log.erasures)} in all, {n_done} done."
    if is_signed:
        n_signed = sum(row.receipt is not None for row in log.erasures)
        yield f"The holder of the key has signed {n_signed} stored receipts."
    for each in named:
        yield f"{each.who[0].upper()}{each.who[1:]} matches entry {each.seq}."


def log_head(
    key: Annotated[str | None, option(KEY_HELP, metavar="TEXT|FILE")] = None,
    broker: options.Broker = None,
    credentials: options.Credentials = None,
    federation: options.Federation = None,
    json: options.Json = False,
) -> None:
    """Print the newest entry that the federator has published.

    Keep its number and its hash: foltr erasure verify-log --entry checks later that the log still has it.
    """
    settings = load_settings(broker_url=broker, credentials=credentials, federation=federation)
    found = asyncio.run(ask_head(settings, _federation_of(settings), None if key is None else public_key_of(key)))
    head = found.head
    report(
        json,
        {"federation": head.federation, "entry": head.seq, "hash": head.hash.hex()},
        found.in_words(),
        f"Keep it, and look for it later: foltr erasure verify-log --entry {head.seq}:{head.hash.hex()}",
    )


async def ask_head(settings: Settings, federation: str, key: bytes | None) -> PublishedHead:
    """Fetch the head from the broker of the settings or of the operator's folder.

    Args:
        key: the federator's public key; None for that of the credentials.

    Raises:
        UnavailableError: no head signed by the key, or no broker; the message says why.
    """
    named = broker_to_ask(settings, federation)
    if named is None:
        raise UnavailableError("no broker is known: name it with --broker, or give --credentials")
    return await published_head(*named, federation, key)


def _federation_of(settings: Settings) -> str:
    """Return the federation that is named; else that of the credentials or of the operator's folder."""
    if "federation" in settings.model_fields_set:
        return settings.federation
    path = DEFAULT_OPERATOR_FOLDER / "operator.json" if settings.credentials is None else Path(settings.credentials)
    if settings.credentials is None and not path.exists():
        return settings.federation
    return read_any_credentials(path).federation


def verify(
    file: Annotated[str, argument("The file with the receipt; - reads standard input")],
    key: Annotated[str, option(KEY_HELP, metavar="TEXT|FILE")],
    json: options.Json = False,
) -> None:
    """Check offline that the federator signed this receipt, and print what it says.

    If the federator's key was rotated, --key takes the text of the key that it had; the operator knows all of them.
    """
    asked: dict[str, Any] = {"verified": False, "federator_key": None, "key_fingerprint": None}
    with reason_as_json(json, asked):
        public_key = public_key_of(key)
        asked |= key_identity(public_key)
        receipt = _verified(file, public_key)
    report(
        json,
        {**asked, "verified": True, "receipt": receipt.model_dump()},
        *_receipt_in_words(receipt),
        f"The signature is valid: the holder of the key {key_to_text(public_key)} signed this text.",
        "What a receipt proves and what it does not: docs/erasure.md",
    )


def key_identity(public_key: bytes) -> dict[str, str]:
    """Return a key for JSON: base64, and SHA-256 of its 32 bytes in hex."""
    return {"federator_key": key_to_text(public_key), "key_fingerprint": hashlib.sha256(public_key).hexdigest()}


def _verified(file: str, public_key: bytes) -> "ErasureReceipt":
    return verify_receipt(read_receipt(file), public_key)


def _receipt_in_words(receipt: "ErasureReceipt") -> list[str]:
    who = f"in the federation {receipt.federation}, for the client with the pseudonym {receipt.pseudonym}"
    when = f"erased {receipt.erased_at}, completed {receipt.completed_at}"
    key = "the key that encrypted them was destroyed" if receipt.key_destroyed else "no key was destroyed"
    lines = [
        f"Receipt of an erasure {who}.",
        f"Requested by the {receipt.requested_by} {receipt.requested_at}, {when}.",
        f"Erased: {receipt.n_updates} updates of {receipt.n_rounds} rounds, {receipt.n_events} events; {key}.",
        f"{_DIGESTS[receipt.version]} of the updates: {receipt.erased_digest}",
    ]
    if receipt.strategy == NOTHING_UNLEARNED:
        lines.append("No model had learned from it, so nothing was unlearned.")
    else:
        coverage = "" if receipt.coverage is None else f", coverage {receipt.coverage:.0%}"
        how = f"{receipt.strategy}, {receipt.rounds_replayed} rounds replayed{coverage}"
        if not receipt.rounds_replayed:
            how = f"{receipt.strategy}: the model from before the client, without relearning"
        lines.append(
            f"Model {receipt.model_after}, made without the client ({how}), replaced model {receipt.model_before}."
        )
        lines.append(f"Models whose weights are deleted: {receipt.models_withdrawn}.")
    if receipt.figures:
        lines.append("Figures: " + ", ".join(f"{name} {value:g}" for name, value in sorted(receipt.figures.items())))
    return [*lines, f"Audit log: entry {receipt.audit_seq}, hash {receipt.audit_hash}"]
