"""The lists of certificate authorities in an operator's folder, as they were signed."""

from pathlib import Path

from foltr.core.operator.document_log import DocumentLog
from foltr.core.protocol.operator_keys import Believed
from foltr.core.protocol.roster import Authorities
from foltr.core.protocol.signed_authorities import SignedAuthorities, issue_authorities, read_authorities
from foltr.core.protocol.signing import SigningKey


def authorities_log(folder: Path, federation: str, operator: Believed) -> DocumentLog[SignedAuthorities]:
    """Return the lists of one operator's folder, whose lock is held; ``operator`` has signed them."""
    return DocumentLog(folder, "authorities", lambda payload: read_authorities(payload, operator, federation))


def write_authorities(
    log: DocumentLog[SignedAuthorities], key: SigningKey, federation: str, certificates: list[str]
) -> SignedAuthorities:
    """Sign a list and write it down; the newest one again stays as it was signed."""
    newest = log.newest()
    if newest is not None and newest.authorities.certificates == certificates:
        return newest
    version = log.newest_version + 1
    authorities = Authorities(federation=federation, version=version, certificates=certificates)
    return log.write(issue_authorities(key, authorities))
