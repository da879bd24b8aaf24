"""FOLtR-ES in blocks against the same devices one by one: the same bits. `ranking_block` is tested with the others."""

import numpy as np
import pytest

from foltr.core.data.dataset import RankingDataset
from foltr.core.errors import DataError, SettingsError
from foltr.core.evaluation.click_models import click_model, clicks_from_draws
from foltr.core.evaluation.metrics import ndcg_at_k
from foltr.core.learning.evolution_strategies import (
    es_noise,
    randomised_response,
    reciprocal_rank_index,
    reciprocal_rank_values,
)
from foltr.core.learning.linear import rank_by_score, score
from foltr.core.learning.neural import n_neural_weights, neural_score
from foltr.core.learning.relu import relu_score
from foltr.core.protocol.trainings import Activation
from foltr_research.simulation.blocks.drawn_rankings import QueryPool, Users, query_pool
from foltr_research.simulation.blocks.fixed_rankings import Perturbations, es_block
from foltr_research.simulation.click_tables import click_tables

K, D, N, B = 5, 6, 15, 4
MODEL = click_model("navigational", 3)


@pytest.fixture
def pool(rng: np.random.Generator) -> QueryPool:
    offsets = np.concatenate([[0], np.cumsum(rng.integers(2, 25, size=20))]).astype(np.int64)
    relevance = rng.integers(0, 3, size=offsets[-1]).astype(np.int16)
    return query_pool(
        RankingDataset("some", rng.random((offsets[-1], D), dtype=np.float32), relevance, offsets, np.arange(20)), K
    )


@pytest.fixture
def users(rng: np.random.Generator) -> Users:
    return Users(click_tables([MODEL], K), np.zeros((N, B), np.int64), rng.random((N, B, 2 + 2 * K)))


def devices() -> list[np.random.Generator]:
    return [np.random.default_rng([3, i]) for i in range(N)]


@pytest.mark.parametrize(("hidden", "activation"), [(None, "sigmoid"), (3, "sigmoid"), (3, "relu")])
@pytest.mark.parametrize("truth_probability", [0.5, 1.0])
def test_evolution_is_the_device_bit_by_bit(
    pool: QueryPool, users: Users, rng: np.random.Generator, hidden, activation: Activation, truth_probability: float
) -> None:
    """Means, counts, nDCG and where the generators stand, for all rankers, with and without randomised responses."""
    size = D if hidden is None else n_neural_weights(D, hidden)
    base = rng.normal(size=size)
    picks = rng.integers(-1, 20, size=(N, B))
    variants = rng.integers(0, 2, size=(N, B))
    mine, theirs = devices(), devices()
    own = list(range(N))
    block = es_block(
        pool, base, picks, users, Perturbations(own, variants, 0.3, truth_probability), mine, hidden, activation
    )
    scored_by = relu_score if activation == "relu" else neural_score
    values = reciprocal_rank_values(K)
    for c in range(N):
        noise = es_noise(c, size, 0.3)
        measured: list[list[float]] = [[], []]
        for i, pick in enumerate(picks[c].tolist()):
            if pick < 0:
                assert np.isnan(block.ndcg[c, i])
                continue
            features, relevance = pool.dataset.query(pick)
            weights = base + noise if variants[c, i] == 0 else base - noise
            scores = score(weights, features) if hidden is None else scored_by(weights, features, hidden)
            ranking = rank_by_score(scores, K)
            clicks = clicks_from_draws(MODEL, relevance[ranking], users.draws[c, i, 2:])
            sent = randomised_response(
                reciprocal_rank_index(clicks), truth_probability, len(values), theirs[c].random(2)
            )
            measured[variants[c, i]].append(float(values[sent]))
            assert block.ndcg[c, i] == ndcg_at_k(relevance[ranking], K, relevance)
            assert block.reciprocal_ranks[c, i] == values[reciprocal_rank_index(clicks)]
        plus, minus = measured
        assert (block.n_plus[c], block.n_minus[c]) == (len(plus), len(minus))
        assert block.plus[c] == (sum(plus) / len(plus) if plus else 0.0)
        assert block.minus[c] == (sum(minus) / len(minus) if minus else 0.0)
    assert [rng.random() for rng in mine] == [rng.random() for rng in theirs]


def test_what_does_not_fit_is_refused(pool: QueryPool, users: Users) -> None:
    """One seed and generator for each client, known variants, a base of the right size, a sensible probability."""
    picks, variants, seeds = np.zeros((N, B), np.int64), np.zeros((N, B), np.int64), list(range(N))
    with pytest.raises(DataError, match="15 clients need as many seeds"):
        es_block(pool, np.zeros(D), picks, users, Perturbations(seeds[:3], variants, 0.1, 0.9), devices())
    with pytest.raises(DataError, match="6 weights"):
        es_block(pool, np.zeros(D + 1), picks, users, Perturbations(seeds, variants, 0.1, 0.9), devices())
    with pytest.raises(DataError, match="there are 2"):
        es_block(pool, np.zeros(D), picks, users, Perturbations(seeds, variants + 2, 0.1, 0.9), devices())
    with pytest.raises(SettingsError, match="above 1/6"):
        es_block(pool, np.zeros(D), picks, users, Perturbations(seeds, variants, 0.1, 0.1), devices())
