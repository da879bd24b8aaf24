"""The anchor of a device's federation: the older model that the newest one is compared with.

It is retained on a separate topic. A federator started without an anchor leaves its predecessor's message at the
broker, so a device accepts an anchor only under the epoch of the newest round.
"""

import time

from foltr.core.errors import DataError
from foltr.core.logs import get_logger
from foltr.core.protocol.announcements import ModelAnnouncement
from foltr.core.protocol.codec import Envelope
from foltr.core.protocol.fields import model_hash
from foltr.core.protocol.signing import epoch_and_number
from foltr.core.protocol.updates import Chunk, Manifest
from foltr.edge_client.messaging.transfer import ChunkedModel
from foltr.edge_client.participation import Participation
from foltr.edge_client.session import Session
from foltr.edge_client.store.knowledge import AnchorKey
from foltr.edge_client.store.store import DeviceStore

log = get_logger(__name__)


class Anchor:
    """The anchor of one device.

    Args:
        in_parts: collects a large one.

    Attributes:
        key: of the present one, announced under this epoch or an earlier one; None without any.
    """

    def __init__(
        self, session: Session, store: DeviceStore, participation: Participation, in_parts: ChunkedModel
    ) -> None:
        self._session = session
        self._store = store
        self._participation = participation
        self._in_parts = in_parts
        self._model: ModelAnnouncement | None = None
        self._epoch: int | None = None
        self._epoch_of_parts = 0
        self._withdrawn_below = store.withdrawn_below()
        # After a database was restored the anchor may arrive before the round that allows it, like a model.
        self._withheld: tuple[ModelAnnouncement, bytes, int] | None = None
        self.key: AnchorKey | None = None

    @property
    def current(self) -> ModelAnnouncement | None:
        """The anchor, if it is here and the federator that announces the rounds has one."""
        return None if self._epoch is None or self._epoch != self._participation.epoch else self._model

    def restore(self) -> None:
        """Load the stored anchor; it counts once it is announced again."""
        model = self._in_parts.recall(self._store.anchor(), "anchor", self._session.client_id)
        if model is not None:
            self._model, self.key = model, key_of(model)

    def receive(self, envelope: Envelope, payload: bytes) -> None:
        """Take a message on the anchor's topic; ignore another federation's.

        Raises:
            MessageError: it cannot be read.
        """
        epoch = epoch_and_number(envelope.sequence)[0]
        if envelope.kind != Manifest.kind_name:
            self._receive_model(envelope.read(ModelAnnouncement), payload, epoch)
            return
        manifest = envelope.read(Manifest)
        if manifest.federation != self._session.federation:
            return
        self._epoch_of_parts = epoch
        # None until the other one is complete: masked votes do not show which anchor they are about.
        self._epoch = epoch if self._in_parts.knows(manifest) else None
        self._in_parts.receive_manifest(manifest, time.monotonic())

    def receive_chunk(self, chunk: Chunk) -> None:
        """Take a part of the anchor, and use the anchor once it is complete.

        Raises:
            MessageError: the parts do not match the announced model, or it is not from the federator.
        """
        payload = self._in_parts.add_chunk(chunk, time.monotonic())
        if payload is not None:
            whole = self._session.open_reassembled(payload, self._session.topics.anchor)
            self._receive_model(whole.read(ModelAnnouncement), payload, self._epoch_of_parts)

    def withdraw(self, below: int) -> None:
        """Accept no anchor below this version, now or later: it contains updates that were unlearned since.

        The store drops it with the number (`DeviceStore.put_withdrawal`).
        """
        self._withdrawn_below = below
        if self.key is not None and self.key[0] < below:
            self.forget()
        withheld, self._withheld = self._withheld, None
        if withheld is not None:
            self._receive_model(*withheld)

    def drop(self) -> None:
        """Drop the anchor here and in the store."""
        self.forget()
        if self._store.anchor() is None:
            return
        try:
            self._store.drop_anchor()
        except DataError as error:
            log.warning("anchor_not_dropped", cause=str(error))  # not used, and dropped at the next start

    def forget(self) -> None:
        """Drop the anchor here."""
        self._in_parts.forget()
        self._model = self.key = self._epoch = self._withheld = None

    def _receive_model(self, model: ModelAnnouncement, payload: bytes, epoch: int) -> None:
        if model.federation != self._session.federation:
            return
        if model.version < self._withdrawn_below:
            self._withheld = model, payload, epoch
            return
        self._in_parts.know(payload)
        self._epoch, key = epoch, key_of(model)
        if key == self.key and model == self._model:
            return
        self._model, self.key = model, key
        try:
            self._store.put_anchor(key, payload)
        except DataError as error:
            log.warning("anchor_not_stored", cause=str(error))  # in use until the next start


def key_of(model: ModelAnnouncement) -> AnchorKey:
    """Return a model's identity: its version, and the hash of its weights."""
    return model.version, model_hash(model.weights)
