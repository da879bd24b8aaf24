"""Data poisoning (thesis, Section 5.5; Wang and Zuccon, ICTIR 2023): Figure 5.2, and on other data 5.5 to 5.7.

The thesis' figures have no numbers, so every claim is about order. We add the adaptive defence and two newer rules.
"""

from collections.abc import Mapping

import numpy as np

from foltr_research.reproductions.claims import (
    HIGHER,
    Check,
    Claim,
    Difference,
    Status,
    Verdict,
    both,
    difference_of,
    higher,
    increasing,
    not_above,
    only_on,
)
from foltr_research.reproductions.experiment import CLICKS, Experiment, Scale, Table, Variant
from foltr_research.reproductions.figures import Figure
from foltr_research.reproductions.outcomes import DataProfile, Results
from foltr_research.reproductions.robustness.attacks_by_rule import (
    BEYOND_BOUNDS,
    SHARES,
    TOLD,
    federation,
)
from foltr_research.reproductions.robustness.measures import ADAPTIVE, METRIC, percent

SEEDS: Mapping[Scale, int] = {"quick": 5, "full": 25}
OF_THE_THESIS = ("krum", "multi-krum", "trimmed-mean", "median")
EXTRA = ("geometric-median", "nnm+trimmed-mean", ADAPTIVE)
HONEST = "honest: mean, no attackers"

TOLERANCE = 0.01
_CONSIDERABLE = 0.05
MEASURE = "nDCG@10 over the last quarter of the rounds"
_WEB = "a claim on data with five grades, which MSLR-WEB10K has; this data has three"
_LETOR = "a claim on MQ2007, which has three grades; this data has five"
PLACE = ("attackers", "clicks")
LINEAR = "a linear ranker, learning rate 0.1, zero start"
SETTING = (
    f"MQ2007, MSLR-WEB10K, Yahoo! and Istella-S; 10 clients, B = 5, 10,000 rounds, FPDGD with {LINEAR}; 10, 20, 30 and "
    "40 % attackers, three click models; Multi-Krum with f = n - m, trimmed mean with beta = m. "
)
OTHER_DATA = (
    "The thesis' Figures 5.5 to 5.11 are the same experiments on other data: `thesis-5.5` to `thesis-5.11`. With "
    "neural rankers, which it found to behave likewise, they are `thesis-5.2-neural` to `thesis-5.4-neural`."
)
MEASURED = (
    "Claims are judged by the mean of the evaluations in the last quarter of the rounds; the thesis shows curves only."
)
FEWER = "At quick scale there are 400 rounds instead of 10,000: slow harm, and slow recovery, show less."


def shares_of(*numbers: int) -> list[str]:
    return [share for share, m in SHARES.items() if m in numbers]


def _data_poisoning(scale: Scale, data: DataProfile) -> list[Variant]:  # noqa: ARG001
    found = []
    for share, attackers in SHARES.items():
        for clicks in CLICKS:
            labels = {"attackers": share, "clicks": clicks}
            # Repeated for each share so that every panel has it; it runs once.
            found.append(Variant({**labels, "rule": HONEST}, federation(scale, "mean", clicks)))
            found += [
                Variant({**labels, "rule": rule}, federation(scale, rule, clicks, "clicks", attackers))
                for rule in ("mean", *OF_THE_THESIS, *EXTRA)
            ]
    return found


def _each(shares: list[str], clicks: tuple[str, ...], better: str, worse: str, margin: float | None = None) -> Check:
    """One rule is above the other at all these places; with a margin, above by at most that."""
    first, second = {"rule": better}, {"rule": worse}
    places = [{"attackers": share, "clicks": click} for share in shares for click in clicks]
    if margin is None:
        return both(*(higher(METRIC, first, second, PLACE, place) for place in places))
    return both(*(not_above(METRIC, first, second, margin, PLACE, place) for place in places))


def _most(shares: list[str], better: str, worse: str) -> Check:
    """One rule is above the other at most places."""

    def check(results: Results) -> Verdict:
        chosen = Results(tuple(one for one in results if one.labels["attackers"] in shares), results.data)
        return higher(METRIC, {"rule": better}, {"rule": worse}, PLACE, need="most")(chosen)

    return check


def losses(results: Results, share: str) -> dict[str, Difference]:
    """Return, by click model, the loss of nDCG@10 that a share of attackers causes under the mean."""
    found = {}
    for clicks in results.labels("clicks"):
        there = results.select({"attackers": share, "clicks": clicks})
        honest, attacked = (there.select({"rule": rule}).by_seed(METRIC) for rule in (HONEST, "mean"))
        seeds = sorted(honest.keys() & attacked.keys())
        if len(seeds) > 1:
            found[clicks] = difference_of(np.array([1.0 - attacked[seed] / honest[seed] for seed in seeds]))
    return found


def _informational_suffers_most(results: Results) -> Verdict:
    parts, held = [], []
    for share in shares_of(2, 3, 4):
        found = losses(results, share)
        if found.keys() != set(CLICKS):
            return Verdict(Status.NOT_TESTABLE, "no runs of every click model with two seeds or more")
        parts.append(f"{share}: " + ", ".join(f"{clicks} {percent(loss)}" for clicks, loss in found.items()))
        held.append(max(found, key=lambda clicks: found[clicks].mean) == "informational")
    return Verdict(Status.CONFIRMED if all(held) else Status.NOT_CONFIRMED, "; ".join(parts))


def _perfect_only_to_many(results: Results) -> Verdict:
    found = {share: losses(results, share).get("perfect") for share in SHARES}
    known = {share: loss for share, loss in found.items() if loss is not None}
    if known.keys() != SHARES.keys():
        return Verdict(Status.NOT_TESTABLE, "no runs with two seeds or more at every share")
    few, many = shares_of(1, 2), shares_of(4)
    held = all(known[share].mean <= _CONSIDERABLE for share in few)
    held = held and all(known[share].mean > _CONSIDERABLE for share in many)
    numbers = ", ".join(f"{share} {percent(loss)}" for share, loss in known.items())
    return Verdict(Status.CONFIRMED if held else Status.NOT_CONFIRMED, numbers)


def selection_against_coordinates(results: Results) -> Difference:
    """Krum and Multi-Krum minus trimmed mean and median, paired by seed, averaged over shares and click models."""
    means = []
    for rules in (OF_THE_THESIS[:2], OF_THE_THESIS[2:]):
        by_seed: dict[int, list[float]] = {}
        for one in results:
            if one.labels["rule"] in rules:
                by_seed.setdefault(one.seed, []).append(one.value(METRIC))
        means.append({seed: float(np.mean(values)) for seed, values in by_seed.items()})
    first, second = means
    return difference_of(np.array([first[seed] - second[seed] for seed in sorted(first.keys() & second.keys())]))


def _selection_is(*, better: bool) -> Check:
    def check(results: Results) -> Verdict:
        found = selection_against_coordinates(results)
        if found.n < 2:
            return Verdict(Status.NOT_TESTABLE, "no runs with two seeds or more")
        held = found.above if better else found.below
        return Verdict(Status.CONFIRMED if held else Status.NOT_CONFIRMED, str(found))

    return check


_TO_ALL = ("navigational", "informational")
_ONE = ("informational",)
_5_2 = Experiment(
    name="thesis-5.2",
    title="Data poisoning, and what the rules do about it",
    source="thesis, Section 5.5, Figure 5.2 (other data: 5.5 to 5.7)",
    setting=SETTING + "Attackers' users click as the model `poison`.",
    grid=_data_poisoning,
    seeds=SEEDS,
    figures=(Figure("offline.png", "offline", ("rule",), rows="attackers", title="Data poisoning: nDCG@10"),),
    tables=(Table("nDCG@10 in the last quarter of the rounds", METRIC, ("attackers", "rule")),),
    claims=(
        Claim(
            "The more attackers, the worse the ranker",
            "Section 5.5.1",
            f"{MEASURE}, mean: from 40 % to 10 % attackers it rises and no step goes down with any click model",
            increasing(METRIC, "attackers", tuple(reversed(list(SHARES))), where={"rule": "mean"}),
        ),
        Claim(
            "With navigational and informational clicks 20 % of attackers do significant harm",
            "Section 5.5.1",
            f"{MEASURE}, honest above mean with 20 %, for both: " + HIGHER,
            _each(shares_of(2), _TO_ALL, HONEST, "mean"),
        ),
        Claim(
            "Informational clicks are the most affected",
            "Section 5.5.1",
            f"the share of {MEASURE} that is lost is the largest with them, at 20, 30 and 40 % (means)",
            _informational_suffers_most,
        ),
        Claim(
            "With perfect clicks only a large number of attackers does considerable harm",
            "Section 5.5.1",
            f"the share lost is at most {100 * _CONSIDERABLE:g} % with 10 and 20 % of attackers, and more with 40 % "
            "(means)",
            _perfect_only_to_many,
        ),
        Claim(
            "Krum defends from 20 % of attackers on",
            "Section 5.5.2: with the exceptions that are claims below",
            f"{MEASURE}, Krum above mean for each click model with 20 and 30 %, and with 40 % for perfect and "
            "navigational clicks: " + HIGHER,
            both(
                _each(shares_of(2, 3), CLICKS, "krum", "mean"),
                _each(shares_of(4), CLICKS[:2], "krum", "mean"),
            ),
        ),
        Claim(
            "Krum does nothing against 10 % of attackers",
            "Section 5.5.2: not so on Istella-S",
            f"{MEASURE}, Krum above mean by at most {TOLERANCE} for each click model (means)",
            _each(shares_of(1), CLICKS, "krum", "mean", TOLERANCE),
        ),
        Claim(
            "On MSLR-WEB10K Krum fails with informational clicks and 40 %",
            "Section 5.5.2",
            f"{MEASURE}, Krum above mean by at most {TOLERANCE} (means)",
            only_on(5, _WEB, _each(shares_of(4), _ONE, "krum", "mean", TOLERANCE)),
        ),
        Claim(
            "On MQ2007 Krum fails with informational clicks at every share",
            "Section 5.5.2",
            f"{MEASURE}, Krum above mean by at most {TOLERANCE} (means)",
            only_on(3, _LETOR, _each(list(SHARES), _ONE, "krum", "mean", TOLERANCE)),
        ),
        Claim(
            "Multi-Krum is as effective as Krum with perfect clicks",
            "Section 5.5.2",
            f"{MEASURE} of either is above the other's by at most 0.02, at every share (means)",
            both(
                _each(list(SHARES), ("perfect",), "krum", "multi-krum", 0.02),
                _each(list(SHARES), ("perfect",), "multi-krum", "krum", 0.02),
            ),
        ),
        Claim(
            "Multi-Krum is slightly better than Krum with navigational clicks and 30 % or less",
            "Section 5.5.2",
            f"{MEASURE}, at each of these shares: " + HIGHER,
            _each(shares_of(1, 2, 3), ("navigational",), "multi-krum", "krum"),
        ),
        Claim(
            "Multi-Krum is worse than Krum with informational clicks and more than 30 %",
            "Section 5.5.2",
            f"{MEASURE} with 40 %: " + HIGHER,
            _each(shares_of(4), _ONE, "krum", "multi-krum"),
        ),
        Claim(
            "Trimmed mean fails with informational clicks and more than 30 %",
            "Section 5.5.2",
            f"{MEASURE} with 40 % is above the mean's by at most {TOLERANCE} (means)",
            _each(shares_of(4), _ONE, "trimmed-mean", "mean", TOLERANCE),
        ),
        Claim(
            "Trimmed mean gains less than Krum with 20 and 30 %",
            "Section 5.5.2",
            f"{MEASURE}, Krum above trimmed mean for most shares and click models: " + HIGHER,
            _most(shares_of(2, 3), "krum", "trimmed-mean"),
        ),
        Claim(
            "Median fails with informational clicks and 30 or 40 %",
            "Section 5.5.2",
            f"{MEASURE} is above the mean's by at most {TOLERANCE} at both (means)",
            _each(shares_of(3, 4), _ONE, "median", "mean", TOLERANCE),
        ),
        Claim(
            "Median gains about what trimmed mean gains with 20 and 30 %",
            "Section 5.5.2",
            f"{MEASURE} of either is above the other's by at most 0.02 (means)",
            both(
                _each(shares_of(2, 3), CLICKS, "median", "trimmed-mean", 0.02),
                _each(shares_of(2, 3), CLICKS, "trimmed-mean", "median", 0.02),
            ),
        ),
        Claim(
            "Krum and Multi-Krum defend better than trimmed mean and median",
            "Section 5.5.2, Summary: except on MQ2007",
            f"{MEASURE}, means over all shares and click models: " + HIGHER,
            only_on(5, _WEB, _selection_is(better=True)),
        ),
        Claim(
            "On MQ2007 trimmed mean and median defend better than Krum and Multi-Krum",
            "Section 5.5.2, Summary",
            f"{MEASURE}, means over all shares and click models: " + HIGHER,
            only_on(3, _LETOR, _selection_is(better=False)),
        ),
        Claim(
            "Adaptive defends from 20 % of attackers on",
            "ours",
            f"{MEASURE}, adaptive above mean for each click model and share from 20 %: " + HIGHER,
            _each(shares_of(2, 3, 4), CLICKS, ADAPTIVE, "mean"),
        ),
        *(
            Claim(
                f"Adaptive defends better than {rule}",
                "ours",
                f"{MEASURE} for most shares and click models: " + HIGHER,
                higher(METRIC, {"rule": ADAPTIVE}, {"rule": rule}, PLACE, need="most"),
            )
            for rule in OF_THE_THESIS
        ),
    ),
    differences=(TOLD, BEYOND_BOUNDS, MEASURED, FEWER, OTHER_DATA),
)

EXPERIMENTS: tuple[Experiment, ...] = (_5_2,)
