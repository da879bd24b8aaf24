"""When a helper destroys the key of an epoch, and which epochs it serves, by its own clock. No I/O.

What is destroyed stays so: a clock that goes back brings nothing back. One that jumps ahead destroys keys too early,
which costs rounds until it is right and the next epoch with a key has begun; it tells nobody anything.
"""

from foltr.core.protocol.epochs import epoch_of
from foltr.core.protocol.helper_messages import HelperRefusalCode
from foltr.core.protocol.policies import Policy
from foltr.helper.terms import Refusal

_KEPT = 1
"""So many epochs a key outlives its own: rounds that were opened in it end, and clocks differ."""


def keys_overdue(policy: Policy, helper: str, now: float) -> list[bytes]:
    """Return the public halves of a helper's epoch keys whose time is over."""
    keys = policy.helper(helper)
    return [] if keys is None else keys.epoch_keys[: max(0, epoch_of(policy, now) - _KEPT)]


def keys_before(policy: Policy, helper: str, epoch: int) -> list[bytes]:
    """Return the public halves of a helper's keys of all epochs before one."""
    keys = policy.helper(helper)
    return [] if keys is None else keys.epoch_keys[:epoch]


def refuse_epoch(policy: Policy, epoch: int, now: float) -> Refusal | None:
    """Say why this helper serves in no round of an epoch, if so: it is after the policy's last, or far ahead."""
    if epoch >= policy.n_epochs:
        return Refusal(
            HelperRefusalCode.KEY_DESTROYED,
            f"policy {policy.version} has ended: it has {policy.n_epochs} epochs; `foltr helper keys`, "
            "`foltr policy new`, `foltr policy publish`",
        )
    if epoch > (own := epoch_of(policy, now)) + 1:
        return Refusal(
            HelperRefusalCode.EPOCH_AHEAD,
            f"the round is of epoch {epoch} of policy {policy.version}, and by this helper's clock it is {own}: see "
            "that the federator's clock and the helper's are right",
        )
    return None
