"""What an evaluation is the mean of."""

import dataclasses

import numpy as np
import pytest
from simulated import data

from foltr.core.data.dataset import select_queries
from foltr.core.evaluation.metrics import mean_ndcg_at_k
from foltr.core.protocol.trainings import LinearRankerSpec
from foltr_research.simulation.clients.population import iid_population
from foltr_research.simulation.evaluation import Evaluator


def test_the_shared_ranker_is_evaluated_as_often_as_there_are_clients():
    """Its value is the mean over clients, not over test sets: a test set of three clients counts three times."""
    train, test = data()
    tests = (select_queries(test, np.arange(10)), select_queries(test, np.arange(10, 20)))
    people = iid_population(train, test, 4, ("perfect",), 4)
    clients = [dataclasses.replace(client, test=0 if i else 1) for i, client in enumerate(people.clients)]
    people = dataclasses.replace(people, clients=tuple(clients), tests=tests)

    class Fixed:
        weights = np.linspace(-1, 1, 8).astype(np.float32)

        def ranker_of(self, client):  # noqa: ARG002 (everybody's is the shared one)
            return self.weights

    first, second = (mean_ndcg_at_k(Fixed.weights, one).mean for one in tests)
    assert first != pytest.approx(second)
    for personal in (False, True):
        found = Evaluator(people, LinearRankerSpec(n_features=8), 1, personal=personal).evaluate(Fixed())
        assert found.ndcg == found.ndcg_global == pytest.approx((3 * first + second) / 4)
