"""FPDGD by clients and by interactions (thesis, Section 3.2; Wang et al., ICTIR 2021): Figures 3.8 to 3.10."""

from collections.abc import Mapping

from foltr_research.reproductions.checks import (
    among,
    both,
    higher,
    increasing,
    insignificant,
    named,
    similar,
    tends_up,
)
from foltr_research.reproductions.claims import HIGHER, RANGE, SIGNIFICANT, Claim
from foltr_research.reproductions.experiment import CLICKS, Experiment, Scale, Table, Variant
from foltr_research.reproductions.experiments.fpdgd import FEWER, NOISE, SEEDS, federated, usual
from foltr_research.reproductions.figures import Figure
from foltr_research.reproductions.outcomes import DataProfile

EPSILON, SENSITIVITY = 4.5, 5.0
_NUMBERS: Mapping[Scale, tuple[str, ...]] = {"quick": ("10", "100", "400"), "full": ("10", "100", "1000")}
_BATCHES = ("2", "4", "8")


def _number_of_clients(scale: Scale, data: DataProfile) -> list[Variant]:
    _, interactions, rounds = usual(scale, data)
    return [
        Variant(
            {"clients": _place(i), "noise": noise, "clicks": clicks},
            federated(int(clients), interactions, rounds, clicks, epsilon, SENSITIVITY),
        )
        for noise, epsilon in (("with DP", EPSILON), ("without DP", None))
        for i, clients in enumerate(_NUMBERS[scale])
        for clicks in CLICKS
    ]


def _place(index: int) -> str:
    """Return the label of a number of clients by its index: the largest differs between the two scales."""
    return ("10", "100", "most")[index]


def _batches(scale: Scale, data: DataProfile) -> list[Variant]:
    clients, _, rounds = usual(scale, data)
    return [
        Variant({"B": batch, "clicks": clicks}, federated(clients, int(batch), rounds, clicks, EPSILON, SENSITIVITY))
        for batch in _BATCHES
        for clicks in CLICKS
    ]


def _fixed_budget(scale: Scale, data: DataProfile) -> list[Variant]:
    clients, _, rounds = usual(scale, data)
    smallest = int(_BATCHES[0])
    return [
        Variant(
            {"B": batch, "clicks": clicks},
            federated(clients, int(batch), rounds * smallest // int(batch), clicks, EPSILON, SENSITIVITY),
        )
        for batch in _BATCHES
        for clicks in CLICKS
    ]


_ON_MSLR = "MSLR-WEB10K: 2 interactions each, 200 updates, ε = 4.5 and Δ = 5, 25 runs over 5 folds; "
_3_8 = Experiment(
    name="thesis-3.8",
    title="FPDGD by the number of clients, with and without noise",
    source="thesis, Section 3.2.3, Figure 3.8; FPDGD paper, Section 5.2, Figure 4",
    setting=_ON_MSLR + "10, 100 and 1,000 clients, with and without DP.",
    grid=_number_of_clients,
    seeds=SEEDS,
    figures=(Figure("offline.png", "offline", ("clients", "noise"), title="FPDGD: nDCG@10 on the test set"),),
    tables=(Table("nDCG@10 on the test set after the last round", "offline", ("noise", "clients")),),
    claims=(
        Claim(
            "With noise, 10 clients learn a poor ranker",
            "thesis, Section 3.2.3, Influence of number of clients",
            "final nDCG@10 of 100 and of most clients with DP, and of 10 without DP, minus that of 10 with DP, for "
            "each click model: " + HIGHER,
            both(
                *(
                    named(
                        f"against {clients} {noise}",
                        higher("offline", {"noise": noise, "clients": clients}, {"noise": "with DP", "clients": "10"}),
                    )
                    for noise, clients in (("with DP", "100"), ("with DP", "most"), ("without DP", "10"))
                )
            ),
        ),
        Claim(
            "With 100 clients or more the noise hardly matters",
            "thesis, Section 3.2.3, Influence of number of clients",
            f"final nDCG@10 with and without DP, with 100 clients and with most: {RANGE} is within 0.02 for each "
            "click model",
            among("clients", ("100", "most"), similar("offline", "noise", 0.02, ("clients", "clicks"))),
        ),
        Claim(
            "Without noise more clients are better, but not significantly",
            "thesis, Section 3.2.3, Influence of number of clients: minor and not statistically significant",
            "mean final nDCG@10 without DP is higher with most clients than with 10 for each click model, but between "
            f"no two numbers of clients does it differ significantly ({SIGNIFICANT}), while 0.03 would be significant",
            both(
                tends_up("offline", "clients", ("10", "most"), where={"noise": "without DP"}),
                insignificant("offline", "clients", 0.03, where={"noise": "without DP"}),
            ),
        ),
        Claim(
            "Past a certain point more clients add little",
            "thesis, Section 3.2.3, Influence of number of clients: across all settings",
            f"final nDCG@10 of 100 and most clients, with and without DP: {RANGE} is within 0.02 for each click model",
            among("clients", ("100", "most"), similar("offline", "clients", 0.02, ("noise", "clicks"))),
        ),
    ),
    differences=(*NOISE[:1], "most is 1,000 clients at full scale, 400 at quick scale."),
)

_3_9 = Experiment(
    name="thesis-3.9",
    title="FPDGD by the number of interactions in an update",
    source="thesis, Section 3.2.3, Figure 3.9; FPDGD paper, Section 5.3, Figure 5",
    setting=_ON_MSLR + "1,000 clients, B = 2, 4 and 8 for the same number of rounds.",
    grid=_batches,
    seeds=SEEDS,
    figures=(Figure("offline.png", "offline", ("B",), title="FPDGD at ε = 4.5: nDCG@10 on the test set"),),
    tables=(
        Table("nDCG@10 on the test set after the last round", "offline", ("B",)),
        Table("nDCG@10 on the test set, mean over the curve", "offline-mean", ("B",)),
    ),
    claims=(
        Claim(
            "For the same number of rounds, the larger the batch the better",
            "thesis, Section 3.2.3, Influence of batch size, Figure 3.9",
            f"nDCG@10 averaged over the curve at B = 8 minus that at B = 2 for each click model: {HIGHER}; no step "
            "from one B to the next is below 0 by the same test",
            increasing("offline-mean", "B", _BATCHES),
        ),
        Claim(
            "With perfect clicks the curves end close together",
            "thesis, Section 3.2.3, Influence of batch size, Figure 3.9",
            f"final nDCG@10, between each two values of B: {RANGE} is within 0.02",
            similar("offline", "B", 0.02, where={"clicks": "perfect"}),
        ),
    ),
    differences=(*NOISE[:1], FEWER),
)

_3_10 = Experiment(
    name="thesis-3.10",
    title="FPDGD by the number of interactions in an update, with the same number of interactions",
    source="thesis, Section 3.2.3, Figure 3.10; FPDGD paper, Section 5.3, Figure 6",
    setting=_ON_MSLR + "1,000 clients, B = 2, 4 and 8, so many rounds that the interactions are the same.",
    grid=_fixed_budget,
    seeds=SEEDS,
    figures=(
        Figure("offline.png", "offline", ("B",), x="interactions", title="FPDGD at ε = 4.5: nDCG@10 on the test set"),
    ),
    tables=(Table("nDCG@10 on the test set after the last round", "offline", ("B",)),),
    claims=(
        Claim(
            "For the same number of interactions, B makes no significant difference in the end",
            "thesis, Section 3.2.3, Influence of batch size, Figure 3.10: quite similar",
            f"final nDCG@10 differs significantly between no two values of B for any click model ({SIGNIFICANT}), "
            "while 0.02 would be significant",
            insignificant("offline", "B", 0.02),
        ),
        Claim(
            "A small batch learns earlier, and so is slightly better over the same interactions",
            "thesis, Section 3.2.3, Influence of batch size, Figure 3.10: no significant differences; FPDGD paper, "
            "Section 5.3: online",
            "mean nDCG@10 averaged over the curve at B = 2 is above that at B = 8 for each click model, without a test",
            tends_up("offline-mean", "B", tuple(reversed(_BATCHES))),
        ),
    ),
    differences=(*NOISE[:1], FEWER),
)

EXPERIMENTS: tuple[Experiment, ...] = (_3_8, _3_9, _3_10)
