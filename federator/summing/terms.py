"""What a secure sum is under: the operator's policy, and what the federator chooses."""

import math
from dataclasses import dataclass

from foltr.protocol.policies import SecureRound
from foltr.protocol.signed_policies import SignedPolicy
from foltr.protocol.trainings import Training

CLIP_NORM_OF_ONE = 0.15
"""C for one interaction with a learning rate of 0.1: about the L2 norm of FPDGD's updates early in training."""


@dataclass(frozen=True)
class SecureSettings:
    """What a federation with secure sums is told at start.

    Args:
        policy: the operator's newest that is known at start; a newer one is taken up with the round after it comes.
        clip_norm: C; None follows from B and the learning rate.
        helper_deadline_s: a round is abandoned once a helper that is asked has said nothing useful for so long.
    """

    policy: SignedPolicy
    clip_norm: float | None = None
    helper_deadline_s: float = 60.0

    def terms(self, policy: SignedPolicy, training: Training) -> "SecureTerms":
        """Return what a round that opens under this policy is under."""
        if self.clip_norm is not None:
            return SecureTerms(policy, self.clip_norm)
        return SecureTerms(policy, default_clip_norm(policy.policy.n_interactions, training))


@dataclass(frozen=True)
class SecureTerms:
    """What one round is under, from its opening to its end."""

    policy: SignedPolicy
    clip_norm: float

    @property
    def announced(self) -> SecureRound:
        return SecureRound(policy_hash=self.policy.hash, clip_norm=self.clip_norm)


def default_clip_norm(n_interactions: int, training: Training) -> float:
    """Return C = 0.15 sqrt(B) (learning rate / 0.1)."""
    rate: float = getattr(training, "learning_rate", 0.1)
    return CLIP_NORM_OF_ONE * math.sqrt(n_interactions) * rate / 0.1
