"""Every method on one data set with the three click models, and what we expect of them."""

from collections.abc import Mapping
from typing import Any

from foltr_research.reproductions.checks import among, higher, similar
from foltr_research.reproductions.claims import HIGHER, RANGE, Claim
from foltr_research.reproductions.experiment import CLICKS, Experiment, Scale, Table, Variant
from foltr_research.reproductions.experiments.foltr_es import HIDDEN, NOISE_SCALE, eval_every
from foltr_research.reproductions.figures import Figure
from foltr_research.reproductions.outcomes import DataProfile
from foltr_research.simulation.config import SimulationConfig

# Clients, rounds.
_SIZE: Mapping[Scale, tuple[int, int]] = {"quick": (50, 200), "full": (1_000, 1_000)}
_INTERACTIONS = 4
_NEURAL = {"ranker": "neural"}

# By name in the figure: its group, and the settings that differ from the default.
METHODS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "fpdgd": ("shared ranker", {"method": "fpdgd"}),
    "fpdgd neural": ("shared ranker", {"method": "fpdgd", **_NEURAL}),
    "fpdgd-paper": ("shared ranker", {"method": "fpdgd-paper", "parameters": {"epsilon": 4.5, "sensitivity": 5.0}}),
    "fedprox": ("shared ranker", {"method": "fedprox", "parameters": {"mu": 0.1}}),
    "foltr-es": (
        "shared ranker",
        {"method": "foltr-es", "parameters": {"truth_probability": 1.0, "noise_scale": NOISE_SCALE}},
    ),
    "foltr-es neural": (
        "shared ranker",
        {
            "method": "foltr-es",
            "parameters": {"truth_probability": 1.0, "noise_scale": NOISE_SCALE},
            "hidden": HIDDEN,
            **_NEURAL,
        },
    ),
    "fedips": ("shared ranker", {"method": "fedips", "parameters": {"learning_rate": 0.01}}),
    "fedavg": ("shared ranker", {"method": "fedavg", "parameters": {"learning_rate": 0.01}}),
    "fpdgd-personal": ("personal rankers and references", {"method": "fpdgd-personal"}),
    "fedper": ("personal rankers and references", {"method": "fedper", **_NEURAL}),
    "local": ("personal rankers and references", {"method": "local"}),
    "pdgd": ("personal rankers and references", {"method": "pdgd"}),
    "pdgd-batch": ("personal rankers and references", {"method": "pdgd-batch"}),
    "lambdarank": ("personal rankers and references", {"method": "lambdarank"}),
}


def _grid(scale: Scale, data: DataProfile) -> list[Variant]:  # noqa: ARG001
    clients, rounds = _SIZE[scale]
    shared = {"clients": clients, "rounds": rounds, "interactions": _INTERACTIONS, "eval_every": eval_every(rounds)}
    return [
        Variant(
            {"group": group, "method": name, "clicks": clicks},
            SimulationConfig.read({**shared, **settings, "clicks": clicks}),
        )
        for name, (group, settings) in METHODS.items()
        for clicks in CLICKS
    ]


EXPERIMENTS: tuple[Experiment, ...] = (
    Experiment(
        name="methods",
        title="every method, three click models",
        source="no single figure; the methods of the thesis, chapters 3 and 4, and of the FedIPS paper",
        setting="none: this is our own overview. Clients draw their queries from the same training set.",
        grid=_grid,
        seeds={"quick": 5, "full": 5},
        figures=(
            Figure(
                "offline.png", "offline", ("method",), rows="group", title="nDCG@10 on the test set, by every method"
            ),
            Figure("online.png", "shown", ("method",), rows="group", title="nDCG of the lists shown, by every method"),
        ),
        tables=(
            Table("nDCG@10 on the test set after the last round", "offline", ("method",)),
            Table(
                "Online performance (nDCG of lists of 10, of 5 for fedips and fedavg, discounted by 0.9995 a round)",
                "online",
                ("method",),
                digits=1,
            ),
        ),
        claims=(
            Claim(
                "Learning together is better than learning alone",
                "expected",
                "final nDCG@10 of fpdgd against local for each click model: " + HIGHER,
                higher("offline", {"method": "fpdgd"}, {"method": "local"}),
            ),
            Claim(
                "FPDGD is above FOLtR-ES with informational clicks",
                "thesis, Section 3.2.3",
                "final nDCG@10 with informational clicks: " + HIGHER,
                higher("offline", {"method": "fpdgd"}, {"method": "foltr-es"}, where={"clicks": "informational"}),
            ),
            Claim(
                "FedProx makes hardly any difference if clients are alike",
                "expected",
                f"final nDCG@10 of fedprox and fpdgd: {RANGE} is within 0.02 for each click model",
                among("method", ("fedprox", "fpdgd"), similar("offline", "method", 0.02)),
            ),
            Claim(
                "Relevance grades teach more than informational clicks",
                "expected: the upper reference",
                "final nDCG@10 of lambdarank against fpdgd with informational clicks: " + HIGHER,
                higher("offline", {"method": "lambdarank"}, {"method": "fpdgd"}, where={"clicks": "informational"}),
            ),
        ),
        differences=(
            (
                "fedips and fedavg rank without exploration by the newest model, show 5 results and know the "
                "propensities of FedIPS' position-based model, which the click models here do not follow; their own "
                "experiments are named fedips-*."
            ),
            (
                "Settings: fpdgd-paper ε = 4.5 and Δ = 5, fedprox μ = 0.1, foltr-es p = 1, fedips and fedavg learning "
                "rate 0.01, all else at its default. Nothing was tuned for this overview."
            ),
        ),
    ),
)
