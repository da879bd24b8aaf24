"""Blocks against the same devices one by one: the same bits."""

from collections.abc import Callable

import numpy as np
import pytest

from foltr.core.data.dataset import RankingDataset
from foltr.core.errors import DataError, SettingsError
from foltr.core.evaluation.click_models import click_model, clicks_from_draws, personal
from foltr.core.evaluation.metrics import ndcg_at_k, reciprocal_rank
from foltr.core.learning.linear import sample_plackett_luce, score
from foltr.core.learning.neural import n_neural_weights, neural_score
from foltr.core.learning.neural_pdgd import neural_pdgd_step
from foltr.core.learning.pdgd import pdgd_step
from foltr_research.simulation.blocks.drawn_neural import first_lists, neural_pdgd_block
from foltr_research.simulation.blocks.drawn_rankings import QueryPool, Step, Users, pdgd_block, query_pool
from foltr_research.simulation.blocks.fixed_rankings import Perturbations, es_block
from foltr_research.simulation.click_tables import click_tables

K, D, HIDDEN = 6, 7, 4
MODELS = [click_model(name, 3) for name in ("perfect", "navigational", "informational", "poison", "pbm-1.5")]
MODELS.append(personal(click_model("fedips-1", 3), np.random.default_rng(4)))


@pytest.fixture
def pool(rng: np.random.Generator) -> QueryPool:
    """Queries of 1 to 40 documents, some without a relevant one."""
    offsets = np.concatenate([[0], np.cumsum(rng.integers(1, 40, size=30))]).astype(np.int64)
    relevance = rng.integers(0, 3, size=offsets[-1]).astype(np.int16)
    relevance[: offsets[5]] = 0
    features = rng.random((offsets[-1], D), dtype=np.float32)
    return query_pool(RankingDataset("some", features, relevance, offsets, np.arange(30)), K)


class Crowd:
    """Clients with different models and different numbers of interactions, and their draws."""

    def __init__(self, pool: QueryPool, n: int, b: int, seed: int = 9) -> None:
        rng = np.random.default_rng(seed)
        self.picks = rng.integers(-1, pool.dataset.n_queries, size=(n, b))
        self.picks[0] = -1
        self.users = Users(
            click_tables(MODELS, K), rng.integers(len(MODELS), size=(n, b)), rng.random((n, b, 2 + 2 * K))
        )

    def devices(self) -> list[np.random.Generator]:
        return [np.random.default_rng([3, i]) for i in range(len(self.picks))]


def one_by_one(
    pool: QueryPool,
    crowd: Crowd,
    start: np.ndarray,
    devices: list[np.random.Generator],
    score_of: Callable[[np.ndarray, np.ndarray], np.ndarray],
    step: Callable[..., np.ndarray],
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What the SDK does on each device."""
    local, ndcg, reciprocal_ranks = [], np.full(crowd.picks.shape, np.nan), np.full(crowd.picks.shape, np.nan)
    for c, picks in enumerate(crowd.picks.tolist()):
        base = start if start.ndim == 1 else start[c]
        weights = base
        for i, pick in enumerate(picks):
            if pick < 0:
                continue
            features, relevance = pool.dataset.query(pick)
            ranking = sample_plackett_luce(score_of(weights, features), K, devices[c])
            model = MODELS[crowd.users.models[c, i]]
            clicks = clicks_from_draws(model, relevance[ranking], crowd.users.draws[c, i, 2:])
            ndcg[c, i] = ndcg_at_k(relevance[ranking], K, relevance)
            reciprocal_ranks[c, i] = reciprocal_rank(clicks)
            weights = step(weights, features, ranking, clicks, base)
        local.append(weights)
    return np.array(local), ndcg, reciprocal_ranks


def test_linear_pdgd_is_the_device_bit_by_bit(pool: QueryPool, rng: np.random.Generator):
    """Weights, nDCG, MaxRR and where the generators stand, for shared and own starts, with and without FedProx."""
    for proximal in [0.0, 0.3]:
        for own_start in [False, True]:
            crowd = Crowd(pool, 40, 5)
            start = rng.normal(size=(40, D) if own_start else D)
            mine, theirs = crowd.devices(), crowd.devices()
            block = pdgd_block(pool, start, crowd.picks, crowd.users, mine, Step(0.1, proximal))
            weights, ndcg, reciprocal_ranks = one_by_one(
                pool,
                crowd,
                start,
                theirs,
                score,
                lambda w, x, r, c, base, p=proximal: pdgd_step(w, x, r, c, 0.1, p, base),
            )
            np.testing.assert_array_equal(block.weights, weights)
            np.testing.assert_array_equal(block.ndcg, ndcg)
            np.testing.assert_array_equal(block.reciprocal_ranks, reciprocal_ranks)
            assert [rng.random() for rng in mine] == [rng.random() for rng in theirs]
            assert (block.weights[0] == (start[0] if own_start else start)).all()
            assert (block.weights[1:] != start[1:]).any() if own_start else (block.weights[1:] != start).any()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("proximal", [0.0, 0.3])
def test_neural_pdgd_is_the_device_bit_by_bit(
    pool: QueryPool, rng: np.random.Generator, proximal: float, dtype: type
) -> None:
    """The same for the neural ranker, in either type of local weights."""
    crowd = Crowd(pool, 12, 4)
    start = rng.normal(size=n_neural_weights(D, HIDDEN)).astype(dtype)
    mine, theirs = crowd.devices(), crowd.devices()
    block = neural_pdgd_block(pool, start, crowd.picks, crowd.users, mine, Step(0.1, proximal), HIDDEN)
    weights, ndcg, reciprocal_ranks = one_by_one(
        pool,
        crowd,
        start,
        theirs,
        lambda w, x: neural_score(w, x, HIDDEN),
        lambda w, x, r, c, base: neural_pdgd_step(w, x, r, c, 0.1, proximal, base),
    )
    assert block.weights.dtype == dtype
    np.testing.assert_array_equal(block.weights, weights)
    np.testing.assert_array_equal(block.ndcg, ndcg)
    np.testing.assert_array_equal(block.reciprocal_ranks, reciprocal_ranks)
    assert [rng.random() for rng in mine] == [rng.random() for rng in theirs]


def test_first_lists_that_are_kept_change_only_rounding(pool: QueryPool, rng: np.random.Generator) -> None:
    """In block after block, in a round with other weights, and with more steps than may wait; the lists are the same.

    Where each client has its own weights nothing is kept.
    """
    kept, n_weights = first_lists(pool, HIDDEN, 40), n_neural_weights(D, HIDDEN)
    assert len(kept.inputs) == len(pool.dataset.features)
    for _ in range(2):
        start = rng.normal(size=n_weights)
        kept.forget()
        for seed, b in ((1, 1), (2, 3), (3, 15)):
            crowd = Crowd(pool, 20, b, seed)
            alone, shared = (
                neural_pdgd_block(pool, start, crowd.picks, crowd.users, crowd.devices(), Step(0.1, 0.3), HIDDEN, first)
                for first in (None, kept)
            )
            np.testing.assert_allclose(shared.weights, alone.weights, rtol=1e-5, atol=1e-6)
            np.testing.assert_array_equal(shared.ndcg, alone.ndcg)
            np.testing.assert_array_equal(shared.reciprocal_ranks, alone.reciprocal_ranks)
            assert (alone.weights[1:] != start).any(axis=1).sum() > 10
        assert kept.is_kept.any()
    own = rng.normal(size=(20, n_weights))
    alone, shared = (
        neural_pdgd_block(pool, own, crowd.picks, crowd.users, crowd.devices(), Step(0.1), HIDDEN, first)
        for first in (None, kept)
    )
    np.testing.assert_array_equal(shared.weights, alone.weights)


def test_first_lists_are_kept_where_enough_are_asked_again(pool: QueryPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """By clients who ask few queries, as far as memory goes."""
    assert not len(first_lists(pool, HIDDEN, 14).inputs)
    assert len(first_lists(pool, HIDDEN, 15).inputs)
    monkeypatch.setattr("foltr_research.simulation.blocks.drawn_neural._MOST_KEPT_BYTES", 1000)
    assert not len(first_lists(pool, HIDDEN, 15).inputs)


def test_nobody_and_nothing(pool: QueryPool) -> None:
    """A block without clients, or without interactions, is no special case for its caller."""
    tables = click_tables(MODELS, K)
    for shape in ((0, 3), (2, 0)):
        users = Users(tables, np.zeros(shape, np.int64), np.zeros((*shape, 2 + 2 * K)))
        devices = [np.random.default_rng(i) for i in range(shape[0])]
        block = pdgd_block(pool, np.ones(D), np.zeros(shape, np.int64), users, devices, Step(0.1))
        assert block.weights.tolist() == [[1.0] * D] * shape[0]
        assert block.ndcg.shape == shape


def test_what_does_not_fit_is_refused(pool: QueryPool) -> None:
    """Compiled code checks no bounds, so each wrong argument is named before it runs."""
    crowd = Crowd(pool, 3, 2)
    devices = crowd.devices()

    def refused(match: str, start=np.zeros(D), picks=crowd.picks, users=crowd.users, devices=devices) -> None:  # noqa: B008
        with pytest.raises(DataError, match=match):
            pdgd_block(pool, start, picks, users, devices, Step(0.1))

    tables, models, draws = crowd.users.tables, crowd.users.models, crowd.users.draws
    refused("start must be 7 weights", start=np.zeros(D + 1))
    refused("generators", devices=devices[:2])
    refused("queries 0 to 29", picks=np.full((3, 2), 30))
    refused("queries 0 to 29", picks=np.full((3, 2), -2))
    refused("click models for", users=Users(tables, models[:, :1], draws))
    refused("6 click models", users=Users(tables, np.full_like(models, 6), draws))
    refused("14 draws", users=Users(tables, models, draws[:, :, 2:]))
    refused("ranks, not 6", users=Users(click_tables(MODELS, K - 1), models, draws))
    picks = np.full((3, 2), 29)
    refused("finite", start=np.full(D, np.nan), picks=picks)
    five_grades = RankingDataset(
        "five", pool.dataset.features, pool.dataset.relevance * 2, pool.dataset.offsets, pool.dataset.query_ids
    )
    with pytest.raises(DataError, match="grade 4, the click models grades 0 to 2"):
        pdgd_block(query_pool(five_grades, K), np.zeros(D), crowd.picks, crowd.users, devices, Step(0.1))
    base, variants, seeds = np.zeros(D), np.zeros((3, 2), np.int64), list(range(3))
    for match, of_base, perturbations in (
        ("3 clients need as many seeds", base, Perturbations(seeds[:2], variants, 0.1, 0.9)),
        ("7 weights", np.zeros(D + 1), Perturbations(seeds, variants, 0.1, 0.9)),
        ("there are 2", base, Perturbations(seeds, variants + 2, 0.1, 0.9)),
        ("above 1/7", base, Perturbations(seeds, variants, 0.1, 0.1)),
    ):
        with pytest.raises((DataError, SettingsError), match=match):
            es_block(pool, of_base, crowd.picks, crowd.users, perturbations, devices)
    with pytest.raises(DataError, match="at least 1 document"):
        query_pool(pool.dataset, 0)
    with pytest.raises(SettingsError, match="same number"):
        click_tables([MODELS[0], click_model("perfect", 5)], K)
