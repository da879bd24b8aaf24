"""Searches whose users' wanted documents are known: a made one with any base, and the desktop search of the examples.

A made search has twenty candidates for each query, and the user wants one of them. Each feature is a Gaussian that is
higher by its strength for the wanted document. The base orders by the first feature. Four others know a little, three
nothing, so that all features together can do better than the base.
"""

import math
import sys
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

K = 10
N_DOCUMENTS = 20
N_FEATURES = 8
_N_INFORMED = 4
_ROOM = 0.4  # by how much all features together are stronger than the base
_DESKTOP = Path(__file__).parents[2] / "examples/desktop_search"


class KnownQuery(NamedTuple):
    """A query's candidates in the base's order, best first.

    Attributes:
        features: (docs, features) float32.
        base: (docs,) float64 scores, never increasing.
        wanted: the position of the wanted document in the base's order, from 0.
    """

    features: NDArray[np.float32]
    base: NDArray[np.float64]
    wanted: int


class KnownSearch(Protocol):
    """A search with a base whose quality is known.

    Attributes:
        base_mrr: the base's MRR@10.
    """

    n_features: int
    base_mrr: float

    def query(self, user: int, rng: np.random.Generator) -> KnownQuery:
        """Draw a query of a user."""


class MadeSearch:
    """A search with a base of the given MRR@10.

    Args:
        base_mrr: in (0.15, 0.99).
    """

    n_features = N_FEATURES

    def __init__(self, base_mrr: float) -> None:
        self.base_mrr = base_mrr
        strength = strength_of(base_mrr)
        others = math.sqrt((strength + _ROOM) ** 2 - strength**2) / math.sqrt(_N_INFORMED)
        self._strengths = np.zeros(N_FEATURES)
        self._strengths[0], self._strengths[1 : 1 + _N_INFORMED] = strength, others

    def query(self, user: int, rng: np.random.Generator) -> KnownQuery:  # noqa: ARG002 (users are alike)
        values = rng.standard_normal((N_DOCUMENTS, N_FEATURES))
        values[0] += self._strengths
        order = np.argsort(-values[:, 0], kind="stable")
        middle, width = self._strengths / 2, 6.0 + self._strengths
        scaled = np.clip((values[order] - middle) / width + 0.5, 0.0, 1.0)
        return KnownQuery(scaled.astype(np.float32), values[order, 0], int(np.flatnonzero(order == 0)[0]))


class DesktopSearch:
    """The standard library's documentation (`examples/desktop_search`), by BM25 and the queries of its eight users."""

    def __init__(self, seed: int) -> None:
        sys.path.insert(0, str(_DESKTOP))
        from collection import make_collection
        from documents import standard_library

        asked = make_collection(standard_library(), seed).train
        self._asked = asked
        self._of_user = [np.flatnonzero(asked.devices == device) for device in range(int(asked.devices.max()) + 1)]
        self.n_features = asked.dataset.features.shape[1]
        wanted = [asked.query(i)[2] for i in range(asked.dataset.n_queries)]
        self.base_mrr = float(np.mean([reciprocal(position) for position in wanted]))

    def query(self, user: int, rng: np.random.Generator) -> KnownQuery:
        number = int(rng.choice(self._of_user[user % len(self._of_user)]))
        rows = slice(*self._asked.dataset.offsets[number : number + 2])
        _, base, wanted = self._asked.query(number)
        return KnownQuery(self._asked.dataset.features[rows], base, wanted)


def reciprocal(position: int) -> float:
    """Return the reciprocal rank of a position from 0; 0 below the tenth."""
    return 1.0 / (1 + position) if position < K else 0.0


def strength_of(base_mrr: float) -> float:
    """Return by how much the first feature must be higher for the wanted document."""
    low, high = 0.0, 10.0
    for _ in range(40):
        middle = (low + high) / 2
        low, high = (middle, high) if _mrr_of(middle) < base_mrr else (low, middle)
    return low


def _mrr_of(strength: float) -> float:
    """Return the MRR@10 of an order by one feature: over its values, and how many of the others exceed them."""
    values = np.linspace(-7.0, 7.0, 1401) + strength
    density = np.exp(-((values - strength) ** 2) / 2) / math.sqrt(2 * math.pi) * 0.01
    exceeds = np.array([math.erfc(value / math.sqrt(2)) / 2 for value in values])
    others, total = N_DOCUMENTS - 1, 0.0
    for above in range(K):
        likely = math.comb(others, above) * exceeds**above * (1 - exceeds) ** (others - above)
        total += float((density * likely).sum()) / (1 + above)
    return total
