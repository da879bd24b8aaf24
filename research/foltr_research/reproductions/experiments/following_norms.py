"""Secure sums whose norm to clip to follows the honest norms: what hostile devices within the bound still do."""

from typing import Any

from foltr_research.reproductions.checks import higher, not_above
from foltr_research.reproductions.claims import HIGHER, RANGE, Claim
from foltr_research.reproductions.experiment import Experiment, Scale, Table, Variant
from foltr_research.reproductions.experiments.secure_sums import CLICKS, COMMON, PERIOD, secure
from foltr_research.reproductions.experiments.secure_sums_hostile import ATTACKS, EPSILON
from foltr_research.reproductions.outcomes import DataProfile
from foltr_research.simulation.config import SimulationConfig

N = 300
HOSTILE = (0, 6, 30, 60)
STAYS, FOLLOWS, FOLLOWS_CORRELATED = "stays", "follows", "follows, correlated noise"
NORMS: dict[str, dict[str, Any]] = {
    STAYS: {},
    FOLLOWS: {"clip_quantile": 0.5},
    FOLLOWS_CORRELATED: {"clip_quantile": 0.5, "mechanism": "correlated"},
}
_ATTACKS = ("update", "features")
_MARGIN = 0.02


def _grid(scale: Scale, data: DataProfile) -> list[Variant]:  # noqa: ARG001
    found = []
    for norm, values in NORMS.items():
        for hostile in HOSTILE:
            for attack in _ATTACKS if hostile else ("-",):
                attacked = {**ATTACKS[attack], "attackers": hostile * PERIOD} if hostile else {}
                config = SimulationConfig.read({**COMMON, **secure(N, epsilon=EPSILON, **values), **attacked})
                found.append(Variant({**_labels(norm, hostile, attack), "clicks": CLICKS}, config))
    return found


def _labels(norm: str, hostile: int, attack: str) -> dict[str, str]:
    return {"norm": norm, "hostile": str(hostile), "attack": attack}


EXPERIMENTS: tuple[Experiment, ...] = (
    Experiment(
        name="privacy-norms",
        title="secure sums: a norm to clip to that follows the honest norms",
        source="no figure; the quantile of Andrew et al. (NeurIPS 2021) in these sums, with norm proofs",
        setting="none: this is our own.",
        grid=_grid,
        seeds={"quick": 5, "full": 10},
        tables=(
            Table(
                f"nDCG@10 on the test set after the last round, by hostile devices of {N}",
                "offline",
                ("norm", "attack"),
                ("hostile",),
            ),
        ),
        claims=(
            Claim(
                f"Without hostile devices a norm that follows costs less than {_MARGIN} nDCG@10",
                "ours",
                f"final nDCG@10 with a norm that stays minus that with one that follows: {RANGE} is below {_MARGIN}",
                not_above("offline", _labels(STAYS, 0, "-"), _labels(FOLLOWS, 0, "-"), _MARGIN),
            ),
            Claim(
                "With one hostile device in ten, a norm that follows leaves a better ranker than one that stays",
                "ours",
                f"final nDCG@10 under each attack: {HIGHER}",
                higher("offline", {"norm": FOLLOWS}, {"norm": STAYS}, by=("attack",), where={"hostile": "30"}),
            ),
        ),
        differences=(
            (
                f"{PERIOD * N:,} clients, about {N} a round, ε = {EPSILON} for all turns, two helpers, norm proofs. A "
                "hostile device sends the longest vector that passes, and denies that its norm is within the bound."
            ),
            "A norm that follows begins at the usual 0.15 √5 and moves to the median of honest norms.",
        ),
    ),
)
