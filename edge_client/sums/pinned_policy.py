"""A device is under the newest policy that it has ever heard of, from whoever brought it, and never under an older one.

Only the operator can sign one, so no federator takes a device out of secure sums: not by leaving the policy out, nor by
showing an older one, nor by waiting until the device is started again, as the store has it.
"""

from edge_client.objections import Objection
from edge_client.store.store import DeviceStore
from foltr.errors import DataError, MessageError
from foltr.logs import get_logger
from foltr.operator.credentials import Credentials
from foltr.protocol.codec import open_envelope
from foltr.protocol.policies import Policy
from foltr.protocol.signed_policies import SignedPolicy, read_policy

log = get_logger(__name__)


class PinnedPolicy:
    """The policy of one device.

    Args:
        credentials: whose operator signs policies; None believes nobody, and stays under what the store has.

    Attributes:
        newest: None where there is none, so that the federator is trusted with what the device sends, unless
        is_required: the device was enrolled for a secure federation, and sends nothing but under a policy.

    Raises:
        DataError: the store has one that cannot be read, or cannot take a newer one.
        MessageError: the credentials have one that is not their operator's.
    """

    def __init__(self, credentials: Credentials | None, store: DeviceStore, client_id: str) -> None:
        self._credentials = credentials
        self._store = store
        self._client_id = client_id
        self.is_required = credentials is not None and _is_pinned(credentials)
        self.newest = None if store.forgotten else _stored(store)
        given = None if credentials is None or store.forgotten else credentials.policy_bytes
        # Its own file was checked when it was read, by the operator's key of that day.
        if given is not None and self._follow(given, in_storage=True):
            # Before anything is sent: what is pending was made under another one, or none.
            self._store.put_policy(given)

    @property
    def bar(self) -> Objection | None:
        """Why nothing is sent, whatever is announced; None where the rounds decide."""
        return Objection.PINNED if self.is_required and self.newest is None else None

    @property
    def bar_in_words(self) -> str:
        """What `bar` is, and what to do about it."""
        publish = "the operator publishes it (foltr policy publish); what is clicked waits on the device"
        return "" if self.bar is None else f"{self.bar}: {publish}"

    def take(self, payload: bytes) -> bool:
        """Take a policy from anywhere; return whether it is newer than the one there was. An older one is no news.

        Raises:
            MessageError: it is not this operator's, or cannot be read.
        """
        if self._store.forgotten or not self._follow(payload):
            return False
        log.info(
            "policy_taken",
            client_id=self._client_id,
            version=None if self.newest is None else self.newest.policy.version,
        )
        self.store()
        return True

    def store(self) -> None:
        """Keep the newest policy, if it is not kept yet. What is not kept is obeyed all the same: nothing is sent."""
        if self.newest is None or self._store.policy() == self.newest.signed or self._store.forgotten:
            return
        try:
            self._store.put_policy(self.newest.signed)
        except DataError as error:
            log.warning("policy_not_stored", cause=str(error))  # tried again with the next round

    def believe(self, credentials: Credentials) -> None:
        """Believe the operator by these credentials from now on: its enrolment key has a successor."""
        self._credentials = credentials

    def forget(self) -> None:
        """Be under none: the client was forgotten."""
        self.newest = None

    def _follow(self, payload: bytes, *, in_storage: bool = False) -> bool:
        if self._credentials is None or (self.newest is not None and payload == self.newest.signed):
            return False
        operator = self._credentials.operator_keys
        read = read_policy(payload, operator.stored() if in_storage else operator, self._credentials.federation)
        if self.newest is not None and read.policy.version <= self.newest.policy.version:
            return False
        self.newest = read
        return True


def _is_pinned(credentials: Credentials) -> bool:
    try:
        return credentials.is_pinned
    except MessageError:
        return True  # of what cannot be read nobody knows which federation it is for: it lets nothing out


def _stored(store: DeviceStore) -> SignedPolicy | None:
    """The policy in the store: its signature was checked when it came there, by the operator's key of that day."""
    signed = store.policy()
    if signed is None:
        return None
    try:
        return SignedPolicy(open_envelope(signed).read(Policy), signed)
    except MessageError as error:
        raise DataError(
            f"device store: its policy cannot be read ({error}), and without it nobody knows what may be sent. "
            "Use the software that wrote it"
        ) from error
