"""A policy is signed by the operator; all references to it use the hash of the signed bytes."""

import hashlib
from enum import Enum

from foltr.core.protocol.codec import encode
from foltr.core.protocol.operator_keys import TrustedOperatorKey, document_digest, read_signed_by_operator
from foltr.core.protocol.policies import MAX_PREDECESSORS, Policy
from foltr.core.protocol.signed_documents import SignedDocument
from foltr.core.protocol.signing import SigningKey
from foltr.core.protocol.topics import Topics


class SignedPolicy(SignedDocument[Policy]):
    """A policy whose signature was checked, with its signed bytes for storing and forwarding."""

    @property
    def policy(self) -> Policy:
        return self.content

    @property
    def hash(self) -> bytes:
        """32 bytes: SHA-256 of the signed bytes."""
        return hashlib.sha256(self.signed).digest()


class Lineage(Enum):
    """The relation of a policy to the one that a reader knows."""

    KNOWN = "known"
    SUCCESSOR = "successor"
    OLDER = "older"
    FORK = "fork"


def lineage_of(heard: SignedPolicy, known: SignedPolicy) -> Lineage:
    """Decide whether a policy follows from the known one, or came before it; both signed by one operator.

    If neither, it is a fork: two policies have one number, or the operator's folder was restored from a backup, or
    somebody signs policies for this reader alone. A successor names the known one among its `MAX_PREDECESSORS`. If the
    known one is older than all of these, that counts as a fork as well, because its place is unknown.
    """
    if heard.hash == known.hash:
        return Lineage.KNOWN
    if heard.version > known.version:
        return Lineage.SUCCESSOR if known.hash in heard.policy.predecessors else Lineage.FORK
    before = known.policy.predecessors
    is_older = heard.version < known.version and (heard.hash in before or len(before) == MAX_PREDECESSORS)
    return Lineage.OLDER if is_older else Lineage.FORK


def issue_policy(key: SigningKey, policy: Policy) -> SignedPolicy:
    """Sign a policy with the enrolment key for its topic."""
    return SignedPolicy(policy, encode(policy, Topics(policy.federation).policy, policy.version, key))


def read_policy(payload: bytes, enrolment_key: TrustedOperatorKey, federation: str) -> SignedPolicy:
    """Read a policy.

    Raises:
        MessageError: ``bad_signature``: it is not signed by this federation's operator; ``malformed``: it cannot be
            read, or its noise is too little for its epsilon; ``wrong_federation``.
    """
    topic, digest = Topics(federation).policy, document_digest(payload)
    return SignedPolicy(
        read_signed_by_operator(payload, enrolment_key, topic, Policy, "policy", digest=digest), payload
    )
