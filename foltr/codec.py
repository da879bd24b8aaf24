"""Messages to bytes and back. Everything a peer can get wrong is refused here, with a code."""

from typing import Any, TypeVar

import msgpack
from pydantic import ValidationError

from foltr.errors import MessageError
from foltr.messages import MAX_MESSAGE_BYTES, MESSAGE_TYPES, SCHEMA_VERSION, Message, ReceiptCode

M = TypeVar("M", bound=Message)

_ENVELOPE_KEYS = {"v", "kind", "body"}
_packer = msgpack.Packer(use_bin_type=True, autoreset=True)


def encode(message: Message) -> bytes:
    """The envelope of ``message`` as bytes."""
    body = _packer.pack(message.model_dump())
    return bytes(_packer.pack({"v": SCHEMA_VERSION, "kind": message.kind_name, "body": body}))


def decode(payload: bytes, expected: type[M]) -> M:
    """The message in ``payload``.

    Raises:
        MessageError: with the receipt code ``too_large``, ``unsupported_version`` or ``malformed``.
    """
    if len(payload) > MAX_MESSAGE_BYTES:
        raise MessageError(ReceiptCode.TOO_LARGE, f"{len(payload)} bytes; a message has at most {MAX_MESSAGE_BYTES}")
    envelope = _unpack(payload, "envelope")
    # The version is looked at before anything else, so that a newer envelope gets a clear answer.
    version = envelope.get("v")
    if type(version) is not int:
        raise MessageError(ReceiptCode.MALFORMED, "the envelope has no integer schema version 'v'")
    if version != SCHEMA_VERSION:
        raise MessageError(
            ReceiptCode.UNSUPPORTED_VERSION, f"schema version {version}; this peer speaks {SCHEMA_VERSION}"
        )
    if envelope.keys() != _ENVELOPE_KEYS:
        raise MessageError(ReceiptCode.MALFORMED, "the envelope's keys are not exactly v, kind and body")
    kind, body = envelope["kind"], envelope["body"]
    if not isinstance(kind, str) or MESSAGE_TYPES.get(kind) is not expected:
        raise MessageError(ReceiptCode.MALFORMED, f"kind {_printable(str(kind))} where {expected.kind_name!r} belongs")
    if not isinstance(body, bytes):
        raise MessageError(ReceiptCode.MALFORMED, "the body is not a byte string")
    fields = _unpack(body, "body")
    try:
        return expected.model_validate(fields)
    except ValidationError as error:
        raise MessageError(ReceiptCode.MALFORMED, _first_problem(error)) from error


def _unpack(data: bytes, what: str) -> dict[str, Any]:
    try:
        # Every length is bounded by the data itself, so a forged header cannot make it allocate more.
        value = msgpack.unpackb(data, raw=False, object_pairs_hook=_refuse_duplicate_keys)
    except MessageError:
        raise
    except (ValueError, TypeError, OverflowError, RecursionError, msgpack.UnpackException) as error:
        raise MessageError(ReceiptCode.MALFORMED, f"the {what} is not msgpack: {type(error).__name__}") from error
    if not isinstance(value, dict):
        raise MessageError(ReceiptCode.MALFORMED, f"the {what} is not a map")
    return value


def _refuse_duplicate_keys(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    # msgpack lets the last of two equal keys win, so two readers could see two different messages.
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise MessageError(ReceiptCode.MALFORMED, "a map has the same key twice")
    return fields


def _first_problem(error: ValidationError) -> str:
    # Values are left out: they may be anything, and receipts and event rows should stay small.
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    place = ".".join(_printable(str(part)) for part in first["loc"]) or "message"
    return f"{place}: {first['msg']}"[:300]


def _printable(name: str) -> str:
    """The beginning of a peer's name for something, safe to store and to show."""
    return "".join(letter if letter.isprintable() else "?" for letter in name[:40])
