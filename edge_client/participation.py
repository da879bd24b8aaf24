"""A device's participation decides, without I/O, what the device sends next.

A join is sent until it is answered, and an update until it has its receipt, always the same bytes, with growing pauses.
An update too large for one message is offered instead; the federator answers with the chunks it lacks, and as long as
they become fewer there is no pause.
"""

import math
import random
from dataclasses import dataclass
from enum import StrEnum

from foltr.core.protocol.announcements import ModelAnnouncement, RoundAnnouncement, UnlearningRound
from foltr.core.protocol.client_selection import is_selected, round_seed
from foltr.core.protocol.fields import model_hash, payload_digest
from foltr.core.protocol.policies import is_turn_of
from foltr.core.protocol.receipts import DeviceReaction, MembershipReceipt, ReceiptCode, UpdateReceipt
from foltr.core.protocol.signed_policies import SignedPolicy
from foltr.core.protocol.trainings import Training
from foltr.edge_client.store.bounds import PendingUpdate

FIRST_RESEND_S = 5.0
RESEND_LIMIT_S = 120.0
# An answer may be on its way for this long; sending again before is noise.
ANSWER_TIME_S = 2.0
# A whole fleet hears at once of a federator that was started again.
JOIN_SPREAD_S = 1.0


class Objection(StrEnum):
    """Why nothing is sent to a round: it would not keep what the policy promises, or learns from other features."""

    PINNED = "this device was enrolled for a secure federation, and has heard of no policy of its operator"
    BEYOND_LIMITS = "the policy promises less than this device asks for"
    NOT_SECURE = "the federator would see what is sent to it, and this device is under a policy"
    OTHER_POLICY = "it is under another policy than the newest that this device knows"
    NO_POLICY = "it is under a policy, and this device knows none; its operator publishes it, or enrols it anew"
    OTHER_SCHEMA = "it learns from the features of another schema than this device's application has"


class Outgoing(StrEnum):
    JOIN = "join"
    UPDATE = "update"  # or the offer of one that is too large for one message
    CHUNKS = "chunks"  # some of those in `Participation.missing`


@dataclass
class _Resend:
    """A timer of what is sent, and sent again, until it is answered."""

    due_at: float = 0.0
    n_sent: int = 0
    not_before: float = float("-inf")

    def mark_sent(self, now: float, rng: random.Random) -> None:
        pause = min(RESEND_LIMIT_S, FIRST_RESEND_S * 2 ** min(self.n_sent, 16))
        self.due_at = now + pause * rng.uniform(0.75, 1.25)  # a fleet must not resend in step
        self.n_sent += 1
        self.not_before = now + ANSWER_TIME_S

    def bring_forward(self, now: float) -> None:
        self.due_at = min(self.due_at, max(now, self.not_before))


class Participation:
    """One device's view of its federation. ``now`` is monotonic seconds.

    Args:
        schema_hash: of the features of the device's application; None where it has not declared them.
        bar: why nothing is sent to any round, as long as the device's policy, or the lack of one, is what it is.

    Attributes:
        policy: the newest one that the device knows; None: the federator may see what it sends.
        epoch: of the federator that announced the newest round; None before the first.
        is_fresh: the newest round was announced over this connection.
        comes_by: the device is connected for visits only, and has one update counted in each at most.
        rests: it makes none until its next visit: that would be for a round that is over by then, or one too many.
    """

    def __init__(
        self,
        client_id: str,
        pending: PendingUpdate | None,
        rng: random.Random,
        policy: SignedPolicy | None = None,
        schema_hash: bytes | None = None,
        bar: Objection | None = None,
    ) -> None:
        self._client_id = client_id
        self._schema_hash = schema_hash
        self.policy = policy
        self.bar = bar
        self.epoch: int | None = None
        self.is_fresh = self.comes_by = self.rests = False
        self.model: ModelAnnouncement | None = None
        self._model_hash = b""
        self.round: RoundAnnouncement | None = None
        # What is barred stays in the store, where a policy gives it up.
        self.pending = None if bar is not None else pending
        self.joined = False
        self.left = False
        # Chunks of the pending update that the federator lacked when it last said so; empty once some were sent.
        self.missing: list[int] = []
        self._fewest_missing: int | None = None
        # The round of the last update that is settled for good, and when it was opened: no second update for it is
        # worth sending. A round that begins anew has counted nothing, and may be the only one there will be.
        self._settled_round = (0, 0.0)
        self._rng = rng
        self._join = _Resend()
        self._update = _Resend()

    def begin_connection(self, now: float) -> None:
        """Begin a connection: join again, and do not wait to resend what is unanswered."""
        self._join_again(now)
        self._send_update_at(now)

    def receive_model(self, model: ModelAnnouncement) -> bool:
        """Take a model; False if it is the one we have."""
        # By far most are of another version; to compare models field by field takes longer than to read one's number.
        if self.model is not None and self.model.version == model.version and self.model == model:
            return False
        self.model, self._model_hash = model, model_hash(model.weights)
        return True

    def drop_model(self) -> None:
        """Have no model: the one there was is withdrawn."""
        self.model, self._model_hash = None, b""

    def receive_policy(self, policy: SignedPolicy, now: float, bar: Objection | None = None) -> None:
        """Take a newer policy: what was made under another is not sent again, and may count or not.

        So the device asks what counts; at a random moment, since a whole fleet hears a policy at once.
        """
        self.policy, self.bar, self.pending, self.missing = policy, bar, None, []
        self._join_again(now + self._rng.uniform(0.0, JOIN_SPREAD_S))

    def receive_round(self, round_: RoundAnnouncement, now: float) -> None:
        """Take a round. It also says that a federator is there, so what is unanswered may be sent again."""
        self.round = round_
        self.rests &= self.is_fresh
        self.is_fresh = True
        if not self.joined:
            self._join.bring_forward(now)
        self._update.bring_forward(now)

    def hear_epoch(self, epoch: int, now: float) -> None:
        """Join again, after a random moment, where another federator announces than before.

        Its database may be an older one that was restored. The answer has the watermark by which it counts; an update
        from above it would leave out for good what was counted in the meantime.
        """
        if self.epoch is not None and epoch > self.epoch:
            self._join_again(now + self._rng.uniform(0.0, JOIN_SPREAD_S))
        self.epoch = epoch

    def receive_membership_receipt(self, receipt: MembershipReceipt, now: float) -> None:
        if receipt.code is ReceiptCode.JOINED and not self.joined:
            # Another answer to the same join, which was sent twice, is no news.
            self.joined = True
            if self.pending is not None:
                self._send_update_at(now)

    def receive_update_receipt(self, receipt: UpdateReceipt, now: float) -> bool:
        """Do what a receipt asks for; return whether it answers the pending update for good."""
        if self.pending is None or not _is_about(receipt, self.pending):
            return False
        if receipt.code.reaction is DeviceReaction.SEND_AGAIN:
            self._ask_again(receipt, now)
        return receipt.code.reaction is DeviceReaction.SETTLE

    def end_pending(self, *, may_try_again: bool) -> None:
        """Have no pending update. ``may_try_again``: another update for the same round is worth sending."""
        if self.pending is not None and not may_try_again:
            current = self.round if self.round is not None and self.round.round == self.pending.round else None
            # Under a policy each update is paid for, also one that is refused: one a round, however often it begins.
            opened_at = current.opened_at if current is not None and self.policy is None else math.inf
            self._settled_round = (self.pending.round, opened_at)
        self.pending = None

    def forget_rounds(self) -> None:
        """Contribute to rounds of any number: those of a restored database have the numbers of others before them."""
        self._settled_round = (0, 0.0)

    def put_off(self, now: float) -> None:
        """Ask for an answer again after a pause: the one that came could not be stored."""
        if self.pending is not None:
            self._send_update_at(now + FIRST_RESEND_S)

    def _ask_again(self, receipt: UpdateReceipt, now: float) -> None:
        """Send the pending update again when it may help; one of another version waits for its growing pauses."""
        if receipt.code.joins_first:
            self._join_again(now)
        elif receipt.code is ReceiptCode.INCOMPLETE:
            self._send_missing(receipt.missing or [], now)
        elif receipt.code is ReceiptCode.BUSY:
            self._send_again(receipt.retry_after_s, now)

    def _send_again(self, retry_after_s: float | None, now: float) -> None:
        pause = FIRST_RESEND_S if retry_after_s is None else retry_after_s
        self._update.due_at = self._update.not_before = now + pause * self._rng.uniform(1.0, 1.5)
        self.missing = []  # perhaps more by then: it asks again

    def _send_missing(self, missing: list[int], now: float) -> None:
        if self._fewest_missing is None or len(missing) < self._fewest_missing:
            self._update = _Resend(due_at=now)  # it gets through: no reason to hesitate
        self.missing = missing
        self._fewest_missing = len(missing)

    def _join_again(self, now: float) -> None:
        self.joined = False
        self._join = _Resend(due_at=now)

    def forget(self) -> None:
        """Take part in nothing and keep nothing: the client was forgotten."""
        self.left, self.joined = True, False
        self.model = self.round = self.pending = self.policy = None
        self.missing = []

    def may_contribute(self) -> bool:
        """Whether an update made now could count: an open round, its base model at hand, none pending."""
        return (
            not self.left
            and not self.rests
            and self.pending is None
            and self.round is not None
            and self.round.open
            and (self.round.round != self._settled_round[0] or self.round.opened_at > self._settled_round[1])
            and self.model is not None
            and (self.model.version, self._model_hash) == (self.round.base_version, self.round.base_hash)
            and self._is_selected(self.round)
            and self.objection is None
            and self._is_turn(self.round)
        )

    @property
    def objection(self) -> Objection | None:
        """Why nothing is sent to the round, if something speaks against it that is not for chance to decide."""
        if self.round is None:
            return None
        return self.bar or objection_to(self.round, self.policy, self._schema_hash)

    def learns_from(self, announced: ModelAnnouncement | RoundAnnouncement | UnlearningRound) -> bool:
        """Whether what is announced is of the features that this device's application has."""
        return announced.schema_hash == self._schema_hash

    @property
    def other_schema(self) -> ModelAnnouncement | RoundAnnouncement | None:
        """What was announced last of other features than those of this device's application, if anything was."""
        for announced in (self.round, self.model):
            if announced is not None and not self.learns_from(announced):
                return announced
        return None

    @property
    def training(self) -> Training | None:
        """How to learn, by the newest round; under a policy every update has as many interactions as that says."""
        if self.round is None or self.policy is None:
            return None if self.round is None else self.round.training
        n = self.policy.policy.n_interactions
        return self.round.training.model_copy(update={"min_interactions": n, "max_interactions": n})

    def _is_turn(self, round_: RoundAnnouncement) -> bool:
        policy = self.policy
        return policy is None or is_turn_of(policy.hash, policy.policy.period, round_.round, self._client_id)

    def _is_selected(self, round_: RoundAnnouncement) -> bool:
        """Work out whether the round asks this client: its seed follows from the federation's first."""
        selection = round_.selection
        if selection is None:
            return True
        return is_selected(round_seed(selection.first_seed, round_.round), selection.cutoff, self._client_id)

    def contribute(self, update: PendingUpdate, now: float) -> None:
        self.pending = update
        self._send_update_at(now)

    def due(self, now: float) -> list[Outgoing]:
        """Return what to send now; each thing named counts as sent."""
        if self.left:
            return []
        outgoing = []
        if not self.joined and self._join.due_at <= now:
            self._join.mark_sent(now, self._rng)
            outgoing.append(Outgoing.JOIN)
        # Before the join is answered an update would only be refused.
        if self.joined and self.pending is not None and self._update.due_at <= now:
            self._update.mark_sent(now, self._rng)
            if self.missing:
                outgoing.append(Outgoing.CHUNKS)
            else:
                outgoing.append(Outgoing.UPDATE)
                self._fewest_missing = None  # after a pause any answer is news: the federator may be another one
        return outgoing

    def pop_missing(self) -> list[int]:
        """Return the chunks that the federator lacks. Who sends some of them asks again what is missing."""
        missing, self.missing = self.missing, []
        return missing

    def next_due_at(self) -> float:
        """Return when `due` will next have something, if nothing arrives before."""
        if self.left:
            return float("inf")
        if not self.joined:
            return self._join.due_at
        return float("inf") if self.pending is None else self._update.due_at

    def _send_update_at(self, when: float) -> None:
        self._update = _Resend(due_at=when)
        self.missing, self._fewest_missing = [], None


def _is_about(receipt: UpdateReceipt, pending: PendingUpdate) -> bool:
    if receipt.update_id is None:
        # Nobody read the update: its bytes say which it was. Who was busy looked at none.
        return receipt.code is ReceiptCode.BUSY or receipt.payload_digest == payload_digest(pending.payload)
    if receipt.update_id != pending.update_id:
        return False
    if receipt.code.reaction is not DeviceReaction.SETTLE or receipt.payload_digest is None:
        return True
    # The bytes that are refused may be others: recorded, perhaps, before this update was signed again.
    return receipt.payload_digest == payload_digest(pending.payload)


def objection_to(round_: RoundAnnouncement, policy: SignedPolicy | None, schema_hash: bytes | None) -> Objection | None:
    """Return why a device sends nothing to a round; None where it may.

    Args:
        policy: the device's, if it is under one.
        schema_hash: of the features of its application, if that has declared them.
    """
    if policy is None and round_.secure is not None:
        return Objection.NO_POLICY
    if policy is not None and round_.secure is None:
        return Objection.NOT_SECURE
    if policy is not None and round_.secure is not None and round_.secure.policy_hash != policy.hash:
        return Objection.OTHER_POLICY
    return None if round_.schema_hash == schema_hash else Objection.OTHER_SCHEMA
