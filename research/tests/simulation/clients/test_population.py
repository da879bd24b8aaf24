import numpy as np
import pytest

from foltr.core.data.dataset import RankingDataset
from foltr.core.data.synthetic import split_queries, synthetic_dataset
from foltr.core.errors import SettingsError
from foltr.core.evaluation.click_models import click_model
from foltr_research.simulation.clients.population import (
    Population,
    SimulatedClient,
    client_name,
    iid_population,
    resolve_click_models,
)

PERFECT = (click_model("perfect", 5),)


@pytest.fixture(scope="module")
def sets() -> tuple[RankingDataset, RankingDataset]:
    return split_queries(synthetic_dataset(np.random.default_rng(5), 12, 10, 4), 8)


def client(**changes) -> SimulatedClient:
    usual = {"name": "device-001", "dataset": 0, "queries": np.arange(8), "click_models": PERFECT, "n_interactions": 5}
    return SimulatedClient(**(usual | {"test": 0} | changes))


def test_iid_clients_have_everything_and_share_it(sets) -> None:
    """One data set, one array of queries, all click models of the data's grades; names are the demo's."""
    train, test = sets
    population = iid_population(train, test, 3, ["perfect", "informational"], 5)
    assert population.datasets == (train,)
    assert population.tests == (test,)
    assert (population.name, population.warm_up) == ("iid", None)
    first, second, third = population.clients
    assert (first.name, third.name, first.n_interactions) == ("device-001", "device-003", 5)
    assert first.queries is second.queries
    assert first.queries.tolist() == list(range(8))
    assert first.click_models == resolve_click_models(["perfect", "informational"], 5)
    assert [client_name(i) for i in (1, 42, 62_500)] == ["device-001", "device-042", "device-62500"]
    assert len(iid_population(*sets, 1, ["perfect"], 1).clients[0].click_models[0].click_probability) == 5
    low = synthetic_dataset(np.random.default_rng(5), 12, 10, 4, n_grades=3)
    assert len(iid_population(low, low, 1, ["perfect"], 1).clients[0].click_models[0].click_probability) == 3
    assert len(iid_population(low, low, 1, ["perfect"], 1, 5).clients[0].click_models[0].click_probability) == 5


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"dataset": 1}, "no data set 1"),
        ({"test": -1}, "no test set -1"),
        ({"n_interactions": 0}, "at least 1 interaction"),
        ({"click_models": ()}, "a click model"),
        ({"queries": np.arange(9)}, "queries from 0 to 7"),
        ({"queries": np.arange(0)}, "at least one"),
        ({"queries": np.array([-1])}, "queries from 0 to 7"),
    ],
)
def test_a_client_that_could_not_take_part_is_refused(sets, changes, complaint) -> None:
    """By name, before anything is simulated."""
    train, test = sets
    with pytest.raises(SettingsError, match=rf"device-001: .*{complaint}"):
        Population((train,), (client(**changes),), (test,), "mine")


def test_a_population_that_contradicts_itself_is_refused(sets) -> None:
    """Empty, two of a name, sets of different width; no clients, click models that are none, one twice or unknown."""
    train, test = sets
    with pytest.raises(SettingsError, match="at least one data set"):
        Population((train,), (), (test,), "mine")
    with pytest.raises(SettingsError, match="same name"):
        Population((train,), (client(), client()), (test,), "mine")
    with pytest.raises(SettingsError, match=r"differ in features: \[4, 6\]"):
        Population((train,), (client(),), (synthetic_dataset(np.random.default_rng(1), 3, 4, 6),), "mine")
    with pytest.raises(SettingsError, match="0 clients; expected at least 1"):
        iid_population(*sets, 0, ["perfect"], 5)
    for names in ([], ["perfect", "perfect"], "perfect"):
        with pytest.raises(SettingsError, match="a list of one or several different names"):
            iid_population(*sets, 2, names, 5)
    with pytest.raises(SettingsError, match="unknown click model 'careful'"):
        iid_population(*sets, 2, ["careful"], 5)
    with pytest.raises(SettingsError, match="at least 1 interaction"):
        iid_population(*sets, 2, ["perfect"], 0)
