"""Messages to bytes and back. Every possible fault of a peer is refused here, with a code.

Reading has three steps: `open_envelope`, `Envelope.is_signed_by` if signatures are required, and `Envelope.read`.
"""

import re
from typing import Any, NamedTuple, TypeVar

import msgpack
from pydantic import ValidationError

from foltr.core.errors import MessageError
from foltr.core.protocol.fields import MAX_MESSAGE_BYTES, SCHEMA_VERSION, Message
from foltr.core.protocol.receipts import ReceiptCode
from foltr.core.protocol.signing import (
    SIGNATURE_BYTES,
    SequenceSource,
    SigningKey,
    signed_bytes,
    verify,
    verify_repeated,
)

M = TypeVar("M", bound=Message)
C = TypeVar("C")

_KEY_ORDER = ("v", "kind", "sequence", "body", "signature")
_ENVELOPE_KEYS = set(_KEY_ORDER)
# No line break: see `signed_bytes`.
_KIND = re.compile(r"[a-z_]{1,40}")
# More fields than any present message has, apart from its list's items: a newer version's gets a clear answer.
_MAX_FIELDS = 64
_MAX_CONTAINERS = 16
# So few bytes cannot hold much: at most 64 bytes of memory for each.
_SHORT_BYTES = 8192
_NOT_MSGPACK = (ValueError, TypeError, OverflowError, RecursionError, msgpack.UnpackException)
_packer = msgpack.Packer(use_bin_type=True, autoreset=True)


class Envelope(NamedTuple):
    """A message whose body is not checked yet."""

    kind: str
    sequence: int
    body: bytes
    signature: bytes

    def is_signed_by(self, public_key: bytes, topic: str, *, repeated: bool = False) -> bool:
        """Whether the owner of ``public_key`` signed this for ``topic``.

        Args:
            repeated: others in this process will ask the same; the answer is cached for a while.
        """
        check = verify_repeated if repeated else verify
        return check(public_key, signed_bytes(topic, self.kind, self.sequence, self.body), self.signature)

    def read(self, expected: type[M]) -> M:
        """Return the message; MessageError ``malformed`` if it is of another kind or its fields are invalid."""
        if self.kind != expected.kind_name:
            raise MessageError(
                ReceiptCode.MALFORMED, f"kind {_printable(self.kind)} where {expected.kind_name!r} belongs"
            )
        fields = _unpack(self.body, "body", expected.longest_list)
        try:
            return expected.model_validate(fields)
        except ValidationError as error:
            raise MessageError(ReceiptCode.MALFORMED, _first_problem(error)) from error


def encode(message: Message, topic: str = "", sequence: int = 0, key: SigningKey | None = None) -> bytes:
    """The envelope of ``message`` as bytes, signed for ``topic`` if there is a key."""
    body = _packer.pack(message.packed())
    signature = b"" if key is None else key.sign(signed_bytes(topic, message.kind_name, sequence, body))
    return bytes(
        _packer.pack(
            {"v": SCHEMA_VERSION, "kind": message.kind_name, "sequence": sequence, "body": body, "signature": signature}
        )
    )


class Signer:
    """Makes the bytes of a sender's messages: signed if it has a key, each with the next of its sequence."""

    def __init__(self, key: SigningKey | None, sequence: SequenceSource) -> None:
        self._key = key
        self._sequence = sequence

    def sign(self, message: Message, topic: str, sequence: int | None = None) -> bytes:
        return encode(message, topic, self._sequence.next() if sequence is None else sequence, self._key)


def open_envelope(payload: bytes, max_bytes: int = MAX_MESSAGE_BYTES) -> Envelope:
    """The envelope in ``payload``.

    Raises:
        MessageError: with the receipt code ``too_large``, ``unsupported_version`` or ``malformed``.
    """
    if len(payload) > max_bytes:
        raise MessageError(ReceiptCode.TOO_LARGE, f"{len(payload)} bytes; a message has at most {max_bytes}")
    envelope = _unpack(payload, "envelope", 0)
    # The version is checked first, so that another version's envelope gets a clear answer.
    version = envelope.get("v")
    if type(version) is not int:
        raise MessageError(ReceiptCode.MALFORMED, "the envelope has no integer schema version 'v'")
    if version != SCHEMA_VERSION:
        older, newer = ("the peer", "this side") if version < SCHEMA_VERSION else ("this side", "the peer")
        raise MessageError(
            ReceiptCode.UNSUPPORTED_VERSION,
            f"schema version {version}; this side has version {SCHEMA_VERSION}: upgrade {older} to what {newer} has",
        )
    if envelope.keys() != _ENVELOPE_KEYS:
        raise MessageError(ReceiptCode.MALFORMED, f"the envelope's keys are not exactly {', '.join(_KEY_ORDER)}")
    kind, sequence, body, signature = envelope["kind"], envelope["sequence"], envelope["body"], envelope["signature"]
    if not isinstance(kind, str) or _KIND.fullmatch(kind) is None:
        raise MessageError(ReceiptCode.MALFORMED, f"kind {_printable(str(kind))} is not part of this protocol")
    if type(sequence) is not int or not 0 <= sequence < 2**63:
        raise MessageError(ReceiptCode.MALFORMED, "the sequence is not an integer from 0 to 2^63 - 1")
    if not isinstance(body, bytes):
        raise MessageError(ReceiptCode.MALFORMED, "the body is not a byte string")
    if not isinstance(signature, bytes) or len(signature) not in (0, SIGNATURE_BYTES):
        raise MessageError(ReceiptCode.MALFORMED, f"the signature is not {SIGNATURE_BYTES} bytes, nor empty")
    return Envelope(kind, sequence, body, signature)


def decode(payload: bytes, expected: type[M]) -> M:
    """Read a message without checking its signature. Raises MessageError as `open_envelope` and `Envelope.read`."""
    return open_envelope(payload).read(expected)


def _unpack(data: bytes, what: str, longest_list: int) -> dict[str, Any]:
    if len(data) <= _SHORT_BYTES and (fields := _unpack_as_we_pack(data, longest_list)) is not None:
        return fields
    return _unpack_carefully(data, what, longest_list)


def _most_items(data: bytes, longest_list: int) -> int:
    """How many items a list may have."""
    # A list is allocated when its length is read, and lists may nest, so the message's kind bounds lengths.
    return min(max(longest_list, _MAX_FIELDS), len(data))


def _unpack_as_we_pack(data: bytes, longest_list: int) -> dict[str, Any] | None:
    """Unpack a map in the form of `encode`, in a fifth of the time; None for anything else.

    Packing it again must give the same bytes, which excludes duplicate keys.
    """
    try:
        value = msgpack.unpackb(data, raw=False, max_array_len=_most_items(data, longest_list), max_map_len=_MAX_FIELDS)
        is_ours = type(value) is dict and _packer.pack(value) == data
    except _NOT_MSGPACK:
        return None
    return value if is_ours else None


def _unpack_carefully(data: bytes, what: str, longest_list: int) -> dict[str, Any]:
    n_containers = 0

    def counted(container: C) -> C:
        # Empty ones cost 64 bytes and a call for each byte of the message.
        nonlocal n_containers
        n_containers += 1
        if n_containers > _MAX_CONTAINERS + longest_list:
            raise MessageError(ReceiptCode.MALFORMED, f"the {what} holds too many maps and lists")
        return container

    def unique(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
        fields = counted(dict(pairs))
        # msgpack lets the last of two equal keys win, so two readers could see two different messages.
        if len(fields) != len(pairs):
            raise MessageError(ReceiptCode.MALFORMED, "a map has the same key twice")
        return fields

    try:
        value = msgpack.unpackb(
            data,
            raw=False,
            object_pairs_hook=unique,
            list_hook=counted,
            max_array_len=_most_items(data, longest_list),
            max_map_len=_MAX_FIELDS,
        )
    except MessageError:
        raise
    except _NOT_MSGPACK as error:
        raise MessageError(ReceiptCode.MALFORMED, f"the {what} is not msgpack: {type(error).__name__}") from error
    if not isinstance(value, dict):
        raise MessageError(ReceiptCode.MALFORMED, f"the {what} is not a map")
    return value


def _first_problem(error: ValidationError) -> str:
    # Values are left out: they may be anything, and receipts and event rows should stay small.
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(_printable(str(part)) for part in first["loc"]) or "message"
    problem = first["msg"]
    if first["type"] == "union_tag_invalid":
        # The only message of pydantic that repeats its input.
        problem = f"its kind is none of {first['ctx']['expected_tags']}"
    return f"{place}: {problem}"[:300]


def _printable(name: str) -> str:
    """The beginning of a peer's text, safe to store and to show."""
    return "".join(letter if letter.isprintable() else "?" for letter in name[:40])
