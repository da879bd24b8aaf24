"""The four types of non-IID data in FOLTR, and data sharing as a remedy.

Wang, thesis 2024, chapter 4 (and Wang and Zuccon 2022, "Is non-IID data a threat in federated online learning to
rank?"): Type 1, document preferences; Type 2, document labels; Type 3, click preferences; Type 4, quantity. Their IID
counterparts are `foltr_research.simulation.clients.population.iid_population`, with all click models for Type 3, and
for Type 1 two arrangements of `intent_population`. Data sharing (Zhao et al. 2018; thesis, Section 4.4.3) adds part of
a common set to every client's data.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from foltr.core.data.dataset import RankingDataset, concatenate, label_scale, select_queries
from foltr.core.errors import SettingsError
from foltr_research.simulation.clients.intents import IntentCollection
from foltr_research.simulation.clients.population import (
    Population,
    SimulatedClient,
    check_n_clients,
    client_name,
    resolve_click_models,
)

Arrangement = Literal["non-iid", "iid", "iid-per-intent"]
QUANTITIES = (1, 3, 5, 7, 9)
"""Queries a client issues in a round under Type 4. Clients of the IID counterpart issue their mean."""


def intent_population(
    collection: IntentCollection,
    n_clients: int,
    click_models: Sequence[str],
    n_interactions: int,
    arrangement: Arrangement = "non-iid",
) -> Population:
    """Type 1: clients prefer different documents for the same query.

    Rankers are measured on the training queries, since the collection has no others (thesis, Section 4.3.1). The thesis
    compares ``non-iid`` (each client's labels are its intent's, in training and test) with ``iid`` (merged labels in
    both). Between these two, training and the measured task change together. The control ``iid-per-intent``, merged
    labels in training and an intent's in the test, separates the two effects.

    Args:
        collection: merged and per-intent labels.
        n_clients: a multiple of the number of intents; client i has the i-th, cyclically.
        click_models: names, for 2 grades; of several, each client draws one for each interaction.
        n_interactions: in a round, at least 1.
        arrangement: see above.

    Raises:
        SettingsError: an argument is out of its range.
    """
    if arrangement not in get_args(Arrangement):
        raise SettingsError(f"arrangement {arrangement!r}; one of: {', '.join(get_args(Arrangement))}")
    n_intents = len(collection.intents)
    check_n_clients(n_clients, n_intents, "the number of intents")
    models = resolve_click_models(click_models, 2)
    queries = np.arange(collection.merged.n_queries, dtype=np.int64)
    merged = (collection.merged,)
    datasets = collection.intents if arrangement == "non-iid" else merged
    tests = merged if arrangement == "iid" else collection.intents
    clients = [
        SimulatedClient(client_name(i + 1), i % len(datasets), queries, models, n_interactions, i % len(tests))
        for i in range(n_clients)
    ]
    name = "type 1" if arrangement == "non-iid" else f"type 1, {arrangement}"
    return Population(datasets, tuple(clients), tests, name)


def label_skew_population(
    rng: np.random.Generator,
    train: RankingDataset,
    test: RankingDataset,
    labels_per_client: int,
    n_clients: int,
    click_models: Sequence[str],
    n_interactions: int,
    n_grades: int | None = None,
) -> Population:
    """Type 2: each client has documents of only a few relevance grades, #R = k (thesis, Section 4.4.1).

    Every combination of k grades goes to equally many clients, drawn at random. The documents of each grade are dealt
    out at random, in equal shares, among the clients that have the grade. So each document goes to exactly one client.
    A query without documents at a client does not exist for it.

    The result has one data set, a copy of the training set ordered by client. A client is a run of its queries, with
    documents in their original order.

    Args:
        rng: the source of the deal.
        train: the data that is dealt out.
        test: what rankers are measured on, whole.
        labels_per_client: k, from 1 to the number of grades.
        n_clients: a multiple of the number of combinations: for 5 grades, of 5 at k = 1 and 10 at k = 2.
        click_models: names; of several, each client draws one for each interaction.
        n_interactions: in a round, at least 1.
        n_grades: the label scale; by default `label_scale` of both sets.

    Raises:
        SettingsError: an argument is out of its range, or a client gets no document.
    """
    n_grades = n_grades or label_scale(train, test)
    if not 1 <= labels_per_client <= n_grades:
        raise SettingsError(f"#R = {labels_per_client}; expected 1 to {n_grades}, the number of relevance grades")
    combinations = list(itertools.combinations(range(n_grades), labels_per_client))
    kinds = f"the number of ways to choose {labels_per_client} of {n_grades} grades"
    check_n_clients(n_clients, len(combinations), kinds)
    if int(train.relevance.max()) >= n_grades:
        raise SettingsError(f"{train.name} has grade {train.relevance.max()}; expected grades below {n_grades}")
    models = resolve_click_models(click_models, n_grades)
    has = np.zeros((n_clients, n_grades), np.bool_)
    for client, combination in enumerate(rng.permutation(np.resize(np.arange(len(combinations)), n_clients)).tolist()):
        has[client, list(combinations[combination])] = True
    owner = np.empty(len(train.relevance), np.int64)
    for grade in range(n_grades):
        documents = rng.permutation(np.flatnonzero(train.relevance == grade))
        owner[documents] = np.resize(rng.permutation(np.flatnonzero(has[:, grade])), len(documents))
    dealt, first_query = _by_owner(train, owner, n_clients)
    without = np.flatnonzero(np.diff(first_query) == 0)
    if len(without):
        raise SettingsError(
            f"{client_name(int(without[0]) + 1)} would have no document: {train.name} has too few of some grades "
            f"for {n_clients} clients with #R = {labels_per_client}; expected fewer clients or more data"
        )
    indices = np.arange(dealt.n_queries, dtype=np.int64)
    runs = itertools.pairwise(first_query.tolist())
    clients = [
        SimulatedClient(client_name(i), 0, indices[first:last], models, n_interactions, 0)
        for i, (first, last) in enumerate(runs, start=1)
    ]
    return Population((dealt,), tuple(clients), (test,), f"type 2, #R = {labels_per_client}")


def click_skew_population(
    train: RankingDataset,
    test: RankingDataset,
    n_clients: int,
    click_models: Sequence[str],
    n_interactions: int,
    n_grades: int | None = None,
) -> Population:
    """Type 3: every client has all queries and one of several click models (thesis, Section 4.5.1).

    Args:
        train: what all clients train on.
        test: what their rankers are measured on.
        n_clients: a multiple of the number of click models; client i has the i-th, cyclically.
        click_models: at least 2 names.
        n_interactions: in a round, at least 1.
        n_grades: the label scale; by default `label_scale` of both sets.

    Raises:
        SettingsError: an argument is out of its range.
    """
    models = resolve_click_models(click_models, n_grades or label_scale(train, test))
    if len(models) < 2:
        raise SettingsError(f"type 3 needs at least 2 click models, not only {models[0].name!r}")
    check_n_clients(n_clients, len(models), "the number of click models")
    each = tuple((model,) for model in models)
    queries = np.arange(train.n_queries, dtype=np.int64)
    clients = [
        SimulatedClient(client_name(i + 1), 0, queries, each[i % len(each)], n_interactions, 0)
        for i in range(n_clients)
    ]
    return Population((train,), tuple(clients), (test,), "type 3")


def with_quantity_skew(
    rng: np.random.Generator, population: Population, quantities: Sequence[int] = QUANTITIES
) -> Population:
    """Type 4: clients issue different numbers of queries in a round, on top of any other type (Section 4.5.2).

    Each quantity goes to equally many clients, in random order. If the number of clients is not a multiple, as with the
    four of Type 1, the rest draw quantities without repetition.

    Raises:
        SettingsError: no quantity, or one below 1.
    """
    if not quantities or min(quantities) < 1:
        raise SettingsError(f"quantities {list(quantities)}; expected numbers of queries of at least 1")
    n_clients = len(population.clients)
    rounds = math.ceil(n_clients / len(quantities))
    dealt = np.concatenate([rng.permutation(np.array(quantities)) for _ in range(rounds)])[:n_clients]
    counts = rng.permutation(dealt).tolist()
    clients = [replace(client, n_interactions=n) for client, n in zip(population.clients, counts, strict=True)]
    name = "type 4" if population.name == "iid" else f"{population.name} + type 4"
    return replace(population, clients=tuple(clients), name=name)


def split_shared(
    rng: np.random.Generator, train: RankingDataset, fraction: float = 0.1
) -> tuple[RankingDataset, RankingDataset]:
    """Separate the globally shared set G of data sharing, by query.

    Args:
        rng: the source of the choice.
        train: the training set.
        fraction: the share of its queries in G; the thesis takes 10 %.

    Returns:
        copies of the queries that remain for the clients and of G, both in their original order.

    Raises:
        SettingsError: the fraction leaves one of them without a query.
    """
    n_shared = round(fraction * train.n_queries)
    if not 0 < n_shared < train.n_queries:
        raise SettingsError(
            f"a share of {fraction} of {train.n_queries} queries leaves nothing to share or nothing else"
        )
    chosen = np.zeros(train.n_queries, np.bool_)
    chosen[rng.permutation(train.n_queries)[:n_shared]] = True
    return select_queries(train, np.flatnonzero(~chosen)), select_queries(train, np.flatnonzero(chosen))


def with_shared_data(
    rng: np.random.Generator, population: Population, shared: RankingDataset, alpha: float
) -> Population:
    """Add an alpha share of G to every client's data, and warm up on G (Zhao et al. 2018).

    Each client's share is drawn independently. Each data set of the population is copied once, with G at its end.

    Args:
        rng: the source of the shares.
        population: made from data without G.
        shared: G, from `split_shared`.
        alpha: in (0, 1], the share of G's queries that a client gets, at least one query.

    Raises:
        SettingsError: alpha is out of its range.
    """
    if not 0.0 < alpha <= 1.0:
        raise SettingsError(f"alpha, the share of the shared data, must be above 0 and at most 1, not {alpha}")
    n_added = max(1, round(alpha * shared.n_queries))
    datasets = tuple(concatenate(dataset, shared, dataset.name) for dataset in population.datasets)
    clients = []
    for client in population.clients:
        added = population.datasets[client.dataset].n_queries + np.sort(rng.permutation(shared.n_queries)[:n_added])
        clients.append(replace(client, queries=np.concatenate((client.queries, added))))
    return replace(
        population,
        datasets=datasets,
        clients=tuple(clients),
        name=f"{population.name} + data sharing {alpha:g}",
        warm_up=shared,
    )


def _by_owner(
    train: RankingDataset, owner: NDArray[np.int64], n_clients: int
) -> tuple[RankingDataset, NDArray[np.int64]]:
    """Order documents by (docs,) owner. Return the set, and (clients + 1,) the first query of each client."""
    rows = np.argsort(owner, kind="stable")
    query_of = np.repeat(np.arange(train.n_queries), np.diff(train.offsets))[rows]
    owner = owner[rows]
    starts = np.flatnonzero((np.diff(query_of, prepend=-1) != 0) | (np.diff(owner, prepend=-1) != 0))
    dealt = RankingDataset(
        train.name,
        train.features[rows],
        train.relevance[rows],
        np.append(starts, len(rows)).astype(np.int64),
        train.query_ids[query_of[starts]],
    )
    return dealt, np.searchsorted(owner[starts], np.arange(n_clients + 1))
