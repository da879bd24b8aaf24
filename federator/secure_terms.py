"""What a secure sum is under: the operator's policy, and what the federator chooses."""

from dataclasses import dataclass

from foltr.methods.registry import usual_clip_norm
from foltr.protocol.policies import SecureRound, cohort_of, is_turn_of
from foltr.protocol.signed_policies import SignedPolicy
from foltr.protocol.trainings import Training


@dataclass(frozen=True)
class SecureSettings:
    """What a federation with secure sums is told at start.

    Args:
        policy: the operator's newest that is known at start; a newer one is taken up with the round after it comes.
        clip_norm: C; None follows from B, the learning rate and the exploration.
        helper_deadline_s: a round is abandoned once a helper that is asked has said nothing useful for so long.
    """

    policy: SignedPolicy
    clip_norm: float | None = None
    helper_deadline_s: float = 60.0

    def terms(self, policy: SignedPolicy, training: Training) -> "SecureTerms":
        """Return what a round that opens under this policy is under."""
        if self.clip_norm is not None:
            return SecureTerms(policy, self.clip_norm)
        return SecureTerms(policy, usual_clip_norm(training, policy.policy.n_interactions))


@dataclass(frozen=True)
class SecureTerms:
    """What one round is under, from its opening to its end."""

    policy: SignedPolicy
    clip_norm: float

    def cohort_of(self, round_number: int, client_id: str) -> int:
        """Return which of the round's sums a client's update is for."""
        return cohort_of(self.policy.hash, self.policy.policy.cohorts, round_number, client_id)

    def is_turn_of(self, round_number: int, client_id: str) -> bool:
        """Whether a client takes part in the round."""
        return is_turn_of(self.policy.hash, self.policy.policy.period, round_number, client_id)

    @property
    def announced(self) -> SecureRound:
        return SecureRound(policy_hash=self.policy.hash, clip_norm=self.clip_norm)
