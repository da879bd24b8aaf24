"""Secure sums: what their noise costs by clients, epsilon and mechanism, and what one hostile device does to them."""

from typing import Any, Final

from foltr.reproductions.claims import Check, Claim, both, higher, not_above, relative_loss
from foltr.reproductions.experiment import Experiment, Scale, Section, Table, Variant
from foltr.reproductions.outcomes import DataProfile, Results
from foltr.simulation.config import SimulationConfig

ROUNDS, INTERACTIONS, PERIOD, COHORTS = 200, 5, 10, 20
PARTICIPATIONS = ROUNDS // PERIOD
SIZES = (10, 30, 100, 1000)
EPSILONS = (1, 2, 8)
MECHANISMS = ("gaussian", "gamma")
PAPER, NO_NOISE = "fpdgd-paper", "none"
HOSTILE = (0, 1, 5)
# The hostile update is the mean update, which two models that follow one another tell, turned round and so many times
# as long. Below n of a sum nothing is turned round; above, the sum of n honest ones and it stays as long as n can be.
_TURNED_OF_ALL: Final = 2 * 1000
_TURNED_OF_COHORT: Final = 350
_CLICKS: Final = "informational"
_BASE: Final[dict[str, Any]] = {
    "clicks": _CLICKS,
    "interactions": INTERACTIONS,
    "rounds": ROUNDS,
    "eval_every": 50,
}


def _grid(scale: Scale, data: DataProfile) -> list[Variant]:  # noqa: ARG001
    return [*_noise(), *_hostile()]


def _noise() -> list[Variant]:
    found = []
    for n in SIZES:
        settings: list[tuple[str, str, dict[str, Any]]] = [
            ("trusted", "-", {"clients": n * PERIOD, "participants": n}),
            (NO_NOISE, "-", _secure(n, mechanism="none")),
        ]
        for mechanism in MECHANISMS:
            settings += [(mechanism, str(one), _secure(n, mechanism=mechanism, epsilon=one)) for one in EPSILONS]
        settings += [
            (PAPER, str(one), {"clients": n, "method": PAPER, "parameters": {"epsilon": one}}) for one in EPSILONS
        ]
        for mechanism, epsilon, values in settings:
            labels = {"part": "noise", "noise": mechanism, "ε": epsilon, "n": str(n), "clicks": _CLICKS}
            found.append(Variant(labels, SimulationConfig.read({**_BASE, **values})))
    return found


def _hostile() -> list[Variant]:
    found = []
    for cohorts, rule, turned in ((1, "mean", _TURNED_OF_ALL), (COHORTS, "median", _TURNED_OF_COHORT)):
        for n_hostile in HOSTILE:
            labels = {"part": "hostile", "rule": rule, **_hostile_labels(cohorts, n_hostile), "clicks": _CLICKS}
            values = _secure(SIZES[-1], mechanism="gaussian", epsilon=EPSILONS[-1], cohorts=cohorts, aggregation=rule)
            if n_hostile:
                values |= {
                    "attack": "inner-product",
                    "attackers": n_hostile * PERIOD,
                    "attack_parameters": {"epsilon": turned, "knowledge": "full"},
                }
            found.append(Variant(labels, SimulationConfig.read({**_BASE, **values})))
    return found


def _secure(n: int, **values: Any) -> dict[str, Any]:
    return {"privacy": "secure", "clients": n * PERIOD, "participations": PARTICIPATIONS, **values}


def _within(noise: str, epsilon: int, sizes: tuple[int, ...], margin: float) -> Check:
    """In rounds of these sizes it learns as without noise."""
    return both(
        *(
            not_above(
                "offline", {"noise": NO_NOISE, "n": str(n)}, {"noise": noise, "ε": str(epsilon), "n": str(n)}, margin
            )
            for n in sizes
        )
    )


def _claimed_and_true(results: Results) -> str:
    """A line for each epsilon of fpdgd-paper; it is the same for each n, because all clients' shares arrive."""
    heads = ("ε of a round, claimed", "true: added or removed", "true: replaced", "of 20 rounds, claimed", "true")
    lines = [f"| {' | '.join(heads)} |", "|---:|---:|---:|---:|---:|"]
    for epsilon in EPSILONS:
        figures = next((one.result["privacy"] for one in results.select({"noise": PAPER, "ε": str(epsilon)})), None)
        if figures is not None:
            each, replaced = (figures[f"epsilon_per_round_{name}"] for name in ("add_remove", "replace"))
            claimed, total = PARTICIPATIONS * epsilon, PARTICIPATIONS * each
            lines.append(f"| {epsilon} | {each:.1f} | {replaced:.1f} | {claimed} | {total:.0f} |")
    return "\n".join(lines) + "\n"


def _discarded(results: Results) -> str:
    """Rounds whose sum was too long, of the runs with hostile devices."""
    lines = [f"| rule | cohorts | hostile of 1,000 | rounds without a model, of {ROUNDS} |", "|---|---:|---:|---:|"]
    for labels in results.combinations(("rule", "cohorts", "hostile")):
        lost = [one.result["robustness"]["abandoned_rounds"] for one in results.select(labels)]
        mean = sum(lost) / len(lost)
        lines.append(f"| {labels['rule']} | {labels['cohorts']} | {labels['hostile']} | {mean:.1f} |")
    return "\n".join(lines) + "\n"


def _hostile_labels(cohorts: int, hostile: int) -> dict[str, str]:
    return {"cohorts": str(cohorts), "hostile": str(hostile)}


EXPERIMENTS: tuple[Experiment, ...] = (
    Experiment(
        name="privacy",
        title="secure sums: what noise costs, and what one hostile device does",
        source="no figure; the noise of Wang et al. (ICTIR 2021), made true, beside discrete Gaussian noise",
        setting="none: this is our own.",
        grid=_grid,
        seeds={"quick": 2, "full": 5},
        tables=(
            Table(
                "noise",
                "nDCG@10 on the test set after the last round, by clients a round",
                "offline",
                ("noise", "ε"),
                ("n",),
                {"part": "noise"},
            ),
            Table(
                "hostile",
                "nDCG@10 with hostile devices among about 1,000 of a round",
                "offline",
                ("rule", "cohorts", "hostile"),
                where={"part": "hostile"},
            ),
        ),
        sections=(
            Section("epsilon", "fpdgd-paper: the epsilon that is claimed, and the true one", _claimed_and_true),
            Section("discarded", "Rounds that made no model, because a sum was too long", _discarded),
        ),
        claims=(
            Claim(
                "With ε = 8 for 20 participations and 100 clients a round or more, gaussian noise costs nothing",
                "ours",
                "final nDCG@10 is at most 0.02 below that of the same sums without noise",
                _within("gaussian", 8, (100, 1000), 0.02),
            ),
            Claim(
                "gamma needs more clients than gaussian, and learns with 1,000 of a round",
                "ours",
                "final nDCG@10 with ε = 8: gaussian is above gamma at 100 clients a round, and gamma at most 0.02 "
                "below no noise at 1,000",
                both(
                    higher("offline", {"noise": "gaussian"}, {"noise": "gamma"}, where={"ε": "8", "n": "100"}),
                    _within("gamma", 8, (1000,), 0.02),
                ),
            ),
            Claim(
                "One hostile device of 1,000 ruins a ranker that is made of one sum",
                "ours",
                "final nDCG@10 is a quarter or more below that without it",
                relative_loss("offline", _hostile_labels(1, 0), _hostile_labels(1, 1), 0.25),
            ),
            Claim(
                "The median of 20 sums stays within 0.01 with one hostile device",
                "ours",
                "final nDCG@10 is at most 0.01 below that without it",
                not_above("offline", _hostile_labels(COHORTS, 0), _hostile_labels(COHORTS, 1), 0.01),
            ),
            Claim(
                "Five hostile devices of 1,000 are too many for it",
                "ours",
                "final nDCG@10 is a quarter or more below that without them",
                relative_loss("offline", _hostile_labels(COHORTS, 0), _hostile_labels(COHORTS, 5), 0.25),
            ),
        ),
        differences=(
            (
                f"Of n clients a round there are {PERIOD} n in the federation, with a turn in one of {PERIOD} rounds "
                f"each, so n is an average; each takes part {PARTICIPATIONS} times in {ROUNDS} rounds, and ε is for "
                "all of them, δ = 10⁻⁶. Two helpers add noise. `none` is the same without noise; `trusted` has the "
                "federator see every update of n clients that are drawn for each round."
            ),
            (
                f"`{PAPER}` is the method of the paper as written: n clients, all in every round, sensitivity 5, and "
                "an ε that is claimed for one round. Added or removed, replaced: of whom it is true, with the paper's "
                "clip in L2, against somebody who sees nothing but the sums."
            ),
            (
                f"Hostile: one device of 1,000 is {PERIOD} of {1000 * PERIOD:,}, so that a round has one on average. "
                f"Each sends the opposite of the round's mean update, {_TURNED_OF_ALL:,} times as long, or "
                f"{_TURNED_OF_COHORT} times against cohorts: it does not clip, and its sum is still one that honest "
                "clients could have. Where two of them meet it may be too long, and five in one sum always are: then "
                "the round makes no model."
            ),
            "FPDGD, linear, learning rate 0.1, clip norm 0.15 √5, informational clicks, 5 interactions an update.",
        ),
    ),
)
