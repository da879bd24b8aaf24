"""What a device's comparison of two models costs for each list, and how much a list tells, by data and clicks.

Run: OPENBLAS_NUM_THREADS=1 python research/benchmarks/comparison.py DATA [--fold N] [--rounds N] [--lists N] [--json
    FILE]

DATA is what `foltr simulate --data` takes. The cost is processor time for `preferences`, two models' scores of all
candidates, `lead` and `Comparison.with_list`, of a linear ranker with 136 features and 10 documents shown. What a list
tells is the mean difference of newest model and anchor, newest minus anchor, over its standard deviation over lists:
after n lists the mean is about that times sqrt(n) standard errors from 0. Lists are drawn by the newest. Pairs are
the honest model and itself 30 rounds before (both ways round), the model of 40 rounds in which four of ten clients sent
five times their usual length across the others', all zeros and the honest model negated, each against the honest one;
and, where clicks do not depend on documents, the honest one against its negation, which should be 0. Beside it stands
what lists of the one bring and lists of the other do, as the reciprocal rank of the first click: a comparison by time,
which no device makes, and which would blame the model for whatever else makes users click less.
"""

import argparse
import json
import os
import time
from pathlib import Path

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
from numpy.typing import NDArray

from foltr.core.data.dataset import RankingDataset
from foltr.core.evaluation.click_models import ClickModel, click_model, simulate_clicks
from foltr.core.evaluation.metrics import reciprocal_rank
from foltr.core.learning.agreement import Preferences, lead, preferences
from foltr.core.learning.comparison import Comparison
from foltr.core.learning.display import sampled_list
from foltr.core.learning.linear import score
from foltr_research.simulation.clients.loading import load_experiment, population_for
from foltr_research.simulation.config import SimulationConfig
from foltr_research.simulation.federated import run

FEATURES, SHOWN, AWAY, RUINED_IN = 136, 10, 30, 40
CANDIDATES = (10, 100, 1000)
RANDOM_CLICKS = ClickModel("random", (0.3,) * 5, (0.3,) * 5)


def microseconds(n_candidates: int, n_lists: int = 2000) -> float:
    """Return what one more list costs a device whose user clicked on one document."""
    rng = np.random.default_rng(1)
    features = rng.random((n_candidates, FEATURES), np.float32)
    newest, anchor = rng.normal(size=(2, FEATURES))
    shown = sampled_list(score(newest, features), SHOWN, rng)
    clicks = np.zeros(SHOWN, np.bool_)
    clicks[3] = True
    known = Comparison()
    for count in (100, n_lists):  # the first ones compile and warm up
        began = time.process_time()
        for _ in range(count):
            said = preferences(shown.reversals, clicks)
            of_newest, of_anchor = (lead(score(weights, features), shown.ranking, said) for weights in (newest, anchor))
            known = known.with_list(of_newest, of_anchor, said.total)
        seconds = time.process_time() - began
    return 1e6 * seconds / n_lists


def agreement(scores: NDArray[np.floating], preferred_by_user: Preferences) -> float:
    """Return the share of a list's preferences that a model with these scores (k,) agrees with; 0 without any."""
    if preferred_by_user.total == 0.0:
        return 0.0
    high, low = scores[preferred_by_user.preferred], scores[preferred_by_user.other]
    agreed = (high > low) + 0.5 * (high == low)
    return float(agreed @ preferred_by_user.weight / preferred_by_user.total)


def told_by_a_list(
    data: RankingDataset,
    clicks: ClickModel,
    newest: NDArray[np.floating],
    anchor: NDArray[np.floating],
    n_lists: int,
    rng: np.random.Generator,
) -> tuple[float, float, float]:
    """Return mean over standard deviation of the differences by agreement, by lead and by first clicks."""
    found: list[tuple[float, float, float]] = []
    while len(found) < n_lists:
        query = data.query(int(rng.integers(data.n_queries)))
        scores, others = score(newest, query.features), score(anchor, query.features)
        shown = sampled_list(scores, SHOWN, rng)
        ranking = shown.ranking
        clicked = simulate_clicks(clicks, query.relevance[ranking], rng)
        said = preferences(shown.reversals, clicked)
        by_anchor = sampled_list(others, SHOWN, rng).ranking
        brought = reciprocal_rank(clicked) - reciprocal_rank(simulate_clicks(clicks, query.relevance[by_anchor], rng))
        agreed = agreement(scores[ranking], said) - agreement(others[ranking], said)
        led = lead(scores, ranking, said) - lead(others, ranking, said)
        found.append((said.total * agreed, said.total * led, brought))
    by_agreement, by_lead, by_clicks = (np.mean(found, axis=0) / np.std(found, axis=0)).tolist()
    return by_agreement, by_lead, by_clicks


def models(config: SimulationConfig) -> dict[str, tuple[NDArray[np.floating], NDArray[np.floating]]]:
    """Return newest and anchor by what they are."""
    experiment = load_experiment(config)

    def weights(**values: object) -> NDArray[np.float32]:
        of = config.changed(eval_every=config.rounds, **values)
        return run(of, population_for(of, experiment)).weights

    honest, earlier = weights(), weights(rounds=config.rounds - AWAY)
    attack = {"attack": "turncoat", "attackers": 4, "attack_parameters": {"start": config.rounds + 1}}
    ruined = weights(rounds=config.rounds + RUINED_IN, **attack)
    return {
        f"honest, {AWAY} rounds before": (honest, earlier),
        f"{AWAY} rounds before, honest": (earlier, honest),
        f"ruined in {RUINED_IN} rounds, honest": (ruined, honest),
        "zeros, honest": (0 * honest, honest),
        "negated, honest": (-honest, honest),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--fold", type=int)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--lists", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=101)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    costs = {f"{n} candidates": round(microseconds(n), 1) for n in CANDIDATES}
    print("microseconds a list:", costs)
    rows = []
    for name in ("perfect", "navigational", "informational"):
        config = SimulationConfig(
            data=options.data, fold=options.fold, clicks=(name,), rounds=options.rounds, seed=options.seed
        )
        experiment = load_experiment(config)
        pairs = models(config)
        honest = next(iter(pairs.values()))[0]
        cases = [(what, click_model(name, experiment.n_grades), pair) for what, pair in pairs.items()]
        cases.append(("random clicks: honest, negated", RANDOM_CLICKS, (honest, -honest)))
        for what, clicks, pair in cases:
            rng = np.random.default_rng(options.seed)
            told = told_by_a_list(experiment.train, clicks, *pair, options.lists, rng)
            found = dict(zip(("agreement", "lead", "first clicks"), told, strict=True))
            rows.append({"clicks": name, "newest, anchor": what, **found})
            numbers = " | ".join(f"{by} {value:+.3f}" for by, value in found.items())
            print(f"{experiment.train.name} | {name} | {what} | {numbers}", flush=True)
    if options.json:
        options.json.write_text(json.dumps({"microseconds": costs, "told": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
