"""The population of a simulated federation: clients, the queries each may issue, and how each clicks.

All differences between clients (non-IID data, thesis chapter 4) are here, as data; the simulator only applies them.
Clients share arrays if possible, so that a population of 62,500 is a list of small records.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foltr.core.data.dataset import RankingDataset, label_scale
from foltr.core.errors import SettingsError
from foltr.core.evaluation.click_models import ClickModel
from foltr_research.simulation.plugins import model_of_user


@dataclass(frozen=True, slots=True, eq=False)
class SimulatedClient:
    """One device and its user.

    Attributes:
        name: as in the service.
        dataset: index of its data set in the population.
        queries: (n,) int64 indices of the queries in that data set that its user may issue.
        click_models: of its user; of several, one is drawn for each interaction.
        n_interactions: interactions in a round.
        test: index of the population's test set for its ranker.
    """

    name: str
    dataset: int
    queries: NDArray[np.int64]
    click_models: tuple[ClickModel, ...]
    n_interactions: int
    test: int


@dataclass(frozen=True, slots=True, eq=False)
class Population:
    """All clients with their data, validated on creation.

    Attributes:
        datasets: what clients train on.
        clients: in the order of their names' numbers.
        tests: what rankers are measured on.
        name: how the data is distributed, for reports.
        warm_up: common data, on which a first model is trained before the federation starts.
    """

    datasets: tuple[RankingDataset, ...]
    clients: tuple[SimulatedClient, ...]
    tests: tuple[RankingDataset, ...]
    name: str
    warm_up: RankingDataset | None = None

    def __post_init__(self) -> None:
        if not (self.datasets and self.clients and self.tests):
            raise SettingsError(f"population {self.name}: expected at least one data set, one client and one test set")
        shared = (self.warm_up,) if self.warm_up is not None else ()
        widths = {dataset.n_features for dataset in (*self.datasets, *self.tests, *shared)}
        if len(widths) > 1:
            raise SettingsError(f"population {self.name}: its data sets differ in features: {sorted(widths)}")
        if len({client.name for client in self.clients}) != len(self.clients):
            raise SettingsError(f"population {self.name}: two clients have the same name")
        # Thousands of clients share one array of queries, which is checked once.
        seen: set[tuple[int, int]] = set()
        for client in self.clients:
            if not (0 <= client.dataset < len(self.datasets) and 0 <= client.test < len(self.tests)):
                raise SettingsError(f"{client.name}: no data set {client.dataset} or no test set {client.test}")
            if client.n_interactions < 1 or not client.click_models:
                raise SettingsError(f"{client.name}: expected at least 1 interaction a round and a click model")
            if (looked_at := (id(client.queries), client.dataset)) not in seen:
                seen.add(looked_at)
                n_queries = self.datasets[client.dataset].n_queries
                if not (client.queries.size and 0 <= client.queries.min() <= client.queries.max() < n_queries):
                    raise SettingsError(f"{client.name}: expected queries from 0 to {n_queries - 1}, at least one")


def client_name(i: int) -> str:
    """Return the name of the i-th client, i from 1: ``device-001``, as `foltr demo` names its devices."""
    return f"device-{i:03d}"


def resolve_click_models(names: Sequence[str], n_grades: int) -> tuple[ClickModel, ...]:
    """Return the click models of these names for a scale of ``n_grades``.

    Raises:
        SettingsError: no name, a repeated one, an unknown one, or one for another number of grades.
    """
    if not names or isinstance(names, str) or len(set(names)) != len(names):
        raise SettingsError(f"click models: expected a list of one or several different names, not {names!r}")
    models = tuple(model_of_user(name, n_grades) for name in names)
    for model in models:
        if len(model.click_probability) != n_grades:
            raise SettingsError(
                f"clicks: {model.name} has probabilities for {len(model.click_probability)} grades, the data {n_grades}"
            )
    return models


def iid_population(
    train: RankingDataset,
    test: RankingDataset,
    n_clients: int,
    click_models: Sequence[str],
    n_interactions: int,
    n_grades: int | None = None,
) -> Population:
    """Give every client every query.

    Args:
        train: what all clients train on.
        test: what their rankers are measured on.
        n_clients: at least 1.
        click_models: names; of several, each client draws one for each interaction.
        n_interactions: in a round, at least 1.
        n_grades: the label scale; by default `label_scale` of both sets.

    Raises:
        SettingsError: an argument is out of its range.
    """
    models = resolve_click_models(click_models, n_grades or label_scale(train, test))
    queries = np.arange(train.n_queries, dtype=np.int64)
    clients = [
        SimulatedClient(client_name(i), 0, queries, models, n_interactions, 0)
        for i in range(1, check_n_clients(n_clients) + 1)
    ]
    return Population((train,), tuple(clients), (test,), "iid")


def check_n_clients(n_clients: int, multiple_of: int = 1, why: str = "") -> int:
    """Return the number of clients if it is positive and a multiple.

    Args:
        n_clients: the requested number.
        multiple_of: the number of kinds of clients, all equally numerous.
        why: the kinds that the message names.

    Raises:
        SettingsError: it does not fit; the message says which numbers do.
    """
    if n_clients < 1 or n_clients % multiple_of:
        expected = "at least 1" if multiple_of == 1 else f"a multiple of {multiple_of}, {why}"
        raise SettingsError(f"{n_clients} clients; expected {expected}")
    return n_clients
