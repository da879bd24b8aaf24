"""FOLtR-ES: evolution strategies, in which a device sends a seed and the perturbed ranker's reward.

Kharitonov, "Federated Online Learning to Rank with Evolution Strategies" (WSDM 2019), as in Wang's thesis, Section
3.1.1. Each device perturbs the global weights by noise that its seed determines, ranks with them, measures the
reciprocal rank of the highest click (MaxRR), and averages a randomised response to each measurement. The federator
makes the same noise again from the seed and estimates the gradient.
"""

import hashlib
import struct
import threading
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foltr.core.errors import DataError
from foltr.core.numerics.compiled import compiled

_ADAM_HEADER = struct.Struct("<Q")
# How fast Adam's moments fade, and what keeps its quotient finite: as published.
_BETA_1, _BETA_2, _EPSILON = 0.9, 0.999, 1e-8


class _Philox(threading.local):
    """One generator per thread: making one costs ten times what setting its state does."""

    def __init__(self) -> None:
        self.bits = np.random.Philox(key=0)
        self.generator = np.random.Generator(self.bits)
        self.state = self.bits.state


_philox = _Philox()


def round_noise_seed(device_seed: int, base_version: int) -> int:
    """Return the seed of a device's perturbation of one model version.

    A keyed hash, so that seeds of other rounds, which the federator knows, reveal nothing about the next one.

    Args:
        device_seed: 63 bits that never leave the device.
        base_version: of the global model.

    Returns:
        63 bits, so that it fits a signed integer of a message or a database.
    """
    digest = hashlib.blake2b(
        base_version.to_bytes(8, "little"), digest_size=8, key=device_seed.to_bytes(8, "little"), person=b"foltr-es"
    )
    return int.from_bytes(digest.digest(), "little") >> 1


def es_noise(seed: int, dim: int, noise_scale: float) -> NDArray[np.float64]:
    """Return the perturbation for a seed (thesis, Section 3.1.1): normal, independent.

    Args:
        seed: 0 <= seed < 2^64.
        dim: how many weights.
        noise_scale: sigma, the standard deviation.

    Returns:
        (dim,) float64, the same for the same arguments on every machine.
    """
    source = _philox
    state = source.state["state"]
    state["key"][:] = (seed, 0)
    state["counter"][:] = 0
    source.bits.state = source.state
    return noise_scale * source.generator.standard_normal(dim)


def reciprocal_rank_values(serp_length: int) -> NDArray[np.float64]:
    """Return the possible reciprocal ranks: 0 without a click, else 1 / rank: (serp_length + 1,) float64."""
    return np.array([0.0, *(1.0 / rank for rank in range(1, serp_length + 1))])


@compiled
def reciprocal_rank_index(clicks: NDArray[np.bool_]) -> int:
    """Return the position in `reciprocal_rank_values` of a list's reciprocal rank: that of the highest click, or 0.

    Args:
        clicks: (k,) bool in the order shown.
    """
    for i in range(clicks.shape[0]):
        if clicks[i]:
            return i + 1
    return 0


@compiled
def randomised_response(value_index: int, truth_probability: float, n_values: int, draws: NDArray[np.float64]) -> int:
    """Return the true value with a probability, otherwise any other with equal chances (thesis, Section 3.1.1).

    Args:
        value_index: of the true value, 0 <= value_index < n_values.
        truth_probability: p, in (1 / n_values, 1].
        n_values: n.
        draws: (2,) float64 uniform in [0, 1): whether to tell the truth, and which other value.

    Returns:
        an index.
    """
    if draws[0] < truth_probability:
        return value_index
    other = int(draws[1] * (n_values - 1))
    return other + 1 if other >= value_index else other


def es_direction(seed: int, dim: int, noise_scale: float, plus: float, minus: float | None) -> NDArray[np.float64]:
    """Return one device's estimate of the gradient (thesis, Eq. 3.4 and 3.5).

    Antithetic: (plus - minus) * noise / (2 sigma^2), where a value that rises in neither direction cancels;
    otherwise plus * noise / sigma^2.

    Args:
        seed: of the noise.
        dim: how many weights.
        noise_scale: sigma > 0.
        plus: mean metric with the noise added.
        minus: mean metric with the noise subtracted; None if the device never did.

    Returns:
        (dim,) float64.
    """
    metric = plus if minus is None else 0.5 * (plus - minus)
    return es_noise(seed, dim, noise_scale) * (metric / noise_scale**2)


@dataclass(frozen=True, eq=False)
class AdamState:
    """Adam's state between steps (Kingma and Ba 2015).

    Attributes:
        first_moment: (dim,) float64 running mean of the gradient.
        second_moment: (dim,) float64 running mean of its square.
        step: how many steps were taken.
    """

    first_moment: NDArray[np.float64]
    second_moment: NDArray[np.float64]
    step: int

    @classmethod
    def zeros(cls, dim: int) -> "AdamState":
        """The state before the first step."""
        return cls(np.zeros(dim, np.float64), np.zeros(dim, np.float64), 0)

    def to_bytes(self) -> bytes:
        """Return the step as 8 bytes, then both moments as little-endian float64."""
        moments = np.concatenate([self.first_moment, self.second_moment])
        return _ADAM_HEADER.pack(self.step) + moments.astype("<f8").tobytes()

    @classmethod
    def from_bytes(cls, body: bytes) -> "AdamState":
        """Reverse `to_bytes`; DataError for other bytes."""
        if len(body) < _ADAM_HEADER.size or (len(body) - _ADAM_HEADER.size) % 16:
            raise DataError(f"{len(body)} bytes are no state of Adam")
        (step,) = _ADAM_HEADER.unpack_from(body)
        moments = np.frombuffer(body, "<f8", offset=_ADAM_HEADER.size).astype(np.float64)
        half = moments.shape[0] // 2
        return cls(moments[:half], moments[half:], step)


def adam_ascent(
    state: AdamState,
    gradient: NDArray[np.float64],
    learning_rate: float,
) -> tuple[AdamState, NDArray[np.float64]]:
    """Return Adam's next state and what to add to the weights to climb the gradient.

    Args:
        state: of the same dim.
        gradient: (dim,) float64.
        learning_rate: 0.001 in the published experiments.

    Raises:
        DataError: gradient and state differ in length.
    """
    if gradient.shape != state.first_moment.shape:
        raise DataError(f"Adam's state is for {state.first_moment.shape[0]} weights, not {gradient.shape[0]}")
    step = state.step + 1
    first = _BETA_1 * state.first_moment + (1.0 - _BETA_1) * gradient
    second = _BETA_2 * state.second_moment + (1.0 - _BETA_2) * gradient**2
    corrected = np.sqrt(second / (1.0 - _BETA_2**step)) + _EPSILON
    return AdamState(first, second, step), learning_rate * (first / (1.0 - _BETA_1**step)) / corrected
