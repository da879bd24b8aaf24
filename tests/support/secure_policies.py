"""Policies for tests, of helpers whose private keys are at hand: they have least noise for their epsilon."""

from foltr.core.protocol.policies import GammaNoise, GaussianNoise, HelperKeys, Policy, SecureEvaluation, SecureVotes
from foltr.core.protocol.signed_policies import issue_policy
from foltr.core.protocol.signing import SigningKey
from foltr.core.protocol.verify_keys import seal_verify_key
from foltr.core.secure.accounting import least_scale, least_variance
from foltr.core.secure.encoding import bound_for
from foltr.core.secure.sealing import SealingKey

OPERATOR = SigningKey(bytes(range(32)))
SEALING = {name: SealingKey(bytes([i + 1]) * 32) for i, name in enumerate(("north", "south"))}
HELPERS = [
    HelperKeys(name=name, signing_key=bytes([i + 1]) * 32, sealing_key=key.public, epoch_keys=[key.public])
    for i, (name, key) in enumerate(SEALING.items())
]
FEDERATOR_SEALING = SealingKey(b"f" * 32)
VERIFY_KEY = b"v" * 32


def policy(
    dim=16,
    *,
    k=20,
    epsilon=8.0,
    delta=1e-6,
    gamma=False,
    n_shares=None,
    key=OPERATOR,
    proofs=False,
    vote_weight=0,
    evaluation_weight=0,
    credit_weight=0,
    after=None,
    **changed,
):
    """A policy as its operator signs it; of two interactions an update, unless told otherwise.

    It follows from the policy ``after``, and asks for norm proofs under `VERIFY_KEY` and for what has a weight.
    """
    bound = bound_for(dim)
    if after is not None:
        chain = [after.hash, *after.policy.predecessors]
        changed = {"version": after.version + 1, "predecessors": chain, **changed}
    promise = {"epsilon": epsilon, "delta": delta, "participations": k, "norm_proofs": proofs}
    if gamma:
        noise = GammaNoise(scale=least_scale(bound, **promise), n_shares=n_shares)
    else:
        weights = {"vote_weight": vote_weight, "evaluation_weight": evaluation_weight, "credit_weight": credit_weight}
        noise = GaussianNoise(variance=least_variance(bound, **weights, **promise))
    if proofs:
        version, helpers = changed.get("version", 1), changed.get("helpers", HELPERS)
        sealed = seal_verify_key(VERIFY_KEY, "mail", version, helpers, FEDERATOR_SEALING.public)
        changed = {"norm_proof": sealed, **changed}
    if vote_weight:
        changed = {"votes": SecureVotes(weight=vote_weight), **changed}
    if evaluation_weight:
        evaluation = SecureEvaluation(weight=evaluation_weight, credit_weight=credit_weight or None)
        changed = {"evaluation": evaluation, **changed}
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
        "epoch_s": 10**10,
        "epsilon": epsilon,
        "delta": delta,
    }
    return issue_policy(key, Policy(**{**fields, **changed}))
