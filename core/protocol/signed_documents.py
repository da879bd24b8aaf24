"""A document of the operator is numbered, signed with the enrolment key for its own topic, and retained there.

The number is its version, and the message's sequence: a higher one replaces a lower one. Such documents are policies
(`foltr.core.protocol.signed_policies`), feature schemas, and lists of certificate authorities. A device uses such a
list instead of the one in its credentials at its next connection: so an authority is replaced without enrolling anybody
again. The holder of the broker's key cannot make one, only the operator.
"""

from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from foltr.core.protocol.codec import encode
from foltr.core.protocol.operator_keys import TrustedOperatorKey, document_digest, read_signed_by_operator
from foltr.core.protocol.roster import Authorities
from foltr.core.protocol.schemas import FeatureSchema
from foltr.core.protocol.signing import SigningKey
from foltr.core.protocol.topics import Topics


class _Numbered(Protocol):
    @property
    def version(self) -> int: ...


D = TypeVar("D", bound=_Numbered)


@dataclass(frozen=True)
class SignedDocument(Generic[D]):
    """A document whose signature was checked, with its signed bytes for storing and forwarding."""

    content: D
    signed: bytes

    @property
    def version(self) -> int:
        return self.content.version


def issue_schema(key: SigningKey, schema: FeatureSchema, federation: str) -> SignedDocument[FeatureSchema]:
    """Sign a schema with the enrolment key; the signature's topic names its federation."""
    return SignedDocument(schema, encode(schema, Topics(federation).schema, schema.version, key))


def read_schema(payload: bytes, enrolment_key: TrustedOperatorKey, federation: str) -> SignedDocument[FeatureSchema]:
    """Read a schema; MessageError as `read_signed_by_operator`."""
    topic, digest = Topics(federation).schema, document_digest(payload)
    return SignedDocument(
        read_signed_by_operator(payload, enrolment_key, topic, FeatureSchema, "schema", digest=digest), payload
    )


def issue_authorities(key: SigningKey, authorities: Authorities) -> SignedDocument[Authorities]:
    """Sign authorities with the enrolment key."""
    topic = Topics(authorities.federation).authorities
    return SignedDocument(authorities, encode(authorities, topic, authorities.version, key))


def read_authorities(payload: bytes, enrolment_key: TrustedOperatorKey, federation: str) -> SignedDocument[Authorities]:
    """Read authorities; MessageError as `read_signed_by_operator`."""
    topic, digest = Topics(federation).authorities, document_digest(payload)
    return SignedDocument(
        read_signed_by_operator(payload, enrolment_key, topic, Authorities, "list of authorities", digest=digest),
        payload,
    )
