"""A client that taught something unique: its queries have inverted labels.

The study of unlearning in FOLtR resets the relevance of a leaver's queries so that remains of it are visible (Tao et
al. 2025; `calculate_high_loss_samples_and_labels` of its public code).
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from foltr.core.data.dataset import RankingDataset, relabel
from foltr_research.simulation.clients.population import Population


def with_reset_labels(population: Population, client: int) -> Population:
    """Return the population with a client that asks every other one of its queries, with inverted relevance.

    The study resets the half with the highest loss under the first model. Our first model is zeros, so no half differs.
    """
    of = population.clients[client]
    n_grades = len(of.click_models[0].click_probability)
    data, queries = population.datasets[of.dataset], of.queries[::2]
    clients = list(population.clients)
    clients[client] = replace(of, dataset=len(population.datasets), queries=queries)
    return replace(population, datasets=(*population.datasets, _reset(data, queries, n_grades)), clients=tuple(clients))


def _reset(data: RankingDataset, queries: NDArray[np.int64], n_grades: int) -> RankingDataset:
    """Return the data with the grades of some queries spread evenly over their documents, the lowest to the best."""
    relevance = data.relevance.copy()
    for query in queries.tolist():
        rows = slice(data.offsets[query], data.offsets[query + 1])
        best_first = np.argsort(-relevance[rows], kind="stable")
        grades = np.empty(len(best_first), np.int16)
        grades[best_first] = np.arange(len(best_first)) * n_grades // len(best_first)
        relevance[rows] = grades
    return relabel(data, relevance, f"{data.name}, reset")
