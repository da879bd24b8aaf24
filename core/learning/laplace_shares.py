"""The noise of FPDGD's Algorithm 3 as published. It protects less than is claimed (docs/methods.md).

Wang et al., "Effective and Privacy-preserving Federated Online Learning to Rank" (ICTIR 2021), Section 3.3. It is here
to reproduce the published figures, not to protect anyone. A client clips its weights to Delta/2 and adds the difference
of two Gamma(1/n) variables to each; over n clients these differences add up to Laplace noise of scale Delta/epsilon in
each of the d coordinates.
"""

import math

import numpy as np
from numpy.typing import NDArray

from foltr.core.errors import DataError

# P(G > 40) < 1e-17 for a Gamma variable of scale 1 and shape at most 1, and a share's shape is 1/n.
_LARGEST_GAMMA = 40.0


def clip_weights(weights: NDArray[np.floating], sensitivity: float) -> NDArray[np.floating]:
    """Return the weights shrunk to an L2 norm of at most sensitivity / 2 (FPDGD, Eq. 13).

    The paper does not name the norm; L2 is what its code uses, there with the bound `sensitivity`.

    Args:
        weights: (d,).
        sensitivity: Delta, above 0.

    Returns:
        (d,) a new array of the weights' type.

    Raises:
        DataError: a weight is not finite, which no shrinking mends.
    """
    norm = float(np.linalg.norm(weights.astype(np.float64)))
    if not math.isfinite(norm):
        raise DataError("weights must be finite numbers to be clipped")
    bound = sensitivity / 2.0
    factor = bound / norm if norm > bound else 1.0
    return (weights * factor).astype(weights.dtype)


def gamma_noise(
    n_clients: int, sensitivity: float, epsilon: float, dim: int, rng: np.random.Generator
) -> NDArray[np.float64]:
    """Return one client's share gamma - gamma' of the noise (FPDGD, Eq. 15 and 16).

    The sum of n_clients independent shares is Laplace noise of scale sensitivity / epsilon.

    Args:
        n_clients: n, how many shares make up the noise; each has shape 1/n.
        sensitivity: Delta, above 0.
        epsilon: above 0.
        dim: d.
        rng: advanced by the d draws of gamma, then those of gamma'.

    Returns:
        (dim,) float64. Many entries are exactly zero if n is large: a Gamma(1/1000) variable is below the
        smallest float64 in nearly every second draw.
    """
    shape, scale = 1.0 / n_clients, noise_scale(sensitivity, epsilon)
    return rng.gamma(shape, scale, dim) - rng.gamma(shape, scale, dim)


def largest_delta(sensitivity: float, epsilon: float) -> float:
    """Return a bound on the size of every weight of an update, exceeded with a probability below 1e-16.

    An update is a clipped weight and a share of noise, less the weight of a model that is the mean of such sums.
    """
    return sensitivity + 2.0 * _LARGEST_GAMMA * noise_scale(sensitivity, epsilon)


def noise_scale(sensitivity: float, epsilon: float) -> float:
    """Return the scale of the Laplace noise, Delta / epsilon."""
    return sensitivity / epsilon
