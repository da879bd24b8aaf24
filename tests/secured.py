"""What secure sums need in a test: helpers' keys, and the policy that names them."""

from dataclasses import dataclass, field
from typing import Any

from foltr.protocol.policies import GaussianNoise, HelperKeys, Policy, least_noise
from foltr.protocol.signed_policies import SignedPolicy, issue_policy
from foltr.protocol.signing import SigningKey
from foltr.secure.encoding import bound_for
from foltr.secure.sealing import SealingKey

FEDERATION = "mail"


@dataclass(frozen=True)
class HelperIdentity:
    """A helper's private keys."""

    name: str
    signing: SigningKey = field(default_factory=SigningKey.generate)
    sealing: SealingKey = field(default_factory=SealingKey.generate)

    @property
    def keys(self) -> HelperKeys:
        return HelperKeys(name=self.name, signing_key=self.signing.public, sealing_key=self.sealing.public)


HELPERS = (HelperIdentity("ada"), HelperIdentity("bob"))


def policy_of(
    helpers: tuple[HelperIdentity, ...] = HELPERS, *, dim: int = 1, epsilon: float = 1e6, **changes: Any
) -> Policy:
    """Make a policy with next to no noise, and sums of two clients or more."""
    fields: dict[str, Any] = {
        "federation": FEDERATION,
        "version": 1,
        "issued_at": 0.0,
        "helpers": [each.keys for each in helpers],
        "noise": GaussianNoise(variance=10**12),
        "dim": dim,
        "bound": bound_for(dim),
        "n_min": 2,
        "n_max": 10_000,
        "n_interactions": 1,
        "max_participations": 20,
        "epsilon": epsilon,
        "delta": 1e-6,
    }
    drafted = Policy(**(fields | changes))
    if "noise" in changes:
        return drafted
    return drafted.model_copy(update={"noise": GaussianNoise(variance=least_noise(drafted))})


def signed_policy_of(operator_key: SigningKey, **changes: Any) -> SignedPolicy:
    return issue_policy(operator_key, policy_of(**changes))
