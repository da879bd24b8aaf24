"""What a helper serves under: a policy that names it, its keys for that policy, and the void enrolments. No I/O."""

from collections.abc import Callable
from dataclasses import dataclass, field

from foltr.core.protocol.epochs import epoch_of
from foltr.core.protocol.helper_messages import HelperRefusalCode
from foltr.core.protocol.membership import Enrolment
from foltr.core.protocol.policies import NEW_POLICY, Policy
from foltr.core.protocol.roster import Roster
from foltr.core.protocol.signed_policies import SignedPolicy
from foltr.core.protocol.tombstones import tombstone_of
from foltr.core.protocol.verify_keys import open_verify_key
from foltr.core.secure.sealing import SealingKey

# How many epochs a key outlives its own: rounds of that epoch still have to end, and clocks differ.
_EPOCHS_KEPT = 1


@dataclass(frozen=True)
class Refusal:
    """Tells the federator why it gets no answer."""

    code: HelperRefusalCode
    detail: str


@dataclass(frozen=True)
class Terms:
    """Terms are a policy and this helper's part in it.

    Attributes:
        name: the helper's.
        place: its index among the policy's helpers, and that of its seal in each ticket.
        sealing_key: of the round's epoch, which opens seeds.
        verify_key: checks norm proofs; None if the policy asks for none.
    """

    policy: SignedPolicy
    name: str
    place: int
    sealing_key: SealingKey
    verify_key: bytes | None = field(default=None, repr=False)


def find_terms(
    policy: SignedPolicy | None,
    name: str,
    signing_key: bytes,
    sealing_key: Callable[[bytes], SealingKey | None],
    epoch: int,
    now: float,
) -> Terms | Refusal:
    """Return the terms under a policy in one of its epochs, or why this helper refuses to serve under it.

    Args:
        policy: None if the operator's policy of that hash never arrived.
        name: of this helper.
        signing_key: its public one.
        sealing_key: finds a key by its public half, if the store has it.
        now: by this helper's own clock, in epoch seconds.
    """
    if policy is None:
        return Refusal(HelperRefusalCode.UNKNOWN_POLICY, "the operator's policy with this hash has not arrived here")
    rules, version = policy.policy, policy.policy.version
    place = next((i for i, one in enumerate(rules.helpers) if (one.name, one.signing_key) == (name, signing_key)), None)
    if place is None:
        return Refusal(HelperRefusalCode.UNKNOWN_POLICY, f"policy {version} does not name {name} with its key")
    if epoch >= rules.n_epochs:
        return Refusal(
            HelperRefusalCode.KEY_DESTROYED,
            f"policy {version} has ended: it has {rules.n_epochs} epochs; `foltr helper keys`, `{NEW_POLICY}`, "
            "`foltr policy publish`",
        )
    if epoch > (own := epoch_of(rules, now)) + 1:
        return Refusal(
            HelperRefusalCode.EPOCH_AHEAD,
            f"the round is of epoch {epoch} of policy {version}, but this helper's clock says {own}: check the "
            "clocks of federator and helper",
        )
    keys = rules.helpers[place]
    own_key, key_of_epoch = sealing_key(keys.sealing_key), sealing_key(keys.epoch_keys[epoch])
    if own_key is None or key_of_epoch is None:
        which = "sealing key" if own_key is None else f"key of epoch {epoch}"
        return Refusal(HelperRefusalCode.KEY_DESTROYED, f"the {which} of policy {version} is not in this store")
    verify_key = open_verify_key(rules, place, own_key)
    if verify_key is None and rules.norm_proof is not None:
        return Refusal(
            HelperRefusalCode.VERIFY_KEY_SEALED,
            f"the verify key of policy {version} is not sealed to {name}; make another policy: `{NEW_POLICY}`",
        )
    return Terms(policy, name, place, key_of_epoch, verify_key)


def keys_overdue(policy: Policy, helper: str, now: float) -> list[bytes]:
    """Return the public halves of a helper's epoch keys that have expired by its own clock.

    Destroyed keys stay destroyed when the clock goes back. A clock that jumps ahead destroys keys too early; rounds
    then fail until it is right and the next epoch with a key begins.
    """
    return keys_before(policy, helper, max(0, epoch_of(policy, now) - _EPOCHS_KEPT))


def keys_before(policy: Policy, helper: str, epoch: int) -> list[bytes]:
    """Return the public halves of a helper's keys of all epochs before one."""
    keys = policy.helper(helper)
    return [] if keys is None else keys.epoch_keys[:epoch]


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
