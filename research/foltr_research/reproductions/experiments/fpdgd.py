"""FPDGD against FOLtR-ES and PDGD (thesis, Section 3.2; Wang et al., ICTIR 2021): Figures 3.6, 3.7 and Table 3.1."""

from collections.abc import Mapping, Sequence
from math import isfinite

from foltr_research.reproductions.checks import (
    among,
    both,
    declines,
    higher,
    insignificant,
    leads_most,
    named,
    only_on,
    significantly_higher,
    similar,
    tends_up,
)
from foltr_research.reproductions.claims import HIGHER, LOWER, RANGE, SIGNIFICANT, Check, Claim
from foltr_research.reproductions.experiment import CLICKS, Experiment, Scale, Section, Table, Variant
from foltr_research.reproductions.experiments.foltr_es import BEST_ELSEWHERE, RAW_FEATURES, eval_every, evolution
from foltr_research.reproductions.figures import Figure
from foltr_research.reproductions.outcomes import DataProfile, Labels, Results
from foltr_research.reproductions.report import markdown
from foltr_research.simulation.config import SimulationConfig
from foltr_research.simulation.privacy_reports import actual_epsilon, epsilon_bound

# ε of FPDGD, with the sensitivity Δ that the thesis found best for it, and FOLtR-ES' p with the same bound on ε.
PRIVACY = (("1.2", 3.0, "0.25"), ("2.3", 3.0, "0.5"), ("4.5", 5.0, "0.9"), ("10", 5.0, "1.0"))
EPSILONS = tuple(epsilon for epsilon, _, _ in PRIVACY)
# The thesis prints ε = 10 for p = 1, too, but a client that always tells the truth has no ε.
SHARED_EPSILONS, WEAKEST, NO_EPSILON = EPSILONS[:-1], EPSILONS[-1], "none (p = 1)"

SEEDS: Mapping[Scale, int] = {"quick": 5, "full": 25}
_CLIENTS: Mapping[Scale, int] = {"quick": 250, "full": 1_000}
_ROUNDS: Mapping[Scale, dict[int, int]] = {"quick": {3: 200, 5: 200}, "full": {3: 1_000, 5: 200}}
_VALUES = 11  # of MaxRR on ten results
# Of FPDGD with FOLtR-ES in a data set's half of Table 3.1, over which its marks are corrected.
_COMPARISONS = len(PRIVACY) * len(CLICKS)

_FIVE_GRADES = "a claim on MSLR-WEB10K, which has five grades; this data has three"
_THREE_GRADES = "a claim on MQ2007, which has three grades; this data has five"
_SETTING = (
    "MQ2007: 1,000 clients, 4 interactions each, 1,000 updates (4 million interactions); MSLR-WEB10K: 1,000 clients, 2 "
    "interactions each, 200 updates (400,000); linear rankers, PDGD's learning rate 0.1, 25 runs over 5 folds."
)
NOISE = (
    (
        "FPDGD's noise is that of its Algorithm 3 as written; `foltr_research.simulation.privacy_reports` computes "
        "what it really protects."
    ),
    "FOLtR-ES perturbs with scale 0.01, like the code published with the thesis.",
    RAW_FEATURES,
)
FEWER = (
    "At quick scale there are 250 clients instead of 1,000, so the noise in the mean of a round is four times as large."
)


def federated(
    clients: int, interactions: int, rounds: int, clicks: str, epsilon: float | None = None, sensitivity: float = 5.0
) -> SimulationConfig:
    """FPDGD, without noise if ``epsilon`` is None."""
    noise = {} if epsilon is None else {"epsilon": epsilon, "sensitivity": sensitivity}
    return SimulationConfig.read(
        {
            "method": "fpdgd" if epsilon is None else "fpdgd-paper",
            "parameters": noise,
            "clients": clients,
            "interactions": interactions,
            "rounds": rounds,
            "clicks": clicks,
            "eval_every": eval_every(rounds),
        }
    )


def usual(scale: Scale, data: DataProfile) -> tuple[int, int, int]:
    """Return clients, interactions of each and rounds. The paper sets them by data set."""
    grades = 3 if data.n_grades <= 3 else 5
    return _CLIENTS[scale], 4 if grades == 3 else 2, _ROUNDS[scale][grades]


def _private(scale: Scale, data: DataProfile) -> list[Variant]:
    """FPDGD and FOLtR-ES at every ε."""
    clients, interactions, rounds = usual(scale, data)
    found = []
    for epsilon, sensitivity, truth_probability in PRIVACY:
        bound = NO_EPSILON if truth_probability == "1.0" else epsilon
        for clicks in CLICKS:
            noisy = federated(clients, interactions, rounds, clicks, float(epsilon), sensitivity)
            evolved = evolution(clients, rounds, clicks, truth_probability, interactions=interactions)
            noisy, evolved = (config.changed(metrics=(_MAX_RR,)) for config in (noisy, evolved))
            found += [
                Variant({"method": "FPDGD", "ε": epsilon, "clicks": clicks}, noisy),
                Variant({"method": "FOLtR-ES", "ε": bound, "clicks": clicks}, evolved),
            ]
    return found


def _with_pdgd(scale: Scale, data: DataProfile) -> list[Variant]:
    """Add PDGD, once with the same interactions, once with the same number of updates."""
    clients, interactions, rounds = usual(scale, data)
    found = _private(scale, data)
    for clicks in CLICKS:
        shared = {"method": "pdgd", "clicks": clicks, "rounds": rounds, "eval_every": eval_every(rounds)}
        every = SimulationConfig.read({**shared, "clients": clients, "interactions": interactions})
        single = SimulationConfig.read({**shared, "clients": 1, "interactions": 1})
        found += [
            Variant({"method": "PDGD, same interactions", "clicks": clicks}, every),
            Variant({"method": "PDGD, same updates", "clicks": clicks}, single),
        ]
    return found


_FPDGD, _ES = {"method": "FPDGD"}, {"method": "FOLtR-ES"}
_MAX_RR = "maxrr"
_WEAKEST, _NOT_PRIVATE = {**_FPDGD, "ε": WEAKEST}, {**_ES, "ε": NO_EPSILON}
_CURVES = ("method", "ε")
_NOISY = {"clicks": "informational"}
_LESS_NOISY = [{"clicks": clicks} for clicks in CLICKS if clicks != "informational"]
_SIGNIFICANTLY = f"the paired difference over seeds is above 0 ({SIGNIFICANT}, {_COMPARISONS} on a data set)"


def _above(metric: str) -> Check:
    """FPDGD is above FOLtR-ES at every ε that both have."""
    return among("ε", SHARED_EPSILONS, higher(metric, _FPDGD, _ES, ("ε", "clicks")))


def _marked(better: Labels, worse: Labels, epsilons: Sequence[str], clicks: Sequence[str] = CLICKS) -> Check:
    """``better`` is above ``worse`` with a mark in Table 3.1, at these ε that both have."""
    check = significantly_higher("online", better, worse, _COMPARISONS, ("ε", "clicks"))
    return among("clicks", clicks, among("ε", epsilons, check))


def _marked_beside_none(better: Labels, worse: Labels, clicks: Sequence[str] = CLICKS) -> Check:
    """Likewise of FPDGD at the weakest ε and FOLtR-ES without privacy."""
    check = among("clicks", clicks, significantly_higher("online", better, worse, _COMPARISONS))
    return named(f"ε = {WEAKEST}", check)


def _against_every(metric: str, other: str, *, better: bool) -> Check:
    """PDGD is above FPDGD at every ε, or below it."""
    checks = []
    for epsilon in EPSILONS:
        pair = {"method": other}, {**_FPDGD, "ε": epsilon}
        checks.append(named(f"ε = {epsilon}", higher(metric, *(pair if better else reversed(pair)))))
    return both(*checks)


def _true_epsilons(results: Results) -> str:
    """Return what the printed values of ε are of, and what a client reveals in a round."""
    one = results.outcomes[0].config
    rows = []
    for epsilon, sensitivity, truth_probability in PRIVACY:
        noise = actual_epsilon(sensitivity, float(epsilon), results.data.n_features, one.clients)
        value = epsilon_bound(float(truth_probability), _VALUES)
        rows.append(
            [
                epsilon,
                f"{noise.epsilon_per_round_add_remove:.1f}",
                f"p = {float(truth_probability):g}",
                *(f"{found:.1f}" if isfinite(found) else "none" for found in (value, value * one.interactions)),
            ]
        )
    header = ["ε as printed", "FPDGD: of a round", "FOLtR-ES", "of one interaction", "of a round"]
    return (
        "The printed ε is not of the same thing: FPDGD's is claimed for a round, FOLtR-ES' holds for one interaction, "
        "and a round adds them up. FPDGD's true ε is pure, for adding or removing a client, against an observer who "
        "sees only the sum of all updates; FOLtR-ES' holds against everybody.\n\n" + markdown(header, rows, 0)
    )


_3_6 = Experiment(
    name="thesis-3.6",
    title="FPDGD, FOLtR-ES and PDGD in nDCG@10 on the test set, by ε",
    source="thesis, Section 3.2.3, Figure 3.6; FPDGD paper, Section 5.1, Figure 2",
    setting=_SETTING + " ε 1.2, 2.3, 4.5 and 10 with Δ 3, 3, 5 and 5; FOLtR-ES' p 0.25, 0.5, 0.9 and 1.",
    grid=_with_pdgd,
    seeds=SEEDS,
    figures=(Figure("offline.png", "offline", _CURVES, title="nDCG@10 on the test set"),),
    tables=(Table("nDCG@10 on the test set after the last round", "offline", _CURVES, against=_ES),),
    sections=(Section("What ε is of", _true_epsilons),),
    claims=(
        Claim(
            "At the same printed ε FPDGD is above FOLtR-ES with every click model",
            "thesis, Section 3.2.3, Figure 3.6",
            f"final nDCG@10 at ε = {', '.join(SHARED_EPSILONS)} for each click model: {HIGHER}",
            _above("offline"),
        ),
        Claim(
            f"At ε = {WEAKEST} FPDGD is above FOLtR-ES without privacy (p = 1), which the thesis sets beside it",
            "thesis, Section 3.2.3, Figure 3.6",
            "final nDCG@10 for each click model: " + HIGHER,
            higher("offline", _WEAKEST, _NOT_PRIVATE),
        ),
        Claim(
            "On MQ2007 the lead is clearest with informational clicks",
            "thesis, Section 3.2.3, Figure 3.6a",
            f"FPDGD's lead in final nDCG@10 at each shared ε ({', '.join(SHARED_EPSILONS)}), and at ε = {WEAKEST} "
            f"beside p = 1, with informational clicks minus with perfect and with navigational ones: {HIGHER}",
            only_on(
                3,
                _THREE_GRADES,
                both(
                    among("ε", SHARED_EPSILONS, leads_most("offline", _FPDGD, _ES, _NOISY, _LESS_NOISY, ("ε",))),
                    named(f"ε = {WEAKEST}", leads_most("offline", _WEAKEST, _NOT_PRIVATE, _NOISY, _LESS_NOISY)),
                ),
            ),
        ),
        Claim(
            "With the same interactions, PDGD is above FPDGD",
            "thesis, Section 3.2.3, Impact of federation",
            "PDGD's final nDCG@10 minus FPDGD's at each ε, for each click model: " + HIGHER,
            _against_every("offline", "PDGD, same interactions", better=True),
        ),
        Claim(
            "With the same number of updates, one interaction each, PDGD is below FPDGD",
            "thesis, Section 3.2.3, Impact of federation",
            "FPDGD's final nDCG@10 at each ε minus PDGD's, for each click model: " + HIGHER,
            _against_every("offline", "PDGD, same updates", better=False),
        ),
        Claim(
            "ε hardly matters to FPDGD on MSLR-WEB10K",
            "thesis, Section 3.2.3, Impact of privacy budget",
            f"its final nDCG@10, between each two values of ε: {RANGE} is within 0.02 for each click model",
            only_on(5, _FIVE_GRADES, similar("offline", "ε", 0.02, where=_FPDGD)),
        ),
        Claim(
            "On MQ2007 a smaller ε tends to cost FPDGD something, not significantly",
            "thesis, Section 3.2.3, Impact of privacy budget",
            f"its mean final nDCG@10 is lower at ε = {EPSILONS[0]} than at {EPSILONS[-1]} for each click model, but "
            f"between no two values of ε does it differ significantly ({SIGNIFICANT}), while 0.02 would be significant",
            only_on(
                3,
                _THREE_GRADES,
                both(
                    tends_up("offline", "ε", EPSILONS, where=_FPDGD),
                    insignificant("offline", "ε", 0.02, where=_FPDGD),
                ),
            ),
        ),
        Claim(
            "On MQ2007 FOLtR-ES gets worse with more updates at p = 0.9 and 1, with perfect and informational clicks",
            "thesis, Section 3.2.3, Figure 3.6a",
            f"its final nDCG@10 is below the best on its own curve in each of these cases: {LOWER}; {BEST_ELSEWHERE}",
            only_on(
                3,
                _THREE_GRADES,
                among(
                    "ε",
                    (PRIVACY[-2][0], NO_EPSILON),
                    among("clicks", ("perfect", "informational"), declines("offline", ("ε", "clicks"), _ES)),
                ),
            ),
        ),
    ),
    differences=(*NOISE, FEWER),
)

_T_3_1 = Experiment(
    name="thesis-table-3.1",
    title="FPDGD and FOLtR-ES online, by ε",
    source="thesis, Section 3.2.3, Table 3.1; FPDGD paper, Table 2",
    setting=_SETTING,
    grid=_private,
    seeds=SEEDS,
    figures=(Figure("online.png", "shown", _CURVES, title="nDCG@10 of the lists shown"),),
    tables=(
        Table("Online performance (nDCG@10, discounted by 0.9995 a round)", "online", _CURVES, digits=2, against=_ES),
    ),
    sections=(Section("What ε is of", _true_epsilons),),
    claims=(
        Claim(
            "On MSLR-WEB10K FPDGD is significantly above FOLtR-ES with every click model at the same printed ε",
            "thesis, Section 3.2.3, Table 3.1",
            f"discounted online nDCG@10 at ε = {', '.join(SHARED_EPSILONS)}: {_SIGNIFICANTLY}",
            only_on(5, _FIVE_GRADES, _marked(_FPDGD, _ES, SHARED_EPSILONS)),
        ),
        Claim(
            f"On MSLR-WEB10K at ε = {WEAKEST} FPDGD is significantly above FOLtR-ES without privacy (p = 1), which the "
            "thesis sets beside it",
            "thesis, Section 3.2.3, Table 3.1",
            "discounted online nDCG@10 for each click model: " + _SIGNIFICANTLY,
            only_on(5, _FIVE_GRADES, _marked_beside_none(_WEAKEST, _NOT_PRIVATE)),
        ),
        Claim(
            "On MQ2007 FOLtR-ES is significantly above FPDGD with navigational clicks at every ε",
            "thesis, Section 3.2.3, Table 3.1",
            f"discounted online nDCG@10 at ε = {', '.join(SHARED_EPSILONS)}, and of FOLtR-ES at p = 1 above FPDGD at "
            f"ε = {WEAKEST}: {_SIGNIFICANTLY}",
            only_on(
                3,
                _THREE_GRADES,
                both(
                    _marked(_ES, _FPDGD, SHARED_EPSILONS, ("navigational",)),
                    _marked_beside_none(_NOT_PRIVATE, _WEAKEST, ("navigational",)),
                ),
            ),
        ),
        Claim(
            "On MQ2007 FPDGD is significantly above FOLtR-ES with informational clicks at ε = 4.5 and 10",
            "thesis, Table 3.1",
            f"discounted online nDCG@10 at ε = 4.5, and at ε = {WEAKEST} above FOLtR-ES at p = 1: {_SIGNIFICANTLY}",
            only_on(
                3,
                _THREE_GRADES,
                both(
                    _marked(_FPDGD, _ES, ("4.5",), ("informational",)),
                    _marked_beside_none(_WEAKEST, _NOT_PRIVATE, ("informational",)),
                ),
            ),
        ),
        Claim(
            "On MQ2007 FPDGD is better at ε = 4.5 and 10, where Δ is 5, than at 1.2 and 2.3, where Δ is 3",
            "thesis, Table 3.1: e.g. perfect 313.3 and 313.3 against 296.0 and 296.1",
            "discounted online nDCG@10, each of the former against each of the latter for each click model: " + HIGHER,
            only_on(
                3,
                _THREE_GRADES,
                both(
                    *(
                        named(
                            f"{large} against {small}",
                            higher("online", {**_FPDGD, "ε": large}, {**_FPDGD, "ε": small}),
                        )
                        for large in EPSILONS[2:]
                        for small in EPSILONS[:2]
                    )
                ),
            ),
        ),
        Claim(
            "ε makes hardly any difference to FPDGD's online performance on MSLR-WEB10K",
            "thesis, Section 3.2.3, Table 3.1: 54.61 to 54.64, 52.29 to 52.33, 51.11 to 51.18",
            f"discounted online nDCG@10, between each two values of ε: {RANGE} is within 1.0 for each click model",
            only_on(5, _FIVE_GRADES, similar("online", "ε", 1.0, where=_FPDGD)),
        ),
    ),
    published=(
        "MQ2007, ε 1.2/2.3/4.5/10 (FOLtR-ES: p = 0.25/0.5/0.9/1), 1,000 rounds",
        "perfect FPDGD 296.0/296.1/313.3/313.3, FOLtR-ES 316.7/317.9/313.8/312.3",
        "navigational FPDGD 293.3/293.4/303.8/303.8, FOLtR-ES 319.9/325.0/324.3/323.1",
        "informational FPDGD 291.8/292.0/301.5/301.3, FOLtR-ES 292.6/294.8/288.6/286.0",
        "MSLR-WEB10K, 200 rounds",
        "perfect FPDGD 54.62/54.61/54.64/54.61, FOLtR-ES 39.35/40.50/40.87/41.14",
        "navigational FPDGD 52.33/52.30/52.30/52.29, FOLtR-ES 38.55/39.59/40.32/40.47",
        "informational FPDGD 51.11/51.16/51.14/51.18, FOLtR-ES 37.26/37.18/37.21/37.53",
        "The sum grows with the rounds: 1,000 rounds weigh 787, 200 rounds 190.",
    ),
    differences=(
        *NOISE,
        FEWER,
        (
            "The discount counts rounds, and a round's nDCG@10 is the mean over clients and interactions: this reading "
            "gives sums of the published size."
        ),
    ),
)

_3_7 = Experiment(
    name="thesis-3.7",
    title="FPDGD and FOLtR-ES in MaxRR, by ε",
    source="thesis, Section 3.2.3, Figure 3.7; FPDGD paper, Figure 3",
    setting=_SETTING,
    grid=_private,
    seeds=SEEDS,
    figures=(
        Figure("maxrr.png", _MAX_RR, _CURVES, title="MaxRR on the test set"),
        Figure("shown.png", "max_rr", _CURVES, shared_y=False, title="MaxRR of the clicks"),
    ),
    tables=(
        Table("MaxRR on the test set after the last round", _MAX_RR, _CURVES, against=_ES),
        Table("MaxRR of the clicks over the last tenth of the rounds", "max_rr", _CURVES),
    ),
    claims=(
        Claim(
            "In MaxRR, which FOLtR-ES optimises, FPDGD's ranker is ahead too",
            "thesis, Section 3.2.3, Figure 3.7",
            f"final MaxRR on the test set at ε = {', '.join(SHARED_EPSILONS)}, and at ε = {WEAKEST} above FOLtR-ES at "
            f"p = 1, for each click model: {HIGHER}",
            both(_above(_MAX_RR), named(f"ε = {WEAKEST}", higher(_MAX_RR, _WEAKEST, _NOT_PRIVATE))),
        ),
        Claim(
            "Of the lists shown, FOLtR-ES has the higher MaxRR: it shows the best list its perturbed ranker knows",
            "ours",
            f"MaxRR over the last tenth of the rounds at ε = {', '.join(SHARED_EPSILONS)}, for each click model: "
            + HIGHER,
            among("ε", SHARED_EPSILONS, higher("max_rr", _ES, _FPDGD, ("ε", "clicks"))),
        ),
    ),
    differences=(
        *NOISE,
        FEWER,
        (
            "MaxRR on the test set takes a relevant document for a click. So does the published code; the thesis' text "
            "defines MaxRR by clicks."
        ),
    ),
)

EXPERIMENTS: tuple[Experiment, ...] = (_3_6, _T_3_1, _3_7)
