"""The cost of secure sums' noise by clients, epsilon and mechanism."""

from typing import Any, Final

from foltr_research.reproductions.checks import both, higher, named, not_above
from foltr_research.reproductions.claims import HIGHER, RANGE, Check, Claim
from foltr_research.reproductions.experiment import Experiment, Scale, Section, Table, Variant
from foltr_research.reproductions.outcomes import DataProfile, Results
from foltr_research.simulation.config import SimulationConfig

ROUNDS, INTERACTIONS, PERIOD = 200, 5, 10
PARTICIPATIONS = ROUNDS // PERIOD
SIZES = (10, 30, 100, 1000)
EPSILONS = (1, 2, 8)
MECHANISMS = ("gaussian", "gamma")
PAPER, NO_NOISE = "fpdgd-paper", "none"
# Of nDCG@10, what noise may cost.
_MARGIN = 0.02
CLICKS: Final = "informational"
# Proofs take less than a ten-thousandth of rho, 0.0043 of a pure epsilon, and exclude no honest client.
_NO_PROOFS: Final[dict[str, Any]] = {"norm_proof": "none"}
COMMON: Final[dict[str, Any]] = {
    "clicks": CLICKS,
    "interactions": INTERACTIONS,
    "rounds": ROUNDS,
    "eval_every": 50,
}


def _grid(scale: Scale, data: DataProfile) -> list[Variant]:  # noqa: ARG001
    found = []
    for n in SIZES:
        settings: list[tuple[str, str, dict[str, Any]]] = [
            ("trusted", "-", {"clients": n * PERIOD, "participants": n}),
            (NO_NOISE, "-", secure(n, mechanism="none", **_NO_PROOFS)),
        ]
        for mechanism in MECHANISMS:
            settings += [
                (mechanism, str(one), secure(n, mechanism=mechanism, epsilon=one, **_NO_PROOFS)) for one in EPSILONS
            ]
        settings += [
            (PAPER, str(one), {"clients": n, "method": PAPER, "parameters": {"epsilon": one}}) for one in EPSILONS
        ]
        for mechanism, epsilon, values in settings:
            labels = {"noise": mechanism, "ε": epsilon, "n": str(n), "clicks": CLICKS}
            found.append(Variant(labels, SimulationConfig.read({**COMMON, **values})))
    return found


def secure(n: int, **values: Any) -> dict[str, Any]:
    """Return the settings of a federation with n clients per round on average."""
    return {"privacy": "secure", "clients": n * PERIOD, "participations": PARTICIPATIONS, **values}


def _within(noise: str, epsilon: int, sizes: tuple[int, ...], margin: float) -> Check:
    """Check that rounds of these sizes learn as well as without noise."""
    return both(
        *(
            named(
                f"n = {n}",
                not_above(
                    "offline",
                    {"noise": NO_NOISE, "n": str(n)},
                    {"noise": noise, "ε": str(epsilon), "n": str(n)},
                    margin,
                ),
            )
            for n in sizes
        )
    )


def _claimed_and_true(results: Results) -> str:
    """Describe each epsilon of fpdgd-paper in a line. It is the same for each n, because all shares arrive."""
    heads = ("ε of a round, claimed", "true: added or removed", "true: replaced", "of 20 rounds, claimed", "true")
    lines = [f"| {' | '.join(heads)} |", "|---:|---:|---:|---:|---:|"]
    for epsilon in EPSILONS:
        figures = next((one.result["privacy"] for one in results.select({"noise": PAPER, "ε": str(epsilon)})), None)
        if figures is not None:
            each, replaced = (figures[f"epsilon_per_round_{name}"] for name in ("add_remove", "replace"))
            claimed, total = PARTICIPATIONS * epsilon, PARTICIPATIONS * each
            lines.append(f"| {epsilon} | {each:.1f} | {replaced:.1f} | {claimed} | {total:.0f} |")
    return "\n".join(lines) + "\n"


EXPERIMENTS: tuple[Experiment, ...] = (
    Experiment(
        name="privacy",
        title="secure sums: what noise costs",
        source="no figure; the noise of Wang et al. (ICTIR 2021), corrected, beside discrete Gaussian noise",
        setting="none: this is our own.",
        grid=_grid,
        seeds={"quick": 2, "full": 5},
        tables=(
            Table(
                "nDCG@10 on the test set after the last round, by clients a round",
                "offline",
                ("noise", "ε"),
                ("n",),
            ),
        ),
        sections=(Section("fpdgd-paper: the epsilon that is claimed, and the true one", _claimed_and_true),),
        claims=(
            Claim(
                f"With ε = 8 for {PARTICIPATIONS} participations gaussian noise costs less than {_MARGIN} nDCG@10 at "
                "100 and at 1,000 clients a round",
                "ours",
                f"final nDCG@10 of the same sums without noise minus that with it: {RANGE} is below {_MARGIN}",
                _within("gaussian", 8, (100, 1000), _MARGIN),
            ),
            Claim(
                "With ε = 8 gamma is worse than gaussian at 100 clients a round, and at 1,000 costs less than "
                f"{_MARGIN} nDCG@10",
                "ours",
                f"final nDCG@10 with ε = 8, gaussian against gamma at 100 clients a round: {HIGHER}; no noise minus "
                f"gamma at 1,000: {RANGE} is below {_MARGIN}",
                both(
                    named(
                        "n = 100",
                        higher("offline", {"noise": "gaussian"}, {"noise": "gamma"}, where={"ε": "8", "n": "100"}),
                    ),
                    _within("gamma", 8, (1000,), _MARGIN),
                ),
            ),
        ),
        differences=(
            (
                f"For n clients a round the federation has {PERIOD} n, each with a turn in one of {PERIOD} rounds, "
                f"so n is an average. Each takes part {PARTICIPATIONS} times in {ROUNDS} rounds, and ε is for all of "
                "them, δ = 10⁻⁶. Two helpers add noise. `none` is the same without noise. With `trusted` the "
                "federator sees every update of n clients that are drawn for each round."
            ),
            (
                f"`{PAPER}` is the method of the paper as written: n clients, all in every round, sensitivity 5, and "
                "an ε that is claimed for one round. The true ε holds if one client is added or removed, or "
                "replaced, with the paper's clip in L2, against an observer who sees only the sums."
            ),
            "FPDGD, linear, learning rate 0.1, clip norm 0.15 √5, informational clicks, 5 interactions an update.",
        ),
    ),
)
