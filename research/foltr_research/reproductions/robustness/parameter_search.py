"""The most harmful parameters of attacks on a rule that they know, by trying some on seeds that nothing else reports.

All candidates of an attack are run on the first seed of the search, and the most harmful ones on the others too. The
same arguments find the same parameters. It is a small search: what it finds is no bound of what an attacker can do.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from foltr.core.errors import FoltrError
from foltr_research.reproductions.outcomes import METRICS, DataProfile
from foltr_research.reproductions.robustness.attacks_by_rule import federation
from foltr_research.reproductions.robustness.aware_attacks import AWARE, with_feature
from foltr_research.reproductions.robustness.measures import HONEST, METRIC
from foltr_research.simulation.config import SimulationConfig
from foltr_research.simulation.sweeps.sweep import config_digest, run_sweep

Parameters = Mapping[str, Any]
SEEDS = (101, 102)
CLICKS = ("navigational", "informational")
# How many candidates are run on every seed.
FINALISTS = 4

_TOWARDS = ("orthogonal", "reverse", "update")
_SPREAD = (0.5, 1.0)
_STARTS = (2, 30, 100)
_TURNS = (150, 200, 250, 300, 340)
# By attack, the values that are tried of each parameter; what an attack of `AWARE` has set already is left out.
SPACE: Mapping[str, Mapping[str, tuple[Any, ...]]] = {
    "launder": {
        "period": (2, 3, 4, 6, 10),
        "burst": (1.5, 2, 3, 5),
        "counted": (0, 0.5, 1, 2),
        "noise": (0.3, 0.5, 1),
        "start": _STARTS,
    },
    "creep": {
        "step": (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.6, 1),
        "honest": (0.25, 0.5, 1),
        "longest": (1, 1.5, 2, 4),
        "start": _STARTS,
        "spread": _SPREAD,
    },
    "acceptable": {
        "towards": ("orthogonal", "reverse"),
        "least": (0, 0.1, 0.5),
        "longest": (0.1, 0.2, 0.3, 0.5, 1, 2),
        "start": _STARTS,
    },
    "alternate": {
        "towards": _TOWARDS,
        "z": (1, 2, 3, 5, 8),
        "period": (3, 5, 10, 20, 50),
        "hostile": (1, 2, 5),
        "start": _STARTS,
    },
    "turncoat": {"towards": _TOWARDS, "z": (0.5, 1, 2, 3, 5, 8), "start": _TURNS, "spread": _SPREAD},
    "sybils": {"towards": _TOWARDS, "z": (0.5, 1, 1.7, 3, 5), "life": (1, 2, 5, 10, 20, 50)},
    "late-joiners": {"towards": _TOWARDS, "z": (0.3, 0.5, 1, 1.7, 3, 5), "start": _TURNS},
    "framing": {},
}


@dataclass(frozen=True)
class Found:
    """The most harmful parameters of one attack.

    Attributes:
        parameters: those that were searched.
        kept: mean share of the honest ranker's nDCG@10 that is kept with them, over data, clicks and seeds.
        n_tried: how many candidates there were.
    """

    parameters: Parameters
    kept: float
    n_tried: int


def candidates(name: str, n: int) -> list[Parameters]:
    """Return up to ``n`` distinct candidates for an attack of `AWARE`: its defaults, and others drawn at random."""
    one = AWARE[name]
    full = one.settings.get("knowledge") == "full"
    space = {
        key: values
        for key, values in SPACE[one.attack].items()
        if key not in one.settings and (full or key != "spread")
    }
    rng = np.random.default_rng(np.random.SeedSequence([*name.encode()]))
    found: list[Parameters] = [{}]
    size = int(np.prod([len(values) for values in space.values()])) if space else 0
    for number in rng.permutation(size)[: n - 1].tolist():
        at = np.unravel_index(number, [len(values) for values in space.values()])
        found.append({key: values[i] for (key, values), i in zip(space.items(), at, strict=True)})
    return found


def search(
    names: Sequence[str],
    rule: str,
    data: Sequence[DataProfile],
    *,
    attackers: int,
    tries: int,
    jobs: int,
    folder: Path | None = None,
    on_done: Callable[[object], None] | None = None,
) -> dict[str, Found]:
    """Find the most harmful parameters of each of these attacks of `AWARE`.

    Args:
        rule: that is attacked, as `SimulationConfig.aggregation`.
        attackers: of ten clients.
        tries: candidates of each attack.
        jobs: runs at once.
        folder: where finished runs are kept.

    Raises:
        FoltrError: a run failed.
    """
    tried = {name: candidates(name, tries) for name in names}
    pairs = [(name, one) for name, all_of_them in tried.items() for one in all_of_them]
    runner = _Runner(rule, data, attackers, jobs, folder, on_done)
    first = runner.kept(pairs, SEEDS[:1])
    finalists = []
    for name in names:
        scores = sorted(
            (score, i) for i, ((other, _), score) in enumerate(zip(pairs, first, strict=True)) if other == name
        )
        finalists += [pairs[i] for _, i in scores[:FINALISTS]]
    last = runner.kept(finalists, SEEDS)
    found: dict[str, Found] = {}
    for (name, parameters), score in zip(finalists, last, strict=True):
        if name not in found or score < found[name].kept:
            found[name] = Found(parameters, score, len(tried[name]))
    return found


@dataclass(frozen=True)
class _Runner:
    """What is the same for all candidates of a search."""

    rule: str
    data: Sequence[DataProfile]
    attackers: int
    jobs: int
    folder: Path | None
    on_done: Callable[[object], None] | None

    def kept(self, pairs: Sequence[tuple[str, Parameters]], seeds: Sequence[int]) -> list[float]:
        """Return for each attack and its parameters the mean of what is kept, over data, clicks and seeds."""
        places = [(data, clicks, seed) for data in self.data for clicks in CLICKS for seed in seeds]
        honest = [_config(federation("quick", HONEST, clicks), data, seed) for data, clicks, seed in places]
        attacked = [[self._attacked(name, parameters, *place) for place in places] for name, parameters in pairs]
        values = self._run([*honest, *(config for configs in attacked for config in configs)])
        return [
            float(
                np.mean(
                    [
                        values[config_digest(config)] / values[config_digest(without)]
                        for config, without in zip(configs, honest, strict=True)
                    ]
                )
            )
            for configs in attacked
        ]

    def _attacked(
        self, name: str, parameters: Parameters, data: DataProfile, clicks: str, seed: int
    ) -> SimulationConfig:
        config = federation("quick", self.rule, clicks, name, self.attackers)
        chosen = with_feature({**parameters, **AWARE[name].settings}, data.n_features)
        return _config(config.changed(attack_parameters=chosen), data, seed)

    def _run(self, configs: Sequence[SimulationConfig]) -> dict[str, float]:
        """Return by digest of a configuration nDCG@10 over the last quarter of its rounds."""
        rows = run_sweep(configs, folder=self.folder, jobs=self.jobs, on_done=self.on_done)
        found: dict[str, float] = {}
        for row in rows:
            if row.result is None:
                raise FoltrError(f"{row.config.attack} {row.config.attack_parameters}: {row.error}")
            found[config_digest(row.config)] = METRICS[METRIC].value(row.result)
        return found


def _config(config: SimulationConfig, data: DataProfile, seed: int) -> SimulationConfig:
    return config.changed(data=data.data, fold=data.folds[0] if data.folds else None, seed=seed)
