"""Type 2 of non-IID data (thesis, Section 4.4; Wang and Zuccon, SIGIR 2022): Table 4.3, Figures 4.5 to 4.7.

Clients have documents of one relevance grade (#R = 1) or of two (#R = 2).
"""

from itertools import pairwise
from typing import Any

from foltr_research.reproductions.checks import above_by, both, higher, insignificant, named, not_above
from foltr_research.reproductions.claims import (
    HIGHER,
    HIGHER_IN_MOST,
    NOTHING,
    RANGE,
    SIGNIFICANT,
    Claim,
    Verdict,
    decided,
)
from foltr_research.reproductions.experiment import CLICKS, Experiment, Scale, Table, Variant
from foltr_research.reproductions.experiments.noniid import (
    BY_RANKER,
    IID,
    NON_IID,
    RANKERS,
    ROUNDS,
    SEEDS,
    SEEDS_OF_MANY,
    TOLERANCE,
    WEB,
    gains_nothing_significant,
    methods_of,
    variant,
)
from foltr_research.reproductions.figures import Figure
from foltr_research.reproductions.outcomes import DataProfile, Results

UPDATE_SIZES = ("2", "5", "10")
SHARES = ("0.1", "0.5", "1")
DISCOUNT = 0.9995
# The largest gap in nDCG@10 that counts as minimal.
_MINIMAL = 0.03


def _one_label(scale: Scale, data: DataProfile) -> list[Variant]:
    return [
        variant(
            {"ranker": ranker, **labels, "B": size, "clicks": clicks},
            scale,
            population=population,
            clients=data.n_grades,
            interactions=int(size),
            ranker=ranker,
            clicks=clicks,
        )
        for ranker in RANKERS
        for population, labels in (("iid", IID), ("type2", NON_IID))
        for size in UPDATE_SIZES
        for clicks in CLICKS
    ]


def _two_labels(scale: Scale, data: DataProfile) -> list[Variant]:
    # Chosen so that every pair of grades has a client, and all grades have equally many.
    clients = data.n_grades * (data.n_grades - 1) // 2
    populations = (("iid", "IID", 1), ("type2", "#R = 2", 2), ("type2", "#R = 1", 1))
    return [
        variant(
            {"ranker": ranker, "data": label, "clicks": clicks},
            scale,
            population=population,
            labels_per_client=labels_per_client,
            clients=clients,
            ranker=ranker,
            clicks=clicks,
        )
        for ranker in RANKERS
        for population, label, labels_per_client in populations
        for clicks in CLICKS
    ]


def _one_label_methods(scale: Scale, data: DataProfile) -> list[Variant]:
    shared = {"population": "type2", "shared_fraction": 0.1, "warm_up_interactions": ROUNDS[scale]}
    sharing: list[tuple[dict[str, str], dict[str, Any]]] = [({"method": "warm-up only"}, shared)]
    sharing += [
        ({"method": "data sharing", "alpha": share}, {**shared, "shared_alpha": float(share)}) for share in SHARES
    ]
    return [
        variant(
            {"ranker": ranker, **labels, "clicks": clicks},
            scale,
            clients=data.n_grades,
            ranker=ranker,
            clicks=clicks,
            **settings,
        )
        for ranker in RANKERS
        for labels, settings in (*methods_of(ranker, "type2", "iid"), *sharing)
        for clicks in CLICKS
    ]


def _saturated(results: Results) -> Verdict:
    """Every list is ideal or has no relevant document: the sum is (grades - 1) / grades of the highest possible."""
    ratios = {}
    for labels in results.combinations(("ranker", "B", "clicks")):
        runs = results.select({**labels, **NON_IID})
        if not runs:
            continue
        rounds = runs.outcomes[0].config.rounds
        highest = (1.0 - DISCOUNT**rounds) / (1.0 - DISCOUNT)
        ratios[", ".join(labels.values())] = runs.mean("online") / highest
    if not ratios:
        return NOTHING
    expected = 1.0 - 1.0 / results.data.n_grades
    held = all(abs(ratio - expected) < 0.01 for ratio in ratios.values())
    numbers = f"{min(ratios.values()):.3f} to {max(ratios.values()):.3f} of the highest sum, expected {expected:.3f}"
    return decided(held, numbers)


_SKEW = (*BY_RANKER, "B")
_ONE_LABEL = WEB + "As many clients as grades, each with documents of one grade only."
_4_3_TABLE = Experiment(
    name="thesis-table-4.3",
    title="Type 2, document labels, one per client: online performance",
    source="thesis, Section 4.4.2, Table 4.3",
    setting=_ONE_LABEL,
    grid=_one_label,
    seeds=SEEDS,
    tables=(Table("Discounted online nDCG@10", "online", ("ranker", "data", "B"), digits=1),),
    claims=(
        Claim(
            "Online performance says nothing here: lists of a client with one grade are all ideal, or all without "
            "anything relevant for the client of grade 0",
            "Section 4.4.2, Table 4.3: 1589.23 in every cell, 4/5 of the highest sum of 10,000 rounds",
            "under #R = 1 the mean sum, divided by the highest possible, is within 0.01 of (grades - 1) / grades for "
            "each ranker, B and click model",
            _saturated,
        ),
        Claim(
            "On IID data more interactions in a round give better online performance",
            "Table 4.3",
            "discounted online nDCG@10 with B = 5 above B = 2, and with B = 10 above B = 5, for each ranker and click "
            "model: " + HIGHER,
            both(
                *(
                    named(f"B = {more} against {fewer}", higher("online", {"B": more}, {"B": fewer}, BY_RANKER, IID))
                    for fewer, more in pairwise(UPDATE_SIZES)
                )
            ),
        ),
    ),
    published=("IID: 672 to 798 (linear), 613 to 816 (neural); non-IID: 1589.23 everywhere",),
)

_4_5 = Experiment(
    name="thesis-4.5",
    title="Type 2, document labels, one per client: offline performance",
    source="thesis, Section 4.4.2, Figure 4.5",
    setting=_ONE_LABEL,
    grid=_one_label,
    seeds=SEEDS,
    figures=(Figure("offline.png", "offline", ("data", "B"), rows="ranker", title="Type 2, #R = 1: nDCG@10"),),
    tables=(Table("Final nDCG@10", "offline", ("ranker", "data", "B"), against=IID),),
    claims=(
        Claim(
            "Clients with documents of one grade make the ranker worse, with each B",
            "Section 4.4.2, Figure 4.5",
            "final nDCG@10, IID above #R = 1 for each ranker, B and click model: " + HIGHER,
            higher("offline", IID, NON_IID, _SKEW),
        ),
        Claim(
            "For the neural ranker B makes no significant difference under #R = 1",
            "Section 4.4.2, Figure 4.5b",
            f"final nDCG@10 differs significantly between no two of B = 2, 5 and 10 for any click model "
            f"({SIGNIFICANT}), while 0.05 would be significant",
            insignificant("offline", "B", 0.05, where={"ranker": "neural", **NON_IID}),
        ),
    ),
)

_4_6 = Experiment(
    name="thesis-4.6",
    title="Type 2, document labels, two per client",
    source="thesis, Section 4.4.2, Figure 4.6",
    setting=WEB
    + "10 clients, each with documents of two grades, one client for each pair; #R = 1 with as many clients.",
    grid=_two_labels,
    seeds=SEEDS,
    figures=(Figure("offline.png", "offline", ("data",), rows="ranker", title="Type 2, #R = 1 and 2: nDCG@10"),),
    tables=(Table("Final nDCG@10", "offline", ("ranker", "data")),),
    claims=(
        Claim(
            "With two grades per client the ranker is much better than with one",
            "Section 4.4.2, Figure 4.6",
            f"final nDCG@10, #R = 2 minus #R = 1: {RANGE} is above {_MINIMAL}, up to which a gap counts as minimal, "
            "for each ranker and click model",
            above_by("offline", {"data": "#R = 2"}, {"data": "#R = 1"}, _MINIMAL, BY_RANKER),
        ),
        Claim(
            "With two grades the gap to IID is minimal",
            "Section 4.4.2",
            f"final nDCG@10, IID minus #R = 2: {RANGE} is below {_MINIMAL} for each ranker and click model",
            not_above("offline", IID, {"data": "#R = 2"}, margin=_MINIMAL, by=BY_RANKER),
        ),
    ),
    differences=("For data with g grades there are g (g - 1) / 2 clients.",),
)

_4_7 = Experiment(
    name="thesis-4.7",
    title="Type 2, document labels, one per client: data sharing, FedProx and FedPer",
    source="thesis, Section 4.4.3, Figure 4.7",
    setting=_ONE_LABEL
    + " Data sharing: 10 % of the queries are common; a first ranker is trained on them, and each client "
    "has a share alpha of them beside its own.",
    grid=_one_label_methods,
    seeds=SEEDS_OF_MANY,
    figures=(
        Figure("offline.png", "offline", ("method", "mu"), rows="ranker", title="Type 2, #R = 1: nDCG@10"),
        Figure(
            "sharing.png",
            "offline",
            ("method", "alpha"),
            rows="ranker",
            title="Type 2, #R = 1: nDCG@10 with all alpha together",
        ),
    ),
    tables=(Table("Final nDCG@10", "offline", ("ranker", "method", "mu", "alpha")),),
    claims=(
        Claim(
            "Data sharing can enhance the ranker significantly",
            "Section 4.4.3, Figures 4.7a and b",
            "final nDCG@10 with alpha = 1 above FPDGD for each ranker and click model: " + HIGHER,
            higher("offline", {"method": "data sharing", "alpha": "1"}, {"method": "FPDGD"}, BY_RANKER),
        ),
        Claim(
            "In most cases sharing adds to what a better first ranker gives",
            "Section 4.4.3; the control is ours",
            "final nDCG@10 with alpha = 1 above the warm-up alone for most pairs of ranker and click model: "
            + HIGHER_IN_MOST,
            higher(
                "offline", {"method": "data sharing", "alpha": "1"}, {"method": "warm-up only"}, BY_RANKER, need="most"
            ),
        ),
        *(
            Claim(
                f"{method} gains nothing significant",
                f"Section 4.4.3, {figures}",
                f"final nDCG@10 is significantly above FPDGD's for no {each} ({SIGNIFICANT}), while {TOLERANCE} would "
                "be significant",
                gains_nothing_significant(method),
            )
            for method, figures, each in (
                ("FedProx", "Figures 4.7a and c", "mu, ranker and click model"),
                ("FedPer", "Figure 4.7c", "click model with the neural ranker"),
            )
        ),
    ),
    differences=(
        "The paper does not give alpha: here it is 0.1, 0.5 or 1.",
        "The paper does not give the length of the warm-up: here it has as many interactions as there are rounds.",
    ),
)

EXPERIMENTS: tuple[Experiment, ...] = (_4_3_TABLE, _4_5, _4_6, _4_7)
