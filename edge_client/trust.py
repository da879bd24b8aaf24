"""A device trusts keys and authorities that its operator signs, the newest of each, also after a restart."""

from foltr.broker.link import MqttLink
from foltr.broker.trusted_cas import TrustedCas
from foltr.core.errors import DataError, MessageError
from foltr.core.logs import get_logger
from foltr.core.operator.credentials import Credentials
from foltr.edge_client.store.store import DeviceStore
from foltr.edge_client.store.store_file import MetaKey

log = get_logger(__name__)


class Trust:
    """The keys one device trusts: of its operator, its federator, and the authorities that vouch for the broker.

    Args:
        link: checks the broker by these authorities.

    Attributes:
        credentials: the device's, with the operator's newest statements of keys; None if nothing is signed.
        federator_key: public; a message needs its signature. None accepts anyone's.
    """

    def __init__(self, credentials: Credentials | None, store: DeviceStore, link: MqttLink | None = None) -> None:
        self._store = store
        known = None if credentials is None else self._with_stored_keys(credentials)
        self.credentials = known
        self.federator_key = None if known is None else known.federator_public_key
        self._authorities: TrustedCas | None = None
        if known is not None and link is not None:
            kept = store.meta(MetaKey.AUTHORITIES)  # before the first connection
            self._authorities = TrustedCas(link, known.operator_keys, known.federation, kept)

    def receive_succession(self, payload: bytes) -> None:
        """Trust the operator by its newest enrolment key from now on.

        Statements of former keys are trusted only as the succession says.
        """
        known = self.credentials
        if known is None or self._store.forgotten or not payload:
            return
        try:
            newer = known.with_succession(payload)
            if newer.succession == known.succession:
                return
            self._store.set_meta({MetaKey.SUCCESSION: payload})
        except (MessageError, DataError) as error:
            log.warning("enrolment_key_refused", client_id=known.name, cause=str(error))
            return
        self._believe(newer)
        if self._authorities is not None:
            self._authorities.operator = newer.operator_keys
        log.info("enrolment_key_rotated", client_id=known.name)

    def receive_federator_key(self, statement: bytes) -> None:
        """Trust the federator's newest key, which the operator states; signatures of older ones no longer count.

        It is stored before anything signed with it is trusted. A device that was off during rotations gets the newest,
        and never accepts an older key than one it has seen.

        Raises:
            MessageError: it is not the operator's statement, or older than one that was seen.
        """
        if self.credentials is None or not statement:
            return
        newer = self.credentials.with_federator_key(statement)
        if newer is self.credentials:
            return
        try:
            self._store.set_meta({MetaKey.FEDERATOR_KEY: statement})
        except DataError as error:
            log.warning("federator_key_not_stored", cause=str(error))  # the broker retains it
        self._believe(newer)
        log.info("federator_key_rotated", client_id=newer.name, sequence=newer.federator_key_sequence)

    def receive_authorities(self, payload: bytes) -> None:
        """Trust the broker by the operator's newest list of authorities from the next connection on, and store it."""
        if self.credentials is None or self._authorities is None or self._store.forgotten:
            return
        try:
            kept = self._authorities.accept(payload)
            if kept is not None:
                self._store.set_meta({MetaKey.AUTHORITIES: kept})
        except (MessageError, DataError) as error:
            # The broker retains it for the next start.
            log.warning("trusted_cas_refused", client_id=self.credentials.name, cause=str(error))

    def _believe(self, credentials: Credentials) -> None:
        self.credentials, self.federator_key = credentials, credentials.federator_public_key

    def _with_stored_keys(self, credentials: Credentials) -> Credentials:
        """Return credentials with the stored keys, except older ones and another operator's."""
        for key, follow in (
            (MetaKey.SUCCESSION, Credentials.with_succession),
            (MetaKey.FEDERATOR_KEY, Credentials.with_federator_key),
        ):
            stored = self._store.meta(key)
            if stored is not None:
                try:
                    credentials = follow(credentials, stored)
                except MessageError:
                    continue
        return credentials
