"""Which certificate authorities a broker's certificate may be of, as the operator signs it, retained at the broker.

A device that hears it believes these in place of the one in its credentials, at its next connection: so an authority is
replaced without anybody being enrolled anew. Whoever holds the broker's key alone cannot say so: only the operator can.
"""

from dataclasses import dataclass

from foltr.core.protocol.operator_keys import Believed
from foltr.core.protocol.roster import Authorities
from foltr.core.protocol.signed_documents import issue_document, read_document
from foltr.core.protocol.signing import SigningKey
from foltr.core.protocol.topics import Topics


@dataclass(frozen=True)
class SignedAuthorities:
    """Authorities whose signature was checked, as they are kept and passed on."""

    authorities: Authorities
    signed: bytes

    @property
    def version(self) -> int:
        return self.authorities.version

    @property
    def pem(self) -> str:
        """The certificates in one text."""
        return "".join(self.authorities.certificates)


def issue_authorities(key: SigningKey, authorities: Authorities) -> SignedAuthorities:
    """Sign authorities with the enrolment key."""
    topic = Topics(authorities.federation).authorities
    return SignedAuthorities(authorities, issue_document(key, authorities, topic, authorities.version))


def read_authorities(payload: bytes, enrolment_key: Believed, federation: str) -> SignedAuthorities:
    """Read authorities.

    Raises:
        MessageError: ``bad_signature``: they are not signed by this federation's operator; ``malformed``.
    """
    topic = Topics(federation).authorities
    return SignedAuthorities(read_document(payload, enrolment_key, topic, Authorities, "list of authorities"), payload)
