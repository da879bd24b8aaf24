"""What a helper trusts: the newest policies and roster of the operator, and the newest key of the federator.

They are stored, so a broker that loses its retained messages cannot undo them.
"""

from contextlib import suppress

from foltr.core.errors import MessageError
from foltr.core.logs import get_logger
from foltr.core.operator.credentials import Credentials
from foltr.core.protocol.enrolment import read_roster
from foltr.core.protocol.operator_keys import OperatorKeys, read_kept_enrolments
from foltr.core.protocol.receipts import ReceiptCode
from foltr.core.protocol.roster import KeptEnrolments
from foltr.core.protocol.roster_assembly import RosterAssembler
from foltr.core.protocol.signed_policies import SignedPolicy, read_policy
from foltr.core.protocol.topics import Topics
from foltr.helper.store import HelperStore
from foltr.helper.terms import Refusal, Terms, VoidEnrolments, find_terms

log = get_logger(__name__)


class HelperTrust:
    """What one helper trusts now.

    Args:
        credentials: the helper's, whose enrolment key says who the operator is.

    Attributes:
        void: the enrolments that the newest roster makes void.
    """

    def __init__(self, credentials: Credentials, store: HelperStore) -> None:
        self._credentials = credentials
        self._kept: KeptEnrolments | None = None
        self._topics = Topics(credentials.federation)
        self._store = store
        self._assembler = RosterAssembler(self._topics, credentials.enrolment_public_key)
        self._policies: dict[bytes, SignedPolicy] = {}
        self._roster_version = 0
        self.void = VoidEnrolments(None)
        self._load()

    @property
    def operator(self) -> OperatorKeys:
        """The operator's trusted keys, and which enrolments of its former keys still count."""
        return self._credentials.operator_keys.keeping(self._kept)

    @property
    def federator_key(self) -> bytes:
        return self._credentials.federator_public_key

    def accept(self, topic: str, payload: bytes) -> None:
        """Take a statement of the operator. MessageError if the operator did not make it."""
        if topic == self._topics.operator_key:
            self._accept_succession(payload)
        elif topic == self._topics.kept_enrolments:
            self._accept_kept_enrolments(payload)
        elif topic == self._topics.policy:
            self._accept_policy(read_policy(payload, self.operator, self._credentials.federation))
        elif topic == self._topics.federator_key:
            self._accept_federator_key(payload)
        elif (roster := self._assembler.add(topic, payload)) is not None and self._adopt_roster(roster):
            self._store.set_meta("roster", roster)
            log.info("roster_adopted", version=self._roster_version)

    @property
    def policies(self) -> list[SignedPolicy]:
        """All policies that have arrived."""
        return list(self._policies.values())

    def terms(self, policy_hash: bytes, epoch: int, now: float) -> Terms | Refusal:
        """Return the terms under the policy of this hash in one of its epochs, or the reason for a refusal."""
        name, key = self._credentials.name, self._credentials.key.public
        return find_terms(self._policies.get(policy_hash), name, key, self._store.sealing_key, epoch, now)

    def active_policies(self) -> list[SignedPolicy]:
        """Return the policies that this helper still has the last epoch's key of, the oldest first."""
        name, own = self._credentials.name, self._credentials.key.public
        named = ((each, each.policy.helper(name)) for each in self._policies.values())
        return [
            each
            for each, keys in named
            if keys is not None and keys.signing_key == own and self._store.sealing_key(keys.epoch_keys[-1]) is not None
        ]

    def _load(self) -> None:
        """Load what the store has, then what came with the credentials."""
        issued = self._credentials.signed_policy
        if (succession := self._store.meta("succession")) is not None:
            self._succeed(succession)
        if (kept := self._store.meta("kept_enrolments")) is not None:
            with suppress(MessageError):  # of the key before; the broker has the newest
                self._kept = read_kept_enrolments(kept, self.operator, self._credentials.federation)
        stored = self.operator.stored()
        for signed in self._store.policies():
            policy = read_policy(signed, stored, self._credentials.federation)
            self._policies[policy.hash] = policy
        if (roster := self._store.meta("roster")) is not None:
            self._adopt_roster(roster, stored)
        if (statement := self._store.meta("federator_key")) is not None:
            with suppress(MessageError):  # of a former enrolment key, and not the newest; the broker has that
                self._believe(statement)
        if issued is not None:
            self._accept_policy(issued)

    def _accept_policy(self, policy: SignedPolicy) -> None:
        newest = max((each.policy.version for each in self._policies.values()), default=0)
        if policy.policy.version > newest:
            self._store.keep_policy(policy)
            self._policies[policy.hash] = policy
            log.info("policy_adopted", version=policy.policy.version, hash=policy.hash.hex())

    def _accept_succession(self, payload: bytes) -> None:
        if payload and self._succeed(payload):
            self._store.set_meta("succession", payload)
            log.info("enrolment_key_rotated")

    def _succeed(self, payload: bytes) -> bool:
        """Take a succession of the operator's enrolment key; return whether it is new."""
        newer = self._credentials.with_succession(payload)
        is_news = newer.succession != self._credentials.succession
        self._credentials = newer
        self._assembler = RosterAssembler(self._topics, newer.enrolment_public_key)
        return is_news

    def _accept_kept_enrolments(self, payload: bytes) -> None:
        kept = read_kept_enrolments(payload, self.operator, self._credentials.federation)
        if self._kept is None or kept.sequence > self._kept.sequence:
            self._store.set_meta("kept_enrolments", payload)
            self._kept = kept

    def _adopt_roster(self, payload: bytes, operator: OperatorKeys | None = None) -> bool:
        """Adopt a roster if it is newer than the current one; return whether it was."""
        roster = read_roster(payload, operator or self.operator, self._credentials.federation)
        if roster.version <= self._roster_version:
            return False
        self._roster_version, self.void = roster.version, VoidEnrolments(roster)
        return True

    def _accept_federator_key(self, statement: bytes) -> None:
        if self._believe(statement):
            self._store.set_meta("federator_key", statement)
            log.info("federator_key_adopted", sequence=self._credentials.federator_key_sequence)

    def _believe(self, statement: bytes) -> bool:
        """Take a statement of the federator's key; return whether it is new. An older one is ignored."""
        try:
            newer = self._credentials.with_federator_key(statement)
        except MessageError as error:
            if error.code == ReceiptCode.REPLAYED:
                return False
            raise
        is_news = newer != self._credentials
        self._credentials = newer
        return is_news
