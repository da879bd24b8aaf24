"""Honest clients that differ, under the adaptive rule: whom it excludes or clips, and the cost.

Nobody attacks. The kinds of difference are those of the thesis' chapter 4, two of them also with weights that stay on
the device. Two concern participation: few of the clients in a round, and updates of one list.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from foltr_research.reproductions.claims import RANGE, Claim, Status, Verdict, difference_of, judged
from foltr_research.reproductions.experiment import Experiment, Scale, Section, Variant
from foltr_research.reproductions.outcomes import DataProfile, Results
from foltr_research.reproductions.report import markdown
from foltr_research.reproductions.robustness.attacks_by_rule import federation
from foltr_research.reproductions.robustness.measures import ADAPTIVE, HONEST, METRIC, detection, percent

# A multiple of the ways to choose one or two of three or five grades, of three click models, and of five quantities.
CLIENTS = 30
CLICKS = ("navigational", "informational")
_KINDS: Mapping[str, dict[str, Any]] = {
    "alike": {},
    "one label each (type 2)": {"population": "type2"},
    "two labels each (type 2)": {"population": "type2", "labels_per_client": 2},
    "one label each, FedPer": {"population": "type2", "method": "fedper", "ranker": "neural"},
    "two labels each, personal weights": {"population": "type2", "labels_per_client": 2, "method": "fpdgd-personal"},
    "different click models (type 3)": {
        "population": "type3",
        "clicks": ["perfect", "navigational", "informational"],
    },
    "different quantities (type 4)": {"population": "type4"},
    "six of them in a round": {"participants": 6},
    "updates of one list": {"interactions": 1},
}
# Share of nDCG@10 that the rule may cost clients that differ.
_COST = 0.01
# Of these kinds rankers are random walks (`four_types`), which have no level that a rule could keep.
_RANDOM_WALK = "one label each"


def _grid(scale: Scale, data: DataProfile) -> list[Variant]:  # noqa: ARG001
    found = []
    for kind, values in _KINDS.items():
        for clicks in CLICKS:
            if "clicks" in values and clicks != CLICKS[0]:
                continue
            for rule in (HONEST, ADAPTIVE):
                config = federation(scale, rule, clicks).changed(clients=CLIENTS, **values)
                labels = {"clients": kind, "clicks": "of all three kinds" if "clicks" in values else clicks}
                found.append(Variant({**labels, "rule": rule}, config))
    return found


def _costs(results: Results) -> str:
    rows = []
    for labels in results.combinations(("clients", "clicks")):
        chosen = results.select(labels)
        runs = [one for one in chosen.select({"rule": ADAPTIVE}) if one.result.get("robustness") is not None]
        if not runs:
            continue
        found = [detection(one) for one in runs]
        most = max((max(one.result["robustness"]["dropped"].values(), default=0) for one in runs), default=0)
        rows.append(
            [
                labels["clients"],
                labels["clicks"],
                f"{chosen.select({'rule': HONEST}).mean(METRIC):.3f}",
                percent(difference_of(_relative(chosen))),
                f"{sum(one.honest_clients for one in found) / len(found):.1f}",
                f"{100 * np.mean([one.honest_left_out for one in found]):.2f} %",
                f"{most}",
                f"{100 * np.mean([one.honest_shortened for one in found]):.2f} %",
            ]
        )
    header = ["clients", "clicks", "nDCG@10 of the mean", "adaptive against it", "clients left out at some time"]
    header += ["updates left out", "most of one client", "updates drawn in or shortened"]
    return (
        "nDCG@10 of the last quarter of the rounds. Counts are means over the runs, except `most of one client`: "
        "the most updates of one client that were left out in any run.\n\n" + markdown(header, rows, 2)
    )


def _relative(results: Results) -> np.ndarray:
    """(seeds,) ``adaptive`` minus mean, relative to the mean's nDCG@10 over seeds.

    Relative to each seed's own value it would be biased wherever seeds differ much.
    """
    own, others = (results.select({"rule": rule}).by_seed(METRIC) for rule in (ADAPTIVE, HONEST))
    seeds = sorted(own.keys() & others.keys())
    values, base = np.array([own[seed] for seed in seeds]), np.array([others[seed] for seed in seeds])
    return (values - base) / base.mean() if seeds else base


def _costs_little(results: Results) -> Verdict:
    """``adaptive`` is below the mean by more than `_COST` of it only where rankers are random walks, if at all."""
    found = {
        f"{labels['clients']}, {labels['clicks']}": difference_of(_relative(results.select(labels)))
        for labels in results.combinations(("clients", "clicks"))
        if not labels["clients"].startswith(_RANDOM_WALK)
    }
    found = {name: cost for name, cost in found.items() if cost.n}
    verdict = judged(found, lambda cost, level: cost.at_least(-_COST, level))
    if verdict.status is Status.NOT_TESTABLE:
        return verdict
    n_held = sum(cost.at_least(-_COST) for cost in found.values())
    worst = min(found, key=lambda name: found[name].mean)
    return Verdict(verdict.status, f"at {n_held} of {len(found)}; the least is {percent(found[worst])} ({worst})")


EXPERIMENTS: tuple[Experiment, ...] = (
    Experiment(
        name="robustness-differing",
        title="honest clients that differ, under the adaptive rule",
        source="no single figure; the kinds of difference are those of the thesis' chapter 4",
        setting=(
            "In the thesis' chapter 4 clients differ in labels, click models and quantities, and the rule is the mean."
        ),
        grid=_grid,
        seeds={"quick": 3, "full": 5},
        sections=(Section("What adaptive costs clients that differ", _costs),),
        claims=(
            Claim(
                f"Adaptive costs clients that differ at most {100 * _COST:g} %, if they have more than one label each",
                "ours",
                f"nDCG@10 over the last quarter of the rounds, relative to the mean's: {RANGE} is above "
                f"-{100 * _COST:g} % for each kind of difference and click model, except one label each, where rankers "
                "are random walks (`robustness-one-grade`)",
                _costs_little,
            ),
        ),
        differences=(
            f"{CLIENTS} clients, 400 rounds, all of whom take part unless a row says otherwise; nobody attacks.",
            "The rule does not see personal weights; rankers of clients that have them are judged with them.",
        ),
    ),
)
