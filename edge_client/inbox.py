"""A device's inbox gives each message that the network brings to the part of the device that it is for."""

import time
from collections.abc import Callable

from broker.link import InboundMessage
from edge_client.audit_watch import AuditWatch
from edge_client.contribution import Contributor
from edge_client.evaluator import Evaluator
from edge_client.events import Observer, UpdateAnswered
from edge_client.features import Features
from edge_client.federator_watch import FederatorWatch
from edge_client.forgetting import ERASED, Forgetting
from edge_client.membership import Membership
from edge_client.messaging.outbox import Outbox
from edge_client.messaging.session import Session
from edge_client.models import Models
from edge_client.objections import Objection
from edge_client.participation import Participation
from edge_client.sums.pinned_policy import PinnedPolicy
from edge_client.training.relearning import Relearning
from edge_client.training.trainer import Trainer
from edge_client.visits import Visits
from edge_client.votes.voter import Voter
from foltr.logs import get_logger
from foltr.protocol.announcements import ModelAnnouncement, RoundAnnouncement, UnlearningRound
from foltr.protocol.audit_heads import AuditHead
from foltr.protocol.codec import Envelope
from foltr.protocol.heartbeat import FederatorStatus
from foltr.protocol.receipts import ErasureNotice, MembershipReceipt, ReceiptCode, UpdateReceipt
from foltr.protocol.signing import epoch_and_number
from foltr.protocol.topics import ClientTopic
from foltr.protocol.updates import Chunk, Manifest

log = get_logger(__name__)


class Inbox:
    """Takes what arrives for one device.

    Args:
        on_erased: called when the federation says that it has erased this client.

    Attributes:
        receipts: how often each code of an update's receipt came.
    """

    def __init__(
        self,
        session: Session,
        outbox: Outbox,
        participation: Participation,
        policy: PinnedPolicy,
        features: Features,
        membership: Membership,
        forgetting: Forgetting,
        models: Models,
        voter: Voter,
        evaluator: Evaluator,
        trainer: Trainer,
        contributor: Contributor,
        relearning: Relearning,
        watch: FederatorWatch,
        audit: AuditWatch,
        visits: Visits,
        on_erased: Callable[[], None],
        on_event: Observer,
    ) -> None:
        self._session = session
        self._outbox = outbox
        self._participation = participation
        self._policy = policy
        self._features = features
        self._membership = membership
        self._forgetting = forgetting
        self._models = models
        self._voter = voter
        self._evaluator = evaluator
        self._trainer = trainer
        self._contributor = contributor
        self._relearning = relearning
        self._watch = watch
        self._audit = audit
        self._visits = visits
        self._on_erased = on_erased
        self._tell = on_event
        self._objection: Objection | None = None
        self.receipts: dict[str, int] = {}

    def take(self, message: InboundMessage) -> None:
        """Take a message. A client that was forgotten takes nothing but the notice of its erasure.

        Raises:
            MessageError: it is not from the federator, older than one already seen, or cannot be read.
        """
        topics = self._session.topics
        if message.topic == topics.unlearning_round and not message.payload:
            self._relearning.forget()  # it was cleared: no job is at any step
            return
        if message.topic == topics.federator_key:
            if message.payload:
                self._session.take_federator_key(message.payload)
            return
        if message.topic == topics.policy:
            if message.payload and self._policy.take(message.payload):
                self._follow_policy()
            return
        if message.topic == topics.schema:
            self._features.take_published(message.payload)
            return
        if message.topic == topics.anchor and not message.payload:
            self._voter.drop_anchor()  # it was cleared: somebody who was erased may be in it
            return
        envelope = self._session.open(message)
        for_this_client = message.topic == self._session.topic(ClientTopic.INBOX)
        if for_this_client and envelope.kind == ErasureNotice.kind_name:
            self._take_erasure_notice(envelope.read(ErasureNotice))
        elif self._forgetting.forgotten:
            if message.topic == topics.round:
                self._forgetting.hear_epoch(epoch_and_number(envelope.sequence)[0], time.monotonic())
        elif for_this_client:
            self._take_receipt(envelope)
        elif message.topic == topics.model:
            self._take_model(envelope, message.payload)
        elif message.topic == topics.anchor:
            self._voter.take_anchor(envelope, message.payload)
        elif message.topic == topics.evaluation:
            self._evaluator.take_request(envelope)
        elif message.topic == topics.pace:
            self._visits.take(envelope)
        elif message.topic == topics.round:
            self._take_round(envelope.read(RoundAnnouncement), epoch_and_number(envelope.sequence)[0])
        elif message.topic == topics.federator_status:
            self._watch.take(envelope.read(FederatorStatus), time.monotonic())
        elif message.topic == topics.audit_head:
            self._audit.take(envelope.read(AuditHead), message.payload)
        elif message.topic == topics.unlearning_round:
            self._take_unlearning_round(envelope.read(UnlearningRound))
        elif topics.is_anchors(message.topic):
            self._voter.anchor.take_chunk(envelope.read(Chunk))
            self._voter.look()
        else:
            self._models.take_chunk(envelope.read(Chunk))

    def _follow_policy(self) -> None:
        """Go on under a newer policy: what was to be sent under another, or raw, is sent no more."""
        newest = self._policy.newest
        if newest is not None:
            self._participation.take_policy(newest, time.monotonic(), self._policy.bar)
            self._relearning.forget()
            self._voter.look()
            self._trainer.take_back()
            self._trainer.catch_up()
            self._contributor.contribute()
            self._voter.take_withheld_anchor()

    def _take_model(self, envelope: Envelope, payload: bytes) -> None:
        if envelope.kind == Manifest.kind_name:
            self._models.take_manifest(envelope.read(Manifest))
        else:
            self._models.take_model(envelope.read(ModelAnnouncement), payload)

    def _take_round(self, round_: RoundAnnouncement, epoch: int) -> None:
        if round_.federation == self._session.federation:
            self._policy.store()
            self._participation.take_round(round_, time.monotonic())
            self._participation.hear_epoch(epoch, time.monotonic())
            self._forgetting.hear_epoch(epoch, time.monotonic())
            self._voter.anchor.withdraw(round_.withdraws_below)
            self._voter.look()
            self._models.take_withdrawal(round_.withdraws_below)
            if self._models.guard is not None:
                self._models.guard.take_training(round_.training)
            self._tell_objection()
            self._trainer.catch_up()
            self._contributor.contribute()

    def _tell_objection(self) -> None:
        """Say once, and again when it is another, why nothing is sent to the rounds of this federation."""
        objection = self._participation.objection
        if objection is not None and objection is not self._objection:
            log.warning("round_objected", client_id=self._session.client_id, cause=objection, **self._detail(objection))
        self._objection = objection

    def _detail(self, objection: Objection) -> dict[str, object]:
        if objection is Objection.BEYOND_LIMITS:
            return {"excess": self._policy.excess}
        other = self._participation.other_schema
        if objection is not Objection.OTHER_SCHEMA or other is None:
            return {}
        return {"difference": self._features.difference(other.schema_hash)}

    def _take_unlearning_round(self, round_: UnlearningRound) -> None:
        if self._participation.policy is not None or self._participation.bar is not None:
            return  # an answer would show what this device alone has learned
        if not self._participation.learns_from(round_):
            return  # what is kept was learned under another schema, or will never be
        if round_.federation == self._session.federation and not self._participation.left:
            self._relearning.take_step(round_)

    def _take_receipt(self, envelope: Envelope) -> None:
        if envelope.kind == UpdateReceipt.kind_name:
            self._take_update_receipt(envelope.read(UpdateReceipt))
        else:
            self._take_membership_receipt(envelope.read(MembershipReceipt))

    def _take_update_receipt(self, receipt: UpdateReceipt) -> None:
        if not self._session.is_for_us(receipt):
            return
        receipt = self._outbox.as_about_update(receipt)
        code = receipt.code.value
        self.receipts[code] = self.receipts.get(code, 0) + 1
        if receipt.code in ERASED:
            self._on_erased()
        else:
            self._contributor.take_receipt(receipt)
        self._tell(UpdateAnswered(code))

    def _take_membership_receipt(self, receipt: MembershipReceipt) -> None:
        if not self._session.is_for_us(receipt) or not self._session.is_of_this_session(receipt):
            return
        if receipt.code in ERASED:
            self._on_erased()
        else:
            is_stored = self._contributor.take_membership_receipt(receipt)
            if receipt.code is ReceiptCode.JOINED and not is_stored:
                return  # joined is who knows what counts; asked again, it is answered again
            self._membership.take_receipt(receipt)

    def _take_erasure_notice(self, notice: ErasureNotice) -> None:
        if not self._session.is_for_us(notice):
            return
        self._forgetting.take_notice(notice)
        if notice.code in ERASED:
            self._on_erased()
