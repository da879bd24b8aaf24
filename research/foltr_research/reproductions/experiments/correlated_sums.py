"""What noise that is correlated across rounds gains over independent noise, at the same epsilon."""

from typing import Any

from foltr_research.reproductions.checks import both, higher, named, not_above
from foltr_research.reproductions.claims import HIGHER, RANGE, Check, Claim
from foltr_research.reproductions.experiment import Experiment, Scale, Table, Variant
from foltr_research.reproductions.experiments.secure_sums import (
    CLICKS,
    COMMON,
    NO_NOISE,
    PARTICIPATIONS,
    PERIOD,
    secure,
)
from foltr_research.reproductions.figures import Figure
from foltr_research.reproductions.outcomes import DataProfile
from foltr_research.simulation.config import SimulationConfig

SIZES = (10, 30, 100)
EPSILONS = (1, 2, 8)
INDEPENDENT, CORRELATED = "gaussian", "correlated"
_MARGIN = 0.02


def _grid(scale: Scale, data: DataProfile) -> list[Variant]:  # noqa: ARG001
    settings: list[tuple[str, str, dict[str, Any]]] = [(NO_NOISE, "-", {"mechanism": NO_NOISE})]
    settings += [
        (noise, str(one), {"mechanism": noise, "epsilon": one})
        for noise in (INDEPENDENT, CORRELATED)
        for one in EPSILONS
    ]
    return [
        Variant(
            {"noise": noise, "ε": epsilon, "n": str(n), "clicks": CLICKS},
            SimulationConfig.read({**COMMON, **secure(n, norm_proof="none", **values)}),
        )
        for n in SIZES
        for noise, epsilon, values in settings
    ]


def _in_every_cell() -> Check:
    """Check that correlated noise costs nothing beside independent noise, for all sizes and epsilons."""
    cells = [{"ε": str(epsilon), "n": str(n)} for epsilon in EPSILONS for n in SIZES]
    return both(
        *(
            named(
                f"n = {at['n']}, ε = {at['ε']}",
                not_above("offline", {"noise": INDEPENDENT, **at}, {"noise": CORRELATED, **at}, _MARGIN),
            )
            for at in cells
        )
    )


EXPERIMENTS: tuple[Experiment, ...] = (
    Experiment(
        name="privacy-correlated",
        title="secure sums: noise that is correlated across rounds",
        source="no figure; the matrix mechanism (Denisov et al. 2022; arXiv 2405.13763, 2410.16161) for these sums",
        setting="none: this is our own.",
        grid=_grid,
        seeds={"quick": 5, "full": 10},
        figures=(Figure("offline.png", "offline", ("noise", "ε"), panels="n", title="Correlated noise: nDCG@10 by n"),),
        tables=(
            Table("nDCG@10 on the test set after the last round, by n", "offline", ("noise", "ε"), ("n",)),
            Table("Discounted online nDCG@10, by n", "online", ("noise", "ε"), ("n",)),
        ),
        claims=(
            Claim(
                "With 100 clients a round and ε = 1, correlated noise learns a better ranker than independent noise",
                "ours",
                f"final nDCG@10 at n = 100 and ε = 1, correlated against gaussian: {HIGHER}",
                higher("offline", {"noise": CORRELATED}, {"noise": INDEPENDENT}, where={"ε": "1", "n": "100"}),
            ),
            Claim(
                f"With 100 clients a round and ε = 2 correlated noise costs less than {_MARGIN} nDCG@10",
                "ours",
                f"final nDCG@10 at n = 100, no noise minus correlated at ε = 2: {RANGE} is below {_MARGIN}",
                not_above(
                    "offline",
                    {"noise": NO_NOISE, "n": "100"},
                    {"noise": CORRELATED, "ε": "2", "n": "100"},
                    _MARGIN,
                ),
            ),
            Claim(
                f"Correlated noise nowhere costs {_MARGIN} nDCG@10 beside independent noise",
                "ours",
                f"final nDCG@10 for each n and ε, gaussian minus correlated: {RANGE} is below {_MARGIN}",
                _in_every_cell(),
            ),
        ),
        differences=(
            (
                f"As in `privacy`: {PERIOD} n clients, each with a turn in one of {PERIOD} rounds, {PARTICIPATIONS} "
                "turns in all, which ε is for, with δ = 10⁻⁶; two helpers add noise. Only the noise differs."
            ),
        ),
    ),
)
