"""Our remedy for type 1, which the papers lack: `foltr.core.methods.personal` compared with existing methods.

No paper has these figures; the claims are ours. Three questions: does it rank better than FPDGD, FedProx and FedPer if
clients differ; is it better than every client learning alone; and what does it cost if clients do not differ. The
second matters for clients with little to learn from: those with few lists, and devices that join late.

If preferences are *inconsistent*, no method can help. That is so in the thesis, which renumbers intents at random for
each query: then one query says nothing about the client's next.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from foltr_research.reproductions.checks import among, both, higher, not_above, similar
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
    difference,
    judged,
)
from foltr_research.reproductions.experiment import CLICKS, Experiment, Scale, Table, Variant
from foltr_research.reproductions.experiments.remedy_late import INTERACTIONS, MOMENTS, PERSONAL, late_devices
from foltr_research.reproductions.figures import Figure
from foltr_research.reproductions.outcomes import DataProfile, Outcome, Results
from foltr_research.simulation.config import SimulationConfig

# By name: the population, and how much intents agree. At 1 their differences do not show in features.
POPULATIONS: Mapping[str, dict[str, Any]] = {
    "agreement 0.5": {"population": "type1", "intent_agreement": 0.5},
    "agreement 0.8": {"population": "type1", "intent_agreement": 0.8},
    "inconsistent": {"population": "type1", "intent_agreement": 1.0},
    "no difference": {"population": "type1-iid", "intent_agreement": 1.0},
}
DIFFERENT = ("agreement 0.5", "agreement 0.8")
METHODS: Mapping[str, dict[str, Any]] = {
    "personal": {"method": "fpdgd-personal", "parameters": PERSONAL},
    "FPDGD": {"method": "fpdgd"},
    "FedProx": {"method": "fedprox", "parameters": {"mu": 0.1}},
    "local": {"method": "local"},
    "FPDGD neural": {"method": "fpdgd", "ranker": "neural"},
    "FedPer": {"method": "fedper", "ranker": "neural"},
}
SHARED = ("FPDGD", "FedProx", "FPDGD neural")
EVERYBODY = {"shown": "all clients"}
TOLERANCE = 0.01

# Clients and rounds.
_SIZE: Mapping[Scale, tuple[int, int]] = {"quick": (20, 200), "full": (100, 2_000)}
_SEEDS: Mapping[Scale, int] = {"quick": 3, "full": 10}
_EVALUATIONS = 10


def _grid(scale: Scale, data: DataProfile) -> list[Variant]:  # noqa: ARG001
    clients, rounds = _SIZE[scale]
    shared = {
        "clients": clients,
        "rounds": rounds,
        "interactions": INTERACTIONS,
        "eval_every": rounds // _EVALUATIONS,
    }
    return [
        Variant(
            {**EVERYBODY, "population": population, "method": method, "clicks": clicks},
            SimulationConfig.read({**shared, **how, **settings, "clicks": clicks}),
        )
        for population, how in POPULATIONS.items()
        for method, settings in METHODS.items()
        for clicks in CLICKS
    ]


def _more(scale: Scale, data: DataProfile, n_seeds: int) -> list[Outcome]:
    clients, rounds = _SIZE[scale]
    base = SimulationConfig(data=data.data, clients=clients, rounds=rounds)
    populations = (name for name, changes in POPULATIONS.items() if changes["population"] == "type1")
    return late_devices(base, {name: POPULATIONS[name] for name in populations}, n_seeds)


def _where_different(better: str, worse: Sequence[str], metric: str = "offline") -> Check:
    """``better`` is above all of ``worse``, for both agreements and each click model."""

    def check(results: Results) -> Verdict:
        verdicts, numbers = [], []
        for other in worse:
            leads = {
                f"{population}, {clicks}": difference(
                    there.select({"method": better}), there.select({"method": other}), metric
                )
                for population in DIFFERENT
                for clicks in CLICKS
                for there in (results.select({"population": population, "clicks": clicks}),)
            }
            verdicts.append(judged(leads, Difference.above))
            if verdicts[-1].status is Status.NOT_TESTABLE:
                return verdicts[-1]
            n_above = sum(lead.above() for lead in leads.values())
            low, high = (choose(leads, key=lambda place: leads[place].mean) for choose in (min, max))
            numbers.append(f"{other}: {n_above} of {len(leads)}, from {leads[low]} ({low}) to {leads[high]} ({high})")
        return decided(all(one.status is Status.CONFIRMED for one in verdicts), "; ".join(numbers))

    return check


def _late(when: str, better: str, worse: str) -> Check:
    return higher(
        "offline",
        {"method": better},
        {"method": worse},
        ("preferences", "clicks"),
        where={"shown": when},
        need="most",
    )


_BECOMES_PERSONAL = among(
    "preferences",
    DIFFERENT,
    among(
        "clicks",
        CLICKS[:2],
        higher(
            "offline",
            {"method": "personal"},
            {"method": "FPDGD"},
            ("preferences", "clicks"),
            {"shown": f"late, after {MOMENTS[-1]} lists"},
        ),
    ),
)
_FREE_OF_CHARGE = both(
    *(
        not_above(metric, {"method": "FPDGD"}, {"method": "personal"}, TOLERANCE, where={"population": "no difference"})
        for metric in ("offline", "offline-mean")
    )
)
_NO_HELP = among(
    "method",
    ("personal", "FPDGD"),
    similar("offline", "method", TOLERANCE, where={**EVERYBODY, "population": "inconsistent"}),
)


def _as_large(results: Results) -> Verdict:
    if not results:
        return NOTHING
    sizes = {
        method: {tuple(one.result["bytes"].values()) for one in results.select({**EVERYBODY, "method": method})}
        for method in METHODS
    }
    numbers = "; ".join(
        f"{method} {up} bytes up and {down} down a round"
        for method, found in sizes.items()
        for up, down in sorted(found)
    )
    held = sizes["personal"] == sizes["FPDGD"]
    return decided(held, numbers)


_OURS = "ours"
_MOST_CASES = "for most pairs of preferences and click model"
_ROWS = ("population", "method")
_MEASURED = ("five lists a round", "one list a round", *(f"late, after {moment} lists" for moment in MOMENTS))
_REMEDY = Experiment(
    name="remedy",
    title="Type 1, document preferences: personal weights that count as far as clicks support them",
    source="no paper: the thesis (Section 4.3.3) ends with the need for such a method",
    setting="type 1 of the thesis (Section 4.3) with 4 clients; methods FedProx and FedPer.",
    grid=_grid,
    more=_more,
    seeds=_SEEDS,
    figures=(
        *(
            Figure(
                f"offline-{i}.png",
                "offline",
                ("method",),
                rows="population",
                title="Type 1: nDCG@10 of each client's ranker by its own labels (synthetic features)",
                where={**EVERYBODY, "population": population},
            )
            for i, population in enumerate(POPULATIONS, start=1)
        ),
        Figure(
            "late.png",
            "offline",
            ("method",),
            rows="preferences",
            title=f"Late devices, {INTERACTIONS} lists a round: nDCG@10 on held-out queries (synthetic features)",
            where={"shown": "late device"},
        ),
    ),
    tables=(
        Table("Final nDCG@10 of each client's ranker by its own labels", "offline", _ROWS, where=EVERYBODY),
        Table("The same, mean of the curve", "offline-mean", _ROWS, where=EVERYBODY),
        Table("Discounted online nDCG@10", "online", _ROWS, where=EVERYBODY, digits=1),
        *(
            Table(
                f"nDCG@10 on held-out queries: {shown}",
                "offline",
                ("preferences", "method"),
                where={"shown": shown},
            )
            for shown in _MEASURED
        ),
    ),
    claims=(
        Claim(
            "If preferences differ consistently, it ranks better than each method here that shares one ranker",
            _OURS,
            "final nDCG@10 above FPDGD, FedProx and neural FPDGD for both agreements and each click model: " + HIGHER,
            _where_different("personal", SHARED),
        ),
        Claim(
            "It ranks better than FedPer there",
            _OURS,
            "final nDCG@10, for both agreements and each click model: " + HIGHER,
            _where_different("personal", ("FedPer",)),
        ),
        Claim(
            "It is not learning alone in disguise: over the whole run it is better than learning alone",
            _OURS,
            "mean of the curve of nDCG@10 above `local` for both agreements and each click model: " + HIGHER,
            _where_different("personal", ("local",), "offline-mean"),
        ),
        Claim(
            "In most cases clients with one list in a round gain from the others",
            _OURS,
            f"nDCG@10 on held-out queries above `local`, {_MOST_CASES}: {HIGHER_IN_MOST}",
            _late("one list a round", "personal", "local"),
        ),
        Claim(
            "In most cases a new device, which starts with what the others know, is better after 10 lists than alone",
            _OURS,
            f"nDCG@10 on held-out queries after 10 lists above `local`, {_MOST_CASES}: {HIGHER_IN_MOST}",
            _late("late, after 10 lists", "personal", "local"),
        ),
        Claim(
            "If preferences differ consistently, a new device becomes personal with perfect and navigational clicks",
            _OURS,
            "nDCG@10 on held-out queries after 100 lists above FPDGD, for both agreements and each of the two click "
            "models: " + HIGHER,
            _BECOMES_PERSONAL,
        ),
        Claim(
            "It sends and receives as much as FPDGD",
            _OURS,
            "bytes of an update and of a model are equal for both",
            _as_large,
        ),
        Claim(
            "If clients do not differ, it costs hardly anything",
            _OURS,
            f"final nDCG@10 and the mean of the curve, FPDGD minus it: {RANGE} is below {TOLERANCE} for each click "
            "model, merged labels",
            _FREE_OF_CHARGE,
        ),
        Claim(
            "If preferences are inconsistent, it hardly helps and costs hardly anything",
            _OURS,
            f"final nDCG@10 of it and FPDGD: {RANGE} is within {TOLERANCE} for each click model",
            _NO_HELP,
        ),
    ),
    differences=(
        (
            "Features are synthetic, because only the judgements of the intent-change collection are public. "
            "`agreement` is the cosine between the best directions of two intents in the features; with "
            "`inconsistent` their differences do not show in features at all, as when intents are renumbered for "
            "each query."
        ),
        "Several clients for each intent instead of one, so that there are others to learn from.",
        "FedProx with mu = 0.1; `foltr reproduce thesis-4.4` has the others.",
    ),
    needs_intents=True,
)


def _labels_grid(scale: Scale, data: DataProfile) -> list[Variant]:
    clients = data.n_grades * (4 if scale == "quick" else 20)
    rounds = _SIZE[scale][1]
    shared = {"clients": clients, "rounds": rounds, "interactions": INTERACTIONS, "eval_every": rounds // _EVALUATIONS}
    return [
        Variant(
            {"data": label, "method": method, "clicks": clicks},
            SimulationConfig.read({**shared, **settings, "population": population, "clicks": clicks}),
        )
        for label, population in (("IID", "iid"), ("#R = 1", "type2"))
        for method, settings in METHODS.items()
        for clicks in CLICKS
    ]


_LABELS = Experiment(
    name="remedy-labels",
    title="The same methods on type 2, one grade per client, and on IID data",
    source="no paper: see `foltr reproduce remedy`",
    setting="type 2 of the thesis (Section 4.4), #R = 1, with 5 clients.",
    grid=_labels_grid,
    seeds=_SEEDS,
    figures=(Figure("offline.png", "offline", ("method",), rows="data", title="nDCG@10 on the test set"),),
    tables=(
        Table("Final nDCG@10", "offline", ("data", "method")),
        Table("The same, mean of the curve", "offline-mean", ("data", "method")),
    ),
    claims=(
        Claim(
            "On IID data it costs hardly anything",
            _OURS,
            f"final nDCG@10, FPDGD minus it: {RANGE} is below {TOLERANCE} for each click model",
            not_above(
                "offline",
                {"method": "FPDGD"},
                {"method": "personal"},
                margin=TOLERANCE,
                by=("clicks",),
                where={"data": "IID"},
            ),
        ),
        Claim(
            "It hardly helps clients with documents of one grade, who have no preferences to learn",
            _OURS,
            f"final nDCG@10 under #R = 1 minus FPDGD's: {RANGE} is below 0.05 for each click model",
            not_above(
                "offline",
                {"method": "personal"},
                {"method": "FPDGD"},
                margin=0.05,
                by=("clicks",),
                where={"data": "#R = 1"},
            ),
        ),
    ),
)

EXPERIMENTS: tuple[Experiment, ...] = (_REMEDY, _LABELS)
