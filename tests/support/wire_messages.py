"""A message of each kind with its bytes on the wire, and envelopes as a peer may build them, for tests of the codec."""

import json
from pathlib import Path

import msgpack

from foltr.core.protocol.codec import open_envelope
from foltr.core.protocol.fields import SCHEMA_VERSION, Message
from foltr.core.protocol.messages import MESSAGE_TYPES
from foltr.core.protocol.signing import SigningKey
from foltr.core.protocol.updates import ModelUpdate

_VECTORS = json.loads((Path(__file__).parents[2] / "clients" / "vectors" / "messages.json").read_text())["messages"]
KEY, FIRST_SEQUENCE = SigningKey(bytes(range(32))), 2**40
# If these bytes must change once there is a release, SCHEMA_VERSION must too: devices in the field read and write them.
WIRE = {vector["name"]: bytes.fromhex(vector["payload"]) for vector in _VECTORS}
# Every kind of message with all its fields, every variant of some, and the topic that each is signed for.
MESSAGES: list[tuple[Message, str]] = [
    (open_envelope(WIRE[vector["name"]]).read(MESSAGE_TYPES[vector["kind"]]), vector["topic"]) for vector in _VECTORS
]
_NAMES = {id(message): vector["name"] for (message, _), vector in zip(MESSAGES, _VECTORS, strict=True)}
JOIN = {"federation": "mail", "client_id": "device-7", "sdk_version": "0.1.0"}
UPDATE = next(message for message, _ in MESSAGES if isinstance(message, ModelUpdate)).model_dump()


def name_of(message: Message) -> str:
    """Its kind, or the variant that it is."""
    return _NAMES[id(message)]


def envelope(body, kind="join", version=SCHEMA_VERSION, sequence=0, signature=b""):
    """An envelope as a peer may build it: ``body`` packed, or as it stands if it is bytes."""
    packed = body if isinstance(body, bytes) else msgpack.packb(body)
    return msgpack.packb({"v": version, "kind": kind, "sequence": sequence, "body": packed, "signature": signature})
