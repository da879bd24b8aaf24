"""A device uses the newest global model that was announced and not withdrawn."""

import time

from foltr.core.errors import DataError
from foltr.core.logs import get_logger
from foltr.core.protocol.announcements import ModelAnnouncement
from foltr.core.protocol.updates import Chunk, Manifest
from foltr.edge_client.contribution import Contributor
from foltr.edge_client.events import ModelInUse, Observer
from foltr.edge_client.messaging.transfer import ChunkedModel
from foltr.edge_client.participation import Participation
from foltr.edge_client.session import Session
from foltr.edge_client.store.store import DeviceStore
from foltr.edge_client.store.store_file import MetaKey

log = get_logger(__name__)


class Models:
    """The global models that reach one device."""

    def __init__(
        self,
        session: Session,
        store: DeviceStore,
        participation: Participation,
        in_parts: ChunkedModel,
        contributor: Contributor,
        on_event: Observer,
    ) -> None:
        self._session = session
        self._store = store
        self._participation = participation
        self._in_parts = in_parts
        self._trainer, self._voter = contributor.trainer, contributor.reports.voter
        self._contributor = contributor
        self._emit = on_event
        # No model below it is used. An early one is kept: after a restore the model may arrive before the round that
        # allows it.
        self._withdrawn_below = store.withdrawn_below()
        self._withheld: tuple[ModelAnnouncement, bytes] | None = None

    def restore(self) -> None:
        """Use the stored model until a newer one arrives."""
        model = self._in_parts.recall(self._store.meta(MetaKey.MODEL), "model", self._session.client_id)
        if model is None:
            return
        self._participation.receive_model(model)
        self._voter.compare_newest(model)
        self._trainer.catch_up()

    def receive_model(self, model: ModelAnnouncement, payload: bytes) -> None:
        """Take a model that ``payload`` announced; ignore another federation's."""
        if model.federation != self._session.federation:
            return
        if model.version < self._withdrawn_below:
            self._withhold(model, payload)
            return
        self._in_parts.know(payload)
        self._use(model, payload)

    def receive_manifest(self, manifest: Manifest) -> None:
        """Begin to collect the parts of a model; ignore another federation's."""
        if manifest.federation == self._session.federation:
            self._in_parts.receive_manifest(manifest, time.monotonic())

    def receive_chunk(self, chunk: Chunk) -> None:
        """Take a part of a model, and use the model once it is complete.

        Raises:
            MessageError: the parts do not match the announced model, or it is not from the federator.
        """
        payload = self._in_parts.add_chunk(chunk, time.monotonic())
        if payload is not None:
            self.receive_model(
                self._session.open_reassembled(payload, self._session.topics.model).read(ModelAnnouncement), payload
            )

    def withdraw_below(self, below: int) -> None:
        """Use no model below this version, now or later: it contains updates that were unlearned since."""
        current = self._participation.model
        in_use = None if current is None or current.version >= below else current.version
        if in_use is None and below == self._withdrawn_below:
            return  # as nearly every round says
        self._withdrawn_below = below
        self._store_withdrawal(below, removes_model=in_use is not None)
        if in_use is not None:
            self._tell_withdrawn(in_use)
            self._drop()
        withheld, self._withheld = self._withheld, None
        if withheld is not None:
            self.receive_model(*withheld)

    def forget(self) -> None:
        """Delete all announced models."""
        self._in_parts.forget()
        self._withheld = None

    def _withhold(self, model: ModelAnnouncement, payload: bytes) -> None:
        """Do not use a withdrawn model; the next round may lift the withdrawal."""
        if self._withheld is None or self._withheld[0] != model:
            self._tell_withdrawn(model.version)
        self._withheld = model, payload

    def _tell_withdrawn(self, version: int) -> None:
        below, client_id = self._withdrawn_below, self._session.client_id
        log.warning("model_withdrawn", client_id=client_id, version=version, below=below)

    def _store_withdrawal(self, below: int, *, removes_model: bool) -> None:
        try:
            self._store.put_withdrawal(below, removes_model=removes_model)
        except DataError as error:
            log.warning("withdrawal_not_stored", cause=str(error))  # after a restart the next round withdraws it again

    def _drop(self) -> None:
        self._participation.drop_model()
        self._voter.compare_newest(None)
        self._trainer.forget()
        self._emit(ModelInUse(None))

    def _use(self, model: ModelAnnouncement, payload: bytes) -> None:
        is_another = self._participation.receive_model(model)
        self._voter.compare_newest(self._participation.model)
        if is_another:
            try:
                self._store.put_model(payload)
            except DataError as error:
                log.warning("model_not_stored", cause=str(error))  # in use until the next start
            self._trainer.catch_up()
            self._contributor.contribute()
            if self._participation.learns_from(model):
                self._emit(ModelInUse(model.version))
