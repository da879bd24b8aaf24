"""The captured messages of the protocol, and envelopes as a peer may build them, for the tests of the codec."""

import runpy
from pathlib import Path

import msgpack

from foltr.protocol.fields import SCHEMA_VERSION
from foltr.protocol.updates import ModelUpdate

# How the captured messages were made, and what they say. If the bytes of this version must change, SCHEMA_VERSION
# must too: devices in the field read and write what those files hold, not what the code says today.
CAPTURE = runpy.run_path(str(Path(__file__).parent / "foltr" / "captured" / "capture.py"))
KEY, FIRST_SEQUENCE, name_of = CAPTURE["KEY"], CAPTURE["FIRST_SEQUENCE"], CAPTURE["name_of"]
MESSAGES = CAPTURE["MESSAGES"] + CAPTURE["VARIANTS"]
V4 = CAPTURE["captured"](4)
JOIN = {"federation": "mail", "client_id": "device-7", "sdk_version": "0.1.0"}
UPDATE = next(message for message, _ in MESSAGES if isinstance(message, ModelUpdate)).model_dump()


def envelope(body, kind="join", version=SCHEMA_VERSION, sequence=0, signature=b""):
    """An envelope as a peer may build it: ``body`` packed, or as it stands if it is bytes."""
    packed = body if isinstance(body, bytes) else msgpack.packb(body)
    return msgpack.packb({"v": version, "kind": kind, "sequence": sequence, "body": packed, "signature": signature})
