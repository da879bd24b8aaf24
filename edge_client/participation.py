"""What a device does next in its federation, decided without I/O.

The agent tells it what arrived and when; it answers what to send. A join is sent until it is answered, and an
update until it has its receipt, always the same bytes, with growing pauses.
"""

import random
from dataclasses import dataclass
from enum import StrEnum

from edge_client.store import PendingUpdate
from foltr.messages import (
    REACTIONS,
    DeviceReaction,
    MembershipReceipt,
    ModelAnnouncement,
    ReceiptCode,
    RoundAnnouncement,
    UpdateReceipt,
    payload_digest,
)

FIRST_RESEND_S = 5.0
RESEND_LIMIT_S = 120.0
# An answer may be on its way for this long; sending again before is noise.
ANSWER_TIME_S = 2.0


class Outgoing(StrEnum):
    JOIN = "join"
    UPDATE = "update"


@dataclass
class _Resend:
    """When to send something, and again, until it is answered."""

    due_at: float = 0.0
    n_sent: int = 0
    not_before: float = float("-inf")

    def sent(self, now: float, rng: random.Random) -> None:
        pause = min(RESEND_LIMIT_S, FIRST_RESEND_S * 2 ** min(self.n_sent, 16))
        self.due_at = now + pause * rng.uniform(0.75, 1.25)  # a fleet must not resend in step
        self.n_sent += 1
        self.not_before = now + ANSWER_TIME_S

    def bring_forward(self, now: float) -> None:
        self.due_at = min(self.due_at, max(now, self.not_before))


class Participation:
    """One device's view of its federation. ``now`` is monotonic seconds."""

    def __init__(self, pending: PendingUpdate | None, rng: random.Random) -> None:
        self.model: ModelAnnouncement | None = None
        self.round: RoundAnnouncement | None = None
        self.pending = pending
        self.joined = False
        self.left = False
        # The round of the last update that is settled for good: no second update for it is worth sending.
        self._settled_round = 0
        self._rng = rng
        self._join = _Resend()
        self._update = _Resend()

    # --- what arrives ---------------------------------------------------------------------------------------

    def connected(self, now: float) -> None:
        """A new connection: say hello again, and do not wait to resend what is unanswered."""
        self.joined = False
        self._join = _Resend(due_at=now)
        self._update = _Resend(due_at=now)

    def announced_model(self, model: ModelAnnouncement) -> bool:
        """Take a model; False if it is the one we have."""
        if self.model == model:
            return False
        self.model = model
        return True

    def announced_round(self, round_: RoundAnnouncement, now: float) -> None:
        """Take a round. It also says that a federator is there, so what is unanswered may be sent again."""
        self.round = round_
        if not self.joined:
            self._join.bring_forward(now)
        self._update.bring_forward(now)

    def membership_receipt(self, receipt: MembershipReceipt, now: float) -> None:
        if receipt.code is ReceiptCode.JOINED:
            self.joined = True
            if self.pending is not None:
                self._update = _Resend(due_at=now)

    def update_receipt(self, receipt: UpdateReceipt, now: float) -> DeviceReaction | None:
        """What to do with the pending update; None if the receipt is not about it."""
        if self.pending is None:
            return None
        if receipt.update_id is None and receipt.code is not ReceiptCode.BUSY:
            if receipt.payload_digest != payload_digest(self.pending.payload):
                return None
        elif receipt.update_id not in (None, self.pending.update_id):
            return None
        reaction = REACTIONS.get(receipt.code)
        if reaction is DeviceReaction.SEND_AGAIN:
            pause = FIRST_RESEND_S if receipt.retry_after_s is None else receipt.retry_after_s
            self._update.due_at = self._update.not_before = now + pause * self._rng.uniform(1.0, 1.5)
        elif reaction is DeviceReaction.JOIN_AGAIN:
            self.joined = False
            self._join = _Resend(due_at=now)
        elif reaction is not None:
            self._settled_round = self.pending.round
            self.pending = None
        return reaction

    # --- what to do -----------------------------------------------------------------------------------------

    def may_contribute(self) -> bool:
        """Whether an update made now could count: an open round, its base model at hand, none pending."""
        return (
            not self.left
            and self.pending is None
            and self.round is not None
            and self.round.open
            and self.round.round != self._settled_round
            and self.model is not None
            and self.model.version == self.round.base_version
        )

    def contribute(self, update: PendingUpdate, now: float) -> None:
        self.pending = update
        self._update = _Resend(due_at=now)

    def still_pending(self, update: PendingUpdate, now: float) -> None:
        """Its receipt came and could not be stored: ask for it again after a pause."""
        self.pending = update
        self._update = _Resend(due_at=now + FIRST_RESEND_S)

    def due(self, now: float) -> list[Outgoing]:
        """What to send now; each thing named counts as sent."""
        if self.left:
            return []
        outgoing = []
        if not self.joined and self._join.due_at <= now:
            self._join.sent(now, self._rng)
            outgoing.append(Outgoing.JOIN)
        # Before the join is answered an update would only be refused.
        if self.joined and self.pending is not None and self._update.due_at <= now:
            self._update.sent(now, self._rng)
            outgoing.append(Outgoing.UPDATE)
        return outgoing

    def next_due_at(self) -> float:
        """When `due` will next have something, if nothing arrives before."""
        if self.left:
            return float("inf")
        if not self.joined:
            return self._join.due_at
        return float("inf") if self.pending is None else self._update.due_at
