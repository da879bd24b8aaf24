"""Interactions a second of our learners beside a plain transcription of the published ones, in turns on one core.

Run: python research/benchmarks/learners.py [--repeats N] [--scale X] [--json FILE]

An interaction is: pick a query of 120 documents x 136 features, rank, show 10, click, measure nDCG, learn; drawing all
random numbers is included. Ours are the simulator's, as they are run (see interactions.py); the peer is plain_pdgd.py.
Each repeat measures ours and the peer one after the other, by this process's processor time. Figures are medians, the
ratio is the median of the pairwise ratios. Features are random numbers; time does not depend on what they mean.

The JSON file has ``rows`` with ``what``, ``ours_per_s``, ``peer``, ``peer_per_s`` and ``ratio``, and ``ndcg`` with the
milliseconds that nDCG@10 of 200 queries takes, ours with scoring and the peer's query by query. ``linear_product_us``
and ``neural_product_us`` are what one product of a query's documents and the weights takes at least, in microseconds.
"""

# ruff: noqa: E402 - the environment comes before NumPy
import os

for _variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import argparse
import json
import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from interactions import (
    DOCS,
    FEATURES,
    HIDDEN,
    SHOWN,
    Crowd,
    evolution_linear,
    pdgd_linear,
    pdgd_neural,
    random_dataset,
)
from plain_pdgd import Query, User, federated_round, ndcg

from foltr.core.data.dataset import RankingDataset
from foltr.core.evaluation.click_models import click_model
from foltr.core.evaluation.metrics import mean_ndcg_at_k
from foltr_research.simulation.blocks.drawn_rankings import query_pool
from foltr_research.simulation.clients.population import iid_population
from foltr_research.simulation.config import SimulationConfig
from foltr_research.simulation.federated import run

CLIENTS, INTERACTIONS = 1000, 2
_MODEL = "navigational"

# Does some work and says how many interactions, or rankings, that were.
Work = Callable[[], int]


def queries_of(dataset: RankingDataset) -> list[Query]:
    """What the peer's users may ask."""
    queries = [dataset.query(i) for i in range(dataset.n_queries)]
    return [Query(query.features, query.relevance) for query in queries]


def users(dataset: RankingDataset, model: str, n: int) -> list[User]:
    """The peer's users, with the click model of ours."""
    clicks = click_model(model, 5)
    chances = (clicks.click_probability, clicks.stop_probability)
    return [User(queries_of(dataset), *chances, np.random.default_rng([7, i])) for i in range(n)]


def ours_federated(learner: Callable[[Crowd, int], None], crowd: Crowd, rounds: int) -> int:
    """Rounds of all clients."""
    learner(crowd, rounds)
    return crowd.size * rounds


def ours_centralised(dataset: RankingDataset, rounds: int) -> int:
    """One learner that steps after each interaction, one interaction a round."""
    config = SimulationConfig(
        method="pdgd", clients=1, interactions=1, rounds=rounds, clicks=(_MODEL,), eval_every=rounds, seed=1
    )
    test = random_dataset(1, np.random.default_rng(1))
    return run(config, iid_population(dataset, test, 1, (_MODEL,), 1)).interactions


def plain_federated(clients: list[User], interactions: int) -> int:
    """A round of so many clients as that takes; the number of clients changes nothing for each."""
    federated_round(clients, np.zeros(FEATURES), interactions)
    return len(clients) * interactions


def plain_centralised(user: User, interactions: int) -> int:
    """One learner, one interaction after the other."""
    user.learn(np.zeros(FEATURES), interactions)
    return interactions


def rate(work: Work) -> float:
    """Of one call, by the processor's time."""
    began = time.process_time()
    done = work()
    return done / (time.process_time() - began)


def in_turns(ours: Work, peer: Work, repeats: int) -> tuple[float, float, float]:
    """Median rates of both after a first, unmeasured call of each, and the median ratio."""
    ours(), peer()
    pairs = [(rate(ours), rate(peer)) for _ in range(repeats)]
    rates = [statistics.median(column) for column in zip(*pairs, strict=True)]
    return rates[0], rates[1], statistics.median(a / b for a, b in pairs)


def measure(repeats: int, scale: float) -> list[dict[str, Any]]:
    """A row for each learner of ours, beside the peer."""
    dataset = random_dataset(max(20, int(500 * scale)), np.random.default_rng(0))
    pool = query_pool(dataset, SHOWN)
    n_clients, n_plain = max(2, int(CLIENTS * scale)), max(5, int(150 * scale))
    federated = "plain FPDGD, linear"
    rows: list[tuple[str, Work, str, Work]] = []
    for model in ("perfect", "navigational", "informational"):
        crowd = Crowd(pool, model, n_clients, INTERACTIONS)
        peer = partial(plain_federated, users(dataset, model, n_plain), INTERACTIONS)
        rows.append((f"FPDGD, linear, {model}", partial(ours_federated, pdgd_linear, crowd, 5), federated, peer))
    for what, learner in ((f"FPDGD, neural {HIDDEN}", pdgd_neural), ("FOLtR-ES, linear", evolution_linear)):
        crowd = Crowd(pool, _MODEL, n_clients, INTERACTIONS)
        peer = partial(plain_federated, users(dataset, _MODEL, n_plain), INTERACTIONS)
        rows.append((what, partial(ours_federated, learner, crowd, 2), federated, peer))
    central = partial(ours_centralised, dataset, max(50, int(8000 * scale)))
    one = partial(plain_centralised, users(dataset, _MODEL, 1)[0], 2 * n_plain)
    rows.append(("PDGD, linear, centralised, one interaction a round", central, "plain PDGD, linear", one))
    results = []
    for what, ours, peer_name, peer in rows:
        ours_per_s, peer_per_s, ratio = in_turns(ours, peer, repeats)
        row = {"what": what, "ours_per_s": ours_per_s, "peer": peer_name, "peer_per_s": peer_per_s, "ratio": ratio}
        print(f"{what}: {ours_per_s:,.0f} interactions/s; {peer_name} {peer_per_s:,.0f}; {ratio:.1f} x", flush=True)
        results.append(row)
    return results


def measure_ndcg(repeats: int) -> dict[str, float]:
    """Milliseconds of nDCG@10 of 200 queries x 120 documents with scoring, ours and query by query."""
    rng = np.random.default_rng(2)
    dataset = random_dataset(200, rng)
    weights = rng.normal(size=FEATURES).astype(np.float32)
    queries = queries_of(dataset)

    def plain() -> int:
        for query in queries:
            ndcg(query.grades, np.argsort(-(query.features @ weights)))
        return 1

    def ours() -> int:
        for _ in range(10):
            mean_ndcg_at_k(weights, dataset)
        return 10

    ours_per_s, plain_per_s, ratio = in_turns(ours, plain, 3 * repeats)
    print(f"nDCG@10 of 200 queries: {1e3 / ours_per_s:.2f} ms; query by query {1e3 / plain_per_s:.2f}; {ratio:.1f} x")
    return {"ours_ms": 1e3 / ours_per_s, "peer_ms": 1e3 / plain_per_s, "ratio": ratio}


def product_us(width: int) -> float:
    """Microseconds of one product of 120 documents and weights of this width, both float32, the median of many."""
    rng = np.random.default_rng(3)
    documents = [rng.random((DOCS, FEATURES), dtype=np.float32) for _ in range(200)]
    weights = rng.random((FEATURES, width), dtype=np.float32)
    out = np.empty((DOCS, width), np.float32)
    taken = []
    for _ in range(9):
        began = time.process_time()
        for one in documents * 5:
            np.matmul(one, weights, out=out)
        taken.append((time.process_time() - began) / (5 * len(documents)))
    return 1e6 * statistics.median(taken)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--scale", type=float, default=1.0, help="of the work; below 1 is only to try it out")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    results = {
        "rows": measure(options.repeats, options.scale),
        "ndcg": measure_ndcg(options.repeats),
        "linear_product_us": product_us(1),
        "neural_product_us": product_us(HIDDEN),
    }
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
