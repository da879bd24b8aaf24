"""A device sends an update in parts and collects a model in parts, if one message is too small. No I/O.

Both can resume. The federator asks for an update's chunks, which are sent a few at a time. The broker
retains a model's chunks, and delivers them to subscribers at every connection. So the device subscribes only to chunks
it lacks, of a model that a manifest names and that it does not have.
"""

import hashlib
from collections.abc import Callable, Sequence

from foltr.core.errors import MessageError
from foltr.core.logs import get_logger
from foltr.core.protocol.announcements import ModelAnnouncement
from foltr.core.protocol.chunks import Assembly, chunk_of, manifest_of
from foltr.core.protocol.codec import open_envelope
from foltr.core.protocol.fields import MAX_CHUNKED_BYTES, Message, payload_digest
from foltr.core.protocol.receipts import UpdateReceipt
from foltr.core.protocol.updates import Chunk, Manifest
from foltr.edge_client.store.bounds import PendingUpdate

log = get_logger(__name__)

# How many chunks are sent before asking the federator what it lacks; it can always accept these.
WINDOW = 4
# After so long without a chunk the device stops waiting for a model, until it is announced again.
MODEL_PATIENCE_S = 30.0


class ChunkedUpdate:
    """An update that is offered by its manifest.

    Args:
        sign: makes a message for the device's ``chunks`` topic.
    """

    def __init__(
        self, update: PendingUpdate, federation: str, client_id: str, sign: Callable[[Message], bytes]
    ) -> None:
        self.update_id = update.update_id
        self._payload = update.payload
        self._sign = sign
        self._manifest = manifest_of(update.payload, federation, client_id)
        self.offer = sign(self._manifest)

    def chunk(self, index: int) -> bytes:
        return self._sign(chunk_of(self._manifest, self._payload, index))

    def existing(self, indices: Sequence[int]) -> list[int]:
        """Return which of ``indices`` are chunks of this update: a receipt may ask for anything."""
        return [index for index in indices if index < self._manifest.n_chunks]

    def as_about_update(self, receipt: UpdateReceipt) -> UpdateReceipt:
        """Return a refusal of the offer as one of the update; it names the offer if the federator could not read it."""
        if receipt.update_id is None and receipt.payload_digest == payload_digest(self.offer):
            return receipt.model_copy(update={"payload_digest": self._manifest.digest[:16]})
        return receipt


class ChunkedModel:
    """The newest model, if it comes in chunks. ``now`` is monotonic seconds.

    Attributes:
        collecting: waiting for chunks; False if the device has the model, or nothing came for long. Chunks so far are
            kept, and the next announcement resumes.
        to_subscribe: the chunks to ask the broker for; None: nothing new to ask.
    """

    def __init__(self) -> None:
        self._assembly: Assembly | None = None
        self.collecting = False
        self._newest_at = 0.0
        self._known = b""
        self.to_subscribe: list[int] | None = None

    def recall(self, stored: bytes | None, what: str, client_id: str) -> ModelAnnouncement | None:
        """Load a stored model and mark it as known; None if nothing is stored, or it cannot be read.

        Args:
            what: "model" or "anchor" in log lines.
        """
        if stored is None:
            return None
        try:
            model = open_envelope(stored, MAX_CHUNKED_BYTES).read(ModelAnnouncement)
        except MessageError as error:
            log.warning("stored_model_not_understood", what=what, client_id=client_id, cause=str(error))
            return None
        self.know(stored)
        return model

    def know(self, payload: bytes) -> None:
        """Note that the device has this model, so it need not come again."""
        self._known = hashlib.sha256(payload).digest()
        self._stop()

    def knows(self, manifest: Manifest) -> bool:
        """Whether the device has the model that this manifest stands for."""
        return manifest.digest == self._known

    def forget(self) -> None:
        """Forget the model it has and the chunks of another."""
        self._known = b""
        self._stop()

    def receive_manifest(self, manifest: Manifest, now: float) -> None:
        """Begin or resume collecting the model; does nothing if the device has it."""
        if self.knows(manifest):
            self._stop()
            return
        if self._assembly is None or self._assembly.manifest != manifest:
            self._assembly = Assembly(manifest)
        missing = self._assembly.missing()
        self.collecting, self._newest_at = bool(missing), now
        self.to_subscribe = missing or None

    def add_chunk(self, chunk: Chunk, now: float) -> bytes | None:
        """Take a chunk; return the whole model once complete. Chunks of another model are ignored.

        Raises:
            MessageError: ``malformed``; if the chunks do not match the manifest, collecting begins again.
        """
        assembly = self._assembly
        if not self.collecting or assembly is None or chunk.digest != assembly.manifest.digest:
            return None
        if assembly.add(chunk):
            self._newest_at = now
        if not assembly.complete:
            return None
        self.collecting = False  # if it is not trusted, do not ask for its chunks again
        return assembly.payload()

    def _stop(self) -> None:
        self._assembly, self.collecting, self.to_subscribe = None, False, None

    def gives_up_at(self) -> float:
        return self._newest_at + MODEL_PATIENCE_S if self.collecting else float("inf")

    def give_up(self, now: float) -> None:
        """Stop waiting if nothing has come for long. Chunks so far are kept for the next announcement."""
        if self._assembly is not None and now >= self.gives_up_at():
            log.warning(
                "model_incomplete", n_missing=len(self._assembly.missing()), n_chunks=self._assembly.manifest.n_chunks
            )
            self.collecting, self.to_subscribe = False, None
