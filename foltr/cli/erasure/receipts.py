"""``foltr erasure verify``: whether a federator signed a receipt, checked offline by whoever doubts it."""

import asyncio
import codecs
import hashlib
import re
import sys
from json import loads
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foltr.cli import options
from foltr.cli.database import reason_as_json
from foltr.cli.erasure.noted import DEFAULT, Noted, NotedEntry, contradictions, note, noted_entry, read_noted
from foltr.cli.output import report
from foltr.erasure.states import NOTHING_UNLEARNED
from foltr.errors import DataError, SettingsError
from foltr.operator.credentials import read_credentials
from foltr.operator.heard_keys import HeardKeys, believe_heard, key_topics
from foltr.protocol.signing import key_from_text, key_to_text
from foltr.user_files import read_beginning

if TYPE_CHECKING:
    from foltr.erasure.receipt import ErasureReceipt

KEY_HELP = "The federator's public key: base64 text, a file with that, or a credentials file, which names it"
_WHERE_KEYS_ARE = (
    "the federator's public key is `federator_key` in the credentials file of every device (NAME.json) and of the "
    "operator (foltr-operator/operator.json): name such a file, or ask the operator for the key alone"
)
# A credentials file holds certificates, too.
_MAX_KEY_FILE_BYTES = 64 * 1024
_BYTE_ORDER_MARKS = (codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_THREE_TEXTS = re.compile(r"[\w-]+\.[\w-]+\.[\w-]+")
# By how a file begins, what it is that may be named by mistake.
_OTHER_FILES = (
    ("-----BEGIN", "a PEM file: a key or certificate of TLS"),
    ("ssh-", "an SSH key"),
    ("eyJ", "a receipt"),
)
# By a receipt's version, what its digest is.
_DIGESTS = {1: "SHA-256", 2: "Chain of SHA-256"}
# Of an operator's folder; their texts look like any other key.
_ENROLMENT_KEYS = ("enrolment.key", "enrolment.pub")


def verify(
    file: Annotated[str, typer.Argument(help="The file with the receipt; - reads standard input")],
    key: Annotated[str, typer.Option("--key", metavar="TEXT|FILE", help=KEY_HELP)],
    ask: Annotated[
        bool, typer.Option("--ask", help="Believe the newest key, too, that the broker of the credentials in --key has")
    ] = False,
    noted: Noted = DEFAULT,
    json: options.Json = False,
) -> None:
    """Check that the federator signed this receipt, print what it says, and note its entry of the audit log.

    It is done offline, unless --ask says otherwise: where the federator's key was rotated since the credentials in
    --key were written. Then the command connects as who they are of.
    """
    asked: dict[str, Any] = {"verified": False, "federator_key": None, "key_fingerprint": None}
    with reason_as_json(json, asked):
        public_key = public_key_of(key)
        asked |= key_identity(public_key)
        if ask:
            public_key, receipt = _verify_asking(file, key, public_key)
            asked |= key_identity(public_key)
        else:
            receipt = _verify(file, public_key)
        others = note_receipt(noted, receipt, public_key)
    told = {**asked, "verified": True, "receipt": receipt.model_dump()}
    report(
        json,
        told | ({"contradicts": [entry.source for entry in others]} if others else {}),
        *_in_words(receipt),
        f"The signature is right: the holder of the key {key_to_text(public_key)} signed this very text.",
        *(
            f"But {entry.source} is signed with the same key and names entry {entry.seq} with another hash "
            f"({entry.hash}): the log was written anew. Keep both, and {noted}."
            for entry in others
        ),
        "What a receipt proves and what it does not: docs/erasure.md",
    )


def _verify_asking(file: str, key: str, given: bytes) -> "tuple[bytes, ErasureReceipt]":
    """The key that has signed a receipt, the given one or the newest, and the receipt.

    Raises:
        DataError: neither has, and why the newest may be another.
        SettingsError: ``key`` is no credentials file of who may ask.
        UnavailableError: the broker cannot be reached.
    """
    from foltr.erasure.receipt import verify_receipt

    text = _read_receipt(file)
    try:
        return given, verify_receipt(text, given)
    except DataError:
        keys = _newest_keys(key)
    newest = keys.credentials.federator_public_key
    try:
        return newest, verify_receipt(text, newest)
    except DataError as error:
        if keys.hindrance is not None:
            raise DataError(f"{error}; {keys.hindrance}") from error
        known = "and states no newer one" if newest == given else "and neither is it by the newest that it states"
        raise DataError(
            f"{error}; the broker was asked, {known}. If the key was rotated since the receipt was issued, the "
            "operator has the former one (foltr-operator/orders): --key takes its text"
        ) from error


def _newest_keys(key: str) -> HeardKeys:
    from broker.address import BrokerAddress
    from foltr.cli.doctor.checks import role_of
    from foltr.cli.history.heartbeat import retained

    path = Path(key)
    if not path.is_file() or role_of(path) not in ("device", "operator"):
        raise SettingsError("key: with --ask name the credentials file of a device, or the operator's")
    credentials = read_credentials(path, role_of(path))
    heard = asyncio.run(retained(BrokerAddress.of(credentials.broker), key_topics(credentials.federation)))
    return believe_heard(credentials, heard)


def note_receipt(path: Path, receipt: "ErasureReceipt", key: bytes) -> list[NotedEntry]:
    """Note the entry of the audit log that a receipt names; returns what was noted before and contradicts it."""
    source = f"the receipt of {receipt.pseudonym}"
    seen = noted_entry(receipt.federation, key, receipt.audit_seq, receipt.audit_hash, source)
    others = contradictions(read_noted(path), seen)
    note(path, [seen])
    return others


def verify_receipt_file(file: str, key: str) -> "ErasureReceipt":
    """The receipt in a file, if it is signed by the key that ``key`` is, or names."""
    return _verify(file, public_key_of(key))


def key_identity(public_key: bytes) -> dict[str, str]:
    """A key as programs are told of it: base64, and SHA-256 of its 32 bytes in hex."""
    return {"federator_key": key_to_text(public_key), "key_fingerprint": hashlib.sha256(public_key).hexdigest()}


def _verify(file: str, public_key: bytes) -> "ErasureReceipt":
    from foltr.erasure.receipt import verify_receipt

    return verify_receipt(_read_receipt(file), public_key)


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
    what = "standard input" if file == "-" else file
    if content.startswith(_BYTE_ORDER_MARKS):
        raise DataError(
            f"receipt: {what} begins with a byte order mark (BOM), which an editor or a shell has put there: save it "
            "as plain ASCII text, or as UTF-8 without BOM, or ask for the file as it was issued"
        )
    try:
        text = content.decode("ascii")
    except UnicodeDecodeError as error:
        raise DataError(f"receipt: {what} is not the text of a receipt; ask for the file as it was issued") from error
    if len(text) > MAX_RECEIPT_BYTES:
        return text  # `verify_receipt` refuses it, and says what is allowed
    _check_form(what, text.strip())
    return text.strip()


def _check_form(what: str, text: str) -> None:
    """DataError with what a file has in place of a receipt, where that can be told before any signature is checked."""
    if not text:
        raise DataError(f"receipt: {what} is empty; ask whoever sent it for the file as it was issued")
    parts = text.split()
    if len(parts) > 1 and _THREE_TEXTS.fullmatch("".join(parts)):
        raise DataError(
            f"receipt: {what} is broken over lines, and a receipt is one line: join the {len(parts)} pieces without "
            "blanks between them, or ask for the file as it was issued"
        )
    if text.startswith("{"):
        raise DataError(
            f"receipt: {what} is JSON, perhaps what a command printed of a receipt; name the file with the signed text "
            "itself, which `foltr erasure show NAME --receipt FILE` writes"
        )
    if not _THREE_TEXTS.fullmatch(text):
        raise DataError(
            f"receipt: {what} is no receipt, which is one line of three texts with dots between; is it the right file? "
            "An operator gets it with `foltr erasure show NAME --receipt FILE`"
        )


def public_key_of(text: str) -> bytes:
    """The federator's public key: ``text`` itself, what the file of that name holds, or what those credentials name.

    Raises:
        SettingsError: it is none of these.
    """
    try:
        return key_from_text("key", text)
    except SettingsError:
        pass  # then it is the name of a file
    path = Path(text)
    if path.name in _ENROLMENT_KEYS:
        raise SettingsError(f"key: {path} is the enrolment key, which signs no receipts; {_WHERE_KEYS_ARE}")
    content = _read("key", text, _MAX_KEY_FILE_BYTES, _WHERE_KEYS_ARE).decode("utf-8-sig", "replace").strip()
    if not content.startswith("{"):
        try:
            return key_from_text("key", content)
        except SettingsError as error:
            other = next((f"is {what}" for start, what in _OTHER_FILES if content.startswith(start)), "holds no key")
            raise SettingsError(f"key: {path} {other}, not base64 text of 32 bytes; {_WHERE_KEYS_ARE}") from error
    try:
        role = loads(content)["role"]
    except (ValueError, KeyError, RecursionError):
        role = None
    if role not in ("device", "federator", "operator"):
        raise SettingsError(f"key: {path} is no credentials file as `foltr device enrol` writes it; {_WHERE_KEYS_ARE}")
    return read_credentials(path, role).federator_public_key


def _read(what: str, file: str, n_bytes: int, next_step: str) -> bytes:
    """The first ``n_bytes`` of a file; SettingsError that ends with ``next_step`` if it cannot be read."""
    try:
        return read_beginning(file, n_bytes)
    except OSError as error:
        raise SettingsError(f"{what}: {file:.200}: {error.strerror}; {next_step}") from error


def _in_words(receipt: "ErasureReceipt") -> list[str]:
    """What a receipt says, for people: all of it."""
    who = f"in the federation {receipt.federation}, for the client with the pseudonym {receipt.pseudonym}"
    when = f"erased {receipt.erased_at}, completed {receipt.completed_at}"
    key = "the key they were encrypted with exists no more" if receipt.key_destroyed else "no key was destroyed"
    lines = [
        f"Receipt of an erasure {who}.",
        f"Requested by the {receipt.requested_by} {receipt.requested_at}, {when}.",
        f"Erased: {receipt.n_updates} updates of {receipt.n_rounds} rounds, {receipt.n_events} events; {key}.",
        f"{_DIGESTS[receipt.version]} of the updates: {receipt.erased_digest}",
    ]
    if receipt.strategy == NOTHING_UNLEARNED:
        lines.append("It had taught no model, so there was none to unlearn.")
    else:
        coverage = "" if receipt.coverage is None else f", coverage {receipt.coverage:.0%}"
        how = f"{receipt.strategy}, {receipt.rounds_replayed} rounds replayed{coverage}"
        if not receipt.rounds_replayed:
            how = f"{receipt.strategy}: the model from before it, with nothing learned anew"
        lines.append(
            f"Model {receipt.model_after}, made without the client ({how}), replaced model {receipt.model_before}."
        )
        lines.append(f"Models whose weights are deleted: {receipt.models_withdrawn}.")
    if receipt.figures:
        lines.append("Figures: " + ", ".join(f"{name} {value:g}" for name, value in sorted(receipt.figures.items())))
    return [*lines, f"Audit log: entry {receipt.audit_seq}, hash {receipt.audit_hash}"]
