"""``foltr privacy``: what noise an epsilon takes, whether sums keep what is claimed of them, what a device spent."""

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar, get_args

import typer

from foltr.cli import options
from foltr.cli.output import report
from foltr.cli.progress import telling
from foltr.core.errors import SettingsError
from foltr.core.secure.accounting import (
    DEFAULT_DELTA,
    DEFAULT_EPSILON,
    DEFAULT_PARTICIPATIONS,
    LEAST_DELTA,
    LEAST_EPSILON,
    MOST_EPSILON,
)

if TYPE_CHECKING:
    from foltr.core.secure.divergence import Finding
    from foltr.core.secure.mechanisms import Mechanism
    from foltr.core.secure.plan import PlannedNoise

Choice = TypeVar("Choice", bound=str)
_EXIT_FAILED: Final = 1
_N_SHARES: Final = 20
_DEFAULT_SUMS: Final = 2_000_000

Epsilon = Annotated[
    float,
    typer.Option("--epsilon", min=LEAST_EPSILON, max=MOST_EPSILON, help="Of all participations of a client together"),
]
Delta = Annotated[
    float, typer.Option("--delta", min=LEAST_DELTA, max=1.0, help="Likewise; of gamma only with norm proofs")
]
NormProofOption = Annotated[
    str, typer.Option("--norm-proof", help="l2: each message proves that its vector is not too long; or none")
]
VotesOption = Annotated[
    bool | None,
    typer.Option(
        "--votes/--no-votes",
        help="Devices vote on the newest model in the same sum; default: with gaussian noise and norm proofs of l2",
    ),
]
EvaluationOption = Annotated[
    bool | None,
    typer.Option(
        "--evaluation/--no-evaluation",
        help="Devices say in the same sum what their users' lists have earned; default: likewise",
    ),
]
Participations = Annotated[
    int,
    typer.Option(
        "--participations", min=1, max=10_000_000, help="k: how often a client takes part in its life, at most"
    ),
]
Dim = Annotated[
    int, typer.Option("--dim", min=1, max=2_000_000, help="Numbers of an update: a linear ranker's features")
]


def plan(
    clients: Annotated[int, typer.Option(min=1, max=10_000_000, help="Of the federation")] = 1000,
    rounds: Annotated[int, typer.Option(min=1, max=10_000_000, help="In its life")] = 200,
    epsilon: Epsilon = DEFAULT_EPSILON,
    delta: Delta = DEFAULT_DELTA,
    dim: Dim = 136,
    participations: Participations = DEFAULT_PARTICIPATIONS,
    helpers: Annotated[int, typer.Option(help="2 to 8, each of whom adds all of the noise")] = 2,
    norm_proof: NormProofOption = "l2",
    votes: VotesOption = None,
    evaluation: EvaluationOption = None,
    json: options.Json = False,
) -> None:
    """Say how much noise an epsilon takes, beside a typical mean update, and what a model learns through it.

    Of each mechanism twice: with --participations of a client, and with one in every round.
    """
    from foltr.core.secure.plan import NormProof, plan_noise

    proof = one_of("norm-proof", norm_proof, get_args(NormProof))
    planned = plan_noise(
        clients=clients,
        rounds=rounds,
        dim=dim,
        epsilon=epsilon,
        delta=delta,
        participations=participations,
        helpers=helpers,
        norm_proof=proof,
        votes=_has("votes", votes, proof),
        evaluation=_has("evaluation", evaluation, proof),
    )
    with_delta = f"with delta {delta:g}" if proof == "l2" else f"(gaussian: with delta {delta:g})"
    has = {"votes": _has("votes", votes, proof), "evaluation": _has("evaluation", evaluation, proof)}
    also = ", ".join(f"{what}: {'with gaussian' if is_there else 'none'}" for what, is_there in has.items())
    report(
        json,
        planned,
        f"{clients} clients, {rounds} rounds, {dim} numbers an update, {helpers} helpers: epsilon {epsilon:g} "
        f"{with_delta} for all participations of a client together, norm proofs: {proof}, {also}",
        *(sentence for one in planned for sentence in _planned_in_words(one)),
        "Noise: of a coordinate of the mean of a round, over the size of a typical mean update's, early in training.",
    )


def audit(
    mechanism: Annotated[str, typer.Option(help="gaussian, gamma, or all")] = "all",
    noise_by: Annotated[
        str, typer.Option(help="Of gamma: helpers, or clients, 20 of whom share the noise")
    ] = "helpers",
    epsilon: Epsilon = DEFAULT_EPSILON,
    delta: Delta = DEFAULT_DELTA,
    participations: Participations = DEFAULT_PARTICIPATIONS,
    dim: Dim = 136,
    norm_proof: Annotated[
        str | None,
        typer.Option(
            help="l2: the noise that is left beside norm proofs; or none; default: none with --noise-by clients"
        ),
    ] = None,
    votes: VotesOption = None,
    evaluation: EvaluationOption = None,
    sums: Annotated[
        int, typer.Option(min=1000, max=10**9, help="Of each pair of neighbouring inputs, of which there are two")
    ] = _DEFAULT_SUMS,
    seed: Annotated[
        int | None, typer.Option(min=0, help="For the same sums again; default: the system's randomness")
    ] = None,
    json: options.Json = False,
) -> None:
    """Look for an event that tells neighbouring inputs apart better than is claimed. Exits with 1 if there is one.

    Sums with a client's update in them and sums with zeros in its place are made as in a round. One mechanism in a
    million that keeps its claim fails; one that passes may still be wrong where nobody has looked.
    """
    import numpy as np

    from foltr.core.secure import divergence
    from foltr.core.secure.plan import NormProof

    proof = norm_proof or ("none" if noise_by == "clients" else "l2")
    mechanisms = _mechanisms(
        mechanism,
        noise_by,
        dim,
        epsilon=epsilon,
        delta=delta,
        participations=participations,
        norm_proofs=one_of("norm-proof", proof, get_args(NormProof)) == "l2",
        votes=_has("votes", votes, proof),
        evaluation=_has("evaluation", evaluation, proof),
    )
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
        raise typer.Exit(_EXIT_FAILED)


def _has(what: str, asked: bool | None, norm_proof: str) -> bool:
    """Whether gaussian noise is to protect this beside vectors; SettingsError where nothing would bound it."""
    if asked and norm_proof != "l2":
        raise SettingsError(f"--{what} takes --norm-proof l2: without proofs one device counts as any number of them")
    return norm_proof == "l2" if asked is None else asked


def _mechanisms(
    name: str, noise_by: str, dim: int, *, votes: bool, evaluation: bool, **promise: Any
) -> "list[Mechanism]":
    from foltr.core.secure.accounting import (
        default_evaluation_weight,
        default_vote_weight,
        least_scale,
        least_variance,
    )
    from foltr.core.secure.encoding import bound_for
    from foltr.core.secure.mechanisms import gamma_mechanism, gaussian_mechanism

    if name not in {"gaussian", "gamma", "all"}:
        raise SettingsError(f"--mechanism must be gaussian, gamma or all, not {name}")
    if noise_by not in {"helpers", "clients"}:
        raise SettingsError(f"--noise-by must be helpers or clients, not {noise_by}")
    if noise_by == "clients" and promise["norm_proofs"]:
        raise SettingsError("--norm-proof must be none where clients draw the noise, not l2")
    bound, found = bound_for(dim), []
    if name != "gamma":
        v = default_vote_weight(bound) if votes else 0
        u = default_evaluation_weight(bound) if evaluation else 0
        variance = least_variance(bound, vote_weight=v, evaluation_weight=u, **promise)
        found.append(gaussian_mechanism(bound, variance, promise["delta"], v, u))
    if name != "gaussian":
        n_shares = _N_SHARES if noise_by == "clients" else None
        found.append(gamma_mechanism(bound, least_scale(bound, **promise), n_shares))
    return found


def one_of(option: str, value: str, choices: tuple[Choice, ...]) -> Choice:
    """Return the choice that an option names; SettingsError where it names none."""
    for choice in choices:
        if value == choice:
            return choice
    raise SettingsError(f"--{option} must be {' or '.join(map(str, choices))}, not {value}")


def _planned_in_words(one: "PlannedNoise") -> Iterator[str]:
    from foltr.core.secure.plan import ratio_text

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
