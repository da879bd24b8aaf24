"""The neural ranker: one hidden layer of sigmoid units, f(x) = w2 . sigmoid(x W1 + b1), without an output bias.

The ranker of neural PDGD (Oosterhuis and de Rijke, CIKM 2018: 64 units) and of neural FOLtR-ES (Wang's thesis,
Section 3.1.2: 10 units). Its weights travel as one flat vector [W1 (d, hidden) row-major | b1 (hidden) | w2
(hidden)]: what FedPer keeps on the device, the output layer, is the end of it.
"""

import numpy as np
from numpy.typing import NDArray

from foltr.core.errors import DataError
from foltr.core.numerics.compiled import compiled, compiled_instead_of
from foltr.core.numerics.exponentials import take_tanh

# OpenBLAS multiplies matrices of up to 10^6 products in place, and packs larger ones first, which takes half as long as
# the work itself for a small layer. So these are multiplied in parts: measured from 46 x 64 to 700 x 64 weights.
_PRODUCTS_UNPACKED = 1_000_000
_SMALL_LAYER = 2**14


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

    tanh cannot overflow, and is taken of many numbers at a time. Halving is exact, so it is done to the
    weights, which are fewer than the inputs.

    Args:
        weights: (hidden * (d + 2),).
        features: (docs, d) float32.
        hidden: units of the hidden layer.

    Returns:
        (docs, hidden) float32.
    """
    halved = np.empty(hidden * (features.shape[1] + 1), np.float32)
    halve_hidden_layer(weights, halved)
    tanhs = np.empty((features.shape[0], hidden), np.float32)
    hidden_inputs(halved, features, tanhs)
    take_tanh(tanhs, tanhs)
    return tanhs


@compiled
def hidden_inputs(halved: NDArray[np.float32], features: NDArray[np.float32], inputs: NDArray[np.float32]) -> None:
    """Write the hidden units' inputs x W1 / 2 + b1 / 2 to ``inputs``; a kernel for the reason that `score` is one.

    Args:
        halved: (hidden * (d + 1),) float32 of `halve_hidden_layer`.
        features: (docs, d) float32.
        inputs: (docs, hidden) float32.
    """
    n_documents, n_features = features.shape
    n_first = n_features * inputs.shape[1]
    layer = halved[:n_first].reshape(n_features, inputs.shape[1])
    n_parts = 1
    if 0 < n_first <= _SMALL_LAYER:
        n_parts = n_documents * n_first // _PRODUCTS_UNPACKED + 1
    in_part = (n_documents + n_parts - 1) // n_parts
    for part in range(n_parts):
        start, end = part * in_part, min((part + 1) * in_part, n_documents)
        if start < end:
            np.dot(features[start:end], layer, inputs[start:end])
    add_bias(inputs, halved[n_first:])


def _halve_hidden_layer(weights: NDArray[np.floating], halved: NDArray[np.float32]) -> None:
    np.multiply(weights[: halved.shape[0]].astype(np.float32), np.float32(0.5), out=halved)


@compiled_instead_of(_halve_hidden_layer)
def halve_hidden_layer(weights: NDArray[np.floating], halved: NDArray[np.float32]) -> None:
    """Write W1 / 2 and b1 / 2 to ``halved``, (hidden * (d + 1),), in the types of `hidden_tanhs`."""
    for i in range(halved.shape[0]):
        halved[i] = np.float32(weights[i]) * np.float32(0.5)


def _add_bias(inputs: NDArray[np.float32], bias: NDArray[np.float32]) -> None:
    inputs += bias


@compiled_instead_of(_add_bias)
def add_bias(inputs: NDArray[np.float32], bias: NDArray[np.float32]) -> None:
    """Add the bias (hidden,) to the inputs (docs, hidden) of the hidden units, which are written to."""
    for document in range(inputs.shape[0]):
        for unit in range(inputs.shape[1]):
            inputs[document, unit] += bias[unit]


@compiled
def output_scores(weights: NDArray[np.floating], tanhs: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return the scores w2 . (1 + tanhs) / 2; a kernel for the reason that `foltr.core.learning.linear.score` is one.

    Args:
        weights: (hidden * (d + 2),).
        tanhs: (docs, hidden) float32 of `hidden_tanhs`.

    Returns:
        (docs,) float32.
    """
    halved = weights[weights.shape[0] - tanhs.shape[1] :].astype(np.float32) * np.float32(0.5)
    scores: NDArray[np.float32] = tanhs @ halved + halved.sum()
    return scores
