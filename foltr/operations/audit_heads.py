"""The newest entry of the audit log, as the federator has published it."""

from dataclasses import dataclass
from datetime import UTC, datetime

from foltr.broker.address import BrokerAddress
from foltr.broker.short_connections import read_retained
from foltr.core.errors import MessageError, SettingsError, UnavailableError
from foltr.core.operator.credentials import Credentials
from foltr.core.operator.followed_keys import follow_messages, key_topics
from foltr.core.protocol.audit_heads import AuditHead
from foltr.core.protocol.codec import open_envelope
from foltr.core.protocol.topics import Topics


@dataclass(frozen=True)
class PublishedHead:
    """A signed audit head. ``source`` describes where it was published."""

    head: AuditHead
    source: str

    def in_words(self) -> str:
        """Describe the head in a sentence."""
        if self.head.seq == 0:
            return f"The audit log of {self.head.federation} is empty, says {self.source}."
        at = datetime.fromtimestamp(self.head.at, UTC)
        when = f"written {at:%Y-%m-%d %H:%M:%S} UTC, hash {self.head.hash.hex()}"
        return f"The audit log of {self.head.federation} ends with entry {self.head.seq}, says {self.source}: {when}."


async def published_head(
    address: BrokerAddress, credentials: Credentials | None, federation: str, key: bytes | None
) -> PublishedHead:
    """Fetch the audit head from a broker.

    Args:
        credentials: whom to connect as; None connects without a user.
        key: the federator's public key; None takes the one in the credentials.

    Raises:
        SettingsError: no key was given.
        UnavailableError: no head signed by this key was found; the message says why.
    """
    topics = Topics(federation)
    heard = await read_retained(address, [*key_topics(federation), topics.audit_head])
    where = f"the broker {address}"
    if topics.audit_head not in heard:
        raise UnavailableError(
            f"{where} has no head of the audit log of {federation}: start the federator, and if it "
            "runs, renew the broker's access list with `foltr broker config --force`"
        )
    blocker = None
    if key is None:
        if credentials is None:
            raise SettingsError("key: name the federator's public key with --key, or credentials that have it")
        keys = follow_messages(credentials, heard)
        key, blocker = keys.credentials.federator_public_key, keys.blocker
    try:
        envelope = open_envelope(heard[topics.audit_head].payload)
        if envelope.is_signed_by(key, topics.audit_head):
            return PublishedHead(envelope.read(AuditHead), where)
        cause = "it is unsigned, or signed with another key"
    except MessageError as error:
        cause = str(error)
    cause = cause if blocker is None else f"{cause}: {blocker}"
    raise UnavailableError(f"{where} has no head of the audit log signed with this key: {cause}")
