"""Messages too large for one packet: cut into chunks, described by a manifest, put together again. No I/O.

A complete signed envelope is cut, so its signature and sequence number are checked once it is whole again. The manifest
names it by its SHA-256, of which `payload_digest` is the beginning: a receipt about chunks names the same bytes as one
about the whole message.
"""

import hashlib
from collections.abc import Sequence

from foltr.core.errors import MessageError
from foltr.core.protocol.fields import CHUNK_BYTES, MAX_MESSAGE_BYTES
from foltr.core.protocol.receipts import ReceiptCode
from foltr.core.protocol.updates import Chunk, Manifest


def needs_chunks(payload: bytes) -> bool:
    """Whether ``payload`` is too large for one message."""
    return len(payload) > MAX_MESSAGE_BYTES


def manifest_of(payload: bytes, federation: str, client_id: str | None = None) -> Manifest:
    """Return the manifest to offer instead of ``payload``; ``client_id`` is None if the federator offers it."""
    return Manifest(
        federation=federation,
        client_id=client_id,
        digest=hashlib.sha256(payload).digest(),
        size=len(payload),
        n_chunks=-(-len(payload) // CHUNK_BYTES),
    )


def chunk_of(manifest: Manifest, payload: bytes, index: int) -> Chunk:
    """Return one of the ``manifest.n_chunks`` chunks of the ``payload`` it was made of."""
    return Chunk(
        federation=manifest.federation,
        client_id=manifest.client_id,
        digest=manifest.digest,
        index=index,
        data=payload[index * CHUNK_BYTES : (index + 1) * CHUNK_BYTES],
    )


class Assembly:
    """The received chunks of one manifest.

    Attributes:
        n_bytes: received so far.
    """

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest
        self._parts: dict[int, bytes] = {}
        self.n_bytes = 0

    @property
    def complete(self) -> bool:
        return len(self._parts) == self.manifest.n_chunks

    def missing(self) -> list[int]:
        """The missing chunks, in order."""
        return [index for index in range(self.manifest.n_chunks) if index not in self._parts]

    def lacks(self, chunk: Chunk) -> bool:
        """Whether `add` would take the chunk; False if it is there.

        Raises:
            MessageError: ``malformed``, it is of another message or not of its length.
        """
        if chunk.digest != self.manifest.digest:
            raise MessageError(ReceiptCode.MALFORMED, "a chunk of another message")
        expected = self._length(chunk.index)
        if len(chunk.data) != expected:
            raise MessageError(
                ReceiptCode.MALFORMED, f"chunk {chunk.index} has {len(chunk.data)} bytes; it should have {expected}"
            )
        return chunk.index not in self._parts

    def add(self, chunk: Chunk) -> bool:
        """Take a chunk; False if it was there.

        Raises:
            MessageError: as `lacks`; nothing is changed.
        """
        if not self.lacks(chunk):
            return False
        self._parts[chunk.index] = chunk.data
        self.n_bytes += len(chunk.data)
        return True

    def payload(self) -> bytes:
        """Return the whole message.

        Raises:
            MessageError: ``malformed``, chunks are missing, or they do not match the manifest: then all of them are
                dropped, because the wrong one is unknown.
        """
        if not self.complete:
            raise MessageError(ReceiptCode.MALFORMED, f"{len(self.missing())} chunks are missing")
        parts: Sequence[bytes] = [self._parts[index] for index in range(self.manifest.n_chunks)]
        whole = b"".join(parts)
        if len(whole) != self.manifest.size or hashlib.sha256(whole).digest() != self.manifest.digest:
            self._parts.clear()
            self.n_bytes = 0
            raise MessageError(ReceiptCode.MALFORMED, "the chunks are not the message that the manifest names")
        return whole

    def _length(self, index: int) -> int:
        """Return how long a chunk is: the last one is the remainder; 0 beyond it."""
        return max(0, min(CHUNK_BYTES, self.manifest.size - index * CHUNK_BYTES))
