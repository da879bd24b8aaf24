"""A device believes what its operator signs of keys and authorities, the newest of each, also after a restart."""

from foltr.broker.believed import BelievedAuthorities
from foltr.broker.link import MqttLink
from foltr.core.errors import DataError, MessageError
from foltr.core.logs import get_logger
from foltr.core.operator.credentials import Credentials
from foltr.edge_client.options import DeviceOptions
from foltr.edge_client.store.store import DeviceStore
from foltr.edge_client.store.store_file import Kept

log = get_logger(__name__)


class OperatorTrust:
    """What one device believes of its operator's keys, and of the authorities that vouch for the broker.

    Attributes:
        credentials: the device's, with the enrolment key that followed from theirs; None where nothing is signed.
    """

    def __init__(self, link: MqttLink, store: DeviceStore, options: DeviceOptions) -> None:
        self._link = link
        self._store = store
        self._federation, self._client_id = options.federation, options.client_id
        self.credentials = self._with_stored_succession(options.credentials)
        self._authorities: BelievedAuthorities | None = None
        kept = None if store.forgotten else store.kept(Kept.AUTHORITIES)
        if kept is not None:
            self._believed(kept)  # before the first connection

    def receive_succession(self, payload: bytes) -> Credentials | None:
        """Believe the operator's newest enrolment key; return the credentials with it, or None if it is not newer.

        What former keys have signed is believed only where the succession says so.
        """
        known = self.credentials
        if known is None or self._store.forgotten or not payload:
            return None
        try:
            newer = known.with_succession(payload)
            if newer.succession == known.succession:
                return None
            self._store.keep({Kept.SUCCESSION: payload})
        except (MessageError, DataError) as error:
            log.warning("succession_not_taken", client_id=self._client_id, cause=str(error))
            return None
        self.credentials = newer
        if self._authorities is not None:
            self._authorities.operator = newer.operator_keys
        log.info("enrolment_key_rotated", client_id=self._client_id)
        return newer

    def receive_authorities(self, payload: bytes) -> None:
        """Know the broker by the operator's newest list of authorities from the next connection on, and keep it."""
        try:
            kept = None if self._store.forgotten else self._believed().take(payload)
            if kept is not None:
                self._store.keep({Kept.AUTHORITIES: kept})
        except (MessageError, DataError) as error:
            # The broker has it for the next start, too.
            log.warning("authorities_not_taken", client_id=self._client_id, cause=str(error))

    def _believed(self, kept: bytes | None = None) -> BelievedAuthorities:
        if self._authorities is None:
            operator = None if self.credentials is None else self.credentials.operator_keys
            self._authorities = BelievedAuthorities(self._link, operator, self._federation, kept)
        return self._authorities

    def _with_stored_succession(self, credentials: Credentials | None) -> Credentials | None:
        stored = None if self._store.forgotten else self._store.kept(Kept.SUCCESSION)
        if stored is None or credentials is None:
            return credentials
        try:
            return credentials.with_succession(stored)
        except MessageError:
            return credentials  # written since, or by another operator
