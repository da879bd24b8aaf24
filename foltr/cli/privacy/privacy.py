"""``foltr privacy plan``: the noise for an epsilon. Also the options that this command and a policy share."""

from collections.abc import Iterator
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field

from foltr.cli import options
from foltr.cli.fields import Option, option, read_model, takes_fields
from foltr.cli.output import report
from foltr.core.operator.policy_terms import DEFAULT_EPOCH_HOURS, NoiseBy
from foltr.core.secure.accounting import (
    DEFAULT_DELTA,
    DEFAULT_EPSILON,
    DEFAULT_PARTICIPATIONS,
    LEAST_DELTA,
    LEAST_EPSILON,
    MOST_EPSILON,
)
from foltr.core.secure.mechanisms import MechanismName
from foltr.core.secure.plan import NormProof, PlannedNoise, plan_noise, ratio_text

_PLANNED: Final = ("clients", "rounds", "epsilon", "delta", "dim", "participations", "norm_proof")


_MOST = 10_000_000


class NoiseOptions(BaseModel):
    """The terms of a policy, by the names of `foltr.core.operator.policy_terms.PolicyTerms`."""

    model_config = ConfigDict(use_attribute_docstrings=True, allow_inf_nan=False)

    mechanism: MechanismName = "gaussian"
    """gaussian, or gamma: far more noise, and without norm proofs a pure epsilon."""
    noise_by: NoiseBy = "helpers"
    """For gamma: helpers, each of whom adds all of it, or clients, who share it."""
    epsilon: float = Field(default=DEFAULT_EPSILON, ge=LEAST_EPSILON, le=MOST_EPSILON)
    """For all participations of a client together."""
    delta: float = Field(default=DEFAULT_DELTA, ge=LEAST_DELTA, le=1.0)
    """For all participations of a client together; for gamma only with norm proofs."""
    participations: int | None = Field(default=None, ge=1, le=_MOST)
    """k: the most participations of a client in its life; default: 20, or --rounds if fewer."""
    clients: int = Field(default=2000, ge=1, le=_MOST)
    """Clients of the federation; with --rounds they decide how often each takes part."""
    rounds: int = Field(default=200, ge=1, le=_MOST)
    """Rounds in which a client uses up its participations."""
    dim: int = Field(default=136, ge=1, le=2_000_000)
    """Numbers of an update: a linear ranker's features."""
    interactions: int = Field(default=5, ge=1, le=100_000)
    """Interactions in each update."""
    norm_proof: NormProof = "l2"
    """l2: each message proves that its vector is not too long; or none."""
    votes: Annotated[bool | None, Option("--votes/--no-votes")] = None
    """Devices vote on the newest model in the same sum; default: with gaussian noise and norm proofs of l2."""
    evaluation: Annotated[bool | None, Option("--evaluation/--no-evaluation")] = None
    """Devices evaluate models in the same sum; default: as for --votes."""
    cohorts: int | None = Field(default=None, ge=1, le=10_000)
    """Sums in a round; default: 1, or 20 with --norm-proof none from 400 clients a round on."""
    n_min: int | None = Field(default=None, ge=2, le=2**31 - 1)
    """Fewest clients of a cohort; default: 100, or 10 if a round has several."""
    n_max: int = Field(default=100_000, ge=2, le=2**31 - 1)
    """Most clients of a cohort."""
    shares: int | None = Field(default=None, ge=1, le=2**31 - 1)
    """If clients draw the noise: the noise of this many is enough; default: 9 in 10 of --n-min."""
    epoch_hours: int = Field(default=DEFAULT_EPOCH_HOURS, ge=1, le=8760)
    """How long seeds are sealed to the same keys. Helpers destroy these at most as long after; the policy ends after 64
    epochs, for which helpers have keys."""


@takes_fields(NoiseOptions, _PLANNED)
def plan(
    helpers: Annotated[int, option("Each of whom adds all of the noise", min=2, max=8)] = 2,
    json: options.Json = False,
    **asked: Any,
) -> None:
    """Show how much noise an epsilon needs, compared with a typical mean update, and what a model still learns.

    Each mechanism is shown twice: with --participations of a client, and with one in every round.
    """
    terms = read_model(NoiseOptions, asked)
    is_proven = terms.norm_proof == "l2"
    planned = plan_noise(
        clients=terms.clients,
        rounds=terms.rounds,
        dim=terms.dim,
        epsilon=terms.epsilon,
        delta=terms.delta,
        participations=terms.participations or DEFAULT_PARTICIPATIONS,
        helpers=helpers,
        norm_proof=terms.norm_proof,
        votes=is_proven,
        evaluation=is_proven,
    )
    with_delta = f"with delta {terms.delta:g}" if is_proven else f"(gaussian: with delta {terms.delta:g})"
    also = "with gaussian" if is_proven else "none"
    report(
        json,
        planned,
        f"{terms.clients} clients, {terms.rounds} rounds, {terms.dim} numbers an update, {helpers} helpers: epsilon "
        f"{terms.epsilon:g} {with_delta} for all participations of a client together, norm proofs: {terms.norm_proof}, "
        f"votes and evaluation: {also}",
        *(sentence for one in planned for sentence in _planned_in_words(one)),
        "Noise: of a coordinate of the mean of a round, over the size of a typical mean update's, early in training.",
    )


def _planned_in_words(one: "PlannedNoise") -> Iterator[str]:
    often = "every round" if one.period == 1 else f"each {one.period}th round"
    yield (
        f"{one.mechanism}, k = {one.participations}: a client in {often} (b = {one.period}), "
        f"{one.clients_per_round} clients a round"
    )
    yield f"  sigma {one.sigma:,.0f} at C_int {one.bound}; noise {ratio_text(one.noise_to_update)} times the update"
    yield (
        "  epsilon compares an update with zeros; compared with another update (replace) it is "
        f"{one.replace_epsilon:.3g}"
    )
    yield f"  {one.verdict}"
