"""A process trusts the certificate authorities that its operator announces, from its next connection on.

The newest list received counts. It is stored with a digest of the authorities in the credentials; newer credentials
win.
"""

import hashlib
from typing import Final

from foltr.broker.link import MqttLink
from foltr.core.errors import MessageError, SettingsError
from foltr.core.logs import get_logger
from foltr.core.protocol.operator_keys import TrustedOperatorKey, trusted_in_storage
from foltr.core.protocol.receipts import ReceiptCode
from foltr.core.protocol.signed_documents import read_authorities

log = get_logger(__name__)

_N_DIGEST: Final = 32


class TrustedCas:
    """Decides by which authorities one link trusts the broker.

    Args:
        operator: its public key or keys; None trusts no list.
        kept: what `accept` returned before a restart; None if it returned nothing yet.
    """

    def __init__(
        self, link: MqttLink, operator: TrustedOperatorKey | None, federation: str, kept: bytes | None = None
    ) -> None:
        self._link = link
        self.operator = operator
        self._federation = federation
        material = link.address.tls_material
        # Without an authority in the credentials the system's count, and no list replaces those.
        self._given = None if material is None or material.ca is None else material.ca.encode()
        self._version = 0
        if kept is not None and self._given is not None and kept[:_N_DIGEST] == self._digest(self._given):
            try:
                self._accept(kept[_N_DIGEST:], trusted_in_storage(operator))
            except MessageError as error:
                log.warning("trusted_cas_not_loaded", cause=str(error))

    def accept(self, payload: bytes) -> bytes | None:
        """Take a list; return what to store of it, or None if it is not new.

        Raises:
            MessageError: it is not this operator's, cannot be read, or holds something that is not a certificate.
        """
        return self._accept(payload, self.operator)

    def _accept(self, payload: bytes, operator: TrustedOperatorKey | None) -> bytes | None:
        if operator is None or self._given is None or not payload:
            return None
        read = read_authorities(payload, operator, self._federation)
        if read.version <= self._version:
            return None
        try:
            self._link.trust_authorities("".join(read.content.certificates))
        except SettingsError as error:
            raise MessageError(ReceiptCode.MALFORMED, f"the list of authorities: {error}") from error
        self._version = read.version
        log.info("trusted_cas_changed", version=read.version, n_authorities=len(read.content.certificates))
        return self._digest(self._given) + payload

    @staticmethod
    def _digest(given: bytes) -> bytes:
        return hashlib.sha256(given).digest()
