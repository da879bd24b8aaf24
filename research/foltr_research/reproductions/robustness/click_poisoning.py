"""Data poisoning (thesis, Section 5.5; Wang and Zuccon, ICTIR 2023): Figure 5.2, and on other data 5.5 to 5.7.

The thesis' figures have no numbers, so every claim is about order. We add the adaptive defence and two newer rules.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from foltr_research.reproductions.checks import (
    among,
    both,
    except_on,
    higher,
    increasing,
    not_above,
    only_named,
    only_on,
    similar,
)
from foltr_research.reproductions.claims import (
    HIGHER,
    HIGHER_IN_MOST,
    NOTHING,
    RANGE,
    Check,
    Claim,
    Difference,
    Status,
    Verdict,
    decided,
    difference_of,
    judged,
    minus,
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
    check = higher(METRIC, first, second, PLACE) if margin is None else not_above(METRIC, first, second, margin, PLACE)
    return among("attackers", shares, among("clicks", clicks, check))


def _alike(shares: list[str], clicks: tuple[str, ...], rules: tuple[str, str], tolerance: float) -> Check:
    check = among("rule", rules, similar(METRIC, "rule", tolerance, PLACE))
    return among("attackers", shares, among("clicks", clicks, check))


def _the_more_the_worse(results: Results) -> Verdict:
    """The honest ranker is the one with no attackers."""
    honest = (replace(one, labels={**one.labels, "attackers": "0 %"}) for one in results.select({"rule": HONEST}))
    by_share = Results((*honest, *results.select({"rule": "mean"})), results.data)
    return increasing(METRIC, "attackers", (*reversed(list(SHARES)), "0 %"))(by_share)


def losses(results: Results, share: str) -> dict[str, dict[int, float]]:
    """Return, by click model and seed, the loss of nDCG@10 that a share of attackers causes under the mean."""
    found = {}
    for clicks in results.labels("clicks"):
        there = results.select({"attackers": share, "clicks": clicks})
        honest, attacked = (there.select({"rule": rule}).by_seed(METRIC) for rule in (HONEST, "mean"))
        found[clicks] = {seed: 1.0 - attacked[seed] / honest[seed] for seed in honest.keys() & attacked.keys()}
    return found


def _overall(results: Results, rule: str) -> dict[int, float]:
    """Return a rule's mean over shares and click models, by seed."""
    by_seed: dict[int, list[float]] = {}
    for one in results.select({"rule": rule}):
        by_seed.setdefault(one.seed, []).append(one.value(METRIC))
    return {seed: float(np.mean(values)) for seed, values in by_seed.items()}


def _informational_suffers_most(results: Results) -> Verdict:
    gaps = {}
    for clicks in CLICKS:
        honest, attacked = (_overall(results.select({"clicks": clicks}), rule) for rule in (HONEST, "mean"))
        gaps[clicks] = {seed: honest[seed] - attacked[seed] for seed in honest.keys() & attacked.keys()}
    leads = {f"more than {other}": minus(gaps["informational"], gaps[other]) for other in CLICKS if other not in _ONE}
    return judged(leads, Difference.above)


def _perfect_only_to_many(results: Results) -> Verdict:
    found = {
        share: difference_of(np.array(list(losses(results, share).get("perfect", {}).values()))) for share in SHARES
    }
    few, many = ({share: found[share] for share in shares_of(*numbers)} for numbers in ((1, 2), (4,)))
    verdicts = (
        judged(few, lambda one, level: one.at_most(_CONSIDERABLE, level)),
        judged(many, lambda one, level: one.at_least(_CONSIDERABLE, level)),
    )
    if Status.NOT_TESTABLE in {verdict.status for verdict in verdicts}:
        return NOTHING
    numbers = ", ".join(f"{share} {percent(loss)}" for share, loss in found.items())
    return decided(all(verdict.status is Status.CONFIRMED for verdict in verdicts), numbers)


def _each_above_each(better: Sequence[str], worse: Sequence[str]) -> Check:
    """Check that every rule of ``better`` is above every one of ``worse`` overall."""

    def check(results: Results) -> Verdict:
        pairs = {
            f"{one} - {other}": (_overall(results, one), _overall(results, other)) for one in better for other in worse
        }
        return judged({name: minus(*pair) for name, pair in pairs.items()}, Difference.above)

    return check


_OF_THE_LOSS = f"the 90 % interval of the share of {MEASURE} that is lost"
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
    tables=(
        Table("nDCG@10 in the last quarter of the rounds", METRIC, ("attackers", "rule"), against={"rule": "mean"}),
    ),
    claims=(
        Claim(
            "The more attackers, the worse the ranker",
            "Section 5.5.1",
            f"{MEASURE} with the mean: without attackers above that with 40 %, no step (none, 10, 20, 30, 40 %) goes "
            "up, for each click model: " + HIGHER,
            _the_more_the_worse,
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
            f"{MEASURE}, honest minus mean, means over all shares of attackers: with them above that with perfect and "
            "with navigational clicks: " + HIGHER,
            _informational_suffers_most,
        ),
        Claim(
            "With perfect clicks only a large number of attackers does considerable harm",
            f"Section 5.5.1; the bound of {100 * _CONSIDERABLE:g} % is ours",
            f"{_OF_THE_LOSS} is below {100 * _CONSIDERABLE:g} % with 10 and 20 % of attackers, and above it with 40 %",
            _perfect_only_to_many,
        ),
        Claim(
            "Krum defends from 20 % of attackers on",
            "Section 5.5.2: except on MQ2007, and on MSLR-WEB10K with 40 % and informational clicks",
            f"{MEASURE}, Krum above mean for each click model with 20, 30 and 40 %, except informational clicks with "
            "40 % on MSLR-WEB10K: " + HIGHER,
            only_on(
                5,
                _WEB,
                except_on(
                    "MSLR-WEB10K",
                    both(
                        _each(shares_of(2, 3), CLICKS, "krum", "mean"),
                        _each(shares_of(4), CLICKS[:2], "krum", "mean"),
                    ),
                    _each(shares_of(2, 3, 4), CLICKS, "krum", "mean"),
                ),
            ),
        ),
        Claim(
            "Krum does nothing against 10 % of attackers, except on Istella-S",
            "Section 5.5.2",
            f"{MEASURE}, Krum minus mean: {RANGE} is below {TOLERANCE} for each click model; on Istella-S {HIGHER}",
            except_on(
                "Istella-S",
                _each(shares_of(1), CLICKS, "krum", "mean"),
                _each(shares_of(1), CLICKS, "krum", "mean", TOLERANCE),
            ),
        ),
        Claim(
            "On MSLR-WEB10K Krum fails with informational clicks and 40 %",
            "Section 5.5.2",
            f"{MEASURE}, Krum minus mean: {RANGE} is below {TOLERANCE}",
            only_named(("MSLR-WEB10K",), _each(shares_of(4), _ONE, "krum", "mean", TOLERANCE)),
        ),
        Claim(
            "On MQ2007 Krum fails with informational clicks at every share",
            "Section 5.5.2",
            f"{MEASURE}, Krum minus mean: {RANGE} is below {TOLERANCE} at every share",
            only_on(3, _LETOR, _each(list(SHARES), _ONE, "krum", "mean", TOLERANCE)),
        ),
        Claim(
            "Multi-Krum is as effective as Krum with perfect clicks",
            "Section 5.5.2",
            f"{MEASURE} of the two: {RANGE} is within 0.02 at every share",
            _alike(list(SHARES), ("perfect",), ("krum", "multi-krum"), 0.02),
        ),
        Claim(
            "Multi-Krum is better than Krum with navigational clicks and 30 % or less",
            "Section 5.5.2: slightly, and especially with these shares",
            f"{MEASURE}, Multi-Krum above Krum with 10, 20 and 30 %: " + HIGHER,
            _each(shares_of(1, 2, 3), ("navigational",), "multi-krum", "krum"),
        ),
        Claim(
            "Multi-Krum is worse than Krum with informational clicks",
            "Section 5.5.2: especially with more than 30 %",
            f"{MEASURE}, Krum above Multi-Krum at every share: " + HIGHER,
            _each(list(SHARES), _ONE, "krum", "multi-krum"),
        ),
        Claim(
            "Trimmed mean fails with informational clicks and more than 30 %",
            "Section 5.5.2",
            f"{MEASURE} with 40 %, trimmed mean minus mean: {RANGE} is below {TOLERANCE}",
            _each(shares_of(4), _ONE, "trimmed-mean", "mean", TOLERANCE),
        ),
        Claim(
            "Trimmed mean gains less than Krum with 20 and 30 %, and about the same with 10 %",
            "Section 5.5.2; not meant of MQ2007, by the summary",
            f"{MEASURE}, Krum above trimmed mean for each click model with 20 and 30 %: {HIGHER}; of the two with "
            f"10 %: {RANGE} is within 0.02",
            only_on(
                5,
                _WEB,
                both(
                    _each(shares_of(2, 3), CLICKS, "krum", "trimmed-mean"),
                    _alike(shares_of(1), CLICKS, ("krum", "trimmed-mean"), 0.02),
                ),
            ),
        ),
        Claim(
            "Median fails with informational clicks and 30 or 40 %",
            "Section 5.5.2",
            f"{MEASURE} at both, median minus mean: {RANGE} is below {TOLERANCE}",
            _each(shares_of(3, 4), _ONE, "median", "mean", TOLERANCE),
        ),
        Claim(
            "Median gains about what trimmed mean gains with 20 and 30 %",
            "Section 5.5.2",
            f"{MEASURE} of the two: {RANGE} is within 0.02 for each click model",
            _alike(shares_of(2, 3), CLICKS, ("median", "trimmed-mean"), 0.02),
        ),
        Claim(
            "Krum and Multi-Krum defend better than trimmed mean and median",
            "Section 5.5.2, Summary: except on MQ2007",
            f"{MEASURE}, means over all shares and click models, each of the two above each of the others: " + HIGHER,
            only_on(5, _WEB, _each_above_each(OF_THE_THESIS[:2], OF_THE_THESIS[2:])),
        ),
        Claim(
            "On MQ2007 trimmed mean and median defend better than Krum and Multi-Krum",
            "Section 5.5.2, Summary",
            f"{MEASURE}, means over all shares and click models, each of the two above each of the others: " + HIGHER,
            only_on(3, _LETOR, _each_above_each(OF_THE_THESIS[2:], OF_THE_THESIS[:2])),
        ),
        Claim(
            "Adaptive defends from 20 % of attackers on",
            "ours",
            f"{MEASURE}, adaptive above mean for each click model and share from 20 %: " + HIGHER,
            _each(shares_of(2, 3, 4), CLICKS, ADAPTIVE, "mean"),
        ),
        *(
            Claim(
                f"Adaptive defends better than {rule} in most cases",
                "ours",
                f"{MEASURE}, adaptive above {rule} for most shares and click models: " + HIGHER_IN_MOST,
                higher(METRIC, {"rule": ADAPTIVE}, {"rule": rule}, PLACE, need="most"),
            )
            for rule in OF_THE_THESIS
        ),
    ),
    differences=(TOLD, BEYOND_BOUNDS, MEASURED, FEWER, OTHER_DATA),
)

EXPERIMENTS: tuple[Experiment, ...] = (_5_2,)
