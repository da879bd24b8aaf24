"""The application of a simulated client: it has its own order and, like a device, a gate before the model.

The order is by one feature, such as BM25 in a data set that has it.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from foltr.core.errors import SettingsError
from foltr.core.evaluation.metrics import ndcg_at_k
from foltr.core.learning.gate import FadingMean, Gate, ShownCount, Source, source_of_next, with_list
from foltr.core.methods.base import MethodDevice
from foltr.core.methods.lists import SourcedList, list_from
from foltr.core.protocol.explorations import Exploration

State = dict[str, NDArray[np.generic]]
_N_EVIDENCE, _N_NUMBERS, _N_COUNTS = 3, 4, 3


@dataclass(frozen=True, eq=False)
class OrderedQuery:
    """A query's documents in the application's order, best first."""

    features: NDArray[np.float32]
    relevance: NDArray[np.int16]
    base_scores: NDArray[np.float32]

    def base_ndcg(self, k: int) -> float:
        """Return the nDCG of the application's own list."""
        return ndcg_at_k(self.relevance[:k], k, self.relevance)


class Applications:
    """The applications of a population's clients.

    Args:
        feature: the feature that every application orders by, from 1.
        n_features: of the data. Raises SettingsError if the feature is beyond it.
    """

    def __init__(self, feature: int, n_features: int) -> None:
        if feature > n_features:
            raise SettingsError(f"base_feature: {feature}, but the data has {n_features} features")
        self._column = feature - 1
        self._gates: dict[int, Gate] = {}

    def ordered(self, features: NDArray[np.float32], relevance: NDArray[np.int16]) -> OrderedQuery:
        """Return a query's documents in the application's order; ties keep the given order."""
        order = np.argsort(-features[:, self._column], kind="stable")
        features = features[order]
        return OrderedQuery(features, relevance[order], features[:, self._column])

    def list_for(
        self,
        client: int,
        query: OrderedQuery,
        device: MethodDevice,
        exploration: Exploration,
        k: int,
        rng: np.random.Generator,
    ) -> SourcedList:
        """Draw a client's list by its gate. The first model of a linear ranker is ignored: it ranks all alike."""
        scores, _ = device.scores(query.features, exploring=True)
        gate = self._gate(client)
        if not device.weights.any():
            return list_from(Source.BASE, exploration, scores, query.base_scores, k, rng)
        source = source_of_next(gate, rng)
        return list_from(source, exploration, scores, query.base_scores, k, rng)

    def take_clicks(self, client: int, shown: SourcedList, clicks: NDArray[np.bool_]) -> None:
        """Let a client's gate judge by the clicks (k,) on its newest list."""
        self._gates[client] = with_list(self._gate(client), shown.source, clicks, shown.to_credit)

    def state(self) -> State:
        """Return all gates as arrays."""
        clients = sorted(self._gates)
        numbers = np.array([_numbers(self._gates[client]) for client in clients], np.float64)
        return {"gated_clients": np.array(clients, np.int64), "gates": numbers}

    def restore(self, state: State) -> None:
        clients = state["gated_clients"].tolist()
        self._gates = {
            client: _gate(row) for client, row in zip(clients, state["gates"].astype(np.float64), strict=True)
        }

    def _gate(self, client: int) -> Gate:
        return self._gates.get(client, _CLOSED)


_CLOSED: Final = Gate()


def _numbers(gate: Gate) -> list[float]:
    evidence = [number for one in (gate.credits, gate.of_base, gate.of_model) for number in one]
    counts = [number for source in Source for number in gate.count(source)]
    return [float(gate.is_open), *evidence, *counts]


def _gate(numbers: NDArray[np.float64]) -> Gate:
    end = 1 + _N_EVIDENCE * _N_NUMBERS
    credits_, of_base, of_model = (FadingMean(*row) for row in numbers[1:end].reshape(_N_EVIDENCE, _N_NUMBERS).tolist())
    rows = numbers[end:].reshape(len(Source), _N_COUNTS).tolist()
    counts = {
        source: ShownCount(int(lists), int(clicked), ranks)
        for source, (lists, clicked, ranks) in zip(Source, rows, strict=True)
    }
    return Gate(bool(numbers[0]), credits_, of_base, of_model, counts)
