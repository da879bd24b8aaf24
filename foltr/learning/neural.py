"""The neural ranker: one hidden layer of sigmoid units, f(x) = w2 . sigmoid(x W1 + b1), without an output bias.

The ranker of neural PDGD (Oosterhuis and de Rijke, CIKM 2018: 64 units) and of neural FOLtR-ES (Wang's thesis,
Section 3.1.2: 10 units). Its weights travel as one flat vector [W1 (d, hidden) row-major | b1 (hidden) | w2
(hidden)]: what FedPer keeps on the device, the output layer, is the end of it.
"""

import numpy as np
from numpy.typing import NDArray

from foltr.errors import DataError
from foltr.numerics.compiled import compiled


def n_neural_weights(n_features: int, hidden: int) -> int:
    """Return how many weights a ranker of this size has: hidden * (n_features + 2)."""
    return hidden * (n_features + 2)


def init_neural(n_features: int, hidden: int, rng: np.random.Generator) -> NDArray[np.float32]:
    """Return random weights: every layer normal with standard deviation 1 / (units it reads from).

    As the published PDGD code does, the hidden bias included: it is drawn like the weights it is added to. Not to be
    zero: with equal hidden units they would all learn the same.

    Args:
        n_features: d.
        hidden: units of the hidden layer.
        rng: advanced by one normal draw per weight.

    Returns:
        (hidden * (d + 2),) float32.
    """
    first_layer = rng.normal(0.0, 1.0 / n_features, size=hidden * (n_features + 1))
    return np.concatenate([first_layer, rng.normal(0.0, 1.0 / hidden, size=hidden)]).astype(np.float32)


def neural_score(weights: NDArray[np.floating], features: NDArray[np.float32], hidden: int) -> NDArray[np.float32]:
    """Score documents.

    Args:
        weights: (hidden * (d + 2),).
        features: (docs, d) float32.
        hidden: units of the hidden layer.

    Returns:
        (docs,) float32.

    Raises:
        DataError: the weights are not as many as the ranker's.
    """
    return neural_forward(weights, features, hidden)[1]


def neural_forward(
    weights: NDArray[np.floating], features: NDArray[np.float32], hidden: int
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return what the backward pass needs of the hidden units, and the scores; as `neural_score`.

    Returns:
        (docs, hidden) float32 as `hidden_tanhs`, and (docs,) float32 scores.
    """
    expected = n_neural_weights(features.shape[1], hidden)
    if weights.shape != (expected,):
        raise DataError(
            f"{features.shape[1]} features and {hidden} hidden units need {expected} weights, not {weights.shape}"
        )
    tanhs = hidden_tanhs(weights, features, hidden)
    return tanhs, output_scores(weights, tanhs)


def hidden_tanhs(weights: NDArray[np.floating], features: NDArray[np.float32], hidden: int) -> NDArray[np.float32]:
    """Return tanh(a / 2) for the hidden units' inputs a = x W1 + b1, since sigmoid(a) = (1 + tanh(a / 2)) / 2.

    NumPy takes tanh of many numbers at a time, and it cannot overflow. Halving is exact, so it is done to the
    weights, which are fewer than the inputs.

    Args:
        weights: (hidden * (d + 2),).
        features: (docs, d) float32.
        hidden: units of the hidden layer.

    Returns:
        (docs, hidden) float32.
    """
    n_first = features.shape[1] * hidden
    halved = weights[: n_first + hidden].astype(np.float32)
    halved *= np.float32(0.5)
    tanhs: NDArray[np.float32] = features @ halved[:n_first].reshape(-1, hidden)
    tanhs += halved[n_first:]
    return np.tanh(tanhs, out=tanhs)


@compiled
def output_scores(weights: NDArray[np.floating], tanhs: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the scores w2 . (1 + tanhs) / 2; a kernel for the reason that `foltr.learning.linear.score` is one.

    Args:
        weights: (hidden * (d + 2),).
        tanhs: (docs, hidden) float32 of `hidden_tanhs`.

    Returns:
        (docs,) float32.
    """
    halved = weights[weights.shape[0] - tanhs.shape[1] :].astype(np.float32) * np.float32(0.5)
    scores: NDArray[np.float32] = tanhs @ halved + halved.sum()
    return scores
