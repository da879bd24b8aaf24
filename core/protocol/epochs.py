"""A policy's time is divided into epochs with separate sealing keys; keys of past epochs are destroyed.

Devices seal the seeds of a round to each helper's key of the epoch in which the round was opened, by the federator's
clock. A helper destroys a key by its own clock, an epoch after the key's epoch has ended, or earlier once it has
committed to a set of a later epoch. So a seized helper opens seeds of the last two epochs only. After the last epoch
the policy has ended.
"""

from foltr.core.protocol.policies import Policy

_WARNED_IN_LAST = 1 / 8


def epoch_of(policy: Policy, at: float) -> int:
    """Return the epoch of a moment in epoch seconds, 0 for the first; `Policy.n_epochs` and more after the last."""
    return max(0, int((at - policy.issued_at) // policy.epoch_s))


def has_ended(policy: Policy, at: float) -> bool:
    return epoch_of(policy, at) >= policy.n_epochs


def ends_soon(policy: Policy, at: float) -> bool:
    """Whether it is time for another policy."""
    return at >= policy.ends_at - _WARNED_IN_LAST * (policy.ends_at - policy.issued_at)
