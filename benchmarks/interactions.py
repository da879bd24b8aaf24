"""Interactions a second of PDGD in one process: rank, click, learn; 120 documents, 136 features, 10 shown.

Run: python benchmarks/interactions.py [--interactions N] [--repeats N]

Every figure is a median over repeats. Features are random numbers; time does not depend on what they mean.
The peers' figures to compare with are in the project's bars, measured on other runs of the same kind of
machine.
"""

import argparse
import functools
import platform
import statistics
import time
from collections.abc import Callable

import numpy as np

from foltr.click_models import click_model, simulate_clicks
from foltr.compiled import COMPILED
from foltr.datasets import RankingDataset
from foltr.metrics import mean_ndcg_at_k, mean_ndcg_of_scores
from foltr.pdgd import pdgd_step
from foltr.rankers import sample_plackett_luce, score

QUERIES, DOCS, FEATURES, SHOWN = 200, 120, 136, 10


def random_dataset(rng: np.random.Generator) -> RankingDataset:
    """A set of the bars' shape: relevance at random, mostly 0."""
    rows = QUERIES * DOCS
    return RankingDataset(
        name="random",
        features=rng.random((rows, FEATURES), dtype=np.float32),
        relevance=rng.choice(5, size=rows, p=(0.55, 0.3, 0.1, 0.03, 0.02)).astype(np.int16),
        offsets=np.arange(QUERIES + 1, dtype=np.int64) * DOCS,
        query_ids=np.arange(QUERIES, dtype=np.int64),
    )


def run(dataset: RankingDataset, model_name: str, interactions: int, rng: np.random.Generator) -> None:
    """Simulate one user's interactions, learning after each."""
    model = click_model(model_name, 5)
    queries = [dataset.query(i) for i in range(dataset.n_queries)]
    weights = np.zeros(FEATURES, np.float32)
    for i in rng.integers(dataset.n_queries, size=interactions).tolist():
        features, relevance = queries[i]
        scores = score(weights, features)
        ranking = sample_plackett_luce(scores, SHOWN, rng)
        clicks = simulate_clicks(model, relevance[ranking], rng)
        weights = pdgd_step(weights, features, ranking, clicks, 0.1, scores)


def median_seconds(work: Callable[[], object], repeats: int) -> float:
    """The median time of one call after a first, unmeasured one."""
    work()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--interactions", type=int, default=20_000)
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    dataset = random_dataset(rng)
    kernels = "plain NumPy"
    if COMPILED:
        import numba

        kernels = f"numba {numba.__version__}"
    print(f"{platform.platform()}, {platform.machine()}, Python {platform.python_version()}", end="")
    print(f", NumPy {np.__version__}, {kernels}")
    for name in ("perfect", "navigational", "informational"):
        work = functools.partial(run, dataset, name, options.interactions, rng)
        rate = options.interactions / median_seconds(work, options.repeats)
        print(f"PDGD linear, {name}: {rate:,.0f} interactions/s")
    weights = rng.normal(size=FEATURES).astype(np.float32)
    scores = score(weights, dataset.features)
    shape = f"{QUERIES} queries x {DOCS} documents"
    seconds = median_seconds(lambda: mean_ndcg_of_scores(scores, dataset), 20 * options.repeats)
    print(f"nDCG@10 of {shape}, from scores: {1000 * seconds:.2f} ms")
    seconds = median_seconds(lambda: mean_ndcg_at_k(weights, dataset), 20 * options.repeats)
    print(f"nDCG@10 of {shape}, with scoring: {1000 * seconds:.2f} ms")


if __name__ == "__main__":
    main()
