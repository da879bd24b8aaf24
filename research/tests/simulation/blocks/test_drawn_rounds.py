"""Rounds in one go against the same rounds one by one: the same bits."""

import dataclasses

import numpy as np
import pytest
from simulated import config, population, with_quantities

from foltr.core.errors import DataError
from foltr.core.methods.aggregations import DeltaAggregation
from foltr.core.unlearning.calibration import calibrated
from foltr_research.simulation.blocks.block_runners import PdgdBlockRunner, block_runner
from foltr_research.simulation.clients.crowd import Crowd
from foltr_research.simulation.config import resolve

CLIENTS, ROUNDS, FEATURES = 5, 6, 8


def made(people=None, rate=None, **values):
    """A runner with its crowd."""
    of = config(clients=CLIENTS, clicks=("perfect", "informational"), seed=4, **values)
    people = people or with_quantities(population(of), 4, 1, 3)
    training, ranker = resolve(of, FEATURES)
    if rate is not None:
        training = training.model_copy(update={"learning_rate": rate})
    crowd = Crowd(people, of.seed, training.serp_length)
    runner = block_runner(people, crowd, training, ranker)
    assert isinstance(runner, PdgdBlockRunner)
    return runner, crowd


def one_by_one(clients, lengths, **values):
    """The models after each round, the updates as they were averaged, and where the streams stand."""
    runner, crowd = made(**values)
    model, models, updates = np.zeros(FEATURES, np.float32), [], []
    for number in range(ROUNDS):
        kept = _Kept(None if lengths is None else lengths[number])
        runner.run(model, number, clients, kept)
        model = kept.finish(model).weights
        models.append(model)
        updates.append(kept.rows)
    return np.array(models), np.array(updates), crowd.state()


class _Kept(DeltaAggregation):
    """Brings updates to their lengths before it adds them up."""

    def __init__(self, lengths):
        super().__init__(FEATURES)
        self.lengths = lengths

    def add_rows(self, values, n_interactions, client_ids):
        if self.lengths is not None:
            values = np.array([calibrated(*pair) for pair in zip(self.lengths, values, strict=True)], np.float32)
        self.rows = values.copy()
        super().add_rows(values, n_interactions, client_ids)


@pytest.mark.parametrize("values", [{}, {"method": "fedprox", "parameters": {"mu": 0.5}}])
@pytest.mark.parametrize("calibrates", [False, True])
def test_rounds_in_a_row_are_rounds_one_by_one(values, calibrates, rng):
    """Clients of different numbers of interactions, some of whom take no part; streams stand where they would."""
    clients = np.array([0, 1, 3, 4])
    lengths = rng.random((ROUNDS, len(clients))) if calibrates else None
    if lengths is not None:
        lengths[2, 1] = 0.0
    models, updates, state = one_by_one(clients, lengths, **values)
    runner, crowd = made(**values)
    found = runner.rounds(np.zeros(FEATURES, np.float32), clients, ROUNDS, lengths)
    np.testing.assert_array_equal(found.models, models)
    np.testing.assert_array_equal(found.updates, updates)
    np.testing.assert_array_equal(found.counts, np.tile([4, 1, 4, 1], (ROUNDS, 1)))
    assert found.models.any()
    assert np.isfinite(found.ndcg[:, 0]).all()
    assert np.isnan(found.ndcg[:, 1, 1:]).all()
    for name, value in crowd.state().items():
        np.testing.assert_array_equal(value, state[name])


def test_what_is_not_made_in_one_go():
    """Clients of several data sets, other rankers, what is sent in place of the weights, and very many clients."""
    clients = np.arange(CLIENTS)
    assert made()[0].rounds_at_once(clients) > 100
    assert made(ranker="neural", hidden=3)[0].rounds_at_once(clients) == 1
    assert made(method="fpdgd-paper", parameters={"epsilon": 4.5})[0].rounds_at_once(clients) == 1
    people = population(config(clients=CLIENTS))
    apart = [dataclasses.replace(client, dataset=i % 2) for i, client in enumerate(people.clients)]
    people = dataclasses.replace(people, datasets=2 * people.datasets, clients=tuple(apart))
    assert made(people)[0].rounds_at_once(clients) == 1
    assert made(people)[0].rounds_at_once(clients[::2]) > 100
    many = with_quantities(population(config(clients=CLIENTS)), 100_000)
    assert made(many)[0].rounds_at_once(clients) == 1


@pytest.mark.parametrize(
    ("values", "lengths", "cause"),
    [
        ({"rate": 1e300}, None, "finite"),
        ({"rate": 1e39}, None, "not finite|finite numbers"),
        ({}, np.nan, "no length"),
        ({}, -2.0, "negative"),
        ({}, np.inf, "no length"),
        ({}, 1e39, "not fit float32"),
    ],
)
def test_what_cannot_be_averaged(values, lengths, cause):
    """As one by one it is an error, and no model."""
    runner = made(**values)[0]
    clients = np.arange(CLIENTS)
    wanted = None if lengths is None else np.full((ROUNDS, CLIENTS), lengths)
    with pytest.raises(DataError, match=cause):
        runner.rounds(np.zeros(FEATURES, np.float32), clients, ROUNDS, wanted)
