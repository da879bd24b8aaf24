"""Non-IID data (thesis, chapter 4; Wang and Zuccon, SIGIR 2022): Table 4.2, Figures 4.3, 4.4, 4.8 and 4.9.

Type 1 needs features for the intent-change collection, of which only judgements are public. Features are drawn instead
(`foltr_research.simulation.clients.intents`), and the names of such data sets contain "synthetic".

The thesis compares training and testing on merged labels with training and testing on one intent's labels, so the
training and the measured task change together. A third arrangement here separates them: training on merged labels,
tested by intent.
"""

from collections.abc import Callable, Mapping
from typing import Any

from foltr_research.reproductions.checks import (
    among,
    both,
    higher,
    insignificant,
    mean_loss_between,
    named,
    similar,
)
from foltr_research.reproductions.claims import (
    HIGHER,
    LOWER,
    RANGE,
    SIGNIFICANT,
    Check,
    Claim,
    Difference,
    Status,
    Verdict,
    difference,
    judged,
    listed,
    minus,
    none_significant,
)
from foltr_research.reproductions.experiment import CLICKS, Experiment, Scale, Table, Variant
from foltr_research.reproductions.figures import Figure
from foltr_research.reproductions.outcomes import DataProfile, Results
from foltr_research.simulation.config import SimulationConfig

RANKERS = ("linear", "neural")
PENALTIES = ("0.001", "0.01", "0.1", "1", "10")
PBM = ("pbm-0", "pbm-0.5", "pbm-1", "pbm-1.5", "pbm-2")
INTENTS, INTERACTIONS = 4, 5
IID, NON_IID, CONTROL = {"data": "IID"}, {"data": "non-IID"}, {"data": "IID, tested by intent"}
TOLERANCE = 0.02

ROUNDS: Mapping[Scale, int] = {"quick": 1_000, "full": 10_000}
SEEDS: Mapping[Scale, int] = {"quick": 5, "full": 5}
# For grids of more than fifty settings.
SEEDS_OF_MANY: Mapping[Scale, int] = {"quick": 3, "full": 5}
_EVALUATIONS = 20
BY_RANKER = ("ranker", "clicks")

_INTENT_DATA = (
    "intent-change (200 queries, 4 intents of about equal size, intents renumbered at random for each repetition, 5 "
    "repetitions); 4 clients, one for each intent, B = 5, 10,000 rounds, CCM; linear ranker and one with a hidden "
    "layer of 64, rate 0.1. Measured on the training queries: IID by merged labels, else by each client's intent."
)
_INTENT_DIFFERENCES = (
    (
        "Features are synthetic, because only the collection's judgements are public. They show what is relevant in "
        "general, not for which intent: an intent's number means something else for each query. Levels are not "
        "comparable."
    ),
    "A third arrangement, not in the paper, trains on merged labels and tests by intent.",
)
WEB = (
    "MSLR-WEB10K, 5 folds; 10,000 rounds, B = 5 unless said otherwise, CCM; linear ranker and one with a hidden layer "
    "of 64, rate 0.1. "
)


def variant(labels: Mapping[str, str], scale: Scale, **settings: Any) -> Variant:
    """FPDGD for the scale's number of rounds, with these settings."""
    rounds = ROUNDS[scale]
    common = {"rounds": rounds, "eval_every": rounds // _EVALUATIONS, "interactions": INTERACTIONS}
    return Variant(labels, SimulationConfig.read({**common, **settings}))


def _type_1(scale: Scale, data: DataProfile) -> list[Variant]:  # noqa: ARG001
    populations = {"type1-iid": IID, "type1-iid-per-intent": CONTROL, "type1": NON_IID}
    return [
        variant(
            {"ranker": ranker, **labels, "clicks": clicks},
            scale,
            population=population,
            clients=INTENTS,
            ranker=ranker,
            clicks=clicks,
        )
        for ranker in RANKERS
        for population, labels in populations.items()
        for clicks in CLICKS
    ]


def _type_1_methods(scale: Scale, data: DataProfile) -> list[Variant]:  # noqa: ARG001
    return [
        variant(
            {"ranker": ranker, **labels, "clicks": clicks},
            scale,
            clients=INTENTS,
            ranker=ranker,
            clicks=clicks,
            **settings,
        )
        for ranker in RANKERS
        for labels, settings in methods_of(ranker, "type1", "type1-iid-per-intent")
        for clicks in CLICKS
    ]


def methods_of(ranker: str, population: str, ideal: str) -> list[tuple[dict[str, str], dict[str, Any]]]:
    """Return labels and settings of FPDGD with and without bias, FedProx, and for a ranker with layers FedPer."""
    found: list[tuple[dict[str, str], dict[str, Any]]] = [
        ({"method": "FPDGD, IID"}, {"population": ideal}),
        ({"method": "FPDGD"}, {"population": population}),
    ]
    for mu in PENALTIES:
        settings = {"population": population, "method": "fedprox", "parameters": {"mu": float(mu)}}
        found.append(({"method": "FedProx", "mu": mu}, settings))
    if ranker == "neural":
        found.append(({"method": "FedPer"}, {"population": population, "method": "fedper"}))
    return found


def _click_models(scale: Scale, data: DataProfile) -> list[Variant]:  # noqa: ARG001
    return [
        variant({**labels, "clicks": name}, scale, population=population, clients=len(models), clicks=models)
        for population, labels in (("iid", IID), ("type3", NON_IID))
        for name, models in (("CCM", CLICKS), ("PBM", PBM))
    ]


def _quantities(scale: Scale, data: DataProfile) -> list[Variant]:
    populations = ("iid", "IID"), ("type4", "type 4"), ("type2", "#R = 1"), ("type2+type4", "#R = 1 + type 4")
    # The number of clients must suit both the five quantities and the grades.
    clients = 5 if data.n_grades == 5 else 5 * data.n_grades
    return [
        variant({"data": label, "clicks": clicks}, scale, population=population, clients=clients, clicks=clicks)
        for population, label in populations
        for clicks in CLICKS
    ]


def _quantities_of_intents(scale: Scale, data: DataProfile) -> list[Variant]:  # noqa: ARG001
    populations = ("type1-iid-per-intent", CONTROL["data"]), ("type1", "type 1"), ("type1+type4", "type 1 + type 4")
    return [
        variant({"data": label, "clicks": clicks}, scale, population=population, clients=INTENTS, clicks=clicks)
        for population, label in populations
        for clicks in CLICKS
    ]


def _loss_of_training(results: Results) -> Verdict:
    """Everywhere at least half of the gap is between the two arrangements with the same test."""
    found = {}
    for labels in results.combinations(BY_RANKER):
        ideal, control, actual = (
            results.select({**labels, **which}).by_seed("offline") for which in (IID, CONTROL, NON_IID)
        )
        whole = {seed: 0.5 * (ideal[seed] - actual[seed]) for seed in ideal.keys() & actual.keys()}
        part = {seed: control[seed] - actual[seed] for seed in control.keys() & actual.keys()}
        found[", ".join(labels.values())] = minus(part, whole)
    return judged(found, lambda one, level: one.at_least(0.0, level))


def gains_little(method: str) -> Check:
    """``method`` is nowhere above FPDGD by more than the tolerance."""
    return lambda results: _shortened(_gains(results, method), lambda one, level: one.at_most(TOLERANCE, level))


def gains_nothing_significant(method: str) -> Check:
    """``method`` is nowhere significantly above FPDGD."""
    return lambda results: none_significant(_gains(results, method), Difference.above, TOLERANCE)


def _does_not_cope(method: str, figures: str, each: str) -> tuple[Claim, Claim]:
    """Return the two claims of Section 4.3.3 about a method."""
    return (
        Claim(
            f"{method} does not overcome the gap between IID and non-IID data",
            f"Section 4.3.3, {figures}",
            f"final nDCG@10 by intent is below that of FPDGD trained on merged labels for each {each}: {LOWER}",
            lambda results: _shortened(_gains(results, method, "FPDGD, IID"), Difference.below),
        ),
        Claim(
            f"{method} improves on FPDGD little, if at all",
            f"Section 4.3.3, {figures}",
            f"final nDCG@10, {method} minus FPDGD: {RANGE} is below {TOLERANCE} for each {each}",
            gains_little(method),
        ),
    )


def _gains(results: Results, method: str, than: str = "FPDGD") -> dict[str, Difference]:
    """Return one method minus another in final nDCG@10, by ranker, click model and mu, if it has one."""
    chosen = results.select({"method": method})
    found = {}
    for labels in chosen.combinations((*BY_RANKER, *(("mu",) if chosen.labels("mu") else ()))):
        other = results.select({**{key: labels[key] for key in BY_RANKER}, "method": than})
        place = ", ".join(f"mu = {value}" if key == "mu" else value for key, value in labels.items())
        found[place] = difference(chosen.select(labels), other, "offline")
    return found


def _shortened(found: Mapping[str, Difference], holds: Callable[[Difference, float], bool]) -> Verdict:
    """Return a verdict that lists of many differences only the lowest and the highest."""
    verdict = judged(found, holds)
    if len(found) <= len(CLICKS) or verdict.status is Status.NOT_TESTABLE:
        return verdict
    low, high = (choose(found, key=lambda place: found[place].mean) for choose in (min, max))
    numbers = f"{verdict.found.split(':')[0]}, from {listed({low: found[low]})} to {listed({high: found[high]})}"
    return Verdict(verdict.status, numbers)


_BY_OWN_LABELS = "IID by merged labels above non-IID by each client's intent, for each ranker and click model"
_TYPE_1_CLAIMS = (
    Claim(
        "If preferences differ between clients, the ranker is worse by the labels that it learns from",
        "Section 4.3.2, Figure 4.3",
        f"final nDCG@10, {_BY_OWN_LABELS}: {HIGHER}",
        higher("offline", IID, NON_IID, BY_RANKER),
    ),
    Claim(
        "Most of this loss is one of training, as local rankers that diverge would cause",
        "Section 4.3.2; the control is ours",
        "for each ranker and click model there is a gap in final nDCG@10, as in the first claim, and the gap if the "
        f"ranker trained on merged labels is tested by intent too, minus half of the first: {RANGE} is above 0",
        both(named("gap", higher("offline", IID, NON_IID, BY_RANKER)), named("of training", _loss_of_training)),
    ),
)
# Of Table 4.2: from 1 - 648.71 / 1002.36 to 1 - 490.29 / 842.87.
_PUBLISHED_LOSS = (0.35, 0.42)
_ONLINE_CLAIMS = (
    Claim(
        "Preferences that differ between clients hurt online performance significantly",
        "Section 4.3.2, Table 4.2",
        f"discounted online nDCG@10, {_BY_OWN_LABELS}: {HIGHER}",
        higher("online", IID, NON_IID, BY_RANKER),
    ),
    Claim(
        "Such preferences cost 35 to 42 % of online performance",
        "Table 4.2, by our arithmetic",
        "the mean share lost is between 35 and 42 % for each ranker and click model",
        mean_loss_between("online", IID, NON_IID, _PUBLISHED_LOSS, BY_RANKER),
    ),
)

_4_2 = Experiment(
    name="thesis-table-4.2",
    title="Type 1, document preferences: online performance",
    source="thesis, Section 4.3.2, Table 4.2",
    setting=_INTENT_DATA,
    grid=_type_1,
    seeds=SEEDS,
    tables=(Table("Discounted online nDCG@10", "online", ("ranker", "data"), digits=1, against=IID),),
    claims=_ONLINE_CLAIMS,
    published=(
        "linear: IID 1002 / 872 / 895, non-IID 649 / 546 / 566 (perfect / navigational / informational)",
        "neural: IID 1062 / 834 / 843, non-IID 668 / 506 / 490",
    ),
    differences=(
        *_INTENT_DIFFERENCES,
        "Online performance is judged by the labels a client learns from: those of the third arrangement are merged.",
    ),
    needs_intents=True,
)

_4_3 = Experiment(
    name="thesis-4.3",
    title="Type 1, document preferences: offline performance, and what of the gap is due to the measure",
    source="thesis, Section 4.3.2, Figure 4.3",
    setting=_INTENT_DATA,
    grid=_type_1,
    seeds=SEEDS,
    figures=(Figure("offline.png", "offline", ("data",), rows="ranker", title="Type 1 (synthetic features)"),),
    tables=(Table("Final nDCG@10", "offline", ("ranker", "data"), against=IID),),
    claims=_TYPE_1_CLAIMS,
    differences=_INTENT_DIFFERENCES,
    needs_intents=True,
)

_METHODS = ("ranker", "method", "mu")
_4_4 = Experiment(
    name="thesis-4.4",
    title="Type 1, document preferences: FedProx and FedPer",
    source="thesis, Section 4.3.3, Figure 4.4",
    setting=_INTENT_DATA + " FedProx with mu from 0.001 to 10; FedPer keeps the output layer.",
    grid=_type_1_methods,
    seeds=SEEDS_OF_MANY,
    figures=(
        Figure(
            "offline.png",
            "offline",
            ("method", "mu"),
            rows="ranker",
            title="Type 1: nDCG@10 by intent (synthetic features)",
        ),
    ),
    tables=(Table("Final nDCG@10 by intent", "offline", _METHODS),),
    claims=(
        *_does_not_cope("FedProx", "Figures 4.4a and b", "mu, ranker and click model"),
        *_does_not_cope("FedPer", "Figure 4.4c", "click model with the neural ranker"),
    ),
    differences=(
        *_INTENT_DIFFERENCES,
        "IID here is trained on merged labels and tested by intent, so that all curves have the same measure.",
    ),
    needs_intents=True,
)


_4_8 = Experiment(
    name="thesis-4.8",
    title="Type 3, click preferences",
    source="thesis, Section 4.5.1, Figure 4.8",
    setting=WEB
    + "3 clients with the three CCM click models or 5 with PBM, η from 0 to 2; IID: a click model drawn for each "
    "interaction. Linear ranker.",
    grid=_click_models,
    # With five, a difference of the tolerance would not be significant.
    seeds={"quick": 10, "full": 10},
    figures=(Figure("offline.png", "offline", ("data",), title="Type 3: nDCG@10"),),
    tables=(Table("Final nDCG@10", "offline", ("data",)),),
    claims=(
        Claim(
            "Click behaviour that differs between clients makes no significant difference",
            "Section 4.5.1, Figure 4.8",
            f"final nDCG@10 of IID and non-IID does not differ significantly under CCM or PBM ({SIGNIFICANT}), while "
            f"{TOLERANCE} would be significant",
            insignificant("offline", "data", TOLERANCE),
        ),
    ),
)

_4_9 = Experiment(
    name="thesis-4.9",
    title="Type 4, data quantity, alone and with type 2",
    source="thesis, Section 4.5.2, Figures 4.9a and c",
    setting=WEB + "5 clients with 1, 3, 5, 7 and 9 interactions in a round; IID: 5 each. Linear ranker.",
    grid=_quantities,
    seeds=SEEDS,
    figures=(Figure("offline.png", "offline", ("data",), title="Type 4: nDCG@10"),),
    tables=(Table("Final nDCG@10", "offline", ("data",)),),
    claims=(
        Claim(
            "How much each client contributes does not matter",
            "Section 4.5.2, Figure 4.9a",
            f"final nDCG@10 of IID and type 4: {RANGE} is within {TOLERANCE} for each click model",
            among("data", ("IID", "type 4"), similar("offline", "data", TOLERANCE)),
        ),
        Claim(
            "Together with #R = 1 it is as bad as #R = 1",
            "Section 4.5.2, Figure 4.9c",
            f"final nDCG@10 of #R = 1 with and without type 4: {RANGE} is within {TOLERANCE} for each click model; "
            f"IID above both: {HIGHER}",
            both(
                among("data", ("#R = 1", "#R = 1 + type 4"), similar("offline", "data", TOLERANCE)),
                *(
                    named(f"IID - {skewed}", higher("offline", IID, {"data": skewed}))
                    for skewed in ("#R = 1", "#R = 1 + type 4")
                ),
            ),
        ),
    ),
)

_4_9_INTENTS = Experiment(
    name="thesis-4.9-intents",
    title="Type 4, data quantity, with type 1",
    source="thesis, Section 4.5.2, Figure 4.9b",
    setting=_INTENT_DATA + " Clients have 1, 3, 5, 7 or 9 interactions in a round. Linear ranker.",
    grid=_quantities_of_intents,
    seeds=SEEDS,
    figures=(
        Figure("offline.png", "offline", ("data",), title="Types 1 and 4: nDCG@10 by intent (synthetic features)"),
    ),
    tables=(Table("Final nDCG@10 by intent", "offline", ("data",)),),
    claims=(
        Claim(
            "Type 4 does not change what type 1 does",
            "Section 4.5.2, Figure 4.9b",
            f"final nDCG@10 of type 1 with and without type 4: {RANGE} is within {TOLERANCE} for each click model",
            among("data", ("type 1", "type 1 + type 4"), similar("offline", "data", TOLERANCE)),
        ),
    ),
    differences=(
        *_INTENT_DIFFERENCES,
        "Four clients, of which each draws one of the five quantities; all curves are tested by intent.",
    ),
    needs_intents=True,
)

EXPERIMENTS: tuple[Experiment, ...] = (_4_2, _4_3, _4_4, _4_8, _4_9, _4_9_INTENTS)
