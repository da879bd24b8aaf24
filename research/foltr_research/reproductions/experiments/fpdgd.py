"""FPDGD against FOLtR-ES and PDGD (thesis, Section 3.2; Wang et al., ICTIR 2021): Figures 3.6 to 3.10 and Table 3.1."""

from collections.abc import Mapping

from foltr_research.reproductions.claims import (
    HIGHER,
    LOWER,
    Check,
    Claim,
    both,
    declines,
    higher,
    increasing,
    not_above,
    only_on,
    similar,
)
from foltr_research.reproductions.experiment import CLICKS, Experiment, Scale, Table, Variant
from foltr_research.reproductions.experiments.foltr_es import RAW_FEATURES, eval_every, evolution
from foltr_research.reproductions.figures import Figure
from foltr_research.reproductions.outcomes import DataProfile
from foltr_research.simulation.config import SimulationConfig

# ε of FPDGD, with the sensitivity Δ that the thesis found best for it, and FOLtR-ES' p with the same bound on ε.
PRIVACY = (("1.2", 3.0, "0.25"), ("2.3", 3.0, "0.5"), ("4.5", 5.0, "0.9"), ("10", 5.0, "1.0"))
EPSILON, SENSITIVITY = 4.5, 5.0  # of Figures 3.8 to 3.10

SEEDS: Mapping[Scale, int] = {"quick": 5, "full": 25}
_CLIENTS: Mapping[Scale, int] = {"quick": 250, "full": 1_000}
_ROUNDS: Mapping[Scale, dict[int, int]] = {"quick": {3: 200, 5: 200}, "full": {3: 1_000, 5: 200}}
_NUMBERS: Mapping[Scale, tuple[str, ...]] = {"quick": ("10", "100", "400"), "full": ("10", "100", "1000")}
_BATCHES = ("2", "4", "8")

_FIVE_GRADES = "a claim on MSLR-WEB10K, which has five grades; this data has three"
_THREE_GRADES = "a claim on MQ2007, which has three grades; this data has five"
_SETTING = (
    "MQ2007: 1,000 clients, 4 interactions each, 1,000 updates (4 million interactions); MSLR-WEB10K: 1,000 clients, 2 "
    "interactions each, 200 updates (400,000); linear rankers, PDGD's learning rate 0.1, 25 runs over 5 folds."
)
_NOISE = (
    (
        "FPDGD's noise is that of its Algorithm 3 as written; `foltr_research.simulation.privacy_reports` computes "
        "what it really protects."
    ),
    "FOLtR-ES perturbs with scale 0.01, like the code published with the thesis.",
    RAW_FEATURES,
)
_FEWER = (
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
        for clicks in CLICKS:
            labels = {"ε": epsilon, "clicks": clicks}
            noisy = federated(clients, interactions, rounds, clicks, float(epsilon), sensitivity)
            evolved = evolution(clients, rounds, clicks, truth_probability, interactions=interactions)
            noisy, evolved = (config.changed(metrics=(_MAX_RR,)) for config in (noisy, evolved))
            found += [
                Variant({"method": "FPDGD", **labels}, noisy),
                Variant({"method": "FOLtR-ES", **labels}, evolved),
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


_FPDGD, _ES = {"method": "FPDGD"}, {"method": "FOLtR-ES"}
_MAX_RR = "maxrr"
_CURVES = ("method", "ε")


def _above(metric: str, where: Mapping[str, str] | None = None) -> Check:
    return higher(metric, _FPDGD, _ES, ("ε", "clicks"), where)


_3_6 = Experiment(
    name="thesis-3.6",
    title="FPDGD, FOLtR-ES and PDGD in nDCG@10 on the test set, by ε",
    source="thesis, Section 3.2.3, Figure 3.6; FPDGD paper, Section 5.1, Figure 2",
    setting=_SETTING + " ε 1.2, 2.3, 4.5 and 10 with Δ 3, 3, 5 and 5; FOLtR-ES' p 0.25, 0.5, 0.9 and 1.",
    grid=_with_pdgd,
    seeds=SEEDS,
    figures=(Figure("offline.png", "offline", _CURVES, title="nDCG@10 on the test set"),),
    tables=(Table("nDCG@10 on the test set after the last round", "offline", _CURVES, baseline=_ES),),
    claims=(
        Claim(
            "FPDGD is above FOLtR-ES with every click model and at every ε",
            "thesis, Section 3.2.3, Figure 3.6",
            "final nDCG@10: " + HIGHER,
            _above("offline"),
        ),
        Claim(
            "On MQ2007 the lead is clearest with informational clicks",
            "thesis, Section 3.2.3, Figure 3.6a",
            "final nDCG@10 with informational clicks, at every ε: " + HIGHER,
            only_on(3, _THREE_GRADES, _above("offline", {"clicks": "informational"})),
        ),
        Claim(
            "With the same interactions, PDGD is above FPDGD",
            "thesis, Section 3.2.3, Impact of federation",
            "final nDCG@10 against FPDGD at ε = 10, for most click models: " + HIGHER,
            higher("offline", {"method": "PDGD, same interactions"}, {"method": "FPDGD", "ε": "10"}, need="most"),
        ),
        Claim(
            "With the same number of updates, one interaction each, PDGD is below FPDGD",
            "thesis, Section 3.2.3, Impact of federation",
            "final nDCG@10 against FPDGD at ε = 10, for most click models: " + HIGHER,
            higher("offline", {"method": "FPDGD", "ε": "10"}, {"method": "PDGD, same updates"}, need="most"),
        ),
        Claim(
            "ε hardly matters to FPDGD on MSLR-WEB10K",
            "thesis, Section 3.2.3, Impact of privacy budget",
            "its final nDCG@10 differs by at most 0.02 between the values of ε for each click model",
            only_on(5, _FIVE_GRADES, similar("offline", "ε", 0.02, where=_FPDGD)),
        ),
        Claim(
            "On MQ2007 a smaller ε tends to cost FPDGD something, not significantly",
            "thesis, Section 3.2.3, Impact of privacy budget",
            "its final nDCG@10 differs by at most 0.05 between the values of ε for each click model",
            only_on(3, _THREE_GRADES, similar("offline", "ε", 0.05, where=_FPDGD)),
        ),
        Claim(
            "On MQ2007 FOLtR-ES gets worse with more updates at p = 0.9 and 1, with perfect and informational clicks",
            "thesis, Section 3.2.3, Figure 3.6a",
            "its final nDCG@10 is below the best on its own curve, in each of these cases: " + LOWER,
            only_on(
                3,
                _THREE_GRADES,
                both(
                    *(
                        declines("offline", ("ε", "clicks"), {**_ES, "ε": epsilon, "clicks": clicks})
                        for epsilon in ("4.5", "10")
                        for clicks in ("perfect", "informational")
                    )
                ),
            ),
        ),
    ),
    differences=(*_NOISE, _FEWER),
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
        Table("Online performance (nDCG@10, discounted by 0.9995 a round)", "online", _CURVES, digits=2, baseline=_ES),
    ),
    claims=(
        Claim(
            "On MSLR-WEB10K FPDGD is above FOLtR-ES with every click model and at every ε",
            "thesis, Table 3.1",
            "discounted online nDCG@10: " + HIGHER,
            only_on(5, _FIVE_GRADES, _above("online")),
        ),
        Claim(
            "On MQ2007 FOLtR-ES is above FPDGD with navigational clicks at every ε",
            "thesis, Table 3.1",
            "discounted online nDCG@10: " + HIGHER,
            only_on(3, _THREE_GRADES, higher("online", _ES, _FPDGD, ("ε", "clicks"), {"clicks": "navigational"})),
        ),
        Claim(
            "On MQ2007 FPDGD is above FOLtR-ES with informational clicks at ε = 4.5 and 10",
            "thesis, Table 3.1",
            "discounted online nDCG@10: " + HIGHER,
            only_on(
                3,
                _THREE_GRADES,
                both(*(_above("online", {"clicks": "informational", "ε": epsilon}) for epsilon in ("4.5", "10"))),
            ),
        ),
        Claim(
            "On MQ2007 FPDGD is better at ε = 4.5 and 10, where Δ is 5, than at 1.2 and 2.3, where Δ is 3",
            "thesis, Table 3.1: e.g. perfect 313.3 and 313.3 against 296.0 and 296.1",
            "discounted online nDCG@10 at ε = 4.5 against 2.3 for each click model: " + HIGHER,
            only_on(3, _THREE_GRADES, higher("online", {**_FPDGD, "ε": "4.5"}, {**_FPDGD, "ε": "2.3"})),
        ),
        Claim(
            "ε makes no difference to FPDGD's online performance on MSLR-WEB10K",
            "thesis, Table 3.1: 54.61 to 54.64, 52.29 to 52.33, 51.11 to 51.18",
            "the means differ by at most 1.0 between the values of ε for each click model",
            only_on(5, _FIVE_GRADES, similar("online", "ε", 1.0, where=_FPDGD)),
        ),
    ),
    published=(
        "MQ2007, ε 1.2/2.3/4.5/10, 1,000 rounds",
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
        *_NOISE,
        _FEWER,
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
        Table("MaxRR on the test set after the last round", _MAX_RR, _CURVES, baseline=_ES),
        Table("MaxRR of the clicks over the last tenth of the rounds", "max_rr", _CURVES),
    ),
    claims=(
        Claim(
            "In MaxRR, which FOLtR-ES optimises, FPDGD's ranker is ahead too",
            "thesis, Section 3.2.3, Figure 3.7",
            "final MaxRR on the test set: " + HIGHER,
            _above(_MAX_RR),
        ),
        Claim(
            "Of the lists shown, FOLtR-ES has the higher MaxRR: it shows the best list its perturbed ranker knows",
            "ours",
            "MaxRR over the last tenth of the rounds, for most ε and click models: " + HIGHER,
            higher("max_rr", _ES, _FPDGD, ("ε", "clicks"), need="most"),
        ),
    ),
    differences=(
        *_NOISE,
        _FEWER,
        (
            "MaxRR on the test set takes a relevant document for a click. So does the published code; the thesis' text "
            "defines MaxRR by clicks."
        ),
    ),
)

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
            "final nDCG@10 of 100 clients against 10, with DP for each click model: " + HIGHER,
            higher("offline", {"clients": "100"}, {"clients": "10"}, where={"noise": "with DP"}),
        ),
        Claim(
            "With 100 clients or more the noise hardly matters",
            "thesis, Section 3.2.3, Influence of number of clients",
            "final nDCG@10 with and without DP differs by at most 0.02, with 100 clients and with most",
            both(*(similar("offline", "noise", 0.02, where={"clients": clients}) for clients in ("100", "most"))),
        ),
        Claim(
            "Without noise the number of clients hardly matters",
            "thesis, Section 3.2.3, Influence of number of clients",
            "final nDCG@10 without DP differs by at most 0.03 between the numbers of clients for each click model",
            similar("offline", "clients", 0.03, where={"noise": "without DP"}),
        ),
        Claim(
            "Past a certain point more clients add little",
            "thesis, Section 3.2.3, Influence of number of clients",
            "final nDCG@10 without DP differs by at most 0.02 between 100 and most clients for each click model",
            both(
                *(
                    not_above("offline", {"clients": one}, {"clients": other}, 0.02, where={"noise": "without DP"})
                    for one, other in (("most", "100"), ("100", "most"))
                )
            ),
        ),
    ),
    differences=(*_NOISE[:1], "most is 1,000 clients at full scale, 400 at quick scale."),
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
            "nDCG@10 averaged over the curve at B = 8 is above that at B = 2, no step from one B to the next is down, "
            "for most click models: " + HIGHER,
            increasing("offline-mean", "B", _BATCHES, need="most"),
        ),
        Claim(
            "With perfect clicks the curves end close together",
            "thesis, Section 3.2.3, Influence of batch size, Figure 3.9",
            "final nDCG@10 differs by at most 0.02 between the values of B",
            similar("offline", "B", 0.02, where={"clicks": "perfect"}),
        ),
    ),
    differences=(*_NOISE[:1], _FEWER),
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
            "For the same number of interactions, B hardly matters in the end",
            "thesis, Section 3.2.3, Influence of batch size, Figure 3.10",
            "final nDCG@10 differs by at most 0.02 between the values of B for each click model",
            similar("offline", "B", 0.02),
        ),
        Claim(
            "A small batch ends slightly higher",
            "thesis, Section 3.2.3, Influence of batch size, Figure 3.10",
            "final nDCG@10 at B = 2 against B = 8, for most click models: " + HIGHER,
            higher("offline", {"B": "2"}, {"B": "8"}, need="most"),
        ),
    ),
    differences=(*_NOISE[:1], _FEWER),
)

EXPERIMENTS: tuple[Experiment, ...] = (_3_6, _T_3_1, _3_7, _3_8, _3_9, _3_10)
