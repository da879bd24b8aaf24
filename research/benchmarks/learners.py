"""Interactions a second of our learners beside a plain transcription of the published ones, in turns on one core.

Run: python research/benchmarks/learners.py [--repeats N] [--scale X] [--json FILE]

An interaction is: pick a query of 120 documents x 136 features, rank, show 10, click, measure nDCG, learn. Drawing all
random numbers is included. Ours are the simulator's learners, unchanged; the peer is plain_pdgd.py. Each repeat
measures ours and the peer one after the other, by this process's processor time. Figures are medians, the ratio is the
median of the pairwise ratios. Features are random numbers, because time does not depend on their meaning.

The JSON file has ``rows`` with ``what``, ``ours_per_s``, ``peer``, ``peer_per_s`` and ``ratio``, and ``ndcg`` with the
milliseconds that nDCG@10 of 200 queries takes, ours with scoring and the peer's query by query. ``linear_product_us``
and ``neural_product_us`` are the least microseconds of one product of a query's documents and the weights.
"""

# ruff: noqa: E402 - the environment comes before NumPy
import os

for _variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from command_line import parser_of, write_json
from plain_pdgd import Query, User, federated_round, ndcg

from foltr.core.data.dataset import RankingDataset
from foltr.core.evaluation.click_models import click_model
from foltr.core.evaluation.metrics import mean_ndcg_at_k
from foltr.core.learning.evolution_strategies import AdamState, adam_ascent, es_direction, round_noise_seed
from foltr.core.learning.neural import init_neural
from foltr_research.simulation.blocks.base_runner import WEIGHTS_AT_A_TIME
from foltr_research.simulation.blocks.drawn_neural import first_lists, neural_pdgd_block
from foltr_research.simulation.blocks.drawn_rankings import QueryPool, Step, Users, pdgd_block, query_pool
from foltr_research.simulation.blocks.fixed_rankings import Perturbations, es_block
from foltr_research.simulation.click_tables import click_tables
from foltr_research.simulation.clients.population import iid_population
from foltr_research.simulation.config import SimulationConfig
from foltr_research.simulation.federated import run

CLIENTS, INTERACTIONS = 1000, 2
DOCS, FEATURES, SHOWN, HIDDEN = 120, 136, 10, 64
_MODEL = "navigational"

# Does some work and returns the number of interactions or rankings.
Work = Callable[[], int]


def random_dataset(queries: int, rng: np.random.Generator) -> RankingDataset:
    """Return a set of the bars' shape, with random relevance, mostly 0."""
    rows = queries * DOCS
    return RankingDataset(
        name="random",
        features=rng.random((rows, FEATURES), dtype=np.float32),
        relevance=rng.choice(5, size=rows, p=(0.55, 0.3, 0.1, 0.03, 0.02)).astype(np.int16),
        offsets=np.arange(queries + 1, dtype=np.int64) * DOCS,
        query_ids=np.arange(queries, dtype=np.int64),
    )


class Crowd:
    """Clients with random generators for user and device, as in the simulator."""

    def __init__(self, pool: QueryPool, model: str, clients: int, interactions: int) -> None:
        self.pool = pool
        self.size = clients * interactions
        self.users = [np.random.default_rng([1, i]) for i in range(clients)]
        self.devices = [np.random.default_rng([2, i]) for i in range(clients)]
        self.draws = np.empty((clients, interactions, 2 + 2 * SHOWN))
        self.models = np.zeros((clients, interactions), np.int64)
        self.tables = click_tables([click_model(model, 5)], SHOWN)

    def act(self) -> tuple[np.ndarray, Users]:
        """Return the next round's queries and users."""
        for rng, draws in zip(self.users, self.draws, strict=True):
            rng.random(out=draws)
        picks = (self.draws[:, :, 0] * self.pool.dataset.n_queries).astype(np.int64)
        return picks, Users(self.tables, self.models, self.draws)


def pdgd_linear(crowd: Crowd, rounds: int) -> None:
    """FPDGD with a linear ranker."""
    weights = np.zeros(FEATURES)
    for _ in range(rounds):
        weights = pdgd_block(crowd.pool, weights, *crowd.act(), crowd.devices, Step(0.1)).weights.mean(axis=0)


def pdgd_neural(crowd: Crowd, rounds: int) -> None:
    """FPDGD with a neural ranker."""
    weights = init_neural(FEATURES, HIDDEN, np.random.default_rng(3)).astype(np.float64)
    n_clients, at_a_time = len(crowd.devices), WEIGHTS_AT_A_TIME // len(weights)
    first = first_lists(crowd.pool, HIDDEN, n_clients)
    for _ in range(rounds):
        picks, users = crowd.act()
        first.forget()
        total = np.zeros_like(weights)
        # As many clients at a time as in the simulator.
        for begin in range(0, n_clients, at_a_time):
            rows = slice(begin, begin + at_a_time)
            theirs = Users(users.tables, users.models[rows], users.draws[rows])
            of_round = (crowd.devices[rows], Step(0.1), HIDDEN, first)
            block = neural_pdgd_block(crowd.pool, weights, picks[rows], theirs, *of_round)
            total += block.weights.sum(axis=0)
        weights = total / n_clients


def evolution_linear(crowd: Crowd, rounds: int) -> None:
    """FOLtR-ES with a linear ranker: antithetic, randomised responses, one step of Adam a round."""
    weights, adam, noise_scale = np.zeros(FEATURES), AdamState.zeros(FEATURES), 0.01
    variants = np.zeros(crowd.models.shape, np.int64)
    variants[:, (variants.shape[1] + 1) // 2 :] = 1
    for version in range(rounds):
        seeds = [round_noise_seed(client, version) for client in range(len(crowd.users))]
        picks, users = crowd.act()
        seen = es_block(
            crowd.pool, weights, picks, users, Perturbations(seeds, variants, noise_scale, 0.9), crowd.devices
        )
        told = zip(seeds, seen.plus.tolist(), seen.minus.tolist(), strict=True)
        gradients = [es_direction(seed, FEATURES, noise_scale, plus, minus) for seed, plus, minus in told]
        adam, step = adam_ascent(adam, np.sum(gradients, axis=0) / len(gradients), 0.001)
        weights += step


def queries_of(dataset: RankingDataset) -> list[Query]:
    """Return the queries of the peer's users."""
    queries = [dataset.query(i) for i in range(dataset.n_queries)]
    return [Query(query.features, query.relevance) for query in queries]


def users(dataset: RankingDataset, model: str, n: int) -> list[User]:
    """Return the peer's users, with our click model."""
    clicks = click_model(model, 5)
    chances = (clicks.click_probability, clicks.stop_probability)
    return [User(queries_of(dataset), *chances, np.random.default_rng([7, i])) for i in range(n)]


def ours_federated(learner: Callable[[Crowd, int], None], crowd: Crowd, rounds: int) -> int:
    """Run rounds of all clients."""
    learner(crowd, rounds)
    return crowd.size * rounds


def ours_centralised(dataset: RankingDataset, rounds: int) -> int:
    """Run one learner that steps after each interaction, one interaction a round."""
    config = SimulationConfig(
        method="pdgd", clients=1, interactions=1, rounds=rounds, clicks=(_MODEL,), eval_every=rounds, seed=1
    )
    test = random_dataset(1, np.random.default_rng(1))
    return run(config, iid_population(dataset, test, 1, (_MODEL,), 1)).interactions


def plain_federated(clients: list[User], interactions: int) -> int:
    """Run a round of as many clients as needed; a client's cost does not depend on their number."""
    federated_round(clients, np.zeros(FEATURES), interactions)
    return len(clients) * interactions


def plain_centralised(user: User, interactions: int) -> int:
    """Run one learner, one interaction after the other."""
    user.learn(np.zeros(FEATURES), interactions)
    return interactions


def rate(work: Work) -> float:
    """Return the rate of one call, by processor time."""
    began = time.process_time()
    done = work()
    return done / (time.process_time() - began)


def in_turns(ours: Work, peer: Work, repeats: int) -> tuple[float, float, float]:
    """Return the median rates of both, each after an unmeasured call, and the median ratio."""
    ours(), peer()
    pairs = [(rate(ours), rate(peer)) for _ in range(repeats)]
    rates = [statistics.median(column) for column in zip(*pairs, strict=True)]
    return rates[0], rates[1], statistics.median(a / b for a, b in pairs)


def measure(repeats: int, scale: float) -> list[dict[str, Any]]:
    """Return a row for each of our learners, beside the peer."""
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
    """Return the milliseconds of nDCG@10 of 200 queries x 120 documents with scoring, ours and query by query."""
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
    """Return the median microseconds of one product of 120 documents and weights of this width, both float32."""
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
    parser = parser_of(__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--scale", type=float, default=1.0, help="scale of the work; below 1 only to try it out")
    options = parser.parse_args()
    results = {
        "rows": measure(options.repeats, options.scale),
        "ndcg": measure_ndcg(options.repeats),
        "linear_product_us": product_us(1),
        "neural_product_us": product_us(HIDDEN),
    }
    write_json(options.json, results)


if __name__ == "__main__":
    main()
