"""Times of Flower's SecAgg+ for a round without losses, for comparison in secure_sum.py.

It calls Flower's functions stage by stage, without its network: a client's four stages, and the server's work for each
client in the last two. A client's work depends on the number of neighbours with which it shares its keys, not on the
number of clients. So a group of mutual neighbours represents a round of any size.
"""

import importlib
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

CLIPPING_RANGE, QUANTIZATION_RANGE, MODULUS_RANGE = 8.0, 2**22, 2**32
"""Flower's defaults."""


def shares_of(n_clients: int) -> int:
    """Return a client's number of neighbours including itself: twice the logarithm, odd, as in SecAgg+."""
    return min(n_clients, 2 * (n_clients - 1).bit_length() + 1)


def threshold_of(n_shares: int) -> int:
    """Return how many shares open a seed: two thirds."""
    return max(2, 2 * n_shares // 3)


class Group:
    """Clients of Flower's that are all neighbours of each other, each with one update.

    Args:
        updates: (n, d) float32, equally weighted.
    """

    def __init__(self, updates: NDArray[np.float32]) -> None:
        from flwr.common import ndarrays_to_parameters

        # By name: the package has a function with the module's name.
        self._mod = importlib.import_module("flwr.client.mod.secure_aggregation.secaggplus_mod")
        self._n = len(updates)
        self._threshold = threshold_of(self._n)
        self._states = [self._mod.SecAggPlusState() for _ in updates]
        self._parameters = [ndarrays_to_parameters([update]) for update in updates]
        for i, state in enumerate(self._states):
            state.nid = i
        self._public_keys: dict[str, Any] = {}
        self._shared: list[dict[str, Any]] = []
        self.masked: list[list[NDArray[Any]]] = []
        self._opened: list[dict[str, Any]] = []

    def client_stages(self) -> list[float]:
        """Run all clients through the four stages. Return a client's seconds in each."""
        return [self._set_up(), self._share_keys(), self._mask(), self._open()]

    def release(self) -> tuple[NDArray[np.float64], float]:
        """Return the server's mean of all updates, and its seconds for each client."""
        from flwr.common.secure_aggregation import ndarrays_arithmetic as arithmetic
        from flwr.common.secure_aggregation.crypto.shamir import combine_shares
        from flwr.common.secure_aggregation.quantization import dequantize
        from flwr.common.secure_aggregation.secaggplus_utils import pseudo_rand_gen

        shares: list[list[bytes]] = [[] for _ in range(self._n)]
        for answer in self._opened:
            for owner, share in zip(answer[self._mod.Key.NODE_ID_LIST], answer[self._mod.Key.SHARE_LIST], strict=True):
                shares[owner].append(share)
        began = time.perf_counter()
        total = self.masked[0]
        for vector in self.masked[1:]:
            total = arithmetic.parameters_addition(total, vector)
        total = arithmetic.parameters_mod(total, MODULUS_RANGE)
        for own in shares:
            mask = pseudo_rand_gen(combine_shares(own), MODULUS_RANGE, arithmetic.get_parameters_shape(total))
            total = arithmetic.parameters_subtraction(total, mask)
        weight, vectors = arithmetic.factor_extract(arithmetic.parameters_mod(total, MODULUS_RANGE))
        (found,) = dequantize(vectors, CLIPPING_RANGE, QUANTIZATION_RANGE)
        mean = (found - (self._n - 1) * CLIPPING_RANGE) * (QUANTIZATION_RANGE / weight)
        return mean, (time.perf_counter() - began) / self._n

    def _set_up(self) -> float:
        key = self._mod.Key
        asked = {
            key.SAMPLE_NUMBER: self._n,
            key.SHARE_NUMBER: self._n,
            key.THRESHOLD: self._threshold,
            key.CLIPPING_RANGE: CLIPPING_RANGE,
            key.TARGET_RANGE: QUANTIZATION_RANGE,
            key.MOD_RANGE: MODULUS_RANGE,
            key.MAX_WEIGHT: 1.0,
        }
        found, seconds = self._each(lambda i: self._mod._setup(self._states[i], asked))  # noqa: SLF001 (no other)
        self._public_keys = {str(i): (one[key.PUBLIC_KEY_1], one[key.PUBLIC_KEY_2]) for i, one in enumerate(found)}
        return seconds

    def _share_keys(self) -> float:
        self._shared, seconds = self._each(
            lambda i: self._mod._share_keys(self._states[i], dict(self._public_keys))  # noqa: SLF001
        )
        return seconds

    def _mask(self) -> float:
        from flwr.common import bytes_to_ndarray

        key = self._mod.Key
        heard: list[dict[str, list[Any]]] = [{key.SOURCE_LIST: [], key.CIPHERTEXT_LIST: []} for _ in range(self._n)]
        for i, one in enumerate(self._shared):
            for to, ciphertext in zip(one[key.DESTINATION_LIST], one[key.CIPHERTEXT_LIST], strict=True):
                heard[to][key.SOURCE_LIST].append(i)
                heard[to][key.CIPHERTEXT_LIST].append(ciphertext)
        found, seconds = self._each(
            lambda i: self._mod._collect_masked_vectors(self._states[i], heard[i], 1, self._parameters[i])  # noqa: SLF001
        )
        self.masked = [[bytes_to_ndarray(part) for part in one[key.MASKED_PARAMETERS]] for one in found]
        return seconds

    def _open(self) -> float:
        key = self._mod.Key
        asked = {key.ACTIVE_NODE_ID_LIST: list(range(self._n)), key.DEAD_NODE_ID_LIST: []}
        self._opened, seconds = self._each(lambda i: self._mod._unmask(self._states[i], asked))  # noqa: SLF001
        return seconds

    def _each(self, stage: Callable[[int], dict[str, Any]]) -> tuple[list[dict[str, Any]], float]:
        """Return each client's message in a stage, and the seconds of the fastest."""
        said, least = [], float("inf")
        for i in range(self._n):
            began = time.perf_counter()
            said.append(stage(i))
            least = min(least, time.perf_counter() - began)
        return said, least


def measure_flower(n_clients: int, dim: int, repeats: int) -> dict[str, float]:
    """Return a row: the least milliseconds of a client, of the server, and of a whole sequential round.

    Raises ImportError if Flower is not installed.
    """
    updates = np.random.default_rng(1).normal(size=(shares_of(n_clients), dim)).astype(np.float32)
    clients, servers = [], []
    for _ in range(repeats):
        group = Group(updates)
        clients.append(sum(group.client_stages()))
        servers.append(group.release()[1])
    client_ms, server_ms = 1e3 * min(clients), 1e3 * min(servers) * n_clients
    return {
        "flwr_client_ms": client_ms,
        "flwr_server_ms": server_ms,
        "flwr_whole_ms": n_clients * client_ms + server_ms,
    }
