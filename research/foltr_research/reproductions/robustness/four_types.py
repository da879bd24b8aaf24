"""The four types of clients that differ (thesis, chapter 4), without attackers and with one in five.

A rule may take clients that differ for hostile ones, which costs quality if nobody attacks. And clients that differ may
hide hostile ones, which costs it if somebody does. Type 1 needs labels per intent and so has its own experiment.

Clients with one grade each have their own, too, with many seeds: all documents of a list are equally relevant there. If
two of them change places, clicks are as likely as before, and PDGD's reversals make both preferences count alike. So
every step is 0 in expectation, and the mean's ranker is a random walk.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foltr_research.reproductions.claims import (
    NOTHING,
    RANGE,
    SIGNIFICANT,
    Check,
    Claim,
    Difference,
    Verdict,
    decided,
    difference,
    difference_of,
    judged,
    none_significant,
)
from foltr_research.reproductions.experiment import Experiment, Scale, Section, Variant
from foltr_research.reproductions.experiments.foltr_es import eval_every
from foltr_research.reproductions.outcomes import DataProfile, Labels, Results
from foltr_research.reproductions.report import markdown
from foltr_research.reproductions.robustness.attacks_by_rule import federation
from foltr_research.reproductions.robustness.measures import ADAPTIVE, HONEST, METRIC, NOBODY, Detection, detection
from foltr_research.simulation.config import SimulationConfig

DIFFERING = "adaptive, differing"
RULES = (HONEST, ADAPTIVE, DIFFERING)
CLICKS = ("navigational", "informational")
# Two by those who do not know the rule, two by those who have read it.
ATTACKS = ("sign-flip", "min-max (noisy)", "launder", "acceptable")
ROUNDS: Mapping[Scale, int] = {"quick": 200, "full": 10_000}
ROUNDS_OF_ONE_GRADE: Mapping[Scale, int] = {"quick": 100, "full": 10_000}
# What a rule may cost without attackers, and what it must keep with them.
COST, KEPT = 0.05, 0.9
_ATTACKED = 0.2
# Of nDCG@10, of clients with one grade each.
_VISIBLE = 0.05

_ONE_GRADE: dict[str, Any] = {"population": "type2", "clients": 30}
_TWO_GRADES: dict[str, Any] = {**_ONE_GRADE, "labels_per_client": 2}
_INTENTS: Mapping[str, dict[str, Any]] = {"type 1": {"population": "type1", "clients": 20}}
_LABELS: Mapping[str, dict[str, Any]] = {
    "type 2, two grades each": _TWO_GRADES,
    "type 3": {"population": "type3", "clients": 15, "clicks": ["perfect", "navigational", "informational"]},
    "type 4": {"population": "type4", "clients": 20},
}


def _config(
    scale: Scale, rule: str, clicks: str, attack: str, kind: Mapping[str, Any], rounds: int
) -> SimulationConfig:
    attackers = 0 if attack == NOBODY else round(_ATTACKED * kind["clients"])
    config = federation(scale, HONEST if rule == HONEST else ADAPTIVE, clicks, attack, attackers)
    parameters = {"differing": 1} if rule == DIFFERING else {}
    return config.changed(
        **{**kind, "rounds": rounds, "eval_every": eval_every(rounds), "aggregation_parameters": parameters}
    )


def _grid(kinds: Mapping[str, dict[str, Any]]) -> Callable[[Scale, DataProfile], list[Variant]]:
    def grid(scale: Scale, data: DataProfile) -> list[Variant]:  # noqa: ARG001
        found = []
        for name, kind in kinds.items():
            for clicks in CLICKS[:1] if "clicks" in kind else CLICKS:
                for attack in (NOBODY, *ATTACKS):
                    for rule in RULES:
                        labels = {"clients": name, "clicks": "three models" if "clicks" in kind else clicks}
                        config = _config(scale, rule, clicks, attack, kind, ROUNDS[scale])
                        found.append(Variant({**labels, "attack": attack, "rule": rule}, config))
        return found

    return grid


def _one_grade(scale: Scale, data: DataProfile) -> list[Variant]:  # noqa: ARG001
    return [
        Variant(
            {"clicks": clicks, "rule": rule},
            _config(scale, rule, clicks, NOBODY, _ONE_GRADE, ROUNDS_OF_ONE_GRADE[scale]),
        )
        for clicks in CLICKS
        for rule in RULES
    ]


def costs(results: Results) -> str:
    """What each rule costs without attackers, and what it did to honest clients."""
    rows = []
    for place in _places(results, attacked=False):
        there = results.select(place)
        honest = there.select({"rule": HONEST})
        for rule in RULES[1:]:
            found = _detections(there.select({"rule": rule}))
            if found:
                rows.append(
                    [
                        place["clients"],
                        place["clicks"],
                        f"{honest.mean(METRIC):.3f}",
                        rule,
                        _interval(relative(results, place, rule)),
                        f"{sum(one.honest_clients for one in found) / len(found):.1f}",
                        f"{100 * np.mean([one.honest_left_out for one in found]):.2f} %",
                        f"{100 * np.mean([one.honest_shortened for one in found]):.2f} %",
                    ]
                )
    header = ["clients", "clicks", "nDCG@10 of the mean", "rule", "against the mean", "clients left out at some time"]
    header += ["updates left out", "drawn in or shortened"]
    return (
        "Nobody attacks. nDCG@10 of the last quarter of the rounds relative to the mean's: mean over seeds with its "
        "95 % interval (Student's t, paired). Counts are means over runs.\n\n" + markdown(header, rows, 2)
    )


def kept(results: Results) -> str:
    """What each rule keeps with attackers."""
    rows = []
    for place in _places(results, attacked=True):
        cells = [_interval(1.0 + relative(results, place, rule), sign="") for rule in RULES]
        found = [_detections(results.select({**place, "rule": rule})) for rule in RULES[1:]]
        caught = [f"{100 * np.mean([one.hostile_left_out for one in runs]):.0f} %" for runs in found if runs]
        rows.append([place["clients"], place["clicks"], place["attack"], *cells, ", ".join(caught)])
    header = ["clients", "clicks", "attack", *RULES, "attackers' updates left out by the last two"]
    return (
        "One client in five attacks. nDCG@10 of the last quarter of the rounds in per cent of the honest federation's "
        "with the mean: mean over seeds with its 95 % interval.\n\n" + markdown(header, rows, 3)
    )


def of_one_grade(results: Results) -> str:
    """The rankers of clients with one grade each, over seeds."""
    rows = []
    for clicks in results.labels("clicks"):
        for rule in RULES:
            there = results.select({"clicks": clicks, "rule": rule})
            values = there.values(METRIC)
            if not len(values):
                continue
            found = _detections(there)
            left_out = f"{100 * np.mean([one.honest_left_out for one in found]):.1f} %" if found else "-"
            against = difference(there, results.select({"clicks": clicks, "rule": HONEST}), METRIC)
            rows.append(
                [
                    *(clicks, rule, f"{values.mean():.3f}", f"{there.sd(METRIC):.3f}"),
                    f"{values.min():.3f} to {values.max():.3f}",
                    "-" if rule == HONEST else f"{against.mean:+.3f} ± {against.margin():.3f}",
                    left_out,
                ]
            )
    header = ["clicks", "rule", "nDCG@10", "SD over seeds", "from, to", "against the mean", "updates left out"]
    return (
        "nDCG@10 of the last quarter of the rounds. Against the mean: with the 95 % interval of the paired "
        "difference.\n\n" + markdown(header, rows, 2)
    )


def relative(results: Results, place: Labels, rule: str) -> NDArray[np.float64]:
    """(seeds,) a rule's nDCG@10 less that of the honest mean with the same seed, relative to that mean over seeds.

    Relative to each seed's own value it would be biased wherever seeds differ much.
    """
    own = results.select({**place, "rule": rule}).by_seed(METRIC)
    honest = results.select({**place, "attack": NOBODY, "rule": HONEST}).by_seed(METRIC)
    seeds = sorted(own.keys() & honest.keys())
    values, base = np.array([own[seed] for seed in seeds]), np.array([honest[seed] for seed in seeds])
    return (values - base) / base.mean() if seeds else base


def _costs_at_most(rule: str) -> Check:
    def check(results: Results) -> Verdict:
        found = {_name(place): relative(results, place, rule) for place in _places(results, attacked=False)}
        differences = {name: difference_of(values) for name, values in found.items()}
        return judged(differences, lambda one, level: one.at_least(-COST, level))

    return check


def _keeps_at_least(rule: str) -> Check:
    """At every place but those of type 2, in the mean over seeds."""

    def check(results: Results) -> Verdict:
        places = [place for place in _places(results, attacked=True) if not place["clients"].startswith("type 2")]
        found = {_name(place): 1.0 + relative(results, place, rule) for place in places}
        values = {name: float(one.mean()) for name, one in found.items() if len(one)}
        if not values:
            return NOTHING
        worst = min(values, key=values.__getitem__)
        n_held = sum(value >= KEPT for value in values.values())
        numbers = f"at {n_held} of {len(values)} places; the least is {100 * values[worst]:.1f} % ({worst})"
        return decided(n_held == len(values), numbers)

    return check


def _is_chance(results: Results) -> Verdict:
    """No rule differs from the mean significantly."""
    found = {
        f"{rule}, {clicks}": difference(
            results.select({"clicks": clicks, "rule": rule}), results.select({"clicks": clicks, "rule": HONEST}), METRIC
        )
        for clicks in results.labels("clicks")
        for rule in RULES[1:]
    }
    return none_significant(found, lambda one, level: one.above(level) or one.below(level), _VISIBLE)


def _places(results: Results, *, attacked: bool) -> list[dict[str, str]]:
    found = results.combinations(("clients", "clicks", "attack"))
    return [place for place in found if (place["attack"] != NOBODY) == attacked]


def _name(place: Labels) -> str:
    return ", ".join(value for value in place.values() if value != NOBODY)


def _detections(results: Results) -> list[Detection]:
    return [detection(one) for one in results if one.result.get("robustness") is not None]


def _interval(values: NDArray[np.float64], sign: str = "+") -> str:
    found: Difference = difference_of(values)
    return f"{100 * found.mean:{sign}.1f} ± {100 * found.margin():.1f} %" if found.n else "-"


_SECTIONS = (
    Section("What a rule costs if nobody attacks", costs),
    Section("What a rule keeps if one in five attacks", kept),
)
_CLAIMS = tuple(
    claim
    for rule in RULES[1:]
    for claim in (
        Claim(
            f"The rule {rule} costs clients that differ at most {100 * COST:g} %",
            "ours",
            f"nDCG@10 over the last quarter of the rounds, relative to the mean's: {RANGE} is above -{100 * COST:g} % "
            "for each type and click model",
            _costs_at_most(rule),
        ),
        Claim(
            f"The rule {rule} keeps {100 * KEPT:g} % in types 1, 3 and 4 if one in five attacks",
            "ours",
            "nDCG@10 kept over the last quarter of the rounds (means over seeds) for each attack and click model, of "
            "types 1, 3 and 4",
            _keeps_at_least(rule),
        ),
    )
)
_SOURCE = "no single figure; the types are those of the thesis' chapter 4"
_SETTING = (
    "In the thesis' chapter 4 clients differ in preferences, labels, click models and quantities; nobody attacks."
)
_HERE = (
    "20 clients of types 1 and 4, 30 of type 2, 15 of type 3; all take part in each of 200 rounds.",
    "`adaptive, differing` has the parameter `differing = 1`; both have their defaults otherwise.",
    (
        "Attackers are the first clients by name. They know their own updates; those of `launder` and `acceptable` "
        "have also read the rule, with the parameters of `robustness-aware`."
    ),
)

EXPERIMENTS: tuple[Experiment, ...] = (
    Experiment(
        name="robustness-types",
        title="clients that differ in labels, click models and quantities, with and without attackers",
        source=_SOURCE,
        setting=_SETTING,
        grid=_grid(_LABELS),
        seeds={"quick": 5, "full": 5},
        sections=_SECTIONS,
        claims=_CLAIMS,
        differences=(*_HERE, "Clients with one grade each: `robustness-one-grade`."),
    ),
    Experiment(
        name="robustness-type-1",
        title="clients that prefer different documents, with and without attackers",
        source=_SOURCE,
        setting=_SETTING,
        grid=_grid(_INTENTS),
        seeds={"quick": 5, "full": 5},
        sections=_SECTIONS,
        claims=_CLAIMS,
        differences=(
            *_HERE,
            "Each client's ranker is measured by its own intent's labels, attackers' left out.",
            "Features are synthetic, because only the judgements of the intent-change collection are public.",
        ),
        needs_intents=True,
    ),
    Experiment(
        name="robustness-one-grade",
        title="clients with documents of one grade each teach nothing, and no rule changes that",
        source=_SOURCE,
        setting=_SETTING,
        grid=_one_grade,
        seeds={"quick": 40, "full": 40},
        sections=(Section("Rankers that are random walks", of_one_grade),),
        claims=(
            Claim(
                "With one grade each no rule ranks better or worse than the mean",
                "ours",
                f"nDCG@10 over the last quarter of the rounds of neither rule differs significantly from the mean's "
                f"({SIGNIFICANT}), while {_VISIBLE} would be significant",
                _is_chance,
            ),
        ),
        differences=("30 clients; all take part in each of 100 rounds; nobody attacks.",),
    ),
)
