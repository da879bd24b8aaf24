"""A device's inbox passes each network message to the part of the device that handles it."""

import time
from collections.abc import Callable

from foltr.broker.link import InboundMessage
from foltr.core.logs import get_logger
from foltr.core.protocol.announcements import ModelAnnouncement, RoundAnnouncement, UnlearningRound
from foltr.core.protocol.audit_heads import AuditHead
from foltr.core.protocol.codec import Envelope
from foltr.core.protocol.heartbeat import FederatorStatus
from foltr.core.protocol.receipts import ErasureNotice, MembershipReceipt, ReceiptCode, UpdateReceipt
from foltr.core.protocol.signing import epoch_and_number
from foltr.core.protocol.topics import ClientTopic
from foltr.core.protocol.updates import Chunk, Manifest
from foltr.edge_client.components import DeviceComponents
from foltr.edge_client.events import UpdateAnswered
from foltr.edge_client.forgetting import ERASED
from foltr.edge_client.participation import Objection

log = get_logger(__name__)


class Inbox:
    """Receives for one device.

    Args:
        on_erased: called when the federation reports that it has erased this client.

    Attributes:
        receipts: how often each code of an update's receipt came.
    """

    def __init__(self, device: DeviceComponents, on_erased: Callable[[], None]) -> None:
        self._device = device
        self._on_erased = on_erased
        self._objection: Objection | None = None
        self.receipts: dict[str, int] = {}
        topics = device.session.topics
        self._own_topic = device.session.topic(ClientTopic.INBOX)
        # Signed by the operator, not the federator.
        self._by_operator: dict[str, Callable[[bytes], None]] = {
            topics.operator_key: device.trust.receive_succession,
            topics.authorities: device.trust.receive_authorities,
            topics.federator_key: device.trust.receive_federator_key,
            topics.policy: self._receive_policy,
            topics.schema: device.features.receive_published,
        }
        # An empty message clears a retained one: no job is at any step; and the anchor may contain an erased client.
        self._on_cleared: dict[str, Callable[[], None]] = {
            topics.unlearning_round: device.relearning.forget,
            topics.anchor: device.voter.drop_anchor,
        }
        self._announced: dict[str, Callable[[Envelope, bytes], None]] = {
            topics.model: self._receive_model,
            topics.anchor: device.voter.receive_anchor,
            topics.evaluation: lambda envelope, _: device.evaluator.receive_request(envelope),
            topics.pace: lambda envelope, _: device.visits.receive(envelope),
            topics.round: self._receive_round,
            topics.federator_status: lambda envelope, _: device.watch.receive(
                envelope.read(FederatorStatus), time.monotonic()
            ),
            topics.audit_head: lambda envelope, payload: device.audit.receive(envelope.read(AuditHead), payload),
            topics.unlearning_round: self._receive_unlearning_round,
        }
        self._answers: dict[str, Callable[[Envelope], None]] = {
            ErasureNotice.kind_name: self._receive_erasure_notice,
            UpdateReceipt.kind_name: self._receive_update_receipt,
        }

    def receive(self, message: InboundMessage) -> None:
        """Take a message. A forgotten client takes only the notice of its erasure.

        Raises:
            MessageError: it is not from the federator, older than one already seen, or cannot be read.
        """
        topic, payload, device = message.topic, message.payload, self._device
        if topic in self._by_operator:
            self._by_operator[topic](payload)
            return
        if not payload and topic in self._on_cleared:
            self._on_cleared[topic]()
            return
        envelope = device.session.open(message)
        if topic == self._own_topic and (envelope.kind == ErasureNotice.kind_name or not device.forgotten):
            self._answers.get(envelope.kind, self._receive_membership_receipt)(envelope)
        elif device.forgotten:
            if topic == device.session.topics.round:
                device.forgetting.note_epoch(epoch_and_number(envelope.sequence)[0], time.monotonic())
        elif topic in self._announced:
            self._announced[topic](envelope, payload)
        elif device.session.topics.is_anchors(topic):
            device.voter.anchor.receive_chunk(envelope.read(Chunk))
            device.voter.refresh_pair()
        else:
            device.models.receive_chunk(envelope.read(Chunk))

    # --- what the operator says -----------------------------------------------------------------------------

    def _receive_policy(self, payload: bytes) -> None:
        """Switch to a newer policy: updates for another policy, or raw ones, are no longer sent."""
        device = self._device
        if not payload or not device.policy.receive(payload) or device.policy.newest is None:
            return
        device.participation.receive_policy(device.policy.newest, time.monotonic(), device.policy.objection)
        device.relearning.forget()
        device.voter.refresh_pair()
        device.trainer.start_over()
        device.trainer.catch_up()
        device.contributor.contribute()
        device.voter.receive_withheld_anchor()

    # --- what the federator announces -----------------------------------------------------------------------

    def _receive_model(self, envelope: Envelope, payload: bytes) -> None:
        if envelope.kind == Manifest.kind_name:
            self._device.models.receive_manifest(envelope.read(Manifest))
        else:
            self._device.models.receive_model(envelope.read(ModelAnnouncement), payload)

    def _receive_round(self, envelope: Envelope, _: bytes) -> None:
        device, round_ = self._device, envelope.read(RoundAnnouncement)
        if round_.federation != device.federation:
            return
        epoch = epoch_and_number(envelope.sequence)[0]
        device.policy.store()
        device.participation.receive_round(round_, time.monotonic())
        device.participation.note_epoch(epoch, time.monotonic())
        device.forgetting.note_epoch(epoch, time.monotonic())
        device.voter.anchor.withdraw(round_.withdraws_below)
        device.voter.refresh_pair()
        device.models.withdraw_below(round_.withdraws_below)
        device.evaluator.share_credits()
        self._log_objection()
        device.trainer.catch_up()
        device.contributor.contribute()

    def _log_objection(self) -> None:
        """Log once, and again when it changes, why nothing is sent to this federation's rounds."""
        objection = self._device.participation.objection
        if objection is not None and objection is not self._objection:
            log.warning("round_declined", client_id=self._device.client_id, cause=objection, **self._detail(objection))
        self._objection = objection

    def _detail(self, objection: Objection) -> dict[str, object]:
        if objection is Objection.BEYOND_LIMITS:
            return {"excess": self._device.policy.exceeded_limit}
        other = self._device.participation.other_schema
        if objection is not Objection.OTHER_SCHEMA or other is None:
            return {}
        return {"difference": self._device.features.difference(other.schema_hash)}

    def _receive_unlearning_round(self, envelope: Envelope, _: bytes) -> None:
        round_, participation = envelope.read(UnlearningRound), self._device.participation
        if participation.policy is not None or participation.policy_objection is not None:
            return  # an answer would reveal what only this device has learned
        if not participation.learns_from(round_):
            return  # the kept lists were learned under another schema, or never will be
        if round_.federation == self._device.federation and not participation.left:
            self._device.relearning.receive_step(round_)

    # --- what the federator answers -------------------------------------------------------------------------

    def _receive_update_receipt(self, envelope: Envelope) -> None:
        device, receipt = self._device, envelope.read(UpdateReceipt)
        if not device.session.is_for_us(receipt):
            return
        receipt = device.outbox.as_about_update(receipt)
        code = receipt.code.value
        self.receipts[code] = self.receipts.get(code, 0) + 1
        if receipt.code in ERASED:
            self._on_erased()
        else:
            device.contributor.receive_receipt(receipt)
        device.emit(UpdateAnswered(code))

    def _receive_membership_receipt(self, envelope: Envelope) -> None:
        device, receipt = self._device, envelope.read(MembershipReceipt)
        if not device.session.is_for_us(receipt) or not device.session.is_of_this_session(receipt):
            return
        if receipt.code in ERASED:
            self._on_erased()
        else:
            is_stored = device.contributor.receive_membership_receipt(receipt)
            if receipt.code is ReceiptCode.JOINED and not is_stored:
                return  # the watermark is known only once joined; the answer will be repeated
            device.membership.receive_receipt(receipt)

    def _receive_erasure_notice(self, envelope: Envelope) -> None:
        notice = envelope.read(ErasureNotice)
        if not self._device.session.is_for_us(notice):
            return
        self._device.forgetting.receive_notice(notice)
        if notice.code in ERASED:
            self._on_erased()
