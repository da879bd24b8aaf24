"""The fields of messages: their types and bounds, their base classes, and the wire form of a vector."""

import hashlib
import re
from typing import Annotated, Any, ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, ConfigDict, Field, StringConstraints

SCHEMA_VERSION = 1
# A ranker's weight over features in [0, 1] never moves this far in a round; a larger move would end learning.
MAX_ABS_DELTA = 1e6
# Brokers cut off packets at 1-2 MB by default; larger messages are sent in chunks.
MAX_MESSAGE_BYTES = 256 * 1024
CHUNK_BYTES = 192 * 1024
MAX_DIM = 4_000_000
# The largest vector, plus 40 kB: the longest norm proof, a ticket, names and numbers.
MAX_CHUNKED_BYTES = 4 * MAX_DIM + 40_000
# A name is one level of an MQTT topic, so the separators and wildcards of MQTT cannot be in it.
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
# Names a one-time token to people, to the broker and in logs; it grants no access.
TOKEN_PATTERN = r"^[0-9a-f]{16}$"  # noqa: S105 (what one looks like)
TokenId = Annotated[str, StringConstraints(pattern=TOKEN_PATTERN)]
Name = Annotated[str, StringConstraints(pattern=NAME_PATTERN)]


def possible_names(words: str) -> set[str]:
    """List possible client names in free text: each word, with and without trailing punctuation."""
    found = re.findall(r"[A-Za-z0-9][A-Za-z0-9._-]*", words)
    return {*found, *(word.rstrip("._-") for word in found)}


# 32 hex digits: a UUID without dashes.
UpdateId = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")]
# Bounded so that no count overflows a signed 64-bit SQL column, nor a sum of a million of them.
Count = Annotated[int, Field(ge=0, le=2**31 - 1)]
# Text for people. Printable: PostgreSQL stores no NUL, and terminals obey escape sequences.
PRINTABLE = r"^[^\x00-\x1f\x7f-\x9f\u2028\u2029]*$"
Detail = Annotated[str, StringConstraints(max_length=500, pattern=PRINTABLE)]
# A device numbers its interactions 1, 2, 3, ..., and 0 is before the first; a watermark is the last one that counts.
Watermark = Annotated[int, Field(ge=0, le=2**48)]
Timestamp = Annotated[float, Field(ge=0, le=1e11, allow_inf_nan=False)]
Dim = Annotated[int, Field(ge=1, le=MAX_DIM)]
# A place in a sender's sequence, which only rises.
SequenceNumber = Annotated[int, Field(ge=0, le=2**63 - 1)]
Seed = Annotated[int, Field(ge=0, le=2**63 - 1)]
PublicKey = Annotated[bytes, Field(min_length=32, max_length=32)]
Sha256 = Annotated[bytes, Field(min_length=32, max_length=32)]
# A seed of 32 bytes, sealed to the owner of an X25519 key (`foltr.core.secure.sealing`): with a key and a tag.
SEAL_BYTES = 32 + 32 + 16
Seal = Annotated[bytes, Field(min_length=SEAL_BYTES, max_length=SEAL_BYTES)]
# Names a model by its weights: the first 16 bytes of their SHA-256.
ModelHash = Annotated[bytes, Field(min_length=16, max_length=16)]
# Names a message by its bytes: the first 16 of their SHA-256.
PayloadDigest = Annotated[bytes, Field(min_length=16, max_length=16)]
ChunkIndex = Annotated[int, Field(ge=0, lt=1000)]
# How often the operator has replaced a key.
KeySequence = Annotated[int, Field(ge=1, le=2**31 - 1)]
# The tombstone of a forgotten name: the first half of its HMAC-SHA256 under the operator's salt.
Salt = Annotated[bytes, Field(min_length=32, max_length=32)]
Tombstone = Annotated[bytes, Field(min_length=16, max_length=16)]
# Of an enrolment; 0 is below the first one.
Serial = Annotated[int, Field(ge=0, le=2**31 - 1)]


class Message(BaseModel):
    """Base of all messages: frozen, strict, no unknown fields."""

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")
    kind_name: ClassVar[str]
    # How many items a list in it may have; a reader allocates at most these.
    longest_list: ClassVar[int] = 0
    # No field is a message, so fields are packed directly.
    is_flat: ClassVar[bool] = False

    def packed(self) -> dict[str, Any]:
        """Return the fields in packed form, in their order: equal to `model_dump`, and not to be changed."""
        return self.__dict__ if self.is_flat else self.model_dump()


class InFederation(Message):
    """A message names its federation first."""

    federation: Name


class OfClient(InFederation):
    """A message of one client, or about it, names that next."""

    client_id: Name


Rate = Annotated[float, Field(gt=0, le=100, allow_inf_nan=False)]


def payload_digest(payload: bytes) -> bytes:
    """Return 16 bytes that identify a message, readable or not: the beginning of its SHA-256."""
    return hashlib.sha256(payload).digest()[:16]


def model_hash(weights: bytes) -> bytes:
    """Return 16 bytes that identify a model: the beginning of the SHA-256 of its announced weights."""
    return hashlib.sha256(weights).digest()[:16]


def pack_vector(values: npt.ArrayLike) -> bytes:
    """The wire form of a vector: little-endian float32."""
    return np.ascontiguousarray(values, dtype="<f4").tobytes()


def unpack_vector(data: bytes) -> npt.NDArray[np.float32]:
    """A read-only float32 view of a wire vector, without a copy."""
    return np.frombuffer(data, dtype="<f4")


def check_vector_length(data: bytes, dim: int) -> None:
    if len(data) != 4 * dim:
        raise ValueError(f"{len(data)} bytes for {dim} float32 values; expected {4 * dim}")
