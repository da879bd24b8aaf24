"""Secure sums under attack: the harm of hostile devices without norm proofs, and with them."""

from typing import Any, Final

import numpy as np

from foltr.core.secure.encoding import clip_norm_for
from foltr_research.reproductions.checks import both, loses, named, not_above
from foltr_research.reproductions.claims import RANGE, Check, Claim
from foltr_research.reproductions.experiment import Experiment, Scale, Section, Table, Variant
from foltr_research.reproductions.experiments.secure_sums import CLICKS, COMMON, INTERACTIONS, PERIOD, ROUNDS, secure
from foltr_research.reproductions.outcomes import DataProfile, Results
from foltr_research.reproductions.report import markdown
from foltr_research.simulation.config import SimulationConfig

N, EPSILON, COHORTS = 1000, 8, 20
UNSEEN = (0, 1, 5)
PROVED = (0, 1, 20, 100, 300)
# Between the number of attackers that gaussian noise withstands and the number that it does not.
BETWEEN = 50
PAST_THE_BOUND: Final = "past the bound"
N_PAST_THE_BOUND: Final = 100
# The hostile update is the mean update, known from two successive models, reversed and multiplied by this factor. Above
# n, the clients of a sum, it reverses the sum; up to 2 n the result is no longer than n honest updates may be.
_TURNED_OF_ALL: Final = 2 * N
_TURNED_OF_COHORT: Final = 350
_CLIP_NORM: Final = clip_norm_for(INTERACTIONS, 0.1)
_LARGEST_LOSS: Final = 0.02
_OF_A_SHARE: Final = "the 90 % interval is above 25 %"


def _turned(times: int) -> dict[str, Any]:
    return {"attack": "inner-product", "attack_parameters": {"epsilon": times, "knowledge": "full"}}


def _as_long_as_allowed(against: str) -> dict[str, Any]:
    parameters = {"against": against, "length": _CLIP_NORM, "knowledge": "full"}
    return {"attack": "bounded", "attack_parameters": parameters}


ATTACKS: Final[dict[str, dict[str, Any]]] = {
    "update": _as_long_as_allowed("update"),
    "model": _as_long_as_allowed("model"),
    "features": _as_long_as_allowed("features"),
    "zeros": {"attack": "scaled", "attack_parameters": {"z": 0}},
}


def _grid(scale: Scale, data: DataProfile) -> list[Variant]:  # noqa: ARG001
    found = []
    for cohorts, rule, turned in ((1, "mean", _TURNED_OF_ALL), (COHORTS, "median", _TURNED_OF_COHORT)):
        for hostile in UNSEEN:
            labels = {"proofs": "none", "rule": rule, **_unseen(cohorts, hostile)}
            found.append(
                _variant(labels, hostile, _turned(turned), cohorts=cohorts, aggregation=rule, norm_proof="none")
            )
    for noise in ("gaussian", "gamma"):
        for hostile in sorted((*PROVED, BETWEEN)) if noise == "gaussian" else PROVED:
            for attack, what in ATTACKS.items():
                found.append(_variant(_proved(noise, attack, hostile), hostile, what, mechanism=noise))
        labels = _proved(noise, PAST_THE_BOUND, N_PAST_THE_BOUND)
        found.append(_variant(labels, N_PAST_THE_BOUND, _turned(_TURNED_OF_ALL), mechanism=noise))
    return found


def _variant(labels: dict[str, str], hostile: int, attack: dict[str, Any], **values: Any) -> Variant:
    attacked = {**attack, "attackers": hostile * PERIOD} if hostile else {}
    config = SimulationConfig.read({**COMMON, **secure(N, epsilon=EPSILON, **values), **attacked})
    return Variant({**labels, "clicks": CLICKS}, config)


def _unseen(cohorts: int, hostile: int) -> dict[str, str]:
    return {"cohorts": str(cohorts), "hostile": str(hostile)}


def _proved(noise: str, attack: str, hostile: int) -> dict[str, str]:
    return {"proofs": "l2", "noise": noise, "attack": attack, "hostile": str(hostile)}


def _harmless(noise: str, hostile: int, attacks: tuple[str, ...] = tuple(ATTACKS)) -> Check:
    """Check that each of the attacks costs at most `_LARGEST_LOSS`."""
    return both(
        *(
            named(
                f"{noise}, {attack}",
                not_above("offline", _proved(noise, "zeros", 0), _proved(noise, attack, hostile), _LARGEST_LOSS),
            )
            for attack in attacks
        )
    )


def _ruined(noise: str, attack: str, hostile: int) -> Check:
    return loses("offline", _proved(noise, attack, 0), _proved(noise, attack, hostile), 0.25)


def _discarded(results: Results) -> str:
    """Return the rounds whose sum was discarded as too long, in runs without proofs."""
    rows = []
    for labels in results.select({"proofs": "none"}).combinations(("rule", "cohorts", "hostile")):
        lost = _mean_of(results.select({"proofs": "none", **labels}), "abandoned_rounds")
        rows.append([*labels.values(), f"{lost:.1f}"])
    return markdown(["rule", "cohorts", "hostile of 1,000", f"rounds without a model, of {ROUNDS}"], rows, 1)


def _best(results: Results) -> str:
    """Return the most costly attack within the bound."""
    heads = ("noise", "hostile of 1,000", "best attack", "nDCG@10", "lost", f"rounds without a model, of {ROUNDS}")
    rows = []
    proved = results.select({"proofs": "l2"})
    for labels in proved.combinations(("noise", "hostile")):
        noise, hostile = labels["noise"], int(labels["hostile"])
        if not hostile:
            continue
        runs = {attack: proved.select(_proved(noise, attack, hostile)) for attack in ATTACKS}
        attack = min(runs, key=lambda one: runs[one].mean("offline"))
        value, unharmed = runs[attack].mean("offline"), proved.select(_proved(noise, attack, 0)).mean("offline")
        lost = _mean_of(runs[attack], "abandoned_rounds")
        rows.append([noise, str(hostile), attack, f"{value:.3f}", f"{unharmed - value:.3f}", f"{lost:.1f}"])
    return markdown(heads, rows, 3)


def _left_out(results: Results) -> str:
    """Return what became of vectors past the bound."""
    heads = ("noise", "hostile of 1,000", "proofs checked", "failed", "nDCG@10", "without anybody hostile")
    rows = []
    for noise in results.labels("noise"):
        runs = results.select(_proved(noise, PAST_THE_BOUND, N_PAST_THE_BOUND))
        proofs = [one.result["robustness"]["norm_proofs"] for one in runs]
        if not proofs:
            continue
        checked, failed = (sum(one[name] for one in proofs) / len(proofs) for name in ("checked", "failed"))
        values = (runs.mean("offline"), results.select(_proved(noise, "zeros", 0)).mean("offline"))
        counts = (f"{N_PAST_THE_BOUND}", f"{checked:,.0f}", f"{failed:,.0f}")
        rows.append([noise, *counts, *(f"{value:.3f}" for value in values)])
    return markdown(heads, rows, 1)


def _mean_of(results: Results, name: str) -> float:
    return float(np.mean([one.result["robustness"][name] for one in results]))


EXPERIMENTS: tuple[Experiment, ...] = (
    Experiment(
        name="privacy-hostile",
        title="secure sums: what hostile devices do, without norm proofs and with them",
        source="no figure",
        setting="none: this is our own.",
        grid=_grid,
        seeds={"quick": 2, "full": 5},
        tables=(
            Table(
                "nDCG@10 without norm proofs, with hostile devices among about 1,000 of a round",
                "offline",
                ("rule", "cohorts", "hostile"),
                where={"proofs": "none"},
            ),
            Table(
                "nDCG@10 with norm proofs, by attack within the bound",
                "offline",
                ("noise", "hostile"),
                ("attack",),
                {"proofs": "l2"},
            ),
        ),
        sections=(
            Section("Rounds that made no model, because a sum was too long", _discarded),
            Section("With norm proofs: the best attack within the bound", _best),
            Section("With norm proofs: vectors past the bound are left out", _left_out),
        ),
        claims=(
            Claim(
                "Without proofs one hostile device of 1,000 costs a ranker made of one sum more than a quarter "
                "of its nDCG@10",
                "ours",
                f"the share of final nDCG@10 that it costs: {_OF_A_SHARE}",
                loses("offline", _unseen(1, 0), _unseen(1, 1), 0.25),
            ),
            Claim(
                "Without proofs one hostile device of 1,000 costs the median of 20 sums less than 0.01 nDCG@10",
                "ours",
                f"final nDCG@10 without it minus that with it: {RANGE} is below 0.01",
                not_above("offline", _unseen(COHORTS, 0), _unseen(COHORTS, 1), 0.01),
            ),
            Claim(
                "Without proofs five hostile devices of 1,000 cost that median more than a quarter of its nDCG@10",
                "ours",
                f"the share of final nDCG@10 that they cost: {_OF_A_SHARE}",
                loses("offline", _unseen(COHORTS, 0), _unseen(COHORTS, 5), 0.25),
            ),
            Claim(
                f"With proofs {N_PAST_THE_BOUND} devices of 1,000 with vectors past the bound cost less than "
                f"{_LARGEST_LOSS} nDCG@10",
                "ours",
                f"final nDCG@10 without hostile devices minus that with {N_PAST_THE_BOUND}, for each noise: {RANGE} is "
                f"below {_LARGEST_LOSS}",
                both(*(_harmless(noise, N_PAST_THE_BOUND, (PAST_THE_BOUND,)) for noise in ("gaussian", "gamma"))),
            ),
            Claim(
                f"With proofs and gaussian noise 20 hostile devices of 1,000 cost less than {_LARGEST_LOSS} nDCG@10",
                "ours",
                f"final nDCG@10 without them minus that under each attack: {RANGE} is below {_LARGEST_LOSS}",
                _harmless("gaussian", 20),
            ),
            Claim(
                f"With proofs and gaussian noise 100 hostile devices of 1,000 cost less than {_LARGEST_LOSS} nDCG@10",
                "ours",
                f"final nDCG@10 without them minus that under each attack: {RANGE} is below {_LARGEST_LOSS}",
                _harmless("gaussian", 100),
            ),
            Claim(
                "With proofs and gaussian noise 300 hostile devices of 1,000 can cost more than a quarter of nDCG@10",
                "ours",
                f"the share of final nDCG@10 that the attack on the mean update costs: {_OF_A_SHARE}",
                _ruined("gaussian", "update", 300),
            ),
            Claim(
                "With proofs and gamma, whose honest vectors are clipped in L1, 100 hostile devices of 1,000 can "
                "cost more than a quarter of nDCG@10",
                "ours",
                f"the share of final nDCG@10 that the attack on the mean update costs: {_OF_A_SHARE}",
                _ruined("gamma", "update", 100),
            ),
        ),
        differences=(
            (
                f"One hostile device of 1,000 means {PERIOD} of {N * PERIOD:,}, so a round has one on average; each "
                f"takes part {ROUNDS // PERIOD} times in {ROUNDS} rounds. ε = {EPSILON} for all of them, two helpers."
            ),
            (
                f"Without proofs each sends the opposite of the round's mean update, {_TURNED_OF_ALL:,} times as "
                f"long, or {_TURNED_OF_COHORT} times against cohorts: it does not clip, and the sum still looks like "
                "one of honest clients. With two of them in one sum it may be too long, and with five it always is: "
                "then the round makes no model."
            ),
            (
                "With proofs, and one sum whose mean is taken, each sends the longest vector that passes: against the "
                "round's mean update, against the model that the round trains from, with the same negative number for "
                f"each feature, or zeros. `{PAST_THE_BOUND}` is what it sends without proofs."
            ),
            "FPDGD, linear, learning rate 0.1, clip norm 0.15 √5, informational clicks, 5 interactions an update.",
        ),
    ),
)
