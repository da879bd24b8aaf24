"""Many devices' interactions at once with rankings that are not drawn: rankers shown unchanged, and FOLtR-ES.

The conventions are those of `foltr_research.simulation.blocks.drawn_rankings`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from foltr.core.errors import DataError
from foltr.core.learning.evolution_strategies import (
    es_noise,
    randomised_response,
    reciprocal_rank_index,
    reciprocal_rank_values,
)
from foltr.core.learning.linear import score, top_k
from foltr.core.learning.neural import n_neural_weights, neural_score
from foltr.core.learning.relu import relu_score
from foltr.core.numerics.compiled import compiled
from foltr.core.protocol.trainings import Activation
from foltr_research.simulation.blocks.drawn_rankings import Documents, QueryPool, Users, local_weights, see_serp
from foltr_research.simulation.privacy_reports import epsilon_bound


class RankedBlock(NamedTuple):
    """The lists that clients saw, and their clicks.

    Attributes:
        rankings: (n, B, K) int64 documents shown, counted within the query; -1 for an empty place.
        clicks: (n, B, K) bool.
        ndcg: (n, B) float64 nDCG@K, 0 without a relevant document; NaN without an interaction.
        reciprocal_ranks: (n, B) float64 reciprocal rank of the highest click, 0 without one; NaN like `ndcg`.
    """

    rankings: NDArray[np.int64]
    clicks: NDArray[np.bool_]
    ndcg: NDArray[np.float64]
    reciprocal_ranks: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class EvolutionBlock:
    """The measurements of FOLtR-ES clients.

    Attributes:
        plus: (n,) float64 mean randomised response of the lists ranked with +noise; 0 without such lists.
        minus: (n,) float64 the same with -noise.
        n_plus: (n,) int64 number of these lists.
        n_minus: (n,) int64.
        ndcg: (n, B) float64 as in `RankedBlock`, of the lists as shown, noise included.
        reciprocal_ranks: (n, B) float64 as in `RankedBlock`, before the randomised response.
    """

    plus: NDArray[np.float64]
    minus: NDArray[np.float64]
    n_plus: NDArray[np.int64]
    n_minus: NDArray[np.int64]
    ndcg: NDArray[np.float64]
    reciprocal_ranks: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Perturbations:
    """How FOLtR-ES clients perturb the global ranker.

    Attributes:
        seeds: n seeds of `es_noise`.
        variants: (n, B) int64: 0 for a list ranked with +noise, 1 with -noise.
        noise_scale: sigma.
        truth_probability: p of `randomised_response`; 1 for the truth.
    """

    seeds: Sequence[int]
    variants: NDArray[np.int64]
    noise_scale: float
    truth_probability: float


def ranking_block(
    pool: QueryPool,
    weights: NDArray[np.float64],
    picks: NDArray[np.int64],
    users: Users,
    hidden: int | None = None,
    activation: Activation = "sigmoid",
) -> RankedBlock:
    """Let clients see the lists a ranker makes by score; nobody learns.

    Args:
        pool: of d features.
        weights: (w,) of all clients, or (n, w) each its own.
        picks: (n, B) query indices; -1 for no interaction.
        users: of n clients and B interactions.
        hidden: units of the neural ranker's hidden layer; None for the linear ranker.
        activation: of these units.

    Raises:
        DataError: shapes, queries or grades that do not fit each other, or scores that are not finite.
    """
    mine = local_weights(pool, weights, picks, users, _n_weights(pool, hidden))
    mine[:] = weights
    variants = np.zeros(picks.shape, np.int64)
    return _show(pool, mine.reshape(len(mine), 1, -1), variants, picks, users, hidden, activation)


def es_block(
    pool: QueryPool,
    base: NDArray[np.float64],
    picks: NDArray[np.int64],
    users: Users,
    perturbed: Perturbations,
    device_rngs: Sequence[np.random.Generator],
    hidden: int | None = None,
    activation: Activation = "sigmoid",
) -> EvolutionBlock:
    """Let FOLtR-ES clients measure their perturbations of the global ranker (thesis, Section 3.1.1).

    Args:
        pool: of d features.
        base: (w,) the global weights.
        picks: (n, B) query indices; -1 for no interaction.
        users: of n clients and B interactions.
        perturbed: how lists are perturbed.
        device_rngs: n generators, each advanced by two uniform draws per interaction, for `randomised_response`.
        hidden: units of the neural ranker's hidden layer; None for the linear ranker.
        activation: of these units.

    Raises:
        DataError: as `ranking_block`, or not one seed and generator for each client.
        SettingsError: a probability that `epsilon_bound` refuses.
    """
    n_clients, n_weights = picks.shape[0], _n_weights(pool, hidden)
    variants, truth_probability = perturbed.variants, perturbed.truth_probability
    if not len(perturbed.seeds) == len(device_rngs) == n_clients or variants.shape != picks.shape:
        raise DataError(f"{n_clients} clients need as many seeds, generators and rows of variants")
    if base.shape != (n_weights,):
        raise DataError(f"the global ranker must be {n_weights} weights, not {base.shape}")
    values = reciprocal_rank_values(pool.serp_length)
    epsilon_bound(truth_probability, len(values))
    local_weights(pool, base, picks, users, n_weights)
    weights = np.empty((n_clients, 2, n_weights), np.float64)
    draws = np.zeros((*picks.shape, 2), np.float64)
    interacts = picks >= 0
    for client, rng in enumerate(device_rngs):
        noise = es_noise(perturbed.seeds[client], n_weights, perturbed.noise_scale)
        np.add(base, noise, out=weights[client, 0])
        np.subtract(base, noise, out=weights[client, 1])
        draws[client, interacts[client]] = rng.random((int(interacts[client].sum()), 2))
    shown = _show(pool, weights, variants, picks, users, hidden, activation)
    means, counts = _measure(shown.clicks, interacts, variants, draws, truth_probability, values)
    return EvolutionBlock(means[:, 0], means[:, 1], counts[:, 0], counts[:, 1], shown.ndcg, shown.reciprocal_ranks)


def _n_weights(pool: QueryPool, hidden: int | None) -> int:
    n_features = pool.dataset.n_features
    return n_features if hidden is None else n_neural_weights(n_features, hidden)


def _show(
    pool: QueryPool,
    weights: NDArray[np.float64],
    variants: NDArray[np.int64],
    picks: NDArray[np.int64],
    users: Users,
    hidden: int | None,
    activation: Activation,
) -> RankedBlock:
    """Show every list ranked by its client's weights of its variant: weights (n, variants, w)."""
    if variants.size and not 0 <= variants.min() <= variants.max() < weights.shape[1]:
        raise DataError(f"variants count from 0 and there are {weights.shape[1]}")
    shown = RankedBlock(
        np.full((*picks.shape, pool.serp_length), -1, np.int64),
        np.zeros((*picks.shape, pool.serp_length), np.bool_),
        np.full(picks.shape, np.nan),
        np.full(picks.shape, np.nan),
    )
    if hidden is None or activation == "relu":
        _show_by_kernel(hidden or 0, pool.documents, weights, variants, picks, users, shown)
        return shown
    for client, i in np.argwhere(picks >= 0).tolist():
        pick = picks[client, i]
        features = pool.dataset.query(pick).features
        scores = neural_score(weights[client, variants[client, i]], features, hidden)
        ranking = top_k(scores, min(pool.serp_length, scores.shape[0]))
        clicks, shown.ndcg[client, i], shown.reciprocal_ranks[client, i] = see_serp(
            pool.documents, pick, ranking, users.tables, users.models[client, i], users.draws[client, i]
        )
        shown.rankings[client, i, : len(ranking)] = ranking
        shown.clicks[client, i, : len(ranking)] = clicks
    return shown


@compiled
def _show_by_kernel(
    n_relu: int,
    documents: Documents,
    weights: NDArray[np.float64],
    variants: NDArray[np.int64],
    picks: NDArray[np.int64],
    users: Users,
    shown: RankedBlock,
) -> None:
    """`_show` for the linear ranker (n_relu = 0), or one with ``n_relu`` ReLU units; writes to ``shown``."""
    for client in range(picks.shape[0]):
        for i in range(picks.shape[1]):
            query = picks[client, i]
            if query < 0:
                continue
            own = weights[client, variants[client, i]]
            features = documents.features[documents.offsets[query] : documents.offsets[query + 1]]
            scores = score(own, features) if n_relu == 0 else relu_score(own, features, n_relu)
            length = min(documents.serp_length, scores.shape[0])
            ranking = top_k(scores, length)
            clicks, shown.ndcg[client, i], shown.reciprocal_ranks[client, i] = see_serp(
                documents, query, ranking, users.tables, users.models[client, i], users.draws[client, i]
            )
            shown.rankings[client, i, :length] = ranking
            shown.clicks[client, i, :length] = clicks


@compiled
def _measure(
    clicks: NDArray[np.bool_],
    interacts: NDArray[np.bool_],
    variants: NDArray[np.int64],
    draws: NDArray[np.float64],
    truth_probability: float,
    values: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the mean randomised response and the number of responses: both (n, 2), by variant."""
    sums = np.zeros((clicks.shape[0], 2), np.float64)
    counts = np.zeros((clicks.shape[0], 2), np.int64)
    for client in range(clicks.shape[0]):
        for i in range(clicks.shape[1]):
            if not interacts[client, i]:
                continue
            value = randomised_response(
                reciprocal_rank_index(clicks[client, i]), truth_probability, values.shape[0], draws[client, i]
            )
            sums[client, variants[client, i]] += values[value]
            counts[client, variants[client, i]] += 1
    return sums / np.maximum(counts, 1), counts
