"""The terms of a secure sum: the operator's policy, and the federator's choices."""

from dataclasses import dataclass, field

from foltr.core.errors import SettingsError
from foltr.core.methods.registry import usual_clip_norm
from foltr.core.protocol.policies import NEW_POLICY, Policy, SecureRound, cohort_of, is_turn_of
from foltr.core.protocol.signed_policies import SignedPolicy
from foltr.core.protocol.trainings import Training
from foltr.core.protocol.verify_keys import open_verify_key
from foltr.core.secure.sealing import SealingKey


@dataclass(frozen=True)
class SecureSettings:
    """A federator's settings for secure sums at start.

    Args:
        policy: the operator's newest known at start; a newer one holds from the next round on.
        clip_norm: C; None derives it from B, the learning rate and the exploration, as in the service: a fixed one is
            wrong as soon as one of them changes.
        helper_deadline_s: a round is abandoned once a helper has given no useful answer for so long.
        sealing_keys: the federator's, private; policies that ask for norm proofs are sealed to one of them.
    """

    policy: SignedPolicy
    clip_norm: float | None = None
    helper_deadline_s: float = 60.0
    sealing_keys: tuple[SealingKey, ...] = ()

    def terms(self, policy: SignedPolicy, training: Training) -> "SecureTerms":
        """Return the terms of a round that opens under this policy."""
        clip_norm = self.clip_norm
        if clip_norm is None:
            clip_norm = usual_clip_norm(training, policy.policy.n_interactions)
        return SecureTerms(policy, clip_norm, self.verify_key(policy.policy))

    def stored_terms(self, policy: SignedPolicy, clip_norm: float) -> "SecureTerms":
        """Return the terms of a stored round under this policy, with this C.

        A former policy may be sealed to a key that is lost, and a newer one does not change the round's terms: it then
        has no verify key, and the federation continues with the next round.
        """
        return SecureTerms(policy, clip_norm, self._find_verify_key(policy.policy))

    def verify_key(self, policy: Policy) -> bytes | None:
        """Return a policy's verify key; None if it asks for no norm proofs.

        Raises:
            SettingsError: it asks for them, and is sealed to no key of this federator.
        """
        found = self._find_verify_key(policy)
        if found is not None or policy.norm_proof is None:
            return found
        raise SettingsError(
            f"privacy: policy {policy.version} asks for norm proofs, and its verify key is sealed to none of the keys "
            "in the federator's credentials; give it the newest federator.json of the operator's folder, or make a "
            f"policy for the key that it has: {NEW_POLICY}"
        )

    def _find_verify_key(self, policy: Policy) -> bytes | None:
        if policy.norm_proof is None:
            return None
        opened = (open_verify_key(policy, None, key) for key in self.sealing_keys)
        return next((verify_key for verify_key in opened if verify_key is not None), None)


@dataclass(frozen=True)
class SecureTerms:
    """The terms of one round, from its opening to its end.

    Args:
        verify_key: of the policy; None if it asks for no norm proofs, if nothing is checked, e.g. in a replay, or if
            the key that it is sealed to is lost.
        epoch: of the policy, in which the round was opened (`foltr.core.protocol.epochs`); set for asking helpers.
    """

    policy: SignedPolicy
    clip_norm: float
    verify_key: bytes | None = field(default=None, repr=False)
    epoch: int = 0

    @property
    def lacks_verify_key(self) -> bool:
        """Whether the policy asks for norm proofs that cannot be checked here."""
        return self.policy.policy.norm_proof is not None and self.verify_key is None

    def cohort_of(self, round_number: int, client_id: str) -> int:
        """Return which of the round's sums a client's update belongs to."""
        return cohort_of(self.policy.hash, self.policy.policy.cohorts, round_number, client_id)

    def is_turn_of(self, round_number: int, client_id: str) -> bool:
        """Whether a client takes part in the round."""
        return is_turn_of(self.policy.hash, self.policy.policy.period, round_number, client_id)

    @property
    def announced(self) -> SecureRound:
        return SecureRound(policy_hash=self.policy.hash, clip_norm=self.clip_norm)
