"""How often a device's guard refuses an honest model, and how often one of four spoilt ones, by data and clicks.

Run: OPENBLAS_NUM_THREADS=1 python research/benchmarks/guard.py DATA [--fold N] [--federations N] [--rounds N] [--json
    FILE]

DATA is what `foltr simulate --data` takes. In each federation of 10 clients, 5 interactions a round (FPDGD), the first
client holds back a tenth of its lists with clicks. Honest: every model from the 30th list on is judged against the one
before it, and against the one 30 rounds before it, as if the device had been away. Spoilt: at the end the last model
negated, all zeros, the last step times -10 and what four of ten clients make of it who send -2 times what they learned
for 50 rounds, each judged against the last honest model.
"""

import argparse
import json
import os
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from foltr.core.data.dataset import RankingDataset
from foltr.core.evaluation.click_models import ClickModel, click_model, simulate_clicks
from foltr.core.learning.agreement import agreement, preferences
from foltr.core.learning.display import sampled_list
from foltr.core.learning.linear import score
from foltr.core.learning.pdgd import pdgd_step
from foltr.edge_client.guard.held_back import MOST_LISTS
from foltr.edge_client.guard.model_judgement import FEWEST_LISTS, Judgement, judge
from foltr_research.simulation.clients.loading import load_experiment
from foltr_research.simulation.config import SimulationConfig

N_CLIENTS, INTERACTIONS, SHARE, AWAY, N_HOSTILE, HOSTILE_ROUNDS = 10, 5, 0.1, 30, 4, 50


class Federation:
    """FPDGD, and what the first client holds back."""

    def __init__(self, data: RankingDataset, clicks: ClickModel, seed: int) -> None:
        self._data, self._clicks = data, clicks
        self._rng = np.random.default_rng(seed)
        self._due = float(self._rng.random())
        self.models = [np.zeros(data.features.shape[1])]
        self.held: list[tuple[np.ndarray, object]] = []

    def round(self, base: np.ndarray, *, hold_back: bool = True, n_hostile: int = 0) -> np.ndarray:
        deltas = []
        for client in range(N_CLIENTS):
            weights, n_learned = base.copy(), 0
            while n_learned < INTERACTIONS:
                query = self._data.query(int(self._rng.integers(self._data.n_queries)))
                scores = score(weights, query.features)
                shown = sampled_list(scores, 10, self._rng)
                ranking, reversals = shown.ranking, shown.reversals
                clicked = simulate_clicks(self._clicks, query.relevance[ranking], self._rng)
                if client == 0 and hold_back and (said := preferences(reversals, clicked)).total:
                    self._due += SHARE
                    if self._due >= 1.0:
                        self._due -= 1.0
                        self.held.append((query.features[ranking], said))
                        continue
                weights = pdgd_step(weights, query.features, ranking, clicked, 0.1, reversals=reversals)
                n_learned += 1
            deltas.append((weights - base) * (-2.0 if client < n_hostile else 1.0))
        return base + np.mean(deltas, axis=0)

    def judge(self, kept: np.ndarray, new: np.ndarray) -> Judgement:
        held = self.held[-MOST_LISTS:]
        return judge(
            np.array([said.total for _, said in held]),
            *(np.array([agreement(score(model, features), said) for features, said in held]) for model in (kept, new)),
        )


def measured(data: RankingDataset, clicks: ClickModel, n_federations: int, n_rounds: int) -> dict[str, object]:
    n_judged = n_false = 0
    n_lists, refused = [], dict.fromkeys(("negated", "zeros", "last step times -10", "4 of 10 send -2 u, 50 rounds"), 0)
    for seed in range(n_federations):
        federation = Federation(data, clicks, seed)
        models = federation.models
        for _ in range(n_rounds):
            models.append(federation.round(models[-1]))
            if len(federation.held) >= FEWEST_LISTS:
                for kept in (models[-2], models[max(0, len(models) - 1 - AWAY)]):
                    n_judged += 1
                    n_false += federation.judge(kept, models[-1]).refused
        last, hostile = models[-1], models[-1]
        for _ in range(HOSTILE_ROUNDS):
            hostile = federation.round(hostile, hold_back=False, n_hostile=N_HOSTILE)
        spoilt = (-last, 0 * last, last - 10 * (last - models[-2]), hostile)
        for name, model in zip(refused, spoilt, strict=True):
            refused[name] += federation.judge(last, model).refused
        n_lists.append(min(MOST_LISTS, len(federation.held)))
    return {
        "clicks": clicks.name,
        "lists": int(np.median(n_lists)),
        "honest judged": n_judged,
        "honest refused": n_false,
        **{name: f"{n}/{n_federations}" for name, n in refused.items()},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--fold", type=int)
    parser.add_argument("--federations", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=450)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    experiment = load_experiment(SimulationConfig(data=options.data, fold=options.fold))
    rows = []
    for name in ("perfect", "navigational", "informational"):
        model = click_model(name, experiment.n_grades)
        rows.append(
            {"data": experiment.train.name} | measured(experiment.train, model, options.federations, options.rounds)
        )
        print(" | ".join(f"{key} {value}" for key, value in rows[-1].items()), flush=True)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
