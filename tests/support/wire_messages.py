"""A message of each kind with its bytes on the wire, and envelopes as a peer may build them, for tests of the codec."""

import json
import runpy
from pathlib import Path

import msgpack

from foltr.core.protocol.fields import SCHEMA_VERSION
from foltr.core.protocol.updates import ModelUpdate

ROOT = Path(__file__).parents[2]
CAPTURE = runpy.run_path(str(ROOT / "tests" / "core" / "captured" / "capture.py"))
KEY, FIRST_SEQUENCE, name_of = CAPTURE["KEY"], CAPTURE["FIRST_SEQUENCE"], CAPTURE["name_of"]
MESSAGES = CAPTURE["MESSAGES"] + CAPTURE["VARIANTS"]
# If these bytes must change once there is a release, SCHEMA_VERSION must too: devices in the field read and write them.
WIRE = {
    vector["name"]: bytes.fromhex(vector["payload"])
    for vector in json.loads((ROOT / "clients" / "vectors" / "messages.json").read_text())["messages"]
}
JOIN = {"federation": "mail", "client_id": "device-7", "sdk_version": "0.1.0"}
UPDATE = next(message for message, _ in MESSAGES if isinstance(message, ModelUpdate)).model_dump()


def envelope(body, kind="join", version=SCHEMA_VERSION, sequence=0, signature=b""):
    """An envelope as a peer may build it: ``body`` packed, or as it stands if it is bytes."""
    packed = body if isinstance(body, bytes) else msgpack.packb(body)
    return msgpack.packb({"v": version, "kind": kind, "sequence": sequence, "body": packed, "signature": signature})
