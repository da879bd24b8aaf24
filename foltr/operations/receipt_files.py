"""Reads the files for checking a receipt: the receipt, and the one with the federator's public key."""

import codecs
import re
import sys
from json import loads
from pathlib import Path

from foltr.core.erasure.receipt import MAX_RECEIPT_BYTES
from foltr.core.errors import DataError, SettingsError
from foltr.core.operator.credentials import read_credentials
from foltr.core.protocol.signing import key_from_text
from foltr.core.user_files import read_beginning

_WHERE_KEYS_ARE = (
    "the federator's public key is `federator_key` in the credentials file of every device (NAME.json) and of the "
    "operator (foltr-operator/operator.json): name such a file, or ask the operator for the key alone"
)
# A credentials file also contains certificates.
_MAX_KEY_FILE_BYTES = 64 * 1024
_BYTE_ORDER_MARKS = (codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_THREE_TEXTS = re.compile(r"[\w-]+\.[\w-]+\.[\w-]+")
# Files named by mistake, recognised by how they begin.
_OTHER_FILES = (
    ("-----BEGIN", "a PEM file: a key or certificate of TLS"),
    ("ssh-", "an SSH key"),
    ("eyJ", "a receipt"),
)
# Files of an operator's folder that look like any other key.
_ENROLMENT_KEYS = ("enrolment.key", "enrolment.pub")


def read_receipt(file: str) -> str:
    """Return the text of a file or of standard input, stripped."""
    # Read one byte beyond the limit: a wrong file is refused without being read whole.
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
        return text  # `verify_receipt` refuses it and states the limits
    _check_form(what, text.strip())
    return text.strip()


def _check_form(what: str, text: str) -> None:
    """Raise DataError if a file is recognisably not a receipt, before any signature is checked."""
    if not text:
        raise DataError(f"receipt: {what} is empty; ask the sender for the file as it was issued")
    parts = text.split()
    if len(parts) > 1 and _THREE_TEXTS.fullmatch("".join(parts)):
        raise DataError(
            f"receipt: {what} has line breaks, but a receipt is one line: join the {len(parts)} pieces without "
            "blanks between them, or ask for the file as it was issued"
        )
    if text.startswith("{"):
        raise DataError(
            f"receipt: {what} is JSON, perhaps what a command printed of a receipt; name the file with the signed text "
            "itself, which `foltr erasure show NAME --receipt FILE` writes"
        )
    if not _THREE_TEXTS.fullmatch(text):
        raise DataError(
            f"receipt: {what} is not a receipt, which is one line of three texts with dots between; is it the "
            "right file? An operator gets it with `foltr erasure show NAME --receipt FILE`"
        )


def public_key_of(text: str) -> bytes:
    """Return the federator's public key: ``text`` itself, or from the key or credentials file of that name.

    Raises:
        SettingsError: it is none of these.
    """
    try:
        return key_from_text("key", text)
    except SettingsError:
        pass  # not a key, so a file name
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
    """Return the first ``n_bytes`` of a file. Raises SettingsError ending with ``next_step`` if it cannot be read."""
    try:
        return read_beginning(file, n_bytes)
    except OSError as error:
        raise SettingsError(f"{what}: {file:.200}: {error.strerror}; {next_step}") from error
