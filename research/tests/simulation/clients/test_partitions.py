import collections
import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foltr.core.data.dataset import RankingDataset
from foltr.core.data.synthetic import split_queries, synthetic_dataset
from foltr.core.errors import SettingsError
from foltr_research.simulation.clients.intents import IntentCollection, synthetic_intents
from foltr_research.simulation.clients.partitions import (
    click_skew_population,
    intent_population,
    label_skew_population,
    split_shared,
    with_quantity_skew,
    with_shared_data,
)
from foltr_research.simulation.clients.population import Population, iid_population

CCM = ["perfect", "navigational", "informational"]


def numbered(n_grades: int, n_queries: int, seed: int) -> RankingDataset:
    """A set in which the first feature is the document's number, so that it can be followed."""
    data = synthetic_dataset(np.random.default_rng(seed), n_queries, (2, 30), 3, n_grades=n_grades)
    data.features[:, 0] = np.arange(len(data.features))
    return data


@pytest.fixture(scope="module")
def sets() -> tuple[RankingDataset, RankingDataset]:
    return split_queries(numbered(5, 60, 1), 40)


@pytest.fixture(scope="module")
def intents() -> IntentCollection:
    return synthetic_intents(np.random.default_rng(2), 10, 20, 8)


def documents(population: Population, client: int) -> list[list[int]]:
    """The numbers of a client's documents, by query."""
    of = population.clients[client]
    return [population.datasets[of.dataset].query(i).features[:, 0].astype(int).tolist() for i in of.queries.tolist()]


def test_every_client_has_one_intent_in_training_and_test(intents: IntentCollection) -> None:
    """In turn; two counterparts train on merged labels, and are tested on those, as published, or on an intent's."""
    population = intent_population(intents, 8, ["perfect"], 5)
    assert population.datasets == population.tests == intents.intents
    assert [(c.dataset, c.test) for c in population.clients] == [(i % 4, i % 4) for i in range(8)]
    assert all(c.queries is population.clients[0].queries for c in population.clients)
    assert len(population.clients[0].click_models[0].click_probability) == 2
    iid = intent_population(intents, 4, ["perfect"], 5, "iid")
    assert iid.datasets == iid.tests == (intents.merged,)
    control = intent_population(intents, 4, ["perfect"], 5, "iid-per-intent")
    assert control.datasets == (intents.merged,)
    assert control.tests == intents.intents
    assert [c.test for c in control.clients] == [0, 1, 2, 3]
    assert len({p.name for p in (iid, control, intent_population(intents, 4, ["perfect"], 5))}) == 3


def test_clients_that_do_not_fit_the_intents_are_refused(intents: IntentCollection) -> None:
    """With what fits."""
    with pytest.raises(SettingsError, match="5 clients; expected a multiple of 4, the number of intents"):
        intent_population(intents, 5, ["perfect"], 5)
    with pytest.raises(SettingsError, match="one of: non-iid, iid, iid-per-intent"):
        intent_population(intents, 4, ["perfect"], 5, "mixed")  # type: ignore[arg-type]


@given(
    st.sampled_from([3, 5]), st.integers(1, 5), st.integers(1, 3), st.integers(20, 120), st.integers(0, 2**32 - 1)
)  # fmt: skip
def test_no_document_is_lost_or_in_two_places(n_grades, k, times, n_queries, seed) -> None:
    """Each is at one client, which has its grade among its k, in its own query and in the original order."""
    k = min(k, n_grades)
    train = numbered(n_grades, n_queries, seed)
    n_clients = math.comb(n_grades, k) * times
    rng = np.random.default_rng(seed)
    if np.bincount(train.relevance, minlength=n_grades).min() < n_clients:
        return  # a client might be left without a document, which is refused
    population = label_skew_population(rng, train, train, k, n_clients, ["perfect"], 5, n_grades)
    query_of = np.repeat(np.arange(train.n_queries), np.diff(train.offsets))
    everywhere: list[int] = []
    (dealt,) = population.datasets
    owned = collections.Counter()
    for i, client in enumerate(population.clients):
        found = documents(population, i)
        grades = set()
        for query, numbers in zip(client.queries.tolist(), found, strict=True):
            assert numbers == sorted(numbers)
            assert dealt.query(query).relevance.tolist() == train.relevance[numbers].tolist()
            assert (dealt.query(query).features == train.features[numbers]).all()
            assert {int(train.query_ids[query_of[n]]) for n in numbers} == {int(dealt.query_ids[query])}
            grades |= set(train.relevance[numbers].tolist())
            everywhere += numbers
        assert len(grades) == k
        assert len(set(dealt.query_ids[client.queries].tolist())) == len(client.queries)
        owned[tuple(sorted(grades))] += 1
    assert sorted(everywhere) == list(range(len(train.relevance)))
    assert set(owned.values()) == {times}


@pytest.mark.parametrize(("k", "n_clients"), [(1, 5), (2, 10), (1, 10)])
def test_the_published_settings_deal_grades_evenly(sets, k: int, n_clients: int) -> None:
    """Every combination equally often, and a grade's documents in equal shares, give or take one."""
    train, test = sets
    population = label_skew_population(np.random.default_rng(3), train, test, k, n_clients, CCM[:1], 5)
    shares = np.zeros((n_clients, 5), int)
    for i in range(n_clients):
        for numbers in documents(population, i):
            np.add.at(shares[i], train.relevance[numbers], 1)
    combinations = collections.Counter(tuple(np.flatnonzero(row).tolist()) for row in shares)
    times = n_clients // math.comb(5, k)
    assert combinations == dict.fromkeys(itertools.combinations(range(5), k), times)
    for column in shares.T:
        held = column[column > 0]
        assert held.max() - held.min() <= 1
    assert population.tests == (test,)
    assert population.name == f"type 2, #R = {k}"


def test_the_deal_is_the_seed_s(sets) -> None:
    """Equal seeds, equal populations; other seeds, others; #R = 5 of 5 and one client changes nothing."""
    deals = [label_skew_population(np.random.default_rng(s), *sets, 1, 5, CCM[:1], 5) for s in (1, 1, 2)]
    assert (deals[0].datasets[0].features == deals[1].datasets[0].features).all()
    assert [documents(deals[0], i) for i in range(5)] != [documents(deals[2], i) for i in range(5)]
    train, test = sets
    (dealt,) = label_skew_population(np.random.default_rng(3), train, test, 5, 1, CCM[:1], 5).datasets
    assert (dealt.features == train.features).all()
    assert (dealt.offsets == train.offsets).all()
    assert (dealt.query_ids == train.query_ids).all()


@pytest.mark.parametrize(
    ("n_grades", "k", "n_clients", "complaint"),
    [
        (3, 4, 5, "#R = 4; expected 1 to 3, the number of relevance grades"),
        (5, 0, 5, "#R = 0; expected 1 to 5"),
        (5, 2, 5, "5 clients; expected a multiple of 10, the number of ways to choose 2 of 5 grades"),
        (5, 1, 5_000, "would have no document"),
    ],
)
def test_a_deal_that_does_not_come_out_is_refused(n_grades: int, k: int, n_clients: int, complaint: str) -> None:
    """With what would."""
    train = numbered(n_grades, 30, 4)
    with pytest.raises(SettingsError, match=complaint):
        label_skew_population(np.random.default_rng(0), train, train, k, n_clients, CCM[:1], 5)
    with pytest.raises(SettingsError, match="has grade 4; expected grades below 3"):
        label_skew_population(np.random.default_rng(0), numbered(5, 30, 4), train, 1, 3, CCM[:1], 5, 3)


def test_click_models_go_round(sets) -> None:
    """Each client has one; the counterpart has all of them."""
    population = click_skew_population(*sets, 6, CCM, 5)
    assert [[model.name for model in c.click_models] for c in population.clients] == [[name] for name in CCM * 2]
    assert [model.name for model in iid_population(*sets, 3, CCM, 5).clients[0].click_models] == CCM
    with pytest.raises(SettingsError, match="4 clients; expected a multiple of 3, the number of click models"):
        click_skew_population(*sets, 4, CCM, 5)
    with pytest.raises(SettingsError, match="at least 2 click models"):
        click_skew_population(*sets, 4, CCM[:1], 5)


def test_quantities_go_to_equally_many_clients(sets, intents: IntentCollection) -> None:
    """Everything else about the clients stays; the name tells both types where they mix."""
    population = iid_population(*sets, 10, CCM[:1], 5)
    skewed = with_quantity_skew(np.random.default_rng(0), population)
    assert sorted(c.n_interactions for c in skewed.clients) == [1, 1, 3, 3, 5, 5, 7, 7, 9, 9]
    assert [c.name for c in skewed.clients] == [c.name for c in population.clients]
    assert skewed.datasets == population.datasets
    assert skewed.name == "type 4"
    with pytest.raises(SettingsError, match="at least 1"):
        with_quantity_skew(np.random.default_rng(0), population, (0, 1))
    mixed = with_quantity_skew(np.random.default_rng(0), intent_population(intents, 4, CCM[:1], 5))
    assert mixed.name == "type 1 + type 4"
    quantities = [c.n_interactions for c in mixed.clients]
    assert len(set(quantities)) == 4
    assert set(quantities) < {1, 3, 5, 7, 9}
    label = label_skew_population(np.random.default_rng(0), *sets, 1, 5, CCM[:1], 5)
    assert with_quantity_skew(np.random.default_rng(0), label).name == "type 2, #R = 1 + type 4"


def test_the_shared_set_is_taken_out_of_the_training_set(sets) -> None:
    """The two parts have every query once, in the original order; alpha is a share of it."""
    train, _ = sets
    rest, shared = split_shared(np.random.default_rng(6), train)
    assert (rest.n_queries, shared.n_queries) == (36, 4)
    for part in (rest, shared):
        assert part.query_ids.tolist() == sorted(part.query_ids.tolist())
    assert sorted([*rest.query_ids.tolist(), *shared.query_ids.tolist()]) == train.query_ids.tolist()
    with pytest.raises(SettingsError, match="leaves nothing"):
        split_shared(np.random.default_rng(6), train, 0.001)
    population = iid_population(*sets, 2, CCM[:1], 5)
    for alpha in (0.0, 1.5):
        with pytest.raises(SettingsError, match="above 0 and at most 1"):
            with_shared_data(np.random.default_rng(0), population, sets[1], alpha)


@pytest.mark.parametrize(("alpha", "n_added"), [(0.5, 2), (1.0, 4), (0.01, 1)])
def test_every_client_gets_its_share_of_whole_queries(sets, alpha: float, n_added: int) -> None:
    """Beside what it had; the whole shared set is there to warm up on."""
    train, test = sets
    rest, shared = split_shared(np.random.default_rng(6), train)
    before = label_skew_population(np.random.default_rng(7), rest, test, 1, 5, CCM[:1], 5)
    after = with_shared_data(np.random.default_rng(8), before, shared, alpha)
    assert after.warm_up is shared
    common = [shared.query(i).features[:, 0].astype(int).tolist() for i in range(shared.n_queries)]
    drawn = set()
    for i in range(5):
        had, has = documents(before, i), documents(after, i)
        assert has[: len(had)] == had
        added = has[len(had) :]
        assert len(added) == n_added
        assert all(numbers in common for numbers in added)
        assert len({tuple(numbers) for numbers in added}) == n_added
        drawn.add(str(added))
    assert alpha == 1.0 or len(drawn) > 1
