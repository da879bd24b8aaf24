"""Interactions a second in one process, and the time nDCG takes.

Run: python research/benchmarks/interactions.py [--clients N] [--rounds N] [--repeats N]

One interaction is: pick a query of 120 documents x 136 features, rank, show 10, click, measure nDCG, learn or
measure. Drawing all random numbers is included, and so is what the federator does with FOLtR-ES' seeds. 1,000
clients have 2 interactions a round, or 5 with a hundredth of the clients. One core: BLAS is held to one thread.
Every figure is a median over repeats. PDGD in one place is measured as `foltr simulate` runs it, without evaluations:
each interaction a round, and batches of 1,000. Features are random numbers; time does not depend on what they mean. The
peers' figures to compare with are in the project's bars, measured on other runs of the same kind of machine.
"""

# ruff: noqa: E402 - the environment comes before NumPy
import os

# Before NumPy is imported: BLAS reads these once.
for _variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import argparse
import platform
import statistics
import time
from collections.abc import Callable

import numpy as np

from foltr.core.data.dataset import RankingDataset
from foltr.core.evaluation.click_models import click_model
from foltr.core.evaluation.metrics import mean_ndcg_at_k, mean_ndcg_of_scores
from foltr.core.learning.evolution_strategies import AdamState, adam_ascent, es_direction, round_noise_seed
from foltr.core.learning.linear import score
from foltr.core.learning.neural import init_neural
from foltr.core.numerics.compiled import COMPILED
from foltr_research.simulation.blocks.base_runner import WEIGHTS_AT_A_TIME
from foltr_research.simulation.blocks.drawn_neural import first_lists, neural_pdgd_block
from foltr_research.simulation.blocks.drawn_rankings import QueryPool, Users, pdgd_block, query_pool
from foltr_research.simulation.blocks.fixed_rankings import es_block
from foltr_research.simulation.click_tables import click_tables
from foltr_research.simulation.clients.population import iid_population
from foltr_research.simulation.config import SimulationConfig
from foltr_research.simulation.federated import run

DOCS, FEATURES, SHOWN, HIDDEN = 120, 136, 10, 64
CLICK_MODELS = ("perfect", "navigational", "informational")


def random_dataset(queries: int, rng: np.random.Generator) -> RankingDataset:
    """A set of the bars' shape: relevance at random, mostly 0."""
    rows = queries * DOCS
    return RankingDataset(
        name="random",
        features=rng.random((rows, FEATURES), dtype=np.float32),
        relevance=rng.choice(5, size=rows, p=(0.55, 0.3, 0.1, 0.03, 0.02)).astype(np.int16),
        offsets=np.arange(queries + 1, dtype=np.int64) * DOCS,
        query_ids=np.arange(queries, dtype=np.int64),
    )


class Crowd:
    """Clients with a random generator each for the user and for the device, as the simulator has them."""

    def __init__(self, pool: QueryPool, model: str, clients: int, interactions: int) -> None:
        self.pool = pool
        self.size = clients * interactions
        self.users = [np.random.default_rng([1, i]) for i in range(clients)]
        self.devices = [np.random.default_rng([2, i]) for i in range(clients)]
        self.draws = np.empty((clients, interactions, 2 + 2 * SHOWN))
        self.models = np.zeros((clients, interactions), np.int64)
        self.tables = click_tables([click_model(model, 5)], SHOWN)

    def act(self) -> tuple[np.ndarray, Users]:
        """The next round's queries and users."""
        for rng, draws in zip(self.users, self.draws, strict=True):
            rng.random(out=draws)
        picks = (self.draws[:, :, 0] * self.pool.dataset.n_queries).astype(np.int64)
        return picks, Users(self.tables, self.models, self.draws)


def pdgd_linear(crowd: Crowd, rounds: int) -> None:
    """FPDGD with a linear ranker."""
    weights = np.zeros(FEATURES)
    for _ in range(rounds):
        weights = pdgd_block(crowd.pool, weights, *crowd.act(), crowd.devices, 0.1).weights.mean(axis=0)


def pdgd_neural(crowd: Crowd, rounds: int) -> None:
    """FPDGD with a neural ranker."""
    weights = init_neural(FEATURES, HIDDEN, np.random.default_rng(3)).astype(np.float64)
    n_clients, at_a_time = len(crowd.devices), WEIGHTS_AT_A_TIME // len(weights)
    first = first_lists(crowd.pool, HIDDEN, n_clients)
    for _ in range(rounds):
        picks, users = crowd.act()
        first.forget()
        total = np.zeros_like(weights)
        # So many clients at a time as the simulator takes.
        for begin in range(0, n_clients, at_a_time):
            rows = slice(begin, begin + at_a_time)
            theirs = Users(users.tables, users.models[rows], users.draws[rows])
            of_round = (crowd.devices[rows], 0.1, HIDDEN, 0.0, first)
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
        seen = es_block(crowd.pool, weights, picks, users, seeds, variants, crowd.devices, noise_scale, 0.9)
        gradient = np.zeros(FEATURES)
        for seed, plus, minus in zip(seeds, seen.plus.tolist(), seen.minus.tolist(), strict=True):
            gradient += es_direction(seed, FEATURES, noise_scale, plus, minus) / len(seeds)
        adam, step = adam_ascent(adam, gradient, 0.001)
        weights += step


def central_rate(dataset: RankingDataset, test: RankingDataset, of: SimulationConfig, repeats: int) -> float:
    """Interactions a second of PDGD in one place, the median run."""
    people = iid_population(dataset, test, of.clients, of.clicks, of.interactions)
    return statistics.median(run(of, people).interactions_per_second for _ in range(repeats))


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
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=10, help="a repeat; FPDGD's 10 x 5 has as many interactions")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    dataset = random_dataset(options.queries, rng)
    pool = query_pool(dataset, SHOWN)
    kernels = "plain NumPy"
    if COMPILED:
        import numba

        kernels = f"numba {numba.__version__}"
    print(f"{platform.platform()}, {platform.machine()}, Python {platform.python_version()}", end="")
    # Told to use those of an older processor, the neural ranker loses a quarter of its speed.
    core = os.environ.get("OPENBLAS_CORETYPE", "as OpenBLAS finds")
    print(f", NumPy {np.__version__}, {kernels}, BLAS kernels: {core}, one core, {options.queries} queries")
    few = max(options.clients // 100, 1)
    shapes = ((options.clients, 2, options.rounds), (few, 5, max(options.rounds * options.clients * 2 // (few * 5), 1)))
    for title, work, models in (
        ("PDGD linear", pdgd_linear, CLICK_MODELS),
        (f"PDGD neural {HIDDEN}", pdgd_neural, CLICK_MODELS[1:2]),
        ("FOLtR-ES linear", evolution_linear, CLICK_MODELS[1:2]),
    ):
        for clients, interactions, rounds in shapes:
            for model in models:
                crowd = Crowd(pool, model, clients, interactions)
                seconds = median_seconds(lambda work=work, c=crowd, r=rounds: work(c, r), options.repeats)
                rate = crowd.size * rounds / seconds
                print(f"{title}, {model}, {clients} clients x {interactions}: {rate:,.0f} interactions/s")
    # The bar for nDCG is for 200 queries.
    test = random_dataset(200, rng)
    n_interactions = 2 * options.clients * options.rounds
    for method, ranker, clients, interactions in (
        ("pdgd", "linear", 1, 1),
        ("pdgd", "neural", 1, 1),
        ("pdgd-batch", "linear", 10, 100),
    ):
        rounds = max(n_interactions // (clients * interactions), 1)
        of = SimulationConfig.read(
            {
                "method": method,
                "ranker": ranker,
                "hidden": HIDDEN,
                "clients": clients,
                "interactions": interactions,
                "rounds": rounds,
                "eval_every": rounds,
                "clicks": CLICK_MODELS[1],
            }
        )
        rate = central_rate(dataset, test, of, options.repeats)
        print(f"{method} {ranker}, {of.clicks[0]}, {clients * interactions} a round: {rate:,.0f} interactions/s")
    dataset = test
    weights = rng.normal(size=FEATURES).astype(np.float32)
    scores = score(weights, dataset.features)
    shape = f"200 queries x {DOCS} documents"
    seconds = median_seconds(lambda: mean_ndcg_of_scores(scores, dataset), 20 * options.repeats)
    print(f"nDCG@10 of {shape}, from scores: {1000 * seconds:.2f} ms")
    seconds = median_seconds(lambda: mean_ndcg_at_k(weights, dataset), 20 * options.repeats)
    print(f"nDCG@10 of {shape}, with scoring: {1000 * seconds:.2f} ms")


if __name__ == "__main__":
    main()
