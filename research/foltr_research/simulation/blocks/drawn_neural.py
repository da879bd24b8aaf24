"""Many devices' interactions with a neural ranker, in one kernel.

Like `foltr_research.simulation.blocks.drawn_rankings`, with the same random numbers, one client after the other. If
enough clients share queries (`first_lists`), what the first layer of the common start makes of each query is computed
once a round. A client's steps change that layer by a few outer products, and what these make of a query takes a tenth
of the whole product. Sums are then in another order than on a device, and scores differ by rounding, 1e-6 of them;
otherwise all is bit-equal.

Shapes: n clients; B interactions at most; C steps that may wait; d features; w weights.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from foltr.core.learning.linear import exponential_race
from foltr.core.learning.neural import halve_hidden_layer, hidden_inputs, n_neural_weights, output_scores
from foltr.core.learning.neural_pdgd import neural_step, step_above_features
from foltr.core.learning.pdgd import clicked_reversals, score_gradient
from foltr.core.numerics.compiled import compiled
from foltr.core.numerics.exponentials import take_tanh
from foltr_research.simulation.blocks.drawn_rankings import (
    Documents,
    LearnedBlock,
    QueryPool,
    Step,
    Users,
    docs_of,
    documents_of,
    local_weights,
    log_times_of,
    see_serp,
)

_MOST_KEPT_BYTES = 2**26
# What more steps make of a query takes longer than what the stepped layer makes of it.
_MOST_WAITING = 32


class FirstLists(NamedTuple):
    """The hidden layer of queries under the weights that all clients of a round start from, for all of them.

    Attributes:
        inputs: (documents of the data set, hidden) float32 of `foltr.core.learning.neural.hidden_inputs`; without
            documents if nothing is kept.
        scores: (documents of the data set,) float32.
        is_kept: (queries,) bool.
    """

    inputs: NDArray[np.float32]
    scores: NDArray[np.float32]
    is_kept: NDArray[np.bool_]

    def forget(self) -> None:
        """Start a round with other weights."""
        self.is_kept[:] = False


def first_lists(pool: QueryPool, hidden: int, n_clients: int) -> FirstLists:
    """Return storage for a round's queries, if enough clients share them and they are not too large.

    Storing costs a tenth of computing, so a fifth must be reused.
    """
    dataset = pool.dataset
    n_documents = len(dataset.features)
    is_worth_it = 2 * n_clients >= dataset.n_queries and 4 * n_documents * hidden <= _MOST_KEPT_BYTES
    inputs = np.empty((n_documents if is_worth_it else 0, hidden), np.float32)
    return FirstLists(inputs, np.empty(len(inputs), np.float32), np.zeros(dataset.n_queries, np.bool_))


class Memory(NamedTuple):
    """What clients of a block share, and what each of them overwrites.

    Attributes:
        first: shared by those that start from the same weights.
        halved_start: (hidden * (d + 1),) float32 of `halve_hidden_layer`, of the start weights.
        halved: likewise, of the client's weights.
        features, carried: (C, d) and (C, hidden) float32 of `step_above_features`: the steps that the client's first
            layer lacks. C is 0 if nothing is kept of first lists.
        tanhs: (documents of a query, hidden) float32.
    """

    first: FirstLists
    halved_start: NDArray[np.float32]
    halved: NDArray[np.float32]
    features: NDArray[np.float32]
    carried: NDArray[np.float32]
    tanhs: NDArray[np.float32]


def neural_pdgd_block(
    pool: QueryPool,
    start: NDArray[np.float64],
    picks: NDArray[np.int64],
    users: Users,
    device_rngs: Sequence[np.random.Generator],
    step: Step,
    hidden: int,
    first: FirstLists | None = None,
) -> LearnedBlock:
    """Let clients with a neural ranker interact and learn; like `pdgd_block`.

    Args:
        pool: of d features.
        start: (w,) or (n, w), w being hidden * (d + 2).
        picks: (n, B).
        users: of n clients and B interactions.
        device_rngs: n generators.
        hidden: units of the hidden layer.
        first: results shared with other clients of the round that start from the same weights; read and written. None
            shares none.
    """
    n_features = pool.dataset.n_features
    n_weights = n_neural_weights(n_features, hidden)
    weights = local_weights(pool, start, picks, users, n_weights)
    learned = LearnedBlock(weights, np.full(picks.shape, np.nan), np.full(picks.shape, np.nan))
    if first is None or start.ndim > 1:
        first = first_lists(pool, hidden, 0)
    most_waiting = _MOST_WAITING if len(first.inputs) else 0
    halved_start, halved = np.empty((2, hidden * (n_features + 1)), np.float32)
    memory = Memory(
        first,
        halved_start,
        halved,
        np.empty((most_waiting, n_features), np.float32),
        np.empty((most_waiting, hidden), np.float32),
        np.empty((int(docs_of(pool, picks).max(initial=0)), hidden), np.float32),
    )
    times = log_times_of(pool, picks, device_rngs)
    starts = np.ascontiguousarray(start).reshape(-1, n_weights)
    _clients(pool.documents, picks, users, times, starts, memory, step, learned)
    return learned


@compiled
def _clients(
    documents: Documents,
    picks: NDArray[np.int64],
    users: Users,
    times: tuple[NDArray[np.float64], NDArray[np.int64]],
    starts: NDArray[np.floating],
    memory: Memory,
    step: Step,
    learned: LearnedBlock,
) -> None:
    """The kernel of `neural_pdgd_block`.

    Args:
        times: of `log_times_of`.
        starts: (1, w) weights that all start from, or (n, w).
        memory: written to.
        learned: written to.
    """
    log_times, begins = times
    most_waiting, hidden = memory.carried.shape
    n_first = documents.features.shape[1] * hidden
    for client in range(picks.shape[0]):
        start, weights = starts[client if starts.shape[0] > 1 else 0], learned.weights[client]
        if client == 0 or starts.shape[0] > 1:
            halve_hidden_layer(start, memory.halved_start)
        # The first layer is the start's until the first step that does not wait.
        weights[n_first:] = start[n_first:]
        has_own, n_waiting = False, 0
        for i in range(picks.shape[1]):
            query = picks[client, i]
            if query < 0:
                continue
            x = documents_of(documents, query)
            docs = x.shape[0]
            tanhs = memory.tanhs[:docs]
            if has_own or not most_waiting:
                hidden_inputs(memory.halved if has_own else memory.halved_start, x, tanhs)
                take_tanh(tanhs, tanhs)
                scores = output_scores(weights, tanhs)
            else:
                scores = _scores_from_start(documents, query, memory, start, (n_waiting, weights))
            at = begins[client, i]
            ranking = exponential_race(scores, log_times[at : at + docs], min(documents.serp_length, docs))
            clicks, learned.ndcg[client, i], learned.reciprocal_ranks[client, i] = see_serp(
                documents, query, ranking, users.tables, users.models[client, i], users.draws[client, i]
            )
            reversals = clicked_reversals(scores, ranking, clicks)
            if most_waiting and not has_own and n_waiting == 0:
                first = memory.first.inputs[documents.offsets[query] : documents.offsets[query + 1]]
                _tanhs_of_shown(first, ranking, tanhs)
            if not has_own and n_waiting + ranking.shape[0] <= most_waiting:
                gradient = score_gradient(scores, ranking, clicks, reversals)
                of_both = weights[n_first:], start[n_first:]
                n_waiting += _step_that_waits(of_both, x, tanhs, ranking, gradient, step, memory, n_waiting)
                continue
            no_longer_waits = n_waiting > 0
            if no_longer_waits:
                _take_steps(memory, n_waiting, start, weights)
                has_own, n_waiting = True, 0
            has_stepped = neural_step(
                weights,
                x,
                tanhs,
                scores,
                ranking,
                clicks,
                reversals,
                step.learning_rate,
                step.proximal,
                start,
                not has_own,
            )
            if has_stepped or no_longer_waits:
                has_own = True
                # After the last list no forward pass needs them.
                if (picks[client, i + 1 :] >= 0).any():
                    halve_hidden_layer(weights, memory.halved)
        if n_waiting:
            _take_steps(memory, n_waiting, start, weights)
        elif not has_own:
            weights[:n_first] = start[:n_first]


@compiled
def _scores_from_start(
    documents: Documents,
    query: int,
    memory: Memory,
    start: NDArray[np.floating],
    changed: tuple[int, NDArray[np.floating]],
) -> NDArray[np.float32]:
    """Return the scores of a query's documents by the start, or by its first layer with steps that wait.

    Args:
        start: (w,) the start weights.
        changed: how many steps wait, and the client's (w,) weights, whose first layer is not read.
    """
    x, first = documents_of(documents, query), memory.first
    n_waiting, weights = changed
    begin, end = documents.offsets[query], documents.offsets[query + 1]
    inputs, scores, tanhs = first.inputs[begin:end], first.scores[begin:end], memory.tanhs[: end - begin]
    if not first.is_kept[query]:
        hidden_inputs(memory.halved_start, x, inputs)
        take_tanh(inputs, tanhs)
        scores[:] = output_scores(start, tanhs)
        first.is_kept[query] = True
    if n_waiting == 0:
        return scores
    # A step of the bias is one of the weights of a feature that is 1.
    factors = np.float32(0.5) * (np.dot(x, memory.features[:n_waiting].T) + np.float32(1.0))
    np.dot(factors, memory.carried[:n_waiting], tanhs)
    for document in range(tanhs.shape[0]):
        for unit in range(tanhs.shape[1]):
            tanhs[document, unit] += inputs[document, unit]
    take_tanh(tanhs, tanhs)
    return output_scores(weights, tanhs)


@compiled
def _tanhs_of_shown(inputs: NDArray[np.float32], ranking: NDArray[np.int64], tanhs: NDArray[np.float32]) -> None:
    """Write the rows of shown documents to the tanhs (docs, hidden) of a list whose scores were kept."""
    shown = inputs[ranking]
    take_tanh(shown, shown)
    for i in range(ranking.shape[0]):
        tanhs[ranking[i]] = shown[i]


@compiled
def _step_that_waits(
    of_both: tuple[NDArray[np.floating], NDArray[np.floating]],
    x: NDArray[np.float32],
    tanhs: NDArray[np.float32],
    ranking: NDArray[np.int64],
    gradient: NDArray[np.float64],
    step: Step,
    memory: Memory,
    n_waiting: int,
) -> int:
    """`neural_step` that only notes the step of the first layer, which has most of the weights.

    Args:
        of_both: (2 * hidden,) bias and output layer of the client, written to, and of its start.

    Returns:
        how many outer products more wait now.
    """
    weights, start = of_both
    output = weights[memory.carried.shape[1] :].astype(np.float32)
    if step.proximal != 0.0:
        pull = step.learning_rate * step.proximal
        weights -= pull * (weights - start)
        memory.carried[:n_waiting] *= np.float32(1.0 - pull)
    used, carried = step_above_features(weights, output, tanhs, ranking, step.learning_rate * gradient)
    for i in range(used.shape[0]):
        memory.features[n_waiting + i] = x[used[i]]
        memory.carried[n_waiting + i] = carried[i]
    n_more: int = used.shape[0]
    return n_more


@compiled
def _take_steps(memory: Memory, n_waiting: int, start: NDArray[np.floating], weights: NDArray[np.floating]) -> None:
    """Write the first layer of the start, with the steps that wait, to the weights."""
    change = (memory.features[:n_waiting].T @ memory.carried[:n_waiting]).reshape(-1)
    for i in range(change.shape[0]):
        weights[i] = start[i] + change[i]
