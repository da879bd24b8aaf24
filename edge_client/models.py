"""A device uses the newest global model that was announced, unless its guard refuses it."""

import time

import numpy as np
import numpy.typing as npt

from foltr.core.errors import DataError
from foltr.core.logs import get_logger
from foltr.core.protocol.announcements import ModelAnnouncement
from foltr.core.protocol.updates import Chunk, Manifest
from foltr.edge_client.contribution import Contributor
from foltr.edge_client.events import ModelInUse, Observer
from foltr.edge_client.guard.guard import Guard
from foltr.edge_client.messaging.transfer import ModelInParts
from foltr.edge_client.participation import Participation
from foltr.edge_client.serps import Serp
from foltr.edge_client.session import Session
from foltr.edge_client.store.interaction_rows import Within
from foltr.edge_client.store.store import DeviceStore
from foltr.edge_client.store.store_file import Kept

log = get_logger(__name__)


class Models:
    """The models of one device's federation, as they come.

    Attributes:
        guard: None where every model is used.
    """

    def __init__(
        self,
        session: Session,
        store: DeviceStore,
        participation: Participation,
        in_parts: ModelInParts,
        contributor: Contributor,
        guard: Guard | None,
        on_event: Observer,
    ) -> None:
        self._session = session
        self._store = store
        self._participation = participation
        self._in_parts = in_parts
        self._trainer, self._voter = contributor.trainer, contributor.reports.voter
        self._contributor = contributor
        self.guard = guard
        self._tell = on_event
        # No model below it is used. One that came too early is kept for when it may be:
        # of a federation whose database was restored the model may come before the round that says so.
        self._withdrawn_below = store.withdrawn_below()
        self._withheld: tuple[ModelAnnouncement, bytes] | None = None

    def at_hand(self) -> set[int]:
        """Return the versions whose rounds this device can search in; none before the first model."""
        # A refused one is as good as at hand: users search on, and what they click waits.
        refused = None if self.guard is None else self.guard.refused
        return {one.version for one in (self._participation.model, refused) if one is not None}

    def restore(self) -> None:
        """Use the model that the store has from before, until a newer one comes."""
        model = self._in_parts.recall(self._store.kept(Kept.MODEL), "model", self._session.client_id)
        if model is None:
            return
        self._participation.receive_model(model)
        self._voter.compare_newest(model)
        self._trainer.catch_up()

    def receive_model(self, model: ModelAnnouncement, payload: bytes) -> None:
        """Take a model that ``payload`` announced; another federation's is passed over."""
        if model.federation != self._session.federation:
            return
        if model.version < self._withdrawn_below:
            self._withhold(model, payload)
            return
        self._in_parts.know(payload)
        if self.guard is not None and not self._admits(self.guard, model, payload):
            self._participation.refuse_model(model)
            self._voter.compare_newest(self.guard.refused)
            self._contributor.contribute()
            return
        self._use(model, payload)

    def _admits(self, guard: Guard, model: ModelAnnouncement, payload: bytes) -> bool:
        """Whether the guard does; it scores lists, and no message is to wait for kernels."""
        if not self._participation.learns_from(model):
            return True
        with self._trainer.form():
            return guard.admits(model, payload, self._participation.model, self._trainer.weights_under)

    def receive_manifest(self, manifest: Manifest) -> None:
        """Begin to collect the parts of a model; another federation's is passed over."""
        if manifest.federation == self._session.federation:
            self._in_parts.receive_manifest(manifest, time.monotonic())

    def receive_chunk(self, chunk: Chunk) -> None:
        """Take a part of a model, and the model once it is whole.

        Raises:
            MessageError: the parts are not the model that was announced, or it is not from the federator.
        """
        payload = self._in_parts.add_chunk(chunk, time.monotonic())
        if payload is not None:
            self.receive_model(
                self._session.open_whole(payload, self._session.topics.model).read(ModelAnnouncement), payload
            )

    def withdraw_below(self, below: int) -> None:
        """Use no model below this version, guard or not, also none that comes later: it holds what was unlearned since.

        Where the guard has refused a newer one, that one is used; else none is, until one comes.
        """
        current = self._participation.model
        in_use = None if current is None or current.version >= below else current.version
        if in_use is None and below == self._withdrawn_below:
            return  # as nearly every round says
        self._withdrawn_below = below
        self._store_withdrawal(below, removes_model=in_use is not None)
        stands_in = None if self.guard is None else self.guard.withdraw(below, in_use)
        if in_use is not None:
            self._tell_withdrawn(in_use)
            if stands_in is None:
                self._drop()
            else:
                self._use(*stands_in)
        withheld, self._withheld = self._withheld, None
        if withheld is not None:
            self.receive_model(*withheld)

    def hold_back(self, serp: Serp, clicks: npt.NDArray[np.bool_], within: Within | None = None) -> bool:
        """Have the guard hold a list back, or not; not while the features that it has are not the federation's.

        ``within`` is run in the transaction that keeps it, if it is held back.
        """
        if self.guard is None or self._participation.other_schema is not None:
            return False
        return self.guard.hold_back(serp, clicks, within)

    def judge_again(self) -> bool:
        """Judge a refused model again, by one more list; return whether there is such a model."""
        if self.guard is None or self.guard.refused is None:
            return False
        self.receive_model(self.guard.refused, self.guard.refused_payload)
        return True

    def forget(self) -> None:
        """Keep nothing that was announced, nor what it is judged by."""
        self._in_parts.forget()
        self.guard = self._withheld = None

    def _withhold(self, model: ModelAnnouncement, payload: bytes) -> None:
        """Neither use nor judge a withdrawn model; perhaps the next round says that it is none any more."""
        if self._withheld is None or self._withheld[0] != model:
            self._tell_withdrawn(model.version)
        self._withheld = model, payload
        if self.guard is not None:
            self.guard.note_withdrawn(model.version)

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
        self._tell(ModelInUse(None))

    def _use(self, model: ModelAnnouncement, payload: bytes) -> None:
        is_another = self._participation.receive_model(model)
        self._voter.compare_newest(self._participation.model)
        if is_another:
            try:
                self._store.put_model(payload)
            except DataError as error:
                log.warning("model_not_stored", cause=str(error))  # it serves until the next start
            self._trainer.catch_up()
            self._contributor.contribute()
            if self._participation.learns_from(model):
                self._tell(ModelInUse(model.version))
