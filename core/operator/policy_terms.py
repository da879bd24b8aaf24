"""The terms an operator asks of a policy, the resulting policy, and a description of its costs."""

import math
import os
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import NormalDist
from typing import Any, Final, Literal

from pydantic import ValidationError

from foltr.core.errors import SettingsError
from foltr.core.protocol.policies import (
    N_MAX_HELPERS,
    N_MIN_HELPERS,
    GammaNoise,
    GaussianNoise,
    HelperKeys,
    L2NormProof,
    Policy,
    SecureEvaluation,
    SecureVotes,
    replace_epsilon_of,
)
from foltr.core.protocol.verify_keys import seal_verify_key
from foltr.core.secure.accounting import (
    DEFAULT_DELTA,
    DEFAULT_EPSILON,
    DEFAULT_PARTICIPATIONS,
    default_evaluation_weight,
    default_vote_weight,
    laplace_deviation,
    least_scale,
    least_variance,
    squared_sensitivity,
)
from foltr.core.secure.encoding import bound_for
from foltr.core.secure.mechanisms import MechanismName
from foltr.core.secure.norm_proof import VERIFY_KEY_BYTES
from foltr.core.secure.plan import (
    LEAST_CLIENTS,
    TYPICAL_L1,
    NormProof,
    noise_to_update,
    period_for,
    ratio_text,
    verdict_on,
)

NoiseBy = Literal["helpers", "clients"]
CLIENTS_FOR_COHORTS: Final = 400
"""Without norm proofs a round of so many clients is divided: a hostile device then spoils only one of several sums."""
DEFAULT_COHORTS: Final = 20
LEAST_OF_MANY: Final = 10
"""Clients of a cohort, if a round has several: helpers then open small sums, protected only by the noise."""
DEFAULT_N_MAX: Final = 100_000
DEFAULT_EPOCH_HOURS: Final = 168
"""A week: helpers' keys for 64 epochs last 64 weeks."""
_RARE: Final = 0.01


@dataclass(frozen=True)
class PolicyTerms:
    """The terms an operator asks of a policy; None for those that follow from the rest.

    Attributes:
        helpers: who helps.
        mechanism: which noise.
        noise_by: who draws it; clients may only draw that of ``gamma``.
        epsilon, delta: of all participations of a client together.
        participations: k, of a client in its life.
        clients: of the federation.
        rounds: in which a client takes part k times.
        dim: d, how many numbers an update has.
        interactions: B, of every update.
        norm_proof: what each message proves of its vector.
        votes: whether devices vote with their updates; None: if the noise can protect a vote, and proofs limit it to
            one, which is with ``gaussian`` and ``l2``.
        evaluation: whether devices report their lists' rewards and credits with their updates; None likewise.
        cohorts: G; 20 if a round has 400 clients without proofs, else 1.
        n_min: clients of a cohort; 100, or 10 in one of several.
        n_max: likewise, at most.
        epoch_hours: how long seeds are sealed to the same keys of helpers.
        shares: t, if clients draw the noise; the rest of n_min may reveal their draws to others.
    """

    helpers: tuple[HelperKeys, ...]
    mechanism: MechanismName = "gaussian"
    noise_by: NoiseBy = "helpers"
    epsilon: float = DEFAULT_EPSILON
    delta: float = DEFAULT_DELTA
    participations: int = DEFAULT_PARTICIPATIONS
    clients: int = 2000
    rounds: int = 200
    dim: int = 136
    interactions: int = 5
    norm_proof: NormProof = "l2"
    votes: bool | None = None
    evaluation: bool | None = None
    cohorts: int | None = None
    n_min: int | None = None
    n_max: int = DEFAULT_N_MAX
    shares: int | None = None
    epoch_hours: int = DEFAULT_EPOCH_HOURS


def policy_of(
    terms: PolicyTerms, federation: str, version: int, now: float, federator_key: bytes | None = None
) -> Policy:
    """Return the policy for these terms, with a verify key that nobody else ever sees.

    Args:
        federator_key: public, to which the federator's copy of the verify key is sealed.

    Raises:
        SettingsError: no policy can have these terms.
    """
    if not N_MIN_HELPERS <= len(terms.helpers) <= N_MAX_HELPERS:
        raise SettingsError(
            f"helper: {len(terms.helpers)} given; a policy names {N_MIN_HELPERS} to {N_MAX_HELPERS}, at least one "
            "of whom must be honest: --helper FILE for each"
        )
    if terms.participations < 1 or terms.rounds < 1:
        raise SettingsError("participations and rounds must be at least 1")
    period = period_for(terms.rounds, terms.participations)
    is_divided = terms.norm_proof == "none" and terms.clients // period >= CLIENTS_FOR_COHORTS
    cohorts = terms.cohorts or (DEFAULT_COHORTS if is_divided else 1)
    n_min = terms.n_min or (LEAST_CLIENTS if cohorts == 1 else LEAST_OF_MANY)
    bound = bound_for(terms.dim)
    votes = SecureVotes(weight=default_vote_weight(bound)) if _is_wanted(terms.votes, terms) else None
    evaluation = None
    if _is_wanted(terms.evaluation, terms):
        evaluation = SecureEvaluation(weight=default_evaluation_weight(bound), credit_weight=default_vote_weight(bound))
    try:
        return Policy(
            federation=federation,
            version=version,
            issued_at=now,
            helpers=list(terms.helpers),
            noise=_noise_of(terms, bound, n_min, votes, evaluation),
            dim=terms.dim,
            bound=bound,
            n_min=n_min,
            n_max=terms.n_max,
            n_interactions=terms.interactions,
            max_participations=terms.participations,
            period=period,
            cohorts=cohorts,
            epoch_s=terms.epoch_hours * 3600,
            epsilon=terms.epsilon,
            delta=terms.delta,
            norm_proof=_norm_proof_of(terms, federation, version, federator_key),
            votes=votes,
            evaluation=evaluation,
        )
    except ValidationError as error:
        raise SettingsError(f"policy: {_problem(error)}") from error


def costs_in_words(policy: Policy, clients: int) -> list[str]:
    """Describe what a policy promises, its cost for a federation with so many clients, and its effects.

    Args:
        policy: any.
        clients: of the federation.
    """
    n = clients // policy.period
    ratio = _noise_to_update(policy, n)
    delta = f" with delta {policy.claimed_delta:g}" if policy.claimed_delta else ""
    cohorts = "one cohort" if policy.cohorts == 1 else f"{policy.cohorts} cohorts"
    promise = (
        f"epsilon {policy.epsilon:g}{delta} for {policy.max_participations} participations of a device in its "
        f"life, of {policy.n_interactions} interactions each; then it stops sending, unless a later policy has a "
        "larger epsilon or delta"
    )
    replaced = (
        "this compares its updates with zeros (zero-out); compared with other updates (replace) it is epsilon "
        f"{replace_epsilon_of(policy):.3g}{delta}"
    )
    round_size = (
        f"of {clients:,} devices about {n:,} take part in a round (period {policy.period}), in {cohorts} of "
        f"{policy.n_min:,} or more"
    )
    noise = f"noise {ratio_text(ratio)} times a typical mean update: {verdict_on(ratio)}"
    hostile = _about_hostile_devices(policy)
    lines = [promise, replaced, round_size, noise, hostile, _about_votes(policy, n), _about_evaluation(policy, n)]
    lines.append(_about_epochs(policy))
    if (missed := _share_unopened(policy, clients)) > _RARE:
        lines.append(
            f"{missed:.0%} of cohorts have fewer than {policy.n_min:,} and are not opened: have more devices or "
            "participations, fewer rounds or cohorts, or a lower n_min"
        )
    if policy.version > 1 and not policy.claimed_delta:
        lines.append(
            f"a device that has taken part with gaussian noise or norm proofs before has the promise with delta "
            f"{policy.delta:g}"
        )
    if isinstance(policy.noise, GammaNoise) and policy.noise.n_shares is not None:
        lines.append(
            f"the promise holds while {policy.noise.n_shares:,} of the {policy.n_min:,} devices of the smallest cohort "
            f"tell nobody what noise they drew: {policy.n_min - policy.noise.n_shares:,} may"
        )
    return lines


def _is_wanted(asked: bool | None, terms: PolicyTerms) -> bool:
    """Return whether a policy has votes or evaluations: as requested, or by default if they can be protected."""
    return (terms.mechanism == "gaussian" and terms.norm_proof == "l2") if asked is None else asked


def _noise_of(
    terms: PolicyTerms, bound: int, n_min: int, votes: SecureVotes | None, evaluation: SecureEvaluation | None
) -> GaussianNoise | GammaNoise:
    if terms.noise_by == "clients" and terms.mechanism != "gamma":
        raise SettingsError("noise_by: only the noise of gamma can be divided among clients")
    promise: dict[str, Any] = {
        "epsilon": terms.epsilon,
        "delta": terms.delta,
        "participations": terms.participations,
        "norm_proofs": terms.norm_proof == "l2",
    }
    if terms.mechanism == "gaussian":
        if terms.shares is not None:
            raise SettingsError("shares: only clients share noise: --mechanism gamma --noise-by clients")
        weights = {
            "vote_weight": 0 if votes is None else votes.weight,
            "evaluation_weight": 0 if evaluation is None else evaluation.weight,
            "credit_weight": 0 if evaluation is None else evaluation.credit_weight or 0,
        }
        least = least_variance(bound, **(promise | weights))
        # The search for rho is in floating-point numbers; this must suffice despite another machine's last digit.
        return GaussianNoise(variance=least + least // 10**6 + 1)
    scale = least_scale(bound, **promise)
    if terms.noise_by == "helpers":
        if terms.shares is not None:
            raise SettingsError("shares: only clients share noise: --noise-by clients")
        return GammaNoise(scale=scale)
    return GammaNoise(scale=scale, n_shares=terms.shares or max(2, n_min * 9 // 10))


def _norm_proof_of(
    terms: PolicyTerms, federation: str, version: int, federator_key: bytes | None
) -> L2NormProof | None:
    """Draw the policy's verify key, which is forgotten here once it is sealed."""
    if terms.norm_proof == "none":
        return None
    if federator_key is None:
        raise SettingsError(
            "norm_proof: the operator's folder knows no sealing key of the federator; make one: foltr federator "
            "rotate-key, or choose --norm-proof none"
        )
    return seal_verify_key(os.urandom(VERIFY_KEY_BYTES), federation, version, terms.helpers, federator_key)


def _about_hostile_devices(policy: Policy) -> str:
    if policy.norm_proof is None:
        return "no device proves that its vector is not too long: one can spoil its cohort's sum (--norm-proof none)"
    proves = "each device proves that its vector is not too long; one whose proof fails loses its own round only"
    if isinstance(policy.noise, GaussianNoise):
        return proves
    longer = max(1.0, TYPICAL_L1 * math.sqrt(policy.dim))
    return (
        f"{proves}. What is proved is the L2 norm: a hostile vector may be {ratio_text(longer)} times as long in it as "
        "gamma's honest ones"
    )


def _about_votes(policy: Policy, n: int) -> str:
    """Describe whether devices vote, and the noise in the count of n clients' votes."""
    if policy.votes is None or not isinstance(policy.noise, GaussianNoise):
        return "no votes on the newest model: devices cannot have it rolled back (--no-votes)"
    off = math.sqrt(len(policy.helpers) * policy.cohorts * policy.noise.variance) / policy.votes.weight
    longer = math.sqrt(squared_sensitivity(policy.bound, policy.vote_weight)) / policy.bound - 1.0
    return (
        f"the sum has each device's vote on the newest model, and the noise is {longer:.0%} longer for it; in a "
        f"round of about {n:,} devices noise moves each count of votes by about {off:,.0f}"
    )


def _about_evaluation(policy: Policy, n: int) -> str:
    """Describe whether devices report their lists' rewards, and the noise in the mean of n clients."""
    if policy.evaluation is None or not isinstance(policy.noise, GaussianNoise):
        return "no evaluation: users' clicks do not show how well the model does (--no-evaluation)"
    off = math.sqrt(len(policy.helpers) * policy.cohorts * policy.noise.variance) / policy.evaluation.weight
    without = squared_sensitivity(policy.bound, policy.vote_weight)
    longer = math.sqrt(squared_sensitivity(policy.bound, **policy.weights_beside) / without) - 1.0
    and_credits = " and credited" if policy.credit_weight else ""
    said = f"the sum has what each device's lists earned{and_credits}, and the noise is {longer:.0%} longer for it"
    return (
        f"{said}; in a round of about {n:,} devices noise moves the mean reward by about {off / n:.2g}" if n else said
    )


def _about_epochs(policy: Policy) -> str:
    """Describe how long sealed seeds can be opened, and when the policy ends."""
    ends = datetime.fromtimestamp(policy.ends_at, UTC)
    hours = policy.epoch_s // 3600
    return (
        f"helpers destroy the keys that a round's seeds are sealed to within {2 * hours:,} hours; there are keys for "
        f"{policy.n_epochs} times {hours:,} hours, so the policy ends on {ends:%Y-%m-%d}, and another one has to be "
        "published before"
    )


def _noise_to_update(policy: Policy, n: int) -> float:
    """The noise in the mean of all cohorts of n clients, over a typical mean update; infinite without clients."""
    noise, noises = policy.noise, float(len(policy.helpers) * policy.cohorts)
    if isinstance(noise, GaussianNoise):
        sigma = math.sqrt(noise.variance)
    else:
        sigma = laplace_deviation(noise.scale)
        noises = noises if noise.n_shares is None else n / noise.n_shares
    return noise_to_update(noise.kind, sigma=sigma, noises=noises, clients=n, dim=policy.dim, bound=policy.bound)


def _share_unopened(policy: Policy, clients: int) -> float:
    """The share of cohorts with fewer than n_min clients: each client is in one with the same probability."""
    chance = 1.0 / (policy.period * policy.cohorts)
    mean = clients * chance
    deviation = math.sqrt(mean * (1.0 - chance))
    if deviation == 0.0:
        return float(mean < policy.n_min)
    return NormalDist(mean, deviation).cdf(policy.n_min - 0.5)


def _problem(error: ValidationError) -> str:
    problem = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(map(str, problem["loc"]))
    return f"{where}: {problem['msg']}" if where else str(problem["msg"]).removeprefix("Value error, ")
