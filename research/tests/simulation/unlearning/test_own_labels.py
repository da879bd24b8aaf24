"""A leaver that teaches the opposite of what everybody else does."""

import numpy as np
from simulated import config, population

from foltr_research.simulation.unlearning.own_labels import with_reset_labels


def test_half_of_its_queries_are_upside_down():
    """The most relevant documents get the lowest grade, and grades are spread evenly; the others' data stays."""
    people = population(config())
    found = with_reset_labels(people, 4)
    leaver, [data, own] = found.clients[4], found.datasets
    assert found.clients[:4] == people.clients[:4]
    assert data is people.datasets[0]
    assert own.features is data.features
    np.testing.assert_array_equal(leaver.queries, people.clients[4].queries[::2])
    for i in range(data.n_queries):
        before, after = data.query(i).relevance, own.query(i).relevance
        if i not in leaver.queries:
            np.testing.assert_array_equal(before, after)
        else:
            best_first = np.argsort(-before, kind="stable")
            assert (np.diff(after[best_first]) >= 0).all()
            counts = np.bincount(after)
            assert counts.max() - counts.min() <= 1
