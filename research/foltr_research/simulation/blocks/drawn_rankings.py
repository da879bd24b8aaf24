"""Many devices' interactions at once: rank, click and learn in machine code, one call for a whole round.

A block does exactly what the same devices would do one by one (score, `sample_plackett_luce`, `clicks_from_draws`,
`pdgd_step`), with the same random numbers and kernels. Tests check that results are bit-equal. One block is for clients
of one data set. Clients that ask the same query go one after the other, so its documents come from the processor's
cache: reading them from memory takes twice as long as scoring them.

Shapes: n clients; B interactions at most; K documents shown at most; d features.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from foltr.core.data.dataset import RankingDataset
from foltr.core.errors import DataError
from foltr.core.evaluation.click_models import read_serp
from foltr.core.evaluation.metrics import dcg, ideal_dcg_by_query
from foltr.core.learning.evolution_strategies import reciprocal_rank_index
from foltr.core.learning.linear import exponential_race, score
from foltr.core.learning.pdgd import clicked_reversals, linear_step
from foltr.core.numerics.compiled import compiled
from foltr_research.simulation.click_tables import ClickTables


class Documents(NamedTuple):
    """A data set in the kernels' form.

    Attributes:
        features: (docs, d).
        relevance: (docs,) grades.
        offsets: (queries + 1,) offsets of each query's documents.
        ideal_dcg: (queries,) the best DCG@K; 0 without a relevant document.
        serp_length: K.
    """

    features: NDArray[np.float32]
    relevance: NDArray[np.int16]
    offsets: NDArray[np.int64]
    ideal_dcg: NDArray[np.float64]
    serp_length: int


@dataclass(frozen=True, eq=False)
class QueryPool:
    """A data set with values per query for online evaluation, computed once.

    Attributes:
        dataset: the queries.
        serp_length: K.
        ideal_dcg: (queries,) float64, the best DCG@K; 0 without a relevant document.
        highest_grade: of any document.
    """

    dataset: RankingDataset
    serp_length: int
    ideal_dcg: NDArray[np.float64]
    highest_grade: int

    @property
    def documents(self) -> Documents:
        data = self.dataset
        return Documents(data.features, data.relevance, data.offsets, self.ideal_dcg, self.serp_length)


class Users(NamedTuple):
    """The users' click models and random numbers.

    Attributes:
        tables: M click models.
        models: (n, B) int64, row of `tables` for each interaction's user.
        draws: (n, B, 2 + 2K) float64 uniform in [0, 1). The first two of each interaction have been used (for the query
            and the model); the rest are those of `clicks_from_draws`.
    """

    tables: ClickTables
    models: NDArray[np.int64]
    draws: NDArray[np.float64]


class User(NamedTuple):
    """The user of one interaction: a row of click models, and (2 + 2K,) draws."""

    tables: ClickTables
    model: int
    draws: NDArray[np.float64]


class Step(NamedTuple):
    """A step of PDGD: the learning rate, and FedProx' mu (0 for none)."""

    learning_rate: float
    proximal: float = 0.0


class LearnedBlock(NamedTuple):
    """What clients of a block have learned, and the quality of the lists they saw.

    Attributes:
        weights: (n, weights) float64 local weights after the last interaction.
        ndcg: (n, B) float64 nDCG@K of each list shown, 0 without a relevant document; NaN without an interaction.
        reciprocal_ranks: (n, B) float64 reciprocal rank of the highest click, 0 without one; NaN like `ndcg`.
    """

    weights: NDArray[np.float64]
    ndcg: NDArray[np.float64]
    reciprocal_ranks: NDArray[np.float64]


def query_pool(dataset: RankingDataset, serp_length: int = 10) -> QueryPool:
    """Prepare a data set for blocks.

    Raises:
        DataError: a list length of 0, or no query.
    """
    if serp_length < 1 or dataset.n_queries == 0:
        raise DataError(f"{dataset.name}: simulation needs queries and a result list of at least 1 document")
    return QueryPool(
        dataset,
        serp_length,
        ideal_dcg_by_query(dataset.relevance, dataset.offsets, serp_length),
        int(dataset.relevance.max()),
    )


def pdgd_block(
    pool: QueryPool,
    start: NDArray[np.float64],
    picks: NDArray[np.int64],
    users: Users,
    device_rngs: Sequence[np.random.Generator],
    step: Step,
) -> LearnedBlock:
    """Let clients with a linear ranker interact and learn by PDGD (FPDGD, Algorithm 1, lines 3 to 10).

    Args:
        pool: of d features.
        start: (d,) the common start weights, or (n, d); also FedProx' target.
        picks: (n, B) query indices in the order issued; -1 for no interaction.
        users: of n clients and B interactions.
        device_rngs: n generators, each advanced by one exponential draw per document of its client's queries.

    Raises:
        DataError: shapes, queries or grades that do not fit each other, or weights that have diverged.
    """
    weights = local_weights(pool, start, picks, users, pool.dataset.n_features)
    weights[:] = start
    learned = LearnedBlock(weights, np.full(picks.shape, np.nan), np.full(picks.shape, np.nan))
    log_times, begins = log_times_of(pool, picks, device_rngs)
    order = np.ascontiguousarray(np.argsort(picks, axis=0, kind="stable").T)
    bases = np.ascontiguousarray(start).reshape(-1, weights.shape[1])
    _pdgd_clients(pool.documents, picks, order, users, (log_times, begins), bases, step, learned)
    return learned


def local_weights(
    pool: QueryPool, start: NDArray[np.float64], picks: NDArray[np.int64], users: Users, n_weights: int
) -> NDArray[np.float64]:
    """Check a block's arguments, since compiled code checks no bounds, and return memory for each client's weights.

    Returns:
        (n, n_weights) of the type of `start`, with any values.

    Raises:
        DataError: they do not fit each other.
    """
    n_clients, n_interactions = picks.shape
    tables = users.tables
    if start.shape not in ((n_weights,), (n_clients, n_weights)):
        raise DataError(f"start must be {n_weights} weights, or those for each of {n_clients} clients: {start.shape}")
    if users.models.shape != picks.shape:
        raise DataError(f"there are picks for {picks.shape} interactions, click models for {users.models.shape}")
    if users.draws.shape != (n_clients, n_interactions, 2 + 2 * pool.serp_length):
        raise DataError(f"users need {2 + 2 * pool.serp_length} draws an interaction, not {users.draws.shape}")
    if tables.examination.shape[1] < pool.serp_length:
        raise DataError(f"click tables are for {tables.examination.shape[1]} ranks, not {pool.serp_length}")
    if pool.highest_grade >= tables.click.shape[1]:
        raise DataError(
            f"{pool.dataset.name} has grade {pool.highest_grade}, the click models grades 0 to "
            f"{tables.click.shape[1] - 1}"
        )
    if not _are_between(picks, -1, pool.dataset.n_queries - 1):
        raise DataError(f"{pool.dataset.name} has queries 0 to {pool.dataset.n_queries - 1}; another was picked")
    if not _are_between(users.models, 0, tables.click.shape[0] - 1):
        raise DataError(f"there are {tables.click.shape[0]} click models; another was picked")
    return np.empty((n_clients, n_weights), start.dtype)


@compiled
def _are_between(values: NDArray[np.int64], least: int, most: int) -> bool:
    """Whether all (n, B) values are from least to most."""
    n_beyond = 0
    for row in values:
        for value in row:
            n_beyond += value < least or value > most
    return n_beyond == 0


@compiled
def see_serp(
    documents: Documents,
    query: int,
    ranking: NDArray[np.int64],
    tables: ClickTables,
    model: int,
    draws: NDArray[np.float64],
) -> tuple[NDArray[np.bool_], float, float]:
    """Show a list to one of the users.

    Args:
        ranking: (k,) the documents shown, counted within the query.
        model: row of the tables.
        draws: (2 + 2K,) of the interaction.

    Returns:
        (k,) bool clicks, the list's nDCG, and its MaxRR.
    """
    shown = documents.relevance[documents.offsets[query] : documents.offsets[query + 1]][ranking]
    ideal_dcg = documents.ideal_dcg[query]
    ndcg = dcg(shown, shown.shape[0]) / ideal_dcg if ideal_dcg > 0.0 else 0.0
    clicks = read_serp(tables.click[model], tables.stop[model], tables.examination[model], shown, draws[2:])
    highest = reciprocal_rank_index(clicks)
    return clicks, ndcg, (1.0 / highest if highest > 0 else 0.0)


def docs_of(pool: QueryPool, picks: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return (n, B) the number of documents of each picked query; 0 without an interaction."""
    offsets = pool.dataset.offsets
    # Not for all queries: there may be many times more than were picked.
    return np.where(picks < 0, 0, offsets[picks + 1] - offsets[picks])


def log_times_of(
    pool: QueryPool, picks: NDArray[np.int64], device_rngs: Sequence[np.random.Generator]
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the logarithms of all clients' exponential draws, client by client in order issued.

    Returns:
        (documents of all lists,) float64, and (n, B) where each interaction's begin.
    """
    if len(device_rngs) != picks.shape[0]:
        raise DataError(f"{picks.shape[0]} clients need as many generators, not {len(device_rngs)}")
    begins = np.zeros(picks.size + 1, np.int64)
    docs_of(pool, picks).cumsum(out=begins[1:])
    log_times = np.empty(begins[-1], np.float64)
    at = begins[:: max(1, picks.shape[1])].tolist()
    for rng, begin, end in zip(device_rngs, at, at[1:], strict=False):
        rng.standard_exponential(out=log_times[begin:end])
    np.log(log_times, out=log_times)
    return log_times, begins[:-1].reshape(picks.shape)


@compiled
def _pdgd_clients(
    documents: Documents,
    picks: NDArray[np.int64],
    order: NDArray[np.int64],
    users: Users,
    times: tuple[NDArray[np.float64], NDArray[np.int64]],
    bases: NDArray[np.float64],
    step: Step,
    learned: LearnedBlock,
) -> None:
    """The kernel of `pdgd_block`.

    Args:
        order: (B, n) the clients in the order of the queries that each interaction is about.
        times: of `log_times_of`.
        bases: (1, d) the start weights of all, or (n, d).
        learned: holds the clients' start weights, and is written to.
    """
    log_times, begins = times
    for i in range(picks.shape[1]):
        scored, scores = -1, np.empty(0, np.float32)
        for client in order[i]:
            query = picks[client, i]
            if query < 0:
                continue
            base, weights = bases[client if bases.shape[0] > 1 else 0], learned.weights[client]
            # The first lists of clients that start from the same weights have the same scores.
            if i > 0 or bases.shape[0] > 1 or query != scored:
                scores = score(weights, documents_of(documents, query))
                scored = query
            user = User(users.tables, users.models[client, i], users.draws[client, i])
            learned.ndcg[client, i], learned.reciprocal_ranks[client, i] = pdgd_interaction(
                documents, query, scores, log_times[begins[client, i] :], user, step, base, weights
            )


@compiled
def documents_of(documents: Documents, query: int) -> NDArray[np.float32]:
    """Return the features of a query's documents."""
    return documents.features[documents.offsets[query] : documents.offsets[query + 1]]


@compiled
def pdgd_interaction(
    documents: Documents,
    query: int,
    scores: NDArray[np.float32],
    log_times: NDArray[np.float64],
    user: User,
    step: Step,
    base: NDArray[np.floating],
    weights: NDArray[np.floating],
) -> tuple[float, float]:
    """Let one client have an interaction.

    Args:
        scores: of the query's documents by the weights.
        log_times: of the list, possibly followed by others.
        base: (d,) the start weights.
        weights: (d,) the client's; written to.

    Returns:
        nDCG and reciprocal rank of the list.
    """
    docs = scores.shape[0]
    ranking = exponential_race(scores, log_times[:docs], min(documents.serp_length, docs))
    clicks, ndcg, reciprocal_rank = see_serp(documents, query, ranking, user.tables, user.model, user.draws)
    reversals, x = clicked_reversals(scores, ranking, clicks), documents_of(documents, query)
    weights[:] = linear_step(weights, x, ranking, clicks, scores, reversals, step.learning_rate, step.proximal, base)
    return ndcg, reciprocal_rank
