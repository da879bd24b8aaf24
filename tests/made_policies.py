"""Policies for tests, of helpers whose private keys are at hand: they have least noise for their epsilon."""

from foltr.protocol.policies import GammaNoise, GaussianNoise, HelperKeys, Policy
from foltr.protocol.signed_policies import issue_policy
from foltr.protocol.signing import SigningKey
from foltr.secure.accounting import gaussian_variance, laplace_scale, rho_for
from foltr.secure.encoding import bound_for
from foltr.secure.sealing import SealingKey

OPERATOR = SigningKey(bytes(range(32)))
SEALING = {name: SealingKey(bytes([i + 1]) * 32) for i, name in enumerate(("north", "south"))}
HELPERS = [
    HelperKeys(name=name, signing_key=bytes([i + 1]) * 32, sealing_key=key.public)
    for i, (name, key) in enumerate(SEALING.items())
]


def policy(dim=16, *, k=20, epsilon=8.0, delta=1e-6, gamma=False, n_shares=None, key=OPERATOR, **changed):
    """A policy as its operator signs it; of two interactions an update, unless told otherwise."""
    bound = bound_for(dim)
    if gamma:
        noise = GammaNoise(scale=laplace_scale(bound, epsilon, k), n_shares=n_shares)
    else:
        noise = GaussianNoise(variance=gaussian_variance(bound, rho_for(epsilon, delta), k))
    fields = {
        "federation": "mail",
        "version": 1,
        "issued_at": 1000.0,
        "helpers": HELPERS,
        "noise": noise,
        "dim": dim,
        "bound": bound,
        "n_min": 10,
        "n_max": 1000,
        "n_interactions": 2,
        "max_participations": k,
        "epsilon": epsilon,
        "delta": delta,
    }
    return issue_policy(key, Policy(**{**fields, **changed}))
