"""Measures the rankers of a simulation on held-out queries."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foltr.core.data.dataset import RankingDataset
from foltr.core.evaluation.metrics import MeanNdcg, mean_ndcg_of_scores
from foltr.core.evaluation.named_metrics import NDCG_AT_10, Metric, means_over_queries, values_by_query
from foltr.core.methods.base import scores_of
from foltr.core.methods.registry import Ranker
from foltr_research.simulation.clients.population import Population
from foltr_research.simulation.learners import Learner

# More clients hardly improve the mean and cost more.
_CLIENTS_EVALUATED = 100


@dataclass(frozen=True)
class Evaluation:
    """Means over queries with a relevant document.

    Attributes:
        means: by name of the metric, mean over clients of their rankers on their test sets.
        means_global: of the shared ranker on the same test sets; None if equal by definition.
    """

    means: Mapping[str, float]
    means_global: Mapping[str, float] | None

    @property
    def ndcg(self) -> float:
        return self.means[NDCG_AT_10]

    @property
    def ndcg_global(self) -> float | None:
        return None if self.means_global is None else self.means_global[NDCG_AT_10]


class Evaluator:
    """Evaluates a learner on its population's test sets.

    Clients are evaluated one by one if their rankers or test sets differ: all of them up to 100, else a random 100,
    fixed for the whole simulation. Attackers are excluded: their own lists harm nobody.

    Args:
        metrics: measured beside nDCG@10.
        personal: whether clients have personal rankers.
        n_attackers: number of hostile clients, the first ones.
    """

    def __init__(
        self,
        population: Population,
        ranker: Ranker,
        seed: int,
        metrics: Sequence[Metric] = (),
        *,
        personal: bool,
        n_attackers: int = 0,
    ) -> None:
        self._ranker = ranker
        self._metrics = metrics
        self._tests = population.tests
        self._personal = personal
        chosen = np.arange(n_attackers, len(population.clients))
        if len(chosen) > _CLIENTS_EVALUATED:
            rng = np.random.default_rng(np.random.SeedSequence([seed, *b"evaluated clients"]))
            chosen = np.sort(rng.choice(chosen, size=_CLIENTS_EVALUATED, replace=False))
        self._clients: list[int] = chosen.tolist()
        self._test_of = [population.clients[client].test for client in self._clients]

    @property
    def by_client(self) -> bool:
        """Whether clients are evaluated one by one."""
        return self._personal or len(set(self._test_of)) > 1

    def evaluate(self, learner: Learner) -> Evaluation:
        """Evaluate. Raises DataError if a test set has no relevant document or scores are not finite."""
        by_test = {test: self._means(learner.weights, self._tests[test]) for test in sorted(set(self._test_of))}
        of_shared = _mean_over_clients([by_test[test] for test in self._test_of])
        if not self._personal:
            return Evaluation(of_shared, of_shared if self.by_client else None)
        own = [
            self._means(learner.ranker_of(client), self._tests[test])
            for client, test in zip(self._clients, self._test_of, strict=True)
        ]
        return Evaluation(_mean_over_clients(own), of_shared)

    def describe(self) -> dict[str, int]:
        """Return how many queries and clients an evaluation covers."""
        used = [self._tests[test] for test in sorted(set(self._test_of))]
        zeros = np.zeros(self._ranker.n_weights, np.float32)
        means = [self._ndcg(zeros, test) for test in used]
        return {
            "test_queries": sum(mean.n_queries for mean in means),
            "test_queries_evaluated": sum(mean.n_evaluated for mean in means),
            "test_sets": len(used),
            "clients_evaluated": len(self._clients) if self.by_client else 0,
        }

    def _means(self, weights: NDArray[np.floating], test: RankingDataset) -> dict[str, float]:
        scores = scores_of(self._ranker, weights, test.features)
        ndcg = {NDCG_AT_10: mean_ndcg_of_scores(scores, test).mean}
        if not self._metrics:
            return ndcg
        return means_over_queries(values_by_query(self._metrics, scores, test)) | ndcg

    def _ndcg(self, weights: NDArray[np.floating], test: RankingDataset) -> MeanNdcg:
        return mean_ndcg_of_scores(scores_of(self._ranker, weights, test.features), test)


def _mean_over_clients(means: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {name: float(np.mean([one[name] for one in means])) for name in means[0]}
