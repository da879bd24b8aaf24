"""A device contributes: what it learned becomes an update in the store, which its receipt settles."""

import asyncio
import time
import uuid
from collections.abc import Awaitable, Callable

from edge_client.messaging.session import Session
from edge_client.participation import Participation
from edge_client.store.store import DeviceStore, PendingUpdate
from edge_client.training.trainer import Trainer
from foltr.errors import DataError, FoltrError
from foltr.logs import get_logger
from foltr.protocol.announcements import RoundAnnouncement
from foltr.protocol.receipts import DeviceReaction, ReceiptCode, UpdateReceipt
from foltr.protocol.topics import ClientTopic
from foltr.protocol.updates import ModelUpdate, UpdateBody

log = get_logger(__name__)

Alteration = Callable[[ModelUpdate, RoundAnnouncement], Awaitable[UpdateBody]]
"""An alteration makes, of an honest update and its round, the body that is sent in its place, unchecked.

It is there for experiments, whose attackers are real devices with a changed body (`foltr client run --attack`). It may
take its time: an update whose round or model is gone by then is dropped, and its interactions wait as before."""


class Contributor:
    """Contributes for one device.

    Args:
        alter: see `Alteration`; None, as for every real user: what was learned is what is sent.
        on_change: called when an update was made, or will not be, outside of `contribute`.

    Attributes:
        n_counted: how many distinct updates are known to count.
        quarantined: the federator's operator has excluded this client's updates; what its user clicks waits here.
    """

    def __init__(
        self,
        session: Session,
        store: DeviceStore,
        participation: Participation,
        trainer: Trainer,
        alter: Alteration | None,
        on_change: Callable[[], None],
    ) -> None:
        self._session = session
        self._store = store
        self._participation = participation
        self._trainer = trainer
        self._alter = alter
        self._on_change = on_change
        self._altering: asyncio.Task[None] | None = None
        self.n_counted = 0
        self.quarantined = False

    @property
    def is_altering(self) -> bool:
        """An update was made and is not yet what it will be sent as."""
        return self._altering is not None

    def contribute(self) -> None:
        """Make an update if a round is open and enough was learned."""
        working_model, round_ = self._trainer.working_model, self._participation.round
        if working_model is None or round_ is None or self.is_altering or not self._participation.may_contribute():
            return
        body = self._trainer.body()
        if body is None:
            return
        update = ModelUpdate(
            federation=self._session.federation,
            client_id=self._session.client_id,
            update_id=uuid.uuid4().hex,
            round=round_.round,
            base_version=working_model.base_version,
            n_interactions=len(working_model.interaction_ids),
            body=body,
        )
        ids, local_state = list(working_model.interaction_ids), self._trainer.local_state()
        if self._alter is None:
            self._put(update, ids, local_state)
        else:
            altered = self._put_altered(self._alter(update, round_), update, ids, local_state)
            self._altering = asyncio.create_task(altered, name=f"alter-{update.client_id}")

    def take_receipt(self, receipt: UpdateReceipt) -> None:
        """Take a receipt. If it settles the pending update, there may be a next one."""
        pending = self._participation.pending
        reaction = self._participation.take_update_receipt(receipt, time.monotonic())
        if pending is None or self._participation.pending is not None:
            return
        self._take_note_of_quarantine(receipt)
        try:
            self._store.remove_update(
                pending.update_id,
                keep_interactions=reaction is DeviceReaction.RETRAIN,
                counted=reaction is DeviceReaction.FORGET_UPDATE,
            )
        except DataError as error:
            # Pending on disk, so pending here too: sent again, it is answered again.
            log.error("receipt_not_stored", cause=str(error))  # noqa: TRY400
            self._participation.keep_pending(pending, time.monotonic())
            return
        if reaction is DeviceReaction.FORGET_UPDATE:
            self.n_counted += 1
        elif reaction is DeviceReaction.DISCARD:
            log.error("update_refused", client_id=self._session.client_id, code=receipt.code, detail=receipt.detail)
        if reaction is not DeviceReaction.FORGET_UPDATE:
            self._trainer.take_back()
        self._trainer.catch_up()
        self.contribute()

    async def close(self) -> None:
        """Make nothing more; an error of the alteration that nobody foresaw is raised here."""
        if self._altering is not None:
            self._altering.cancel()
            (outcome,) = await asyncio.gather(self._altering, return_exceptions=True)
            if isinstance(outcome, Exception):
                raise outcome

    def _put(self, update: ModelUpdate, interaction_ids: list[int], local_state: bytes | None) -> None:
        payload = self._session.sign(update, ClientTopic.UPDATES)
        pending = PendingUpdate(update.update_id, update.round, payload, local_state)
        try:
            self._store.put_update(pending, interaction_ids)
        except DataError as error:
            log.error("update_not_stored", cause=str(error))  # noqa: TRY400 (tried again at the next occasion)
            return
        self._participation.contribute(pending, time.monotonic())
        self._on_change()

    def _take_note_of_quarantine(self, receipt: UpdateReceipt) -> None:
        """Say once that it began; each round's update asks whether it goes on."""
        client_id = self._session.client_id
        if receipt.code is ReceiptCode.QUARANTINED:
            if not self.quarantined:
                log.warning("quarantined", client_id=client_id, detail=receipt.detail)
            self.quarantined = True
        elif self.quarantined and receipt.code is ReceiptCode.ACCEPTED:
            log.info("quarantine_lifted", client_id=client_id)
            self.quarantined = False

    async def _put_altered(
        self, altering: Awaitable[UpdateBody], update: ModelUpdate, interaction_ids: list[int], state: bytes | None
    ) -> None:
        try:
            body = await altering
        except FoltrError as error:
            log.error("update_not_altered", client_id=update.client_id, cause=str(error))  # noqa: TRY400
            body = None
        self._altering = None
        round_, working_model = self._participation.round, self._trainer.working_model
        still_wanted = (
            self._participation.may_contribute()
            and (round_ is not None and round_.round == update.round)
            and (working_model is not None and working_model.base_version == update.base_version)
        )
        if body is not None and still_wanted:
            self._put(update.model_copy(update={"body": body}), interaction_ids, state)
        elif not still_wanted:
            log.debug("altered_too_late", client_id=update.client_id, round=update.round)
            self.contribute()
        self._on_change()
