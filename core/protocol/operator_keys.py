"""Which keys to trust as the operator's: the newest enrolment key, and those documents of former ones that still count.

A former key may have been stolen. So nothing counts by its signature alone: a document of the operator only if the
succession, which the newest key signs, has its digest, and an enrolment only if it is on the accompanying list.
"""

import hashlib
from dataclasses import dataclass, replace
from typing import Final, TypeVar, overload

from foltr.core.errors import MessageError
from foltr.core.protocol.codec import Envelope, encode, open_envelope
from foltr.core.protocol.fields import MAX_MESSAGE_BYTES, InFederation, Message
from foltr.core.protocol.membership import Enrolment
from foltr.core.protocol.receipts import ReceiptCode
from foltr.core.protocol.roster import MAX_SUCCESSIONS, KeptEnrolments, Succession, SuccessionLink
from foltr.core.protocol.signing import SigningKey
from foltr.core.protocol.topics import Topics

M = TypeVar("M", bound=Message)
_DIGEST_BYTES: Final = 16


@dataclass(frozen=True)
class OperatorKeys:
    """The operator's public keys that one reader trusts.

    Attributes:
        newest: trusted for everything it signs.
        former: trusted for what is in ``kept``.
        kept: digests of documents (`document_digest`) and of enrolments (`enrolment_digest`).
        in_storage: the input comes from the reader's own storage and was checked on arrival: former keys are trusted.
    """

    newest: bytes
    former: tuple[bytes, ...] = ()
    kept: frozenset[bytes] = frozenset()
    in_storage: bool = False

    def stored(self) -> "OperatorKeys":
        """Return the same keys for reading from the reader's own storage."""
        return replace(self, in_storage=True)

    def keeping(self, enrolments: KeptEnrolments | None) -> "OperatorKeys":
        """Return the same keys, by which these enrolments count too."""
        return self if enrolments is None else replace(self, kept=self.kept | frozenset(enrolments.digests))


TrustedOperatorKey = bytes | OperatorKeys
"""The operator's key: its only one, or the newest of several."""


@overload
def trusted_in_storage(operator: TrustedOperatorKey) -> TrustedOperatorKey: ...
@overload
def trusted_in_storage(operator: None) -> None: ...
def trusted_in_storage(operator: TrustedOperatorKey | None) -> TrustedOperatorKey | None:
    """Return the keys to trust for the reader's own storage."""
    return operator.stored() if isinstance(operator, OperatorKeys) else operator


def newest_key(operator: TrustedOperatorKey) -> bytes:
    """The newest key."""
    return operator if isinstance(operator, bytes) else operator.newest


def is_current_or_former_key(operator: TrustedOperatorKey, key: bytes) -> bool:
    """Whether a key is the operator's newest one, or was before it."""
    return key == newest_key(operator) or (isinstance(operator, OperatorKeys) and key in operator.former)


def signed_by_operator(
    envelope: Envelope, operator: TrustedOperatorKey, topic: str, digest: bytes | None = None
) -> bool:
    """Whether the operator has signed an envelope for a topic, and it still counts.

    Args:
        digest: identifies it among what is kept; None: not kept.
    """
    if envelope.is_signed_by(newest_key(operator), topic):
        return True
    if isinstance(operator, bytes) or not (operator.in_storage or digest in operator.kept):
        return False
    return any(envelope.is_signed_by(key, topic) for key in operator.former)


def read_signed_by_operator(
    payload: bytes,
    operator: TrustedOperatorKey,
    topic: str,
    expected: type[M],
    what: str,
    *,
    digest: bytes | None = None,
    max_bytes: int = MAX_MESSAGE_BYTES,
) -> M:
    """Read a message that the operator has signed for a topic.

    Args:
        what: its name in a refusal.
        digest: as in `signed_by_operator`.

    Raises:
        MessageError: ``bad_signature``: the operator has not signed it for this topic; ``malformed``;
            ``wrong_federation``.
    """
    envelope = open_envelope(payload, max_bytes)
    if not signed_by_operator(envelope, operator, topic, digest):
        raise MessageError(ReceiptCode.BAD_SIGNATURE, f"the {what} is not signed by this federation's operator")
    message = envelope.read(expected)
    if isinstance(message, InFederation) and not topic.startswith(f"{Topics(message.federation).root}/"):
        raise MessageError(ReceiptCode.WRONG_FEDERATION, f"the {what} is of {message.federation}")
    return message


def document_digest(payload: bytes) -> bytes:
    """Return the digest by which a signed document is kept."""
    return hashlib.sha256(payload).digest()[:_DIGEST_BYTES]


def enrolment_digest(enrolment: Enrolment) -> bytes:
    """Return the digest by which an enrolment is kept: of its client, key, serial and pin. No name has a line break."""
    names = f"foltr enrolment\n{enrolment.federation}\n{enrolment.client_id}\n{enrolment.serial}\n"
    if enrolment.secure:
        names += "secure\n"
    return hashlib.sha256(names.encode() + enrolment.public_key).digest()[:_DIGEST_BYTES]


def issue_link(old_key: SigningKey, federation: str, sequence: int, new_key: bytes) -> bytes:
    """The old key's statement that another one takes its place."""
    link = SuccessionLink(federation=federation, sequence=sequence, old_key=old_key.public, new_key=new_key)
    return encode(link, Topics(federation).operator_key, sequence, old_key)


def issue_succession(new_key: SigningKey, federation: str, links: list[bytes], documents: list[bytes]) -> bytes:
    """Return all links from the first key on, and what still counts of former keys, signed with the newest one."""
    if len(links) > MAX_SUCCESSIONS:
        raise ValueError(f"{len(links)} enrolment keys; at most {MAX_SUCCESSIONS} follow each other")
    succession = Succession(federation=federation, links=links, documents=documents)
    return encode(succession, Topics(federation).operator_key, len(links), new_key)


def follow_succession(payload: bytes, known: bytes, federation: str) -> OperatorKeys:
    """Return the operator's keys by a succession if the reader trusts ``known``, one of its keys.

    Raises:
        MessageError: ``bad_signature``: ``known`` is not among its keys, or a signature is wrong; ``malformed``.
    """
    topic = Topics(federation).operator_key
    envelope = open_envelope(payload)
    succession = envelope.read(Succession)
    keys: list[bytes] = []
    for signed in succession.links:
        link_envelope = open_envelope(signed)
        link = link_envelope.read(SuccessionLink)
        follows = not keys or link.old_key == keys[-1]
        if link.federation != federation or not follows or not link_envelope.is_signed_by(link.old_key, topic):
            raise MessageError(ReceiptCode.BAD_SIGNATURE, "an enrolment key does not follow from the one before it")
        keys = keys or [link.old_key]
        keys.append(link.new_key)
    if known not in keys or not envelope.is_signed_by(keys[-1], topic):
        raise MessageError(ReceiptCode.BAD_SIGNATURE, "the succession does not begin with this federation's operator")
    return OperatorKeys(keys[-1], tuple(keys[:-1]), frozenset(succession.documents))


def issue_kept_enrolments(key: SigningKey, federation: str, sequence: int, digests: list[bytes]) -> bytes:
    """The enrolments of former keys that count, signed with the newest key, the one of this sequence."""
    kept = KeptEnrolments(federation=federation, sequence=sequence, digests=digests)
    return encode(kept, Topics(federation).kept_enrolments, sequence, key)


def read_kept_enrolments(payload: bytes, operator: TrustedOperatorKey, federation: str) -> KeptEnrolments:
    """Return the enrolments that still count; MessageError if the newest key has not signed the list."""
    topic = Topics(federation).kept_enrolments
    return read_signed_by_operator(payload, newest_key(operator), topic, KeptEnrolments, "list of enrolments")
