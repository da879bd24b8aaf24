"""A device contributes: what it learned becomes an update in the store, and a receipt settles it."""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from foltr.core.errors import DataError, FoltrError
from foltr.core.logs import get_logger
from foltr.core.protocol.announcements import RoundAnnouncement
from foltr.core.protocol.evaluations import Evaluation
from foltr.core.protocol.receipts import MembershipReceipt, ReceiptCode, UpdateReceipt
from foltr.core.protocol.topics import ClientTopic
from foltr.core.protocol.updates import MaskedVector, ModelUpdate, UpdateBody, Vote
from foltr.edge_client.evaluator import Evaluator
from foltr.edge_client.participation import Participation
from foltr.edge_client.session import Session
from foltr.edge_client.store.bounds import PendingUpdate, Settlement
from foltr.edge_client.store.ledger import LedgerEntry
from foltr.edge_client.store.store import DeviceStore
from foltr.edge_client.sums.secure_sums import SecureSums
from foltr.edge_client.training.trainer import Trainer, UpdateSources
from foltr.edge_client.votes.voter import Voter

log = get_logger(__name__)

# The update was not a valid message of this federation: one of the two sides has a fault.
_WRONG = (
    ReceiptCode.CLIENT_MISMATCH,
    ReceiptCode.WRONG_FEDERATION,
    ReceiptCode.MALFORMED,
    ReceiptCode.WRONG_SHAPE,
    ReceiptCode.OUT_OF_RANGE,
    ReceiptCode.NOT_FINITE,
    ReceiptCode.TOO_LARGE,
)

Alteration = Callable[[ModelUpdate, RoundAnnouncement], Awaitable[UpdateBody]]
"""An alteration replaces the body of an honest update, unchecked, given the update and its round.

Experiments use it, whose attackers are real devices with a changed body (`foltr attacks run`). If the update's round or
model is gone by then, it is dropped and its interactions wait. Under a policy an unmasked body is masked afterwards.
"""


class _Draft(NamedTuple):
    """An update as learned, not yet altered or masked; without its vote and evaluation.

    Attributes:
        charged: its cost, under a policy.
    """

    update: ModelUpdate
    round: RoundAnnouncement
    learned: UpdateSources
    charged: LedgerEntry | None
    vote: Vote | None
    evaluation: Evaluation | None


class Reports(NamedTuple):
    """What an update reports about the quality of the models, by the user's clicks."""

    voter: Voter
    evaluator: Evaluator


class Contributor:
    """Contributes for one device.

    Args:
        alter: see `Alteration`; None, as for every real user, sends what was learned.
        on_change: called when an update was made, or will not be, outside of `contribute`.

    Attributes:
        n_counted: how many distinct updates the federation said count.
        quarantined: the federator's operator has excluded this client's updates; the user's clicks wait here.
    """

    def __init__(
        self,
        session: Session,
        store: DeviceStore,
        participation: Participation,
        trainer: Trainer,
        sums: SecureSums,
        reports: Reports,
        alter: Alteration | None,
        on_change: Callable[[], None],
    ) -> None:
        self._session = session
        self._store = store
        self._participation = participation
        self.trainer = trainer
        self._sums = sums
        self.reports = reports
        self._alter = alter
        self._on_change = on_change
        self._altering: asyncio.Task[None] | None = None
        self.n_counted = 0
        self.quarantined = False

    @property
    def is_altering(self) -> bool:
        """An update was learned and is still being altered."""
        return self._altering is not None

    @property
    def waits_to_join(self) -> bool:
        """Enough was learned for an update, but the federation has not yet reported the watermark."""
        return self._store.watermark() is None and self.trainer.has_enough and self._participation.may_contribute()

    def contribute(self) -> None:
        """Make an update if a round is open and enough was learned."""
        round_, watermark = self._participation.round, self._store.watermark()
        if round_ is None or self.is_altering or not self._participation.may_contribute():
            return
        if watermark is None or not self.trainer.has_enough:
            return  # the answer to the join brings the watermark
        draft = self._draft(round_, watermark)
        if draft is None:
            return
        if self._alter is None:
            self._put(draft)
        else:
            altered = self._put_altered(self._alter(draft.update, round_), draft)
            self._altering = asyncio.create_task(altered, name=f"alter-{draft.update.client_id}")

    def _draft(self, round_: RoundAnnouncement, watermark: int) -> _Draft | None:
        learned, charged, body = self.trainer.learned(), None, self.trainer.body()
        through, n = learned.interaction_ids[-1], len(learned.interaction_ids)
        model = self._participation.model
        if self._participation.policy is not None and model is not None:
            charged = self._sums.next_participation(round_, model)
            if charged is None:
                return None
            # The federator takes what is above its watermark; the ledger may be ahead of that, or behind.
            through, n = max(charged.number, watermark + 1), 1
            if body is None:
                body = self._sums.nothing_learned()
        if body is None:
            return None
        update = ModelUpdate(
            federation=self._session.federation,
            client_id=self._session.client_id,
            update_id=secrets.token_hex(16),
            round=round_.round,
            base_version=round_.base_version,
            after=watermark,
            through=through,
            base_hash=round_.base_hash,
            n_interactions=n,
            body=body,
        )
        evaluation = self.reports.evaluator.evaluation_of(learned.interaction_ids)
        return _Draft(update, round_, learned, charged, self.reports.voter.vote(), evaluation)

    def receive_receipt(self, receipt: UpdateReceipt) -> None:
        """Settle an update by its receipt, and make the next update if possible."""
        self._note_quarantine(receipt)
        if self._store.watermark() is None:
            return  # of a store that was lost since; the answer to the join brings the watermark
        pending = self._participation.pending
        is_answered = self._participation.receive_update_receipt(receipt, time.monotonic())
        if pending is None or not is_answered:
            self._settle(receipt.counted_through)
        else:
            self._settle(receipt.counted_through, pending.update_id, receipt)

    def receive_membership_receipt(self, receipt: MembershipReceipt) -> bool:
        """Settle by an answer to a message of this session; return whether it could be stored.

        A new store gets its first watermark by joining.
        """
        if receipt.code is ReceiptCode.JOINED or self._store.watermark() is not None:
            return self._settle(receipt.counted_through)
        return True

    def _settle(self, watermark: int | None, answered: str | None = None, receipt: UpdateReceipt | None = None) -> bool:
        """Settle by the watermark in any answer; return whether it could be stored.

        Args:
            watermark: None if the federation knows no client of this name: the known one stays.
            answered: the pending update that ``receipt`` answers for good.
        """
        watermark = self._store.watermark() if watermark is None else watermark
        if watermark is None:
            return True
        try:
            settlement = self._store.settle(
                watermark, answered, self._participation.settled_with_pending(may_try_again=_was_undecided(receipt))
            )
        except DataError as error:
            # Still pending on disk, so pending here too: it is sent and answered again.
            log.error("receipt_not_stored", cause=str(error))  # noqa: TRY400
            self._participation.retry_later(time.monotonic())
            return False
        if settlement.changed:
            self._follow(settlement, receipt)
        return True

    def _follow(self, settlement: Settlement, receipt: UpdateReceipt | None) -> None:
        """Adapt to a change in the store: a new watermark, or no pending update."""
        self._log_settlement(settlement, receipt)
        if settlement.counted or settlement.given_up:
            self._participation.end_pending(may_try_again=_was_undecided(receipt))
        self._participation.rests |= self._participation.comes_by and settlement.counted > 0
        if settlement.lost:
            self._participation.forget_rounds()
        self.n_counted += settlement.counted
        if settlement.taken_back:
            self.trainer.start_over()
        self.trainer.catch_up()
        self.contribute()

    def _log_settlement(self, settlement: Settlement, receipt: UpdateReceipt | None) -> None:
        """Log what the person who runs the device, or the federation, should look at."""
        client_id = self._session.client_id
        if settlement.lost:
            log.warning(
                "federation_updates_lost",
                client_id=client_id,
                federation=self._session.federation,
                watermark_before=settlement.watermark_before,
                watermark=settlement.watermark,
                hint="its database was restored or replaced; the device sends its kept clicks again",
            )
        if settlement.given_up and receipt is not None and receipt.code in _WRONG:
            log.error("update_refused", client_id=client_id, code=receipt.code, detail=receipt.detail)

    async def close(self) -> None:
        """Stop making updates; raise an unexpected error of the alteration."""
        if self._altering is not None:
            self._altering.cancel()
            (outcome,) = await asyncio.gather(self._altering, return_exceptions=True)
            if isinstance(outcome, Exception):
                raise outcome

    def _put(self, draft: _Draft) -> None:
        update, learned = draft.update, draft.learned
        if draft.charged is None:
            if draft.vote is not None or draft.evaluation is not None:
                update = update.model_copy(update={"vote": draft.vote, "evaluation": draft.evaluation})
        elif not isinstance(update.body, MaskedVector):
            update = self._sums.mask(update, draft.charged.number, draft.vote, draft.evaluation, draft.round)
        payload = self._session.sign(update, ClientTopic.UPDATES)
        pending = PendingUpdate(
            update.update_id, update.round, update.after, update.through, payload, learned.local_state
        )
        try:
            self._store.put_update(
                pending, learned.interaction_ids, spent=learned.spent_when_sent, charged=draft.charged
            )
        except DataError as error:
            log.error("update_not_stored", cause=str(error))  # noqa: TRY400 (tried again at the next occasion)
            return
        self._participation.contribute(pending, time.monotonic())
        self._on_change()

    def _note_quarantine(self, receipt: UpdateReceipt) -> None:
        """Log once when it begins; the answer to each round's update shows whether it continues."""
        client_id = self._session.client_id
        if receipt.code is ReceiptCode.QUARANTINED:
            if not self.quarantined:
                log.warning("quarantined", client_id=client_id, detail=receipt.detail)
            self.quarantined = True
        elif self.quarantined and receipt.code is ReceiptCode.ACCEPTED:
            log.info("quarantine_lifted", client_id=client_id)
            self.quarantined = False

    async def _put_altered(self, altering: Awaitable[UpdateBody], draft: _Draft) -> None:
        update = draft.update
        try:
            body = await altering
        except FoltrError as error:
            log.error("update_not_altered", client_id=update.client_id, cause=str(error))  # noqa: TRY400
            body = None
        self._altering = None
        round_ = self._participation.round
        still_wanted = (
            self._participation.may_contribute()
            and (round_ is not None and round_.round == update.round)
            and (round_.base_version, round_.base_hash) == (update.base_version, update.base_hash)
            and self._store.watermark() == update.after
        )
        if body is not None and still_wanted:
            self._put(draft._replace(update=update.model_copy(update={"body": body})))
        elif not still_wanted:
            log.debug("altered_update_dropped", client_id=update.client_id, round=update.round)
            self.contribute()
        self._on_change()


def _was_undecided(receipt: UpdateReceipt | None) -> bool:
    """Return whether the round did not decide on the update, which began elsewhere than at the watermark."""
    return receipt is not None and receipt.code is ReceiptCode.OVERLAPS
