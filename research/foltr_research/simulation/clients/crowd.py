"""The simulated users of a population, with the random streams of the same clients in the service.

`foltr.core.numerics.streams` defines the draws of an interaction and their order; here many users draw at once. A
client's streams advance only in rounds it takes part in, so they do not depend on the other participants.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foltr.core.errors import DataError
from foltr.core.evaluation.click_models import ClickModel, personal
from foltr.core.numerics.streams import ClientStreams, client_streams
from foltr_research.simulation.clients.population import Population, SimulatedClient

_WORD = 2**64


@dataclass(frozen=True, eq=False)
class Intentions:
    """The queries and clicks that several users will make, drawn before they see anything.

    Attributes:
        picks: (clients, most interactions) int64, queries of the client's data set; -1 after its last interaction.
        models: (clients, most interactions) int64, rows of `Crowd.click_models`.
        draws: (clients, most interactions, 2 + 2 * serp_length) float64; those of the clicks begin with the third.
    """

    picks: NDArray[np.int64]
    models: NDArray[np.int64]
    draws: NDArray[np.float64]

    def for_clients(self, rows: slice | NDArray[np.int64]) -> "Intentions":
        return Intentions(self.picks[rows], self.models[rows], self.draws[rows])


class Crowd:
    """The users of a population.

    Args:
        serp_length: K, the most documents a list shows.
    """

    def __init__(self, population: Population, seed: int, serp_length: int) -> None:
        self._clients = population.clients
        self._seed = seed
        self._serp_length = serp_length
        self._streams: list[ClientStreams | None] = [None] * len(self._clients)
        self._quantities = np.array([client.n_interactions for client in self._clients], np.int64)
        self._queries, self._query_spans = _joined([client.queries for client in self._clients])
        models: list[tuple[ClickModel, ...]] = []
        for i, client in enumerate(self._clients):
            models.append(self._personal_models(i, client))
        self._model_spans, self.click_models = _spans_of(models)

    def streams(self, client: int) -> ClientStreams:
        """Return the streams of one client, made on first use."""
        streams = self._streams[client]
        if streams is None:
            streams = self._streams[client] = client_streams(self._seed, self._clients[client].name)
        return streams

    def models_of(self, client: int) -> tuple[ClickModel, ...]:
        """Return the click models of one user, with personal variations."""
        start, count = self._model_spans[client].tolist()
        return self.click_models[start : start + count]

    def n_interactions_of(self, client: int) -> int:
        return int(self._quantities[client])

    def first_model_of(self, client: int) -> int:
        """Return the row of `click_models` at which one user's models begin."""
        return int(self._model_spans[client, 0])

    def intend(self, clients: NDArray[np.int64]) -> Intentions:
        """Let each client draw all interactions of a round. A client listed several times draws several rounds."""
        quantities = self._quantities[clients]
        block = np.zeros((len(clients), int(quantities.max()), 2 + 2 * self._serp_length))
        if len(self._clients) == 1:
            # One call draws the same numbers: a stream has no round boundaries.
            self.streams(0).user.random(out=block)
        else:
            for own, i, quantity in zip(block, clients.tolist(), quantities.tolist(), strict=True):
                self.streams(i).user.random(out=own[:quantity])
        return self._intentions(clients, block)

    def intend_rounds(self, clients: NDArray[np.int64], n_rounds: int) -> Intentions:
        """Let each client draw all interactions of ``n_rounds`` successive rounds.

        Returns:
            what `intend` returns of each round, with an axis of rounds after that of clients.
        """
        quantities = self._quantities[clients]
        most = int(quantities.max())
        block = np.zeros((len(clients), n_rounds, most, 2 + 2 * self._serp_length))
        for own, i, quantity in zip(block, clients.tolist(), quantities.tolist(), strict=True):
            if quantity == most:
                self.streams(i).user.random(out=own)
            else:
                own[:, :quantity] = self.streams(i).user.random((n_rounds, quantity, own.shape[-1]))
        return self._intentions(clients, block)

    def _intentions(self, clients: NDArray[np.int64], block: NDArray[np.float64]) -> Intentions:
        """Convert draws (clients, ..., most interactions, 2 + 2 * serp_length) to intentions."""
        quantities, most = self._quantities[clients], block.shape[-2]
        apart = (slice(None), *(None,) * (block.ndim - 2))
        (first_query, n_queries), (first_model, n_models) = (
            (spans[clients, 0][apart], spans[clients, 1][apart]) for spans in (self._query_spans, self._model_spans)
        )
        picks = self._queries[first_query + (block[..., 0] * n_queries).astype(np.int64)]
        if int(quantities.min()) < most:
            picks[np.broadcast_to(np.arange(most) >= quantities[apart], picks.shape)] = -1
        return Intentions(picks, first_model + (block[..., 1] * n_models).astype(np.int64), block)

    def state(self) -> dict[str, NDArray[np.generic]]:
        """Return the state of all streams in use."""
        existing = [(i, streams) for i, streams in enumerate(self._streams) if streams is not None]
        return {
            "clients": np.array([i for i, _ in existing], np.int64),
            "users": pack_generators([streams.user for _, streams in existing]),
            "devices": pack_generators([streams.device for _, streams in existing]),
        }

    def restore(self, state: dict[str, NDArray[np.generic]]) -> None:
        """Continue from a state. Raises DataError if it belongs to another population."""
        clients = state["clients"].tolist()
        if clients and not 0 <= min(clients) <= max(clients) < len(self._clients):
            raise DataError(f"it has streams of client {max(clients)}, there are {len(self._clients)}")
        for i, user, device in zip(clients, state["users"].tolist(), state["devices"].tolist(), strict=True):
            streams = self.streams(i)
            set_generator(streams.user, user)
            set_generator(streams.device, device)

    def _personal_models(self, i: int, client: SimulatedClient) -> tuple[ClickModel, ...]:
        if all(model.personal_spread == 0.0 for model in client.click_models):
            return client.click_models
        user = self.streams(i).user
        return tuple(personal(model, user) for model in client.click_models)


def _joined(arrays: list[NDArray[np.int64]]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return all arrays concatenated, shared ones once; and (clients, 2) the start and length of each client's."""
    starts: dict[int, int] = {}
    distinct, total = [], 0
    spans = np.empty((len(arrays), 2), np.int64)
    for row, array in enumerate(arrays):
        if id(array) not in starts:
            starts[id(array)] = total
            distinct.append(array)
            total += len(array)
        spans[row] = starts[id(array)], len(array)
    return np.concatenate(distinct), spans


def _spans_of(models: list[tuple[ClickModel, ...]]) -> tuple[NDArray[np.int64], tuple[ClickModel, ...]]:
    """Return (clients, 2) the start and length of each client's models, and all models, equal tuples once."""
    starts: dict[tuple[ClickModel, ...], int] = {}
    flat: list[ClickModel] = []
    spans = np.empty((len(models), 2), np.int64)
    for row, own in enumerate(models):
        if own not in starts:
            starts[own] = len(flat)
            flat.extend(own)
        spans[row] = starts[own], len(own)
    return spans, tuple(flat)


def pack_generators(generators: list[np.random.Generator]) -> NDArray[np.uint64]:
    """(generators, 6) the state of each PCG64: two words of state, two of increment, the buffered half word."""
    rows = np.zeros((len(generators), 6), np.uint64)
    for row, generator in enumerate(generators):
        whole = generator.bit_generator.state
        state, inc = whole["state"]["state"], whole["state"]["inc"]
        rows[row] = (state // _WORD, state % _WORD, inc // _WORD, inc % _WORD, whole["has_uint32"], whole["uinteger"])
    return rows


def set_generator(generator: np.random.Generator, row: list[int]) -> None:
    generator.bit_generator.state = {
        "bit_generator": "PCG64",
        "state": {"state": row[0] * _WORD + row[1], "inc": row[2] * _WORD + row[3]},
        "has_uint32": row[4],
        "uinteger": row[5],
    }
