"""A device follows the newest policy it has ever received, from any sender, and never an older one.

Policies form a chain: each names those before it. A policy that does not follow from the device's is not its successor,
at any number; the device refuses and reports it. Only the operator can sign policies, and the store has the newest, so
no federator can take a device out of secure sums.
"""

from foltr.core.errors import DataError, MessageError
from foltr.core.extras import install_command, is_installed
from foltr.core.logs import get_logger
from foltr.core.operator.credentials import Credentials
from foltr.core.protocol.codec import open_envelope
from foltr.core.protocol.operator_keys import OperatorKeys, signed_by_operator
from foltr.core.protocol.policies import Policy
from foltr.core.protocol.signed_policies import Lineage, SignedPolicy, lineage_of, read_policy
from foltr.core.protocol.topics import Topics
from foltr.edge_client.events import Observer, PolicyForked, logging_errors_of
from foltr.edge_client.participation import Objection
from foltr.edge_client.store.store import DeviceStore
from foltr.edge_client.store.store_file import MetaKey
from foltr.edge_client.sums.privacy_limits import USUAL_PRIVACY, PrivacyLimits
from foltr.edge_client.trust import Trust

log = get_logger(__name__)


class PinnedPolicy:
    """The policy of one device.

    Args:
        trust: whose operator signs policies; without credentials no policy is accepted, and the stored one stays.
        limits: a newer policy beyond them is adopted too, but the device sends nothing under it.

    Attributes:
        newest: None before the first. Then the federator sees what the device sends, unless ``is_required``.
        fork: a policy that does not follow from the one that the device knew; None without one.
        is_required: the device was enrolled for a secure federation, and sends only under a policy.

    Raises:
        DataError: the stored policy cannot be read, or a newer one cannot be stored.
        MessageError: the policy in the credentials is not their operator's.
    """

    def __init__(
        self,
        trust: Trust,
        store: DeviceStore,
        client_id: str,
        limits: PrivacyLimits = USUAL_PRIVACY,
        on_event: Observer | None = None,
    ) -> None:
        self._limits, self._emit = limits, logging_errors_of(on_event)
        # Once: what was barred stays so until the next start, also if the extra is installed meanwhile.
        self._can_mask = is_installed("secure")
        credentials, self._trust = trust.credentials, trust
        self._store = store
        self._client_id = client_id
        self.is_required = credentials is not None and _is_pinned(credentials)
        self.newest = None if store.forgotten else _stored(store)
        self.fork = None if store.forgotten else _stored_fork(store)
        given = None if credentials is None or store.forgotten else credentials.policy_bytes
        # Its file was checked when it was read, by the operator's key of that day.
        if given is not None and self._follow(given, in_storage=True):
            # Before anything is sent: a pending update was made under another policy, or none.
            self._store.put_policy(given)

    @property
    def objection(self) -> Objection | None:
        """Why the device sends nothing to any round; None if the rounds decide."""
        if self.newest is None:
            return Objection.PINNED if self.is_required else None
        if self.exceeded_limit is not None:
            return Objection.BEYOND_LIMITS
        return None if self._can_mask else Objection.CANNOT_MASK

    @property
    def exceeded_limit(self) -> str | None:
        """Which limit the newest policy exceeds; None if it is within all."""
        return None if self.newest is None else self._limits.excess_of(self.newest.policy)

    @property
    def remedy(self) -> str:
        """What to do about the `objection`, if there is one."""
        if self.objection is Objection.PINNED:
            return "the operator must publish it (foltr policy publish); the device keeps clicks meanwhile"
        if self.objection is Objection.CANNOT_MASK:
            install = install_command("secure")
            return f"run: {install}, and start the application again; the device keeps clicks meanwhile"
        return f"{self.exceeded_limit}. The operator signs another policy, or the application raises its privacy_limits"

    def receive(self, payload: bytes) -> bool:
        """Take a policy from any sender; return whether it is newer than the present one. An older one is ignored.

        Raises:
            MessageError: it is not this operator's, or cannot be read.
        """
        if self._store.forgotten or not self._follow(payload):
            return False
        log.info(
            "policy_adopted",
            client_id=self._client_id,
            version=None if self.newest is None else self.newest.policy.version,
        )
        self.store()
        return True

    def store(self) -> None:
        """Store the newest policy if needed. If that fails it is still followed, and nothing is sent."""
        if self.newest is None or self._store.meta(MetaKey.POLICY) == self.newest.signed or self._store.forgotten:
            return
        try:
            self._store.put_policy(self.newest.signed)
        except DataError as error:
            log.warning("policy_not_stored", cause=str(error))  # tried again with the next round

    def forget(self) -> None:
        """Drop the policy: the client was forgotten."""
        self.newest = self.fork = None

    @property
    def remarks(self) -> tuple[str, ...]:
        """Return what the device's owner should know of the operator's policies."""
        return () if self.fork is None else (str(self.fork),)

    def _follow(self, payload: bytes, *, in_storage: bool = False) -> bool:
        credentials = self._trust.credentials
        if credentials is None or (self.newest is not None and payload == self.newest.signed):
            return False
        operator = credentials.operator_keys
        read = read_policy(payload, operator.stored() if in_storage else operator, credentials.federation)
        known = self.newest
        if known is not None:
            lineage = lineage_of(read, known)
            if not _is_signed_by(operator.stored(), known):
                # Enrolled again by another operator, whose policies do not follow from the stored ones.
                lineage = Lineage.SUCCESSOR if read.version > known.version else Lineage.OLDER
            if lineage is Lineage.FORK:
                self._report_fork(known, read)
            if lineage is not Lineage.SUCCESSOR:
                return False
        self.newest = read
        return True

    def _report_fork(self, known: SignedPolicy, heard: SignedPolicy) -> None:
        """Report a fork once; both policies are stored, since the operator's signatures prove it to everybody."""
        evidence = {MetaKey.POLICY_FORK_KNOWN: known.signed, MetaKey.POLICY_FORK_HEARD: heard.signed}
        if all(self._store.meta(key) == signed for key, signed in evidence.items()):
            return
        self.fork = PolicyForked(known.version, heard.version)
        log.warning("policy_forked", client_id=self._client_id, cause=str(self.fork))
        try:
            self._store.set_meta(evidence)
        except DataError as error:
            log.warning("policy_not_stored", cause=str(error))
        self._emit(self.fork)


def _is_pinned(credentials: Credentials) -> bool:
    try:
        return credentials.is_pinned
    except MessageError:
        return True  # unreadable, so its federation is unknown; pinned: the device sends nothing


def _is_signed_by(operator: OperatorKeys, policy: SignedPolicy) -> bool:
    topic = Topics(policy.policy.federation).policy
    return signed_by_operator(open_envelope(policy.signed), operator, topic)


def _stored(store: DeviceStore) -> SignedPolicy | None:
    """Return the stored policy: its signature was checked on arrival, by the operator's key of that day."""
    signed = store.meta(MetaKey.POLICY)
    if signed is None:
        return None
    try:
        return SignedPolicy(open_envelope(signed).read(Policy), signed)
    except MessageError as error:
        raise DataError(
            f"device store: its policy cannot be read ({error}), so nothing can be sent. Use the software that wrote it"
        ) from error


def _stored_fork(store: DeviceStore) -> PolicyForked | None:
    known, heard = store.meta(MetaKey.POLICY_FORK_KNOWN), store.meta(MetaKey.POLICY_FORK_HEARD)
    if known is None or heard is None:
        return None
    try:
        return PolicyForked(open_envelope(known).read(Policy).version, open_envelope(heard).read(Policy).version)
    except MessageError as error:
        log.warning("stored_policy_fork_not_understood", cause=str(error))
        return None
