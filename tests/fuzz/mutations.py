"""From valid messages to wrong ones, the same by seed: of bytes, of fields, and of whole envelopes."""

import struct
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from fuzz.corpus import OPERATOR, Sample

from foltr.core.protocol.messages import MESSAGE_TYPES

LARGEST = 256 * 1024
_HUGE = 0.001
_RESIGNED = 0.7


class Raw(bytes):
    """Bytes that stand in the output as they are: not msgpack, or not what a library would write."""


class Pairs(list[tuple[Any, Any]]):
    """A map whose keys may repeat."""


def mutated(rng: Random, seeds: Sequence[Sample]) -> tuple[Sample, bytes]:
    """A message to begin with, and what became of it."""
    sample = rng.choice(seeds)
    if rng.random() < _HUGE:
        return sample, _huge(rng, sample)
    kind = rng.random()
    if kind < 0.45:
        payload = _with_other_body(rng, sample, pack(_other_fields(rng, sample.fields)))
    elif kind < 0.55:
        payload = _with_other_body(rng, sample, _other_bytes(rng, pack(sample.fields), seeds))
    elif kind < 0.75:
        payload = _other_envelope(rng, sample)
    elif kind < 0.98:
        payload = _other_bytes(rng, sample.payload, seeds)
    else:
        payload = sample.payload
    if rng.random() < 0.1:
        payload = _other_bytes(rng, payload, seeds)
    return sample, payload[:LARGEST]


def pack(value: Any) -> bytes:
    """msgpack, also of what a msgpack library refuses to write."""
    match value:
        case Raw():
            return bytes(value)
        case None:
            return b"\xc0"
        case bool():
            return b"\xc3" if value else b"\xc2"
        case int():
            return _pack_int(value)
        case float():
            return b"\xcb" + struct.pack(">d", value)
        case str():
            raw = value.encode(errors="surrogatepass")
            return (bytes([0xA0 | len(raw)]) if len(raw) < 32 else b"\xdb" + len(raw).to_bytes(4, "big")) + raw
        case bytes():
            return b"\xc6" + len(value).to_bytes(4, "big") + value
        case Pairs():
            return _pack_map(value)
        case dict():
            return _pack_map(list(value.items()))
        case list() | tuple():
            head = bytes([0x90 | len(value)]) if len(value) < 16 else b"\xdd" + len(value).to_bytes(4, "big")
            return head + b"".join(map(pack, value))
        case _:
            raise TypeError(f"{type(value).__name__} has no msgpack")


def _pack_int(value: int) -> bytes:
    if 0 <= value < 128:
        return bytes([value])
    if value < 0:
        return b"\xd3" + (value & (2**64 - 1)).to_bytes(8, "big")
    return b"\xcf" + (value & (2**64 - 1)).to_bytes(8, "big")


def _pack_map(pairs: Sequence[tuple[Any, Any]]) -> bytes:
    head = bytes([0x80 | len(pairs)]) if len(pairs) < 16 else b"\xdf" + len(pairs).to_bytes(4, "big")
    return head + b"".join(pack(key) + pack(value) for key, value in pairs)


_NUMBERS: list[Any] = [
    *(0, 1, -1, 2, 127, 128, 255, 256, 999, 1000, 65_535, 65_536, 100_000, 100_001, 4_000_000, 4_000_001),
    *(2**31 - 1, 2**31, 2**32, 2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, -(2**31), -(2**63)),
    *(0.0, -0.0, 0.5, 1e-320, 1e6, 1e11, 1.1e11, 1e308, float("nan"), float("inf"), float("-inf")),
]
_TEXTS: list[Any] = [
    *("", "a", "a" * 63, "a" * 64, "a" * 65, "a" * 501, "x" * 5000, "-a", "a/b", "a\n", "a\0b", "+", "#", "$SYS"),
    *("\u2028", "\x1b[2J", "é", "\U0001f600", "\ud800", "device-7", "device-8", "mail", "post", "dense", "linear"),
    *("part", "evolution", "neural", "foltr-es", "fedips", "fedper", "estimated"),
    *("0" * 32, "F" * 32, "accepted", "pwned", "pdgd", "v", "kind", "../../etc"),
    *(Raw(b"\xa2\xff\xfe"), Raw(b"\xa3\xed\xa0\x80")),
]
_BYTES: list[Any] = [
    *(b"", b"\0", bytes(8), bytes(16), bytes(31), bytes(32), bytes(33), bytes(64), bytes(1025), b"\xff" * 64),
    *(struct.pack("<f", number) * 16 for number in (float("nan"), float("inf"), 1e6, 1.1e6, 3e38, 1e-45)),
]
_STRANGE: list[Any] = [
    *(None, True, False, [], {}, [[]], [None] * 17, {"a": {}}, {1: 2}, Pairs([("a", 1), ("a", 2)])),
    # Extension types, a timestamp, a byte that msgpack never uses, 32-bit floats.
    *(Raw(b"\xd4\x01\x00"), Raw(b"\xc7\x00\x05"), Raw(b"\xd6\xff\x00\x00\x00\x00"), Raw(b"\xc1")),
    *(Raw(b"\xd7\xff" + b"\xff" * 8), Raw(b"\xca\x7f\xc0\x00\x00"), Raw(b"\xca\x7f\x80\x00\x00")),
    # Lengths that nothing stands behind.
    *(Raw(head + b"\xff\xff\xff\xff") for head in (b"\xdd", b"\xdf", b"\xdb", b"\xc6", b"\xc9")),
    *(Raw(head + b"\xff\xff") for head in (b"\xdc", b"\xde", b"\xda", b"\xc5", b"\xc8")),
    *(Raw(b"\x91" * depth) for depth in (10, 600, 1030, 5000)),
    *(Raw(b"\x81\xa1a" * depth + b"\xc0") for depth in (10, 500, 1030, 5000)),
    Raw(b"\x81" * 600),
    Raw(b"\xdc\x0f\xff" * 600),
    Raw(b"\xdc\x03\xe8" + b"\x80" * 1000),
    Raw(b"\xdc\x03\xe8" + b"\x90" * 1000),
]
_POOLS: list[list[Any]] = [_NUMBERS, _TEXTS, _BYTES, _STRANGE]


def _value(rng: Random) -> Any:
    return rng.choice(rng.choice(_POOLS))


def _other_fields(rng: Random, fields: dict[str, Any]) -> Any:
    """A body with one to three things wrong."""
    value: Any = fields
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        value = _changed(rng, value)
    return value


def _changed(rng: Random, value: Any) -> Any:
    """A copy in which one thing, somewhere inside, is another."""
    if isinstance(value, Pairs) or not isinstance(value, dict | list) or not value or rng.random() < 0.03:
        return _like(rng, value)
    if isinstance(value, list):
        items = list(value)
        at = rng.randrange(len(items))
        if rng.random() < 0.3:
            items[at:at] = [items[at]] * rng.choice((1, 2, 50, 1001))
        else:
            items[at] = _changed(rng, items[at])
        return items
    key = rng.choice(list(value))
    match rng.randrange(8):
        case 0:
            return {name: item for name, item in value.items() if name != key}
        case 1:
            return {**value, rng.choice(("extra", "", "__class__", "model_config", "v", 7)): _value(rng)}
        case 2:
            return Pairs([*value.items(), (key, rng.choice((value[key], _value(rng))))])
        case 3:
            return {(rng.choice(_TEXTS[:24]) if name == key else name): item for name, item in value.items()}
        case _:
            return {**value, key: _changed(rng, value[key])}


def _like(rng: Random, value: Any) -> Any:
    """Half of the time of the same type, so that later checks are reached, too."""
    if rng.random() < 0.5:
        return _value(rng)
    match value:
        case bool():
            return not value
        case int() | float():
            return rng.choice((value + 1, value - 1, rng.choice(_NUMBERS)))
        case str():
            return rng.choice((value + "x", value[:-1], value.upper(), rng.choice(_TEXTS)))
        case bytes() if value:
            at = rng.randrange(len(value))
            flipped = value[:at] + bytes([value[at] ^ 1 << rng.randrange(8)]) + value[at + 1 :]
            return rng.choice((flipped, value[:-1], value + b"\0", value * 2, rng.choice(_BYTES)))
        case _:
            return _value(rng)


def _with_other_body(rng: Random, sample: Sample, body: bytes) -> bytes:
    signature = sample.signature(sample.envelope, body) if rng.random() < _RESIGNED else rng.randbytes(64)
    return pack({**sample.envelope, "body": body, "signature": signature})


def _other_envelope(rng: Random, sample: Sample) -> bytes:
    body = pack(sample.fields)
    envelope = dict(sample.envelope)
    match rng.randrange(6):
        case 0:
            envelope["kind"] = rng.choice([*MESSAGE_TYPES, "revocation", *_TEXTS[:24]])
        case 1:
            envelope["v"] = rng.choice((0, 2, 3, -1, 1.0, "1", True, None, 2**64 - 1))
        case 2:
            envelope["sequence"] = rng.choice(_NUMBERS)
        case _:
            pass
    envelope = {**envelope, "body": body, "signature": sample.signature(envelope, body)}
    if rng.random() < 0.1:
        # What the operator signed for one purpose must not do for another.
        envelope["signature"] = OPERATOR.sign(body)
    changed = envelope if rng.random() < 0.3 else _changed(rng, envelope)
    if rng.random() < 0.2 and isinstance(changed, dict):
        items = list(changed.items())
        rng.shuffle(items)
        changed = Pairs(items)
    return pack(changed)


def _other_bytes(rng: Random, data: bytes, seeds: Sequence[Sample]) -> bytes:
    change: Callable[[Random, bytearray, Sequence[Sample]], bytes] = rng.choice(_BYTE_CHANGES)
    return change(rng, bytearray(data), seeds)


def _flip(rng: Random, data: bytearray, _: Sequence[Sample]) -> bytes:
    for _unused in range(rng.choice((1, 1, 2, 8))):
        if data:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    return bytes(data)


def _cut(rng: Random, data: bytearray, _: Sequence[Sample]) -> bytes:
    at = rng.randrange(len(data) + 1)
    return bytes(data[:at] if rng.random() < 0.7 else data[at:])


def _splice(rng: Random, data: bytearray, seeds: Sequence[Sample]) -> bytes:
    other = rng.choice(seeds).payload
    return bytes(data[: rng.randrange(len(data) + 1)]) + other[rng.randrange(len(other)) :]


def _repeat(rng: Random, data: bytearray, _: Sequence[Sample]) -> bytes:
    begin = rng.randrange(len(data) + 1)
    end = min(len(data), begin + rng.choice((1, 2, 3, 16, 64)))
    return bytes(data[:begin] + data[begin:end] * rng.choice((2, 3, 100)) + data[end:])


def _insert(rng: Random, data: bytearray, _: Sequence[Sample]) -> bytes:
    at = rng.randrange(len(data) + 1)
    new = pack(_value(rng)) if rng.random() < 0.5 else rng.randbytes(rng.choice((1, 2, 4, 9)))
    return bytes(data[:at]) + new + bytes(data[at + rng.choice((0, len(new))) :])


def _noise(rng: Random, _data: bytearray, _: Sequence[Sample]) -> bytes:
    return rng.randbytes(rng.choice((0, 1, 2, 5, 40, 300)))


_BYTE_CHANGES: list[Any] = [_flip, _flip, _cut, _splice, _repeat, _insert, _insert, _noise]


def _huge(rng: Random, sample: Sample) -> bytes:
    """As large as a message may be, and made to cost the reader as much as possible."""
    size = LARGEST - rng.choice((0, 1, 2048))
    room = size - 1024
    pattern = rng.choice((b"\x80", b"\x90", b"\xa2ab", b"\xcb" + bytes(8), b"\xd4\x01\x00", b"\xa0", b"\x91", b"\xc0"))
    inside = b"\xdd" + (room // len(pattern)).to_bytes(4, "big") + pattern * (room // len(pattern))
    match rng.randrange(6):
        case 0:
            return (inside + bytes(size))[:size]
        case 1:
            # Lists within lists, each said to be as long as the message allows.
            return (b"\xdd" + room.to_bytes(4, "big")) * 600 + bytes(room - 3000)
        case 2:
            return (
                b"\xdf" + (room // 7).to_bytes(4, "big") + b"".join(pack(f"{i:05x}") + b"\0" for i in range(room // 7))
            )
        case 3:
            return pack({**sample.envelope, "body": bytes(room), "signature": b""})
        case 4:
            return pack({**sample.envelope, "kind": "k" * room, "body": b"", "signature": b""})
        case _:
            return _with_other_body(rng, sample, pack({**sample.fields, rng.choice(list(sample.fields)): Raw(inside)}))
