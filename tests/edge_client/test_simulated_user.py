"""A simulated user: random queries, clicks from a click model, round after round."""

import asyncio

import numpy as np
import pytest
from support.federator_by_hand import round_on

from foltr.core.data.dataset import RankingDataset
from foltr.core.errors import UnavailableError
from foltr.core.evaluation.click_models import ClickModel, click_model, clicks_from_draws, personal
from foltr.edge_client.client import Serp
from foltr.edge_client.simulated_user import SimulatedUser

N_QUERIES, N_DOCUMENTS = 5, 4


@pytest.fixture
def dataset():
    """Five queries of four documents; the first feature is the query, the second the relevance."""
    relevance = np.tile(np.array([0, 2, 1, 0], np.int16), N_QUERIES)
    queries = np.repeat(np.arange(N_QUERIES), N_DOCUMENTS)
    return RankingDataset(
        name="tiny",
        features=np.stack([queries, relevance], axis=1).astype(np.float32),
        relevance=relevance,
        offsets=np.arange(0, N_QUERIES * N_DOCUMENTS + 1, N_DOCUMENTS, dtype=np.int64),
        query_ids=np.arange(N_QUERIES, dtype=np.int64),
    )


def announced(number, *, is_open=True):
    return round_on(number, is_open=is_open)


class FakeClient:
    """Ranks documents backwards, remembers what was recorded, and is told of ``rounds`` one after another."""

    serp_length = 3
    forgotten = False

    def __init__(self, rounds=()):
        self.rounds = list(rounds)
        self.asked_after = []
        self.recorded = []
        self.settled = False

    def rank(self, features):
        ranking = np.arange(len(features))[::-1][:3].astype(np.int64)
        return Serp(f"serp-{len(self.recorded)}", ranking, None, features, np.zeros(3), 0.0, ranking.astype(np.int32))

    def record_clicks(self, serp, clicked):
        self.recorded.append((serp, clicked))

    async def next_round(self, after, timeout_s):
        self.asked_after.append(after)
        if not self.rounds:
            raise UnavailableError(f"no round after {after} within {timeout_s:g} s")
        await asyncio.sleep(0)
        return self.rounds.pop(0)

    async def wait_settled(self, timeout_s):
        assert timeout_s < 60
        self.settled = True
        return True


def user_of(client, dataset, seed=1, clicks="perfect"):
    return SimulatedUser(client, dataset, click_model(clicks, 3), np.random.default_rng(seed))


@pytest.mark.parametrize("queries", [None, np.array([1, 3])], ids=["all queries", "its own"])
def test_it_draws_a_block_for_each_interaction(dataset, queries):
    """First what is personal, then query, click model and clicks in one block: the simulator draws the same."""
    client, models = FakeClient(), [click_model("fedips-1", 3), ClickModel("all", (1.0,) * 3, (0.0,) * 3)]
    user = SimulatedUser(client, dataset, models, np.random.default_rng(5), queries)
    for _ in range(20):
        user.interact()
    rng = np.random.default_rng(5)
    models = [personal(model, rng) for model in models]
    own = np.arange(N_QUERIES) if queries is None else queries
    for (serp, clicked), draws in zip(client.recorded, rng.random((20, 2 + 2 * 3)), strict=True):
        query = dataset.query(own[int(draws[0] * len(own))])
        np.testing.assert_array_equal(serp.features, query.features)
        expected = clicks_from_draws(models[int(2 * draws[1])], query.relevance[serp.ranking], draws[2:])
        assert clicked == np.flatnonzero(expected).tolist()


async def test_it_takes_part_until_the_last_round(dataset):
    """The same number of interactions in each round; a closed round is the end, and its updates are waited for."""
    client = FakeClient([announced(1), announced(2), announced(4), announced(4, is_open=False)])
    heard = []
    user = user_of(client, dataset)
    assert await user.take_part(3, on_round=heard.append) == 3
    assert heard == [1, 2, 4]
    assert client.asked_after == [0, 1, 2, 4]
    assert len(client.recorded) == 9
    assert client.settled


async def test_it_stops_after_as_many_rounds_as_asked(dataset):
    """``n_rounds`` counts the rounds it saw, not their numbers; zero are zero, not for ever."""
    for n_rounds in (2, 0):
        client = FakeClient([announced(7), announced(9), announced(10)])
        assert await user_of(client, dataset).take_part(2, n_rounds=n_rounds) == n_rounds
        assert len(client.recorded) == 2 * n_rounds
        assert len(client.rounds) == 3 - n_rounds
        assert client.settled


async def test_a_federation_without_rounds_is_told(dataset):
    """No round in time is an error for the caller; what was recorded stays with the client."""
    client = FakeClient([announced(1)])
    with pytest.raises(UnavailableError, match="after 1 within 20 s"):
        await user_of(client, dataset).take_part(2, round_timeout_s=20.0)
    assert len(client.recorded) == 2


async def test_a_user_whose_client_is_forgotten_is_done(dataset):
    """In the middle of its rounds, and from the start: that is an end like another, not an error."""

    class Forgotten(FakeClient):
        @property
        def forgotten(self):
            return not self.rounds

    client = Forgotten([announced(1), announced(2)])
    assert await user_of(client, dataset).take_part(2) == 2
    assert client.settled
    assert await user_of(Forgotten(), dataset).take_part(2) == 0
