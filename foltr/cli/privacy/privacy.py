"""``foltr privacy plan``: what noise an epsilon takes, and what a model learns through it."""

from collections.abc import Iterator
from typing import Annotated, Any, Final

from foltr.cli import options
from foltr.cli.fields import option, read_model, takes_fields
from foltr.cli.output import report
from foltr.cli.privacy.noise_options import NoiseOptions
from foltr.core.secure.accounting import (
    DEFAULT_PARTICIPATIONS,
)
from foltr.core.secure.plan import PlannedNoise, plan_noise, ratio_text

_PLANNED: Final = ("clients", "rounds", "epsilon", "delta", "dim", "participations", "norm_proof")


@takes_fields(NoiseOptions, _PLANNED)
def plan(
    helpers: Annotated[int, option("Each of whom adds all of the noise", min=2, max=8)] = 2,
    json: options.Json = False,
    **asked: Any,
) -> None:
    """Say how much noise an epsilon takes, beside a typical mean update, and what a model learns through it.

    Of each mechanism twice: with --participations of a client, and with one in every round.
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
    yield f"  epsilon is with zeros in an update's place; with another one there (replace) {one.replace_epsilon:.3g}"
    yield f"  {one.verdict}"
