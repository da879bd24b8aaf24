"""The newest entry of the log of erasures, as the federator has published it or a device has heard it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from foltr.broker.address import BrokerAddress
from foltr.broker.visit import hear_retained
from foltr.core.errors import DataError, MessageError, SettingsError, UnavailableError
from foltr.core.operator.credentials import Credentials
from foltr.core.operator.heard_keys import believe_heard, key_topics
from foltr.core.protocol.audit_heads import AuditHead
from foltr.core.protocol.codec import open_envelope
from foltr.core.protocol.topics import Topics
from foltr.edge_client.audit_watch import stored_heads
from foltr.edge_client.store.store_file import StoreFile
from foltr.operations.noted_entries import NotedEntry, contradictions, newest_noted, noted_entry

_ASK = "Ask the operator which backup was restored, and why; keep the file with what was noted"


@dataclass(frozen=True)
class SignedHead:
    """A head, the key that has signed it, and where it was heard, in words.

    Attributes:
        is_published: it is what everybody hears now.
    """

    head: AuditHead
    key: bytes
    source: str
    is_published: bool = False

    @property
    def at(self) -> datetime:
        """When its entry was written."""
        return datetime.fromtimestamp(self.head.at, UTC)

    @property
    def entry(self) -> NotedEntry:
        """As an entry to be noted."""
        return noted_entry(self.head.federation, self.key, self.head.seq, self.head.hash.hex(), self.source)

    def in_words(self) -> str:
        """Say what it says."""
        if self.head.seq == 0:
            return f"The audit log of {self.head.federation} is empty, says {self.source}."
        when = f"written {self.at:%Y-%m-%d %H:%M:%S} UTC, hash {self.head.hash.hex()}"
        return f"The audit log of {self.head.federation} ends with entry {self.head.seq}, says {self.source}: {when}."


async def published_head(
    address: BrokerAddress, credentials: Credentials | None, federation: str, key: bytes | None
) -> SignedHead:
    """Ask a broker.

    Args:
        credentials: whom to ask as; None for nobody in particular.
        key: the federator's public key; None for that of the credentials.

    Raises:
        SettingsError: neither names a key.
        UnavailableError: there is no head that the key has signed; it says why.
    """
    topics = Topics(federation)
    heard = await hear_retained(address, [*key_topics(federation), topics.audit_head])
    where = f"the broker {address}"
    if topics.audit_head not in heard:
        raise UnavailableError(
            f"{where} has no head of the audit log of {federation}: start the federator, and if it "
            "runs, renew the broker's access list with `foltr broker config --force`"
        )
    hindrance = None
    if key is None:
        if credentials is None:
            raise SettingsError("key: name the federator's public key with --key, or credentials that have it")
        keys = believe_heard(credentials, heard)
        key, hindrance = keys.credentials.federator_public_key, keys.hindrance
    try:
        return replace(_signed(heard[topics.audit_head].payload, topics, key, where), is_published=True)
    except UnavailableError as error:
        if hindrance is None:
            raise
        raise UnavailableError(f"{error}: {hindrance}") from error


def heard_by_device(store: Path, key: bytes) -> list[SignedHead]:
    """Read what a device that does not run has heard: the newest head, then two that contradict each other, if any.

    Raises:
        SettingsError: it is no device's store.
        DataError: it runs, or it has heard of none.
    """
    if not store.exists():
        raise SettingsError(f"store: there is no file {store}; name the store of a device")
    opened = StoreFile(store, None)
    try:
        owner, payloads = opened.owner, stored_heads(opened)
    finally:
        opened.close()
    if owner is None or not payloads:
        raise DataError(f"store: {store} has heard of no audit log")
    try:
        return [_signed(payload, Topics(owner[0]), key, f"the device {owner[1]}") for payload in payloads]
    except UnavailableError as error:
        raise DataError(f"store: {error}") from error


def check_heads(heads: Sequence[SignedHead], before: Sequence[NotedEntry], noted: Path) -> None:
    """DataError where a head is not above, or beside, what was noted or what the device has heard before it."""
    newest = heads[0]
    for one in heads:
        for other in contradictions(before, one.entry):
            raise DataError(
                f"audit log: {one.source} says that entry {other.seq} has the hash {one.entry.hash}, and {noted} has "
                f"{other.hash} from {other.source}: the log was written anew. {_ASK}"
            )
    if len(heads) > 1:
        _, first, later = heads
        raise DataError(
            f"audit log: {newest.source} heard of entry {first.head.seq}, and later that the log ends with "
            f"{later.head.seq}: it was cut, or an older database was restored. {_ASK}"
        )
    highest = newest_noted(before, newest.head.federation, newest.key)
    if highest is not None and highest.seq > newest.head.seq and newest.is_published:
        raise DataError(
            f"audit log: it ends with entry {newest.head.seq}, says {newest.source}, and {noted} has entry "
            f"{highest.seq} from {highest.source}: it was cut, an older database was restored, or the broker repeats "
            f"an older message. {_ASK}"
        )


def _signed(payload: bytes, topics: Topics, key: bytes, source: str) -> SignedHead:
    """Read a head; UnavailableError where it is not signed by the key, or cannot be read."""
    try:
        envelope = open_envelope(payload)
        if envelope.is_signed_by(key, topics.audit_head):
            return SignedHead(envelope.read(AuditHead), key, source)
        cause = "another one, or nobody, has signed it"
    except MessageError as error:
        cause = str(error)
    raise UnavailableError(f"{source} has no head of the audit log that the key's holder has signed: {cause}")
