"""What a secure sum is under: the operator's policy, and what the federator chooses."""

from dataclasses import dataclass, field

from foltr.core.errors import SettingsError
from foltr.core.methods.registry import usual_clip_norm
from foltr.core.protocol.policies import Policy, SecureRound, cohort_of, is_turn_of
from foltr.core.protocol.signed_policies import SignedPolicy
from foltr.core.protocol.trainings import Training
from foltr.core.protocol.verify_keys import open_verify_key
from foltr.core.secure.sealing import SealingKey


@dataclass(frozen=True)
class SecureSettings:
    """What a federation with secure sums is told at start.

    Args:
        policy: the operator's newest that is known at start; a newer one is taken up with the round after it comes.
        clip_norm: C; None follows from B, the learning rate and the exploration, as it does in the service: one that
            is chosen by hand is wrong as soon as one of them changes.
        helper_deadline_s: a round is abandoned once a helper that is asked has said nothing useful for so long.
        sealing_keys: private, of the federator; policies that ask for norm proofs are sealed to one of them.
    """

    policy: SignedPolicy
    clip_norm: float | None = None
    helper_deadline_s: float = 60.0
    sealing_keys: tuple[SealingKey, ...] = ()

    def terms(self, policy: SignedPolicy, training: Training) -> "SecureTerms":
        """Return what a round that opens under this policy is under."""
        clip_norm = self.clip_norm
        if clip_norm is None:
            clip_norm = usual_clip_norm(training, policy.policy.n_interactions)
        return SecureTerms(policy, clip_norm, self.verify_key(policy.policy))

    def stored_terms(self, policy: SignedPolicy, clip_norm: float) -> "SecureTerms":
        """Return what a stored round under this policy, with this C, is under.

        A former policy may be sealed to a key that is lost, and no newer one changes what the round is under: it is
        without a verify key then, and the federation goes on with the round after it.
        """
        return SecureTerms(policy, clip_norm, self._find_verify_key(policy.policy))

    def verify_key(self, policy: Policy) -> bytes | None:
        """Return a policy's verify key; None where it asks for no norm proofs.

        Raises:
            SettingsError: it asks for them, and is sealed to no key of this federator.
        """
        found = self._find_verify_key(policy)
        if found is not None or policy.norm_proof is None:
            return found
        raise SettingsError(
            f"privacy: policy {policy.version} asks for norm proofs, and its verify key is sealed to none of the keys "
            "in the federator's credentials; give it the newest federator.json of the operator's folder, or make a "
            "policy for the key that it has: `foltr policy new`"
        )

    def _find_verify_key(self, policy: Policy) -> bytes | None:
        if policy.norm_proof is None:
            return None
        opened = (open_verify_key(policy, None, key) for key in self.sealing_keys)
        return next((verify_key for verify_key in opened if verify_key is not None), None)


@dataclass(frozen=True)
class SecureTerms:
    """What one round is under, from its opening to its end.

    Args:
        verify_key: of the policy; None where it asks for no norm proofs, where nothing is checked any more, as in a
            replay, and where the key that it is sealed to is lost.
        epoch: of the policy, in which the round was opened (`foltr.core.protocol.epochs`); set for asking helpers.
    """

    policy: SignedPolicy
    clip_norm: float
    verify_key: bytes | None = field(default=None, repr=False)
    epoch: int = 0

    @property
    def lacks_verify_key(self) -> bool:
        """Whether the policy asks for norm proofs, and nobody here can check them."""
        return self.policy.policy.norm_proof is not None and self.verify_key is None

    def cohort_of(self, round_number: int, client_id: str) -> int:
        """Return which of the round's sums a client's update is for."""
        return cohort_of(self.policy.hash, self.policy.policy.cohorts, round_number, client_id)

    def is_turn_of(self, round_number: int, client_id: str) -> bool:
        """Whether a client takes part in the round."""
        return is_turn_of(self.policy.hash, self.policy.policy.period, round_number, client_id)

    @property
    def announced(self) -> SecureRound:
        return SecureRound(policy_hash=self.policy.hash, clip_norm=self.clip_norm)
