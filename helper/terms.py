"""What a helper serves under: a policy that names it, its key for that policy, and whose enrolment is void."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from foltr.core.protocol.helper_messages import HelperRefusalCode
from foltr.core.protocol.membership import Enrolment
from foltr.core.protocol.roster import Roster
from foltr.core.protocol.signed_policies import SignedPolicy
from foltr.core.protocol.tombstones import tombstone_of
from foltr.core.protocol.verify_keys import open_verify_key
from foltr.core.secure.sealing import SealingKey


@dataclass(frozen=True)
class Refusal:
    """A refusal tells the federator why there is no answer."""

    code: HelperRefusalCode
    detail: str


@dataclass(frozen=True)
class Terms:
    """Terms are a policy and this helper's part in it.

    Attributes:
        name: the helper's.
        place: among the policy's helpers, which is that of its seal in each ticket.
        sealing_key: of the round's epoch, which opens seeds.
        verify_key: by which norm proofs are checked; None where the policy asks for none.
    """

    policy: SignedPolicy
    name: str
    place: int
    sealing_key: SealingKey
    verify_key: bytes | None = field(default=None, repr=False)


def find_terms(
    policy: SignedPolicy | None, name: str, signing_key: bytes, sealing_keys: Mapping[bytes, SealingKey], epoch: int
) -> Terms | Refusal:
    """Return the terms under a policy in one of its epochs, or why this helper serves under none.

    Args:
        policy: None where its operator's policy of that hash never arrived.
        name: of this helper.
        signing_key: its public one.
        sealing_keys: all that it has, by their public halves.
        epoch: one that the policy has (`foltr.helper.epochs`).
    """
    if policy is None:
        return Refusal(HelperRefusalCode.UNKNOWN_POLICY, "the operator's policy of this hash has not arrived here")
    helpers = policy.policy.helpers
    place = next((i for i, each in enumerate(helpers) if (each.name, each.signing_key) == (name, signing_key)), None)
    if place is None:
        return Refusal(
            HelperRefusalCode.UNKNOWN_POLICY, f"policy {policy.policy.version} does not name {name} with its key"
        )
    own_key, sealing_key = (
        sealing_keys.get(public) for public in (helpers[place].sealing_key, helpers[place].epoch_keys[epoch])
    )
    if own_key is None or sealing_key is None:
        which = "sealing key" if own_key is None else f"key of epoch {epoch}"
        return Refusal(
            HelperRefusalCode.KEY_DESTROYED, f"the {which} of policy {policy.policy.version} is not in this store"
        )
    verify_key = open_verify_key(policy.policy, place, own_key)
    if verify_key is None and policy.policy.norm_proof is not None:
        detail = f"the verify key of policy {policy.policy.version} is not sealed to {name}; make another policy"
        return Refusal(HelperRefusalCode.VERIFY_KEY_SEALED, f"{detail}: `foltr policy new`")
    return Terms(policy, name, place, sealing_key, verify_key)


class VoidEnrolments:
    """The enrolments that a roster makes void: of clients that were revoked, and of those that were forgotten."""

    def __init__(self, roster: Roster | None) -> None:
        self._void_below = {} if roster is None else {each.client_id: each.void_below for each in roster.revoked}
        self._salt = b"" if roster is None else roster.salt
        self._forgotten = frozenset(() if roster is None else roster.forgotten)

    def __contains__(self, enrolment: Enrolment) -> bool:
        if enrolment.serial < self._void_below.get(enrolment.client_id, 0):
            return True
        return bool(self._forgotten) and tombstone_of(self._salt, enrolment.client_id) in self._forgotten
