"""FOLtR-ES beside PDGD (thesis, Section 3.1; Wang, Zhuang and Zuccon, ECIR 2021): Figures 3.3 and 3.5."""

from foltr_research.reproductions.checks import higher, learns_unreliably, only_named
from foltr_research.reproductions.claims import HIGHER, SIGNIFICANT, Claim, Difference, Verdict, judged, minus
from foltr_research.reproductions.experiment import CLICKS, Experiment, Scale, Table, Variant
from foltr_research.reproductions.experiments.foltr_es import (
    BEST_ELSEWHERE,
    INTERACTIONS,
    NOISE,
    RANKERS,
    SEEDS,
    SETTING,
    SIZE,
    eval_every,
    evolution,
)
from foltr_research.reproductions.figures import Figure
from foltr_research.reproductions.outcomes import DataProfile, Results
from foltr_research.simulation.config import SimulationConfig

HIDDEN_PDGD = 64
_PDGD = (
    (
        "PDGD's neural ranker has 64 hidden units, as in its own paper. The gradients of a batch, all taken at the "
        "batch's first weights, are added up at learning rate 0.1."
    ),
)


def _against_pdgd(scale: Scale, data: DataProfile) -> list[Variant]:  # noqa: ARG001
    clients, budget = SIZE[scale]
    rounds = budget // (clients * INTERACTIONS)
    shared = {"clients": clients, "interactions": INTERACTIONS, "rounds": rounds, "eval_every": eval_every(rounds)}
    found = []
    for ranker in RANKERS:
        for clicks in CLICKS:
            labels = {"ranker": ranker, "clicks": clicks}
            pdgd = {"method": "pdgd-batch", "ranker": ranker, "hidden": HIDDEN_PDGD, "clicks": clicks, **shared}
            found += [
                Variant({"method": "FOLtR-ES", **labels}, evolution(clients, rounds, clicks, "1.0", ranker)),
                Variant({"method": "PDGD", **labels}, SimulationConfig.read(pdgd)),
            ]
    return found


def _narrows(results: Results) -> Verdict:
    """PDGD leads early by more than the gap at the end, of either sign, for each ranker and click model."""
    found = {}
    for labels in results.combinations(("ranker", "clicks")):
        pdgd, evolved = (results.select({**labels, "method": method}) for method in ("PDGD", "FOLtR-ES"))
        early, late = (
            {seed: value - evolved.by_seed(metric)[seed] for seed, value in pdgd.by_seed(metric).items()}
            for metric in ("max_rr-early", "max_rr")
        )
        found[", ".join(labels.values())] = minus(early, {seed: abs(lead) for seed, lead in late.items()})
    return judged(found, Difference.above)


_NARROW = ("MQ2008", "Yahoo")
_FIGURES_PDGD = ("method", "ranker")
_3_3 = Experiment(
    name="thesis-3.3",
    title="FOLtR-ES without privacy against PDGD with the same batches, in MaxRR",
    source="thesis, Section 3.1.3, RQ1.1.3, Figure 3.3",
    setting=SETTING + " p = 1. PDGD is updated once for 8,000 interactions, as FOLtR-ES is.",
    grid=_against_pdgd,
    seeds=SEEDS,
    figures=(
        Figure("maxrr.png", "max_rr", _FIGURES_PDGD, shared_y=False, title="MaxRR of the clicks, mean of the batch"),
    ),
    tables=(
        Table("MaxRR over the last tenth of the rounds", "max_rr", _FIGURES_PDGD),
        Table("MaxRR over the first fifth of the rounds", "max_rr-early", _FIGURES_PDGD),
    ),
    claims=(
        Claim(
            "On MQ2008 and Yahoo! PDGD converges faster than FOLtR-ES",
            "Section 3.1.3, Figures 3.3b and d: seen in the early rounds",
            "MaxRR over the first fifth of the rounds for each ranker and click model: " + HIGHER,
            only_named(
                _NARROW, higher("max_rr-early", {"method": "PDGD"}, {"method": "FOLtR-ES"}, ("ranker", "clicks"))
            ),
        ),
        Claim(
            "On MQ2008 and Yahoo! the gap narrows with more interactions",
            "Section 3.1.3, Figures 3.3b and d",
            "PDGD's lead in MaxRR over the first fifth of the rounds minus the gap over the last tenth, of either "
            "sign, for each ranker and click model: " + HIGHER,
            only_named(_NARROW, _narrows),
        ),
        Claim(
            "On MQ2007 and MSLR-WEB10K FOLtR-ES is less effective than PDGD with either ranker",
            "Section 3.1.3, Figures 3.3a and c",
            "final MaxRR of PDGD minus that of FOLtR-ES for each ranker and click model: " + HIGHER,
            only_named(
                ("MQ2007", "MSLR-WEB10K"),
                higher("max_rr", {"method": "PDGD"}, {"method": "FOLtR-ES"}, ("ranker", "clicks")),
            ),
        ),
    ),
    differences=(*NOISE, *_PDGD),
)

_3_5 = Experiment(
    name="thesis-3.5",
    title="FOLtR-ES without privacy and PDGD in nDCG@10 on the test set",
    source="thesis, Section 3.1.3, RQ1.1.4, Figure 3.5",
    setting=SETTING + " p = 1. PDGD is updated once for 8,000 interactions, as FOLtR-ES is.",
    grid=_against_pdgd,
    seeds=SEEDS,
    figures=(Figure("offline.png", "offline", _FIGURES_PDGD, title="nDCG@10 on the test set"),),
    tables=(Table("nDCG@10 on the test set after the last round", "offline", _FIGURES_PDGD),),
    claims=(
        Claim(
            "With informational clicks PDGD is above FOLtR-ES on every data set",
            "Section 3.1.3, Figure 3.5",
            "final nDCG@10 for both rankers: " + HIGHER,
            higher(
                "offline",
                {"method": "PDGD"},
                {"method": "FOLtR-ES"},
                ("ranker",),
                {"clicks": "informational"},
            ),
        ),
        Claim(
            "On MSLR-WEB10K PDGD is above FOLtR-ES with every click model",
            "Section 3.1.3, Figure 3.5c",
            "final nDCG@10 of PDGD minus that of FOLtR-ES for each ranker and click model: " + HIGHER,
            only_named(
                ("MSLR-WEB10K",),
                higher("offline", {"method": "PDGD"}, {"method": "FOLtR-ES"}, ("ranker", "clicks")),
            ),
        ),
        Claim(
            "FOLtR-ES does not learn reliably across click models and rankers",
            "Section 3.1.3, Figure 3.5",
            "with at least one ranker and click model its final nDCG@10 is below the best on its own curve, or above "
            f"the first by less than 0.02 ({SIGNIFICANT}); {BEST_ELSEWHERE}",
            learns_unreliably("offline", 0.02, ("ranker", "clicks"), {"method": "FOLtR-ES"}),
        ),
    ),
    differences=(*NOISE, *_PDGD),
)

EXPERIMENTS: tuple[Experiment, ...] = (_3_3, _3_5)
