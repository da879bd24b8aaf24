"""Many devices' interactions with a neural ranker: groups of clients go through their lists side by side.

Like `foltr_research.simulation.blocks.drawn_rankings`, with the same random numbers and bit-equal results: products are
made one by one as on a device, by the same library. Operations whose result does not depend on a number's position,
tanh and the kernel that ranks, clicks and learns, are done for all clients of a group at once. So the group shares the
cost of calls.

Shapes: n clients; B interactions at most; G clients in a group; d features; w weights.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from foltr.core.learning.linear import exponential_race
from foltr.core.learning.neural import halve_hidden_layer, hidden_inputs, n_neural_weights, output_scores
from foltr.core.learning.neural_pdgd import neural_step
from foltr.core.learning.pdgd import clicked_reversals
from foltr.core.numerics.compiled import compiled
from foltr_research.simulation.blocks.drawn_rankings import (
    Documents,
    LearnedBlock,
    QueryPool,
    Step,
    Users,
    docs_of,
    local_weights,
    log_times_of,
    see_serp,
)

# The weights of a group fit a processor's second-level cache beside the ranked documents: 12 bytes a weight.
_WEIGHTS_OF_A_GROUP = 96_000
_MOST_KEPT_BYTES = 2**26


class FirstLists(NamedTuple):
    """Hidden units of queries under the weights that all clients of a round start from, for reuse by other clients.

    Attributes:
        tanhs: (documents of the data set, hidden) float32 of `foltr.core.learning.neural.hidden_tanhs`; without
            documents if nothing is kept.
        is_kept: (queries,) bool.
    """

    tanhs: NDArray[np.float32]
    is_kept: NDArray[np.bool_]

    def forget(self) -> None:
        """Start a round with other weights."""
        self.is_kept[:] = False


def first_lists(pool: QueryPool, hidden: int, n_clients: int) -> FirstLists:
    """Return storage for a round's first lists, if enough clients share queries and they are not too large.

    Storing costs a tenth of computing, so a fifth must be reused.
    """
    dataset = pool.dataset
    n_documents = len(dataset.features)
    is_worth_it = 2 * n_clients >= dataset.n_queries and 4 * n_documents * hidden <= _MOST_KEPT_BYTES
    tanhs = np.empty((n_documents if is_worth_it else 0, hidden), np.float32)
    return FirstLists(tanhs, np.zeros(dataset.n_queries, np.bool_))


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

    The forward pass stays in NumPy, which vectorises products and tanh. It takes more than half of the time.

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
    dataset = pool.dataset
    n_weights = n_neural_weights(dataset.n_features, hidden)
    bases = local_weights(pool, start, picks, users, n_weights)
    learned = LearnedBlock(
        np.empty(bases.shape, bases.dtype), np.full(picks.shape, np.nan), np.full(picks.shape, np.nan)
    )
    if first is None or start.ndim > 1:
        first = first_lists(pool, hidden, 0)
    group = _Group(pool, start.reshape(-1, n_weights), picks, users, learned, first, step)
    times = log_times_of(pool, picks, device_rngs)
    for begin in range(0, len(picks), group.size):
        group.interact(slice(begin, min(begin + group.size, len(picks))), times)
    return learned


class Layers(NamedTuple):
    """The hidden layers of a group's clients in the forward pass's form, kept beside the weights between steps.

    Attributes:
        has_own: (G,) bool, whether the weights differ from the common start. Until then no copy is made.
        halved: (G, hidden * (d + 1)) float32 of `halve_hidden_layer`, for those that differ.
        halved_start: (hidden * (d + 1),) float32 of the others.
        starts: (1, w) or (n, w), the start weights, towards which FedProx pulls.
    """

    has_own: NDArray[np.bool_]
    halved: NDArray[np.float32]
    halved_start: NDArray[np.float32]
    starts: NDArray[np.floating]


class Turn(NamedTuple):
    """The members of a group that have an interaction, and which.

    Attributes:
        picks: (n, B) queries.
        first: the client in row 0 of the group.
        members: (m,) rows of the group.
        i: index of their interaction.
    """

    picks: NDArray[np.int64]
    first: int
    members: NDArray[np.int64]
    i: int


class Lists(NamedTuple):
    """The lists of a turn after the forward pass, and the draws that order them.

    Attributes:
        tanhs: (documents of all members, hidden).
        spans: (G + 1,) offsets of the members.
        log_times, begins: of `log_times_of`.
    """

    tanhs: NDArray[np.float32]
    spans: NDArray[np.int64]
    log_times: NDArray[np.float64]
    begins: NDArray[np.int64]


class _Group:
    """Clients who go through their interactions side by side, and memory that successive groups reuse.

    Args:
        starts: (1, w) weights that all start from, or (n, w).
        learned: of all n clients; written to.
    """

    def __init__(
        self,
        pool: QueryPool,
        starts: NDArray[np.floating],
        picks: NDArray[np.int64],
        users: Users,
        learned: LearnedBlock,
        first_lists: FirstLists,
        step: Step,
    ) -> None:
        n_clients, n_weights = learned.weights.shape
        hidden = first_lists.tanhs.shape[1]
        self.size = max(1, min(n_clients, _WEIGHTS_OF_A_GROUP // n_weights))
        self._pool = pool
        starts = np.ascontiguousarray(starts)
        self._picks = picks
        self._step = step
        self._users = users
        self._learned = learned
        self._first_lists = first_lists
        halved = np.empty((self.size, hidden * (pool.dataset.n_features + 1)), np.float32)
        self._layers = Layers(np.empty(self.size, np.bool_), halved, np.empty(halved.shape[1], np.float32), starts)
        halve_hidden_layer(starts[0], self._layers.halved_start)
        most_docs = int(docs_of(pool, picks).max(initial=0))
        self._tanhs = np.empty((self.size * most_docs, hidden), np.float32)
        self._spans = np.empty(self.size + 1, np.int64)

    def interact(self, clients: slice, times: tuple[NDArray[np.float64], NDArray[np.int64]]) -> None:
        """Let clients have all their interactions.

        Args:
            times: of `log_times_of`.
        """
        weights = self._learned.weights[clients]
        starts = self._layers.starts
        has_own = self._layers.has_own[: len(weights)]
        has_own[:] = len(starts) > 1
        if len(starts) > 1:
            weights[:] = starts[clients]
            for own, halved in zip(weights, self._layers.halved, strict=False):
                halve_hidden_layer(own, halved)
        interacts = self._picks[clients] >= 0
        for i in range(interacts.shape[1]):
            members = np.flatnonzero(interacts[:, i])
            if len(members):
                self._interact_once(clients.start, members, i, times)
        weights[~has_own] = starts[0]

    def _interact_once(
        self, first: int, members: NDArray[np.int64], i: int, times: tuple[NDArray[np.float64], NDArray[np.int64]]
    ) -> None:
        """Let members of the group, numbered relative to ``first``, have their interaction ``i``."""
        documents, turn = self._pool.documents, Turn(self._picks, first, members, i)
        n_docs = _inputs_of_all(documents, turn, self._layers, self._first_lists, self._tanhs, self._spans)
        lists = Lists(self._tanhs[:n_docs], self._spans, *times)
        np.tanh(lists.tanhs, out=lists.tanhs)
        _learn_from_lists(
            documents, self._users, turn, self._layers, self._first_lists, lists, self._step, self._learned
        )


@compiled
def _inputs_of_all(
    documents: Documents,
    turn: Turn,
    layers: Layers,
    kept: FirstLists,
    inputs: NDArray[np.float32],
    spans: NDArray[np.int64],
) -> int:
    """Write the `hidden_inputs` of the members' lists one after another, and their offsets. Return the end.

    Lists with kept hidden units are skipped.

    Args:
        inputs: (documents of all members or more, hidden), written to.
        spans: (G + 1,), written to.
    """
    spans[0] = 0
    for j in range(turn.members.shape[0]):
        member = turn.members[j]
        query = turn.picks[turn.first + member, turn.i]
        start, end = documents.offsets[query], documents.offsets[query + 1]
        spans[j + 1] = spans[j]
        if kept.is_kept[query] and not layers.has_own[member]:
            continue
        spans[j + 1] += end - start
        layer = layers.halved[member] if layers.has_own[member] else layers.halved_start
        hidden_inputs(layer, documents.features[start:end], inputs[spans[j] : spans[j + 1]])
    return int(spans[turn.members.shape[0]])


@compiled
def _learn_from_lists(
    documents: Documents,
    users: Users,
    turn: Turn,
    layers: Layers,
    first_lists: FirstLists,
    lists: Lists,
    step: Step,
    learned: LearnedBlock,
) -> None:
    """Let each member see and learn from a list after the forward pass. Writes layers, first lists and learned."""
    has_own, kept, is_kept = layers.has_own, first_lists.tanhs, first_lists.is_kept
    i = turn.i
    for j in range(turn.members.shape[0]):
        member = turn.members[j]
        client = turn.first + member
        query = turn.picks[client, i]
        start, end = documents.offsets[query], documents.offsets[query + 1]
        own = lists.tanhs[lists.spans[j] : lists.spans[j + 1]]
        if own.shape[0] < end - start:
            own = kept[start:end]
        elif kept.shape[0] and not has_own[member] and not is_kept[query]:
            kept[start:end] = own
            is_kept[query] = True
        base = layers.starts[client if layers.starts.shape[0] > 1 else 0]
        scores = output_scores(learned.weights[client] if has_own[member] else base, own)
        at, docs = lists.begins[client, i], end - start
        ranking = exponential_race(scores, lists.log_times[at : at + docs], min(documents.serp_length, docs))
        clicks, learned.ndcg[client, i], learned.reciprocal_ranks[client, i] = see_serp(
            documents, query, ranking, users.tables, users.models[client, i], users.draws[client, i]
        )
        reversals = clicked_reversals(scores, ranking, clicks)
        has_stepped = neural_step(
            learned.weights[client],
            documents.features[start:end],
            own,
            scores,
            ranking,
            clicks,
            reversals,
            step.learning_rate,
            step.proximal,
            base,
            not has_own[member],
        )
        if has_stepped:
            has_own[member] = True
            # After the last list no forward pass needs them.
            if (turn.picks[client, i + 1 :] >= 0).any():
                halve_hidden_layer(learned.weights[client], layers.halved[member])
