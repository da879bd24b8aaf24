"""Hears what the broker still has of the federator before: its epoch, which the next claim is to be above, and the head
of its audit log.

A restored database has lost its newest epochs, and devices believe nothing from below what they have heard. What was
announced last is retained, and says how high that was. Nobody can raise an epoch by it who has not the federator's key:
what another signed, or nobody, is passed over.
"""

from collections.abc import Collection

import structlog

from foltr.broker.link import InboundMessage, MqttLink
from foltr.core.errors import MessageError, UnavailableError
from foltr.core.protocol.audit_heads import AuditHead
from foltr.core.protocol.codec import Envelope, open_envelope
from foltr.core.protocol.signing import SigningKey, epoch_and_number
from foltr.core.protocol.topics import Topics

log = structlog.get_logger(__name__)

# The year 2106. A thief of the key could say a later one, and leave no room above it, also for the next key.
_EPOCHS_END = 1 << 32


class Predecessor:
    """The federator before this one, as far as the broker remembers it.

    Args:
        key: what both sign with; None where nothing is signed, and devices remember for one connection only.

    Attributes:
        topics: what it has announced on.
        epoch: the newest of its claims that was heard of; 0 where none was.
        audit_head: the newest entry of the audit log that it has published; None where it was not heard.
    """

    def __init__(self, topics: Topics, key: SigningKey | None) -> None:
        self.topics: Collection[str] = (topics.model, topics.round, topics.federator_status, topics.audit_head)
        self.epoch = 0
        self.audit_head: AuditHead | None = None
        self._key = key

    def receive(self, message: InboundMessage) -> None:
        """Take what is retained on one of its topics."""
        if self._key is None:
            return
        try:
            envelope = open_envelope(message.payload)
            if envelope.is_signed_by(self._key.public, message.topic):
                self._take(envelope)
        except MessageError:
            return

    def _take(self, envelope: Envelope) -> None:
        epoch, _ = epoch_and_number(envelope.sequence)
        if self.epoch < epoch < _EPOCHS_END:
            self.epoch = epoch
        if envelope.kind == AuditHead.kind_name:
            self.audit_head = envelope.read(AuditHead)

    async def listen(self, link: MqttLink) -> None:
        """Hear what is retained; a broker that does not let us keeps nobody from serving.

        What is retained comes before the end is acknowledged: the broker answers in order, and what it sends at QoS 0
        is not queued behind what has waited for this session.
        """
        if self._key is None:
            return
        try:
            await link.subscribe(list(self.topics), qos=0)
            await link.unsubscribe(list(self.topics))
        except UnavailableError as error:
            log.warning("announcements_not_heard", cause=str(error))
