"""``foltr privacy plan`` and ``audit``: what noise an epsilon takes, and whether sums keep what is claimed of them."""

import os
from collections.abc import Iterator
from typing import Annotated, Any, Final

import typer

from foltr.cli import options
from foltr.cli.fields import read_model, takes_fields
from foltr.cli.options import option
from foltr.cli.output import report
from foltr.cli.privacy.noise_options import NoiseOptions
from foltr.cli.progress import telling
from foltr.core.secure import divergence
from foltr.core.secure.accounting import (
    DEFAULT_DELTA,
    DEFAULT_EPSILON,
    DEFAULT_PARTICIPATIONS,
    default_evaluation_weight,
    default_vote_weight,
    least_scale,
    least_variance,
)
from foltr.core.secure.divergence import Finding
from foltr.core.secure.encoding import bound_for
from foltr.core.secure.mechanisms import Mechanism, gamma_mechanism, gaussian_mechanism
from foltr.core.secure.plan import PlannedNoise, plan_noise, ratio_text

_PLANNED: Final = ("clients", "rounds", "epsilon", "delta", "dim", "participations", "norm_proof")
_AUDITED_DIM, _N_SHARES = 136, 20


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


def audit(
    sums: Annotated[
        int, option("Of each pair of neighbouring inputs, of which there are two", min=1000, max=10**9)
    ] = 2_000_000,
    seed: Annotated[int | None, option("For the same sums again; default: the system's randomness", min=0)] = None,
    json: options.Json = False,
) -> None:
    """Look for an event that tells neighbouring inputs apart better than is claimed. Exits with 1 if there is one.

    Sums with a client's update in them and sums with zeros in its place are made as in a round, by each mechanism with
    the defaults of foltr policy new. One mechanism in a million that keeps its claim fails; one that passes may still
    be wrong where nobody has looked.
    """
    import numpy as np

    mechanisms = _mechanisms()
    entropy = os.urandom if seed is None else np.random.default_rng(seed).bytes
    n_done, n_all = 0, 2 * (sums // 2) * len(divergence.DIMS) * len(mechanisms)
    findings: list[Finding] = []
    with telling() as tell:

        def on_progress(n: int) -> None:
            nonlocal n_done
            n_done += n
            tell(f"{n_done:,} of {n_all:,} sums")

        for one in mechanisms:
            findings += divergence.audit(one, sums, entropy, on_progress)
    n_failed = sum(not one.holds for one in findings)
    summary = f"{n_failed} of {len(findings)} claims fail" if n_failed else "No event was found that breaks a claim"
    report(json, findings, *map(_finding_in_words, findings), summary)
    if n_failed:
        raise typer.Exit(1)


def _mechanisms() -> "list[Mechanism]":
    """Gaussian noise with votes and evaluations, gamma beside norm proofs, and gamma that clients draw."""
    promise: dict[str, Any] = {
        "epsilon": DEFAULT_EPSILON,
        "delta": DEFAULT_DELTA,
        "participations": DEFAULT_PARTICIPATIONS,
    }
    bound = bound_for(_AUDITED_DIM)
    votes, evaluation = default_vote_weight(bound), default_evaluation_weight(bound)
    variance = least_variance(bound, vote_weight=votes, evaluation_weight=evaluation, norm_proofs=True, **promise)
    return [
        gaussian_mechanism(bound, variance, DEFAULT_DELTA, votes, evaluation),
        gamma_mechanism(bound, least_scale(bound, norm_proofs=True, **promise), None),
        gamma_mechanism(bound, least_scale(bound, norm_proofs=False, **promise), _N_SHARES),
    ]


def _planned_in_words(one: "PlannedNoise") -> Iterator[str]:

    often = "every round" if one.period == 1 else f"each {one.period}th round"
    yield (
        f"{one.mechanism}, k = {one.participations}: a client in {often} (b = {one.period}), "
        f"{one.clients_per_round} clients a round"
    )
    yield f"  sigma {one.sigma:,.0f} at C_int {one.bound}; noise {ratio_text(one.noise_to_update)} times the update"
    yield f"  epsilon is with zeros in an update's place; with another one there (replace) {one.replace_epsilon:.3g}"
    yield f"  {one.verdict}"


def _finding_in_words(one: "Finding") -> str:
    return (
        f"{'ok' if one.holds else 'FAILS':5} {one.mechanism}, d = {one.dim}, likelier {one.direction}, epsilon "
        f"{one.epsilon:.3f}: delta {one.measured:.5f}, surely {max(0.0, one.at_least):.5f}; "
        f"claimed {one.claimed:.5f}"
    )
