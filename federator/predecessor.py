"""Reads what the broker retains of the former federator: its epoch, its round, and the head of its audit log.

A restored database has lost its newest epochs, and devices trust nothing below the epoch they have seen. The last
announcement is retained and shows that epoch; the next claim must be above it. Nobody can raise an epoch this way
without the federator's key: other messages are ignored.
"""

from collections.abc import Collection

import structlog

from foltr.broker.link import InboundMessage, MqttLink
from foltr.core.errors import MessageError, UnavailableError
from foltr.core.protocol.announcements import RoundAnnouncement
from foltr.core.protocol.audit_heads import AuditHead
from foltr.core.protocol.codec import Envelope, open_envelope
from foltr.core.protocol.signing import SigningKey, epoch_and_number
from foltr.core.protocol.topics import Topics

log = structlog.get_logger(__name__)

# The year 2106. A thief of the key could claim a later one, and leave no epoch above it, even for the next key.
_EPOCHS_END = 1 << 32


class Predecessor:
    """The former federator, as far as the broker remembers it.

    Args:
        key: signs for both; None if nothing is signed, and devices remember for one connection only.

    Attributes:
        topics: of its announcements.
        epoch: its newest claim found; 0 without one.
        round: the number of the newest round that it has announced; 0 if none was found.
        audit_head: the newest entry of the audit log that it has published; None if none was found.
    """

    def __init__(self, topics: Topics, key: SigningKey | None) -> None:
        self.topics: Collection[str] = (topics.model, topics.round, topics.federator_status, topics.audit_head)
        self.epoch = self.round = 0
        self.audit_head: AuditHead | None = None
        self._key = key

    def receive(self, message: InboundMessage) -> None:
        """Take a retained message on one of its topics."""
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
        if envelope.kind == RoundAnnouncement.kind_name:
            self.round = max(self.round, envelope.read(RoundAnnouncement).round)
        if envelope.kind == AuditHead.kind_name:
            self.audit_head = envelope.read(AuditHead)

    async def listen(self, link: MqttLink) -> None:
        """Read the retained messages; a broker that refuses this does not prevent serving.

        They arrive before the end is acknowledged: the broker answers in order, and messages at QoS 0 are not queued
        behind those that wait for this session.
        """
        if self._key is None:
            return
        try:
            await link.subscribe(list(self.topics), qos=0)
            await link.unsubscribe(list(self.topics))
        except UnavailableError as error:
            log.warning("announcements_not_read", cause=str(error))
