"""A device's participation decides, without I/O, what the device sends next.

A join is sent until it is answered, and an update until it has its receipt: always the same bytes, with growing pauses.
An update too large for one message is offered instead; the federator answers with the chunks it lacks. It does not
pause while these decrease.
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
from foltr.edge_client.store.bounds import PendingUpdate, SettledRound

FIRST_RESEND_S = 5.0
RESEND_LIMIT_S = 120.0
# An answer may take this long; sending again earlier is useless.
ANSWER_TIME_S = 2.0
# A whole fleet notices at once when a federator restarts.
JOIN_SPREAD_S = 1.0


class Objection(StrEnum):
    """Why nothing is sent to a round: it would break the policy's promise, or learns from other features."""

    PINNED = "this device was enrolled for a secure federation, but has no policy of its operator"
    BEYOND_LIMITS = "the policy promises less than this device asks for"
    CANNOT_MASK = "this device lacks the software that masks updates"
    NOT_SECURE = "the federator would see the updates of this device, which is under a policy"
    OTHER_POLICY = "the round has another policy than the newest that this device knows"
    NO_POLICY = (
        "the round has a policy, but this device has none; its operator must publish it, or enrol the device again"
    )
    OTHER_SCHEMA = "the round uses another feature schema than this application"


class Outgoing(StrEnum):
    JOIN = "join"
    UPDATE = "update"  # or the offer of an update that is too large for one message
    CHUNKS = "chunks"  # some of those in `Participation.missing`


@dataclass
class _Resend:
    """A timer for a message that is sent again until it is answered."""

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
        schema_hash: of the features of the device's application; None if it has not declared them.
        policy_objection: why nothing is sent to any round, while the device's policy, or its absence, does not change.
        settled: the round of the last settled update, from the store.

    Attributes:
        policy: the newest known one; None: the federator may see what the device sends.
        epoch: of the federator that announced the newest round; None before the first.
        gone_back_from: the highest round that a lower one followed, because a database was restored; 0 if none.
        is_fresh: the newest round was announced over this connection.
        comes_by: the device connects only for visits, and has at most one update counted in each.
        rests: it makes no update until its next visit: that would come too late for its round, or be one too many.
    """

    def __init__(
        self,
        client_id: str,
        pending: PendingUpdate | None,
        rng: random.Random,
        policy: SignedPolicy | None = None,
        schema_hash: bytes | None = None,
        policy_objection: Objection | None = None,
        settled: SettledRound = SettledRound(),  # noqa: B008 (frozen)
    ) -> None:
        self._client_id = client_id
        self._schema_hash = schema_hash
        self.policy = policy
        self.policy_objection = policy_objection
        self.epoch: int | None = None
        self.gone_back_from = 0
        self.is_fresh = self.comes_by = self.rests = False
        self.model: ModelAnnouncement | None = None
        self._model_hash = b""
        self.round: RoundAnnouncement | None = None
        # A barred update stays in the store until a policy discards it.
        self.pending = None if policy_objection is not None else pending
        self.joined = False
        self.left = False
        # Chunks of the pending update that the federator last said it lacks; empty once some were sent.
        self.missing: list[int] = []
        self._fewest_missing: int | None = None
        self._settled = settled
        self._rng = rng
        self._join = _Resend()
        self._update = _Resend()

    def begin_connection(self, now: float) -> None:
        """Begin a connection: join again, and resend unanswered messages at once."""
        self._join_again(now)
        self._send_update_at(now)

    def receive_model(self, model: ModelAnnouncement) -> bool:
        """Take a model; False if it is the present one."""
        # Most have another version; comparing models field by field takes longer than reading the version.
        if self.model is not None and self.model.version == model.version and self.model == model:
            return False
        self.model, self._model_hash = model, model_hash(model.weights)
        return True

    def drop_model(self) -> None:
        """Drop the model: it was withdrawn."""
        self.model, self._model_hash = None, b""

    def receive_policy(self, policy: SignedPolicy, now: float, policy_objection: Objection | None = None) -> None:
        """Take a newer policy: updates made under another one are not sent again, and may or may not count.

        So the device joins again to ask what counts; after a random delay, since a whole fleet gets a policy at once.
        """
        self.policy, self.policy_objection, self.pending, self.missing = policy, policy_objection, None, []
        self._join_again(now + self._rng.uniform(0.0, JOIN_SPREAD_S))

    def receive_round(self, round_: RoundAnnouncement, now: float) -> None:
        """Take a round. It also shows that a federator is online, so unanswered messages may be sent again."""
        if self.round is not None and round_.round < self.round.round:
            self.gone_back_from = max(self.gone_back_from, self.round.round)
        self.round = round_
        self.rests &= self.is_fresh
        self.is_fresh = True
        if not self.joined:
            self._join.bring_forward(now)
        self._update.bring_forward(now)

    def note_epoch(self, epoch: int, now: float) -> None:
        """Join again, after a random delay, when another federator announces.

        Its database may be restored from an older backup. The answer has its watermark; an update from above that would
        leave out for good what was counted in the meantime.
        """
        if self.epoch is not None and epoch > self.epoch:
            self._join_again(now + self._rng.uniform(0.0, JOIN_SPREAD_S))
        self.epoch = epoch

    def receive_membership_receipt(self, receipt: MembershipReceipt, now: float) -> None:
        if receipt.code is ReceiptCode.JOINED and not self.joined:
            # A second answer to the same join changes nothing.
            self.joined = True
            if self.pending is not None:
                self._send_update_at(now)

    def receive_update_receipt(self, receipt: UpdateReceipt, now: float) -> bool:
        """Act on a receipt; return whether it answers the pending update for good."""
        if self.pending is None or not _is_about(receipt, self.pending):
            return False
        if receipt.code.reaction is DeviceReaction.SEND_AGAIN:
            self._ask_again(receipt, now)
        return receipt.code.reaction is DeviceReaction.SETTLE

    def end_pending(self, *, may_try_again: bool) -> None:
        """Drop the pending update. ``may_try_again``: another update for the same round makes sense."""
        self._settled = self.settled_with_pending(may_try_again=may_try_again) or self._settled
        self.pending = None

    def settled_with_pending(self, *, may_try_again: bool) -> SettledRound | None:
        """Return the round that is settled once the pending update is dropped; None as `end_pending` says."""
        if self.pending is None or may_try_again:
            return None
        current = self.round if self.round is not None and self.round.round == self.pending.round else None
        # Under a policy each update is charged, even a refused one: one a round, however often the round begins.
        opened_at = current.opened_at if current is not None and self.policy is None else math.inf
        return SettledRound(self.pending.round, opened_at)

    def forget_rounds(self) -> None:
        """Allow rounds of any number: a restored database reuses the numbers of earlier rounds."""
        self._settled = SettledRound()

    def retry_later(self, now: float) -> None:
        """Ask for an answer again after a pause: the one that came could not be stored."""
        if self.pending is not None:
            self._send_update_at(now + FIRST_RESEND_S)

    def _ask_again(self, receipt: UpdateReceipt, now: float) -> None:
        """Send the pending update again if that may help; one of another version waits for its growing pauses."""
        if receipt.code.joins_first:
            self._join_again(now)
        elif receipt.code is ReceiptCode.INCOMPLETE:
            self._send_missing(receipt.missing or [], now)
        elif receipt.code is ReceiptCode.BUSY:
            self._send_again(receipt.retry_after_s, now)

    def _send_again(self, retry_after_s: float | None, now: float) -> None:
        pause = FIRST_RESEND_S if retry_after_s is None else retry_after_s
        self._update.due_at = self._update.not_before = now + pause * self._rng.uniform(1.0, 1.5)
        self.missing = []  # may be more by then: it asks again

    def _send_missing(self, missing: list[int], now: float) -> None:
        if self._fewest_missing is None or len(missing) < self._fewest_missing:
            self._update = _Resend(due_at=now)  # it gets through, so no pause
        self.missing = missing
        self._fewest_missing = len(missing)

    def _join_again(self, now: float) -> None:
        self.joined = False
        self._join = _Resend(due_at=now)

    def forget(self) -> None:
        """Stop taking part: the client was forgotten."""
        self.left, self.joined = True, False
        self.model = self.round = self.pending = self.policy = None
        self.missing = []

    def may_contribute(self) -> bool:
        """Whether an update made now could count: an open round, its base model here, none pending."""
        return (
            not self.left
            and not self.rests
            and self.pending is None
            and self.round is not None
            and self.round.open
            and (self.round.round != self._settled.round or self.round.opened_at > self._settled.opened_at)
            and self.model is not None
            and (self.model.version, self._model_hash) == (self.round.base_version, self.round.base_hash)
            and self._is_selected(self.round)
            and self.objection is None
            and self._is_turn(self.round)
        )

    @property
    def is_informed(self) -> bool:
        """Whether the federation has said what it takes from this device now: it has joined, and knows the round."""
        return self.joined and self.is_fresh

    @property
    def objection(self) -> Objection | None:
        """Why nothing is sent to the round, apart from random selection; None if nothing speaks against it."""
        if self.round is None:
            return None
        return self.policy_objection or objection_to(self.round, self.policy, self._schema_hash)

    def learns_from(self, announced: ModelAnnouncement | RoundAnnouncement | UnlearningRound) -> bool:
        """Whether the announced round uses the features of this device's application."""
        return announced.schema_hash == self._schema_hash

    @property
    def other_schema(self) -> ModelAnnouncement | RoundAnnouncement | None:
        """The last announcement with features other than those of this device's application, if any."""
        for announced in (self.round, self.model):
            if announced is not None and not self.learns_from(announced):
                return announced
        return None

    @property
    def training(self) -> Training | None:
        """The newest round's training settings; under a policy every update has as many interactions as it says."""
        if self.round is None or self.policy is None:
            return None if self.round is None else self.round.training
        n = self.policy.policy.n_interactions
        return self.round.training.model_copy(update={"min_interactions": n, "max_interactions": n})

    def _is_turn(self, round_: RoundAnnouncement) -> bool:
        policy = self.policy
        return policy is None or is_turn_of(policy.hash, policy.policy.period, round_.round, self._client_id)

    def _is_selected(self, round_: RoundAnnouncement) -> bool:
        """Whether the round selects this client; its seed follows from the federation's first."""
        selection = round_.selection
        if selection is None:
            return True
        return is_selected(round_seed(selection.first_seed, round_.round), selection.cutoff, self._client_id)

    def contribute(self, update: PendingUpdate, now: float) -> None:
        self.pending = update
        self._send_update_at(now)

    def due(self, now: float) -> list[Outgoing]:
        """Return what to send now; everything returned counts as sent."""
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
                self._fewest_missing = None  # any answer then counts as progress: the federator may be new
        return outgoing

    def pop_missing(self) -> list[int]:
        """Return and clear the chunks that the federator lacks; after sending some, ask again what is missing."""
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
        # The federator did not read the update: its bytes identify it. A busy one read nothing.
        return receipt.code is ReceiptCode.BUSY or receipt.payload_digest == payload_digest(pending.payload)
    if receipt.update_id != pending.update_id:
        return False
    if receipt.code.reaction is not DeviceReaction.SETTLE or receipt.payload_digest is None:
        return True
    # The refused bytes may be others, e.g. recorded before this update was signed again.
    return receipt.payload_digest == payload_digest(pending.payload)


def objection_to(round_: RoundAnnouncement, policy: SignedPolicy | None, schema_hash: bytes | None) -> Objection | None:
    """Return why a device sends nothing to a round; None if it may.

    Args:
        policy: the device's, if it is under one.
        schema_hash: of the features of its application, if declared.
    """
    if policy is None and round_.secure is not None:
        return Objection.NO_POLICY
    if policy is not None and round_.secure is None:
        return Objection.NOT_SECURE
    if policy is not None and round_.secure is not None and round_.secure.policy_hash != policy.hash:
        return Objection.OTHER_POLICY
    return None if round_.schema_hash == schema_hash else Objection.OTHER_SCHEMA
