"""Whether a federation can have secure sums, and under which policy: each refusal says what to do next."""

from foltr.core.errors import SettingsError
from foltr.core.methods.aggregations import is_plain_mean
from foltr.core.methods.preconditions import rule_problem
from foltr.core.methods.registry import spec_of
from foltr.core.protocol.policies import NEW_POLICY, Policy
from foltr.core.protocol.states import Pacing
from foltr.core.protocol.trainings import Training
from foltr.federator.round import RoundPolicy


def check_secure(rounds: RoundPolicy, training: Training, *, is_signed: bool) -> None:
    """Raise SettingsError if a federation with these settings cannot have secure sums under any policy.

    Args:
        is_signed: whether clients show enrolments, which helpers check.
    """
    method = spec_of(training)
    if not is_signed:
        raise SettingsError(
            "privacy: secure needs clients that the operator has enrolled; start with --credentials, not allow_unsigned"
        )
    if rounds.pacing is Pacing.BUFFERED:
        raise SettingsError("privacy: secure needs pacing = deadline; a sum is over one round's clients, all at once")
    if method.not_weights is not None:
        raise SettingsError(
            f"privacy: {method.name} sends {method.not_weights}, which cannot be summed; choose a method that sends "
            "differences of weights, such as fpdgd"
        )
    if method.spent_when_sent:
        raise SettingsError(f"privacy: {method.name} adds noise itself to what it sends; choose fpdgd")
    if rounds.rule.rule == "adaptive":
        raise SettingsError(
            "privacy: the rule adaptive judges each client by its history, and secure sums show no single client; "
            "choose median"
        )


def check_policy(policy: Policy, rounds: RoundPolicy, training: Training, n_values: int) -> None:
    """Raise SettingsError if a policy, which only its operator can change, does not fit a federation's settings."""
    if policy.dim != n_values:
        raise SettingsError(
            f"privacy: the policy is for updates of {policy.dim} numbers, but a model has {n_values}; make another "
            f"policy: {NEW_POLICY}"
        )
    if (training.min_interactions, training.max_interactions) != (policy.n_interactions,) * 2:
        raise SettingsError(
            f"interactions: {_range(training)} an update, and the policy has all updates at exactly "
            f"{policy.n_interactions}; choose interactions = {policy.n_interactions}"
        )
    cohorts = f"{policy.cohorts} cohorts" if policy.cohorts > 1 else "1 cohort"
    if rounds.min_clients < policy.n_min * policy.cohorts:
        raise SettingsError(
            f"min_clients: {rounds.min_clients} are too few for {cohorts} of at least {policy.n_min} each, the fewest "
            f"that helpers open a sum of; raise min_clients to {policy.n_min * policy.cohorts}"
        )
    if rounds.max_clients > policy.n_max:
        raise SettingsError(
            f"max_clients: {rounds.max_clients} may all be in one cohort, and helpers open no sum of more than "
            f"{policy.n_max}; lower max_clients to that"
        )
    if rounds.max_time_s > policy.epoch_s / 2:
        raise SettingsError(
            f"max_time: a round of {rounds.max_time_s:g} s, and helpers destroy the keys of an epoch of "
            f"{policy.epoch_s:,} s soon after it; choose a max_time of at most half an epoch, or make a policy with "
            f"longer ones: {NEW_POLICY} --epoch-hours HOURS"
        )
    if not is_plain_mean(rounds.rule) and policy.cohorts == 1:
        raise SettingsError(
            f"aggregation: {rounds.rule.text} compares sums, and the policy has one sum a round; choose aggregation = "
            f"mean, or make a policy with 20 cohorts: {NEW_POLICY} --cohorts 20"
        )
    if (short := rule_problem(rounds.rule, policy.cohorts)) is not None:
        raise SettingsError(f"aggregation: a round has {policy.cohorts} sums: {short}; choose another aggregation")


def _range(training: Training) -> str:
    least, most = training.min_interactions, training.max_interactions
    return str(least) if least == most else f"{least} to {most}"
