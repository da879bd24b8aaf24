"""PDGD for the neural ranker: the gradient of the shown scores, carried back through one hidden layer.

Oosterhuis and de Rijke (CIKM 2018), Section 4; FPDGD (Wang et al. 2021), Eq. 5 and 6 for the gradient with
respect to the scores, which is the same for every ranker (`foltr.core.learning.pdgd.score_gradient`). With g_i that of
the shown document x_i, h_i its hidden units and a_i = g_i w2 * h_i * (1 - h_i) (elementwise):

    dw2 = sum_i g_i h_i,    db1 = sum_i a_i,    dW1 = sum_i outer(x_i, a_i)
"""

import numpy as np
from numpy.typing import NDArray

from foltr.core.errors import DataError
from foltr.core.learning.neural import neural_forward
from foltr.core.learning.pdgd import clicked_reversals, score_gradient
from foltr.core.numerics.compiled import compiled, compiled_instead_of


def neural_pdgd_step(
    weights: NDArray[np.floating],
    features: NDArray[np.float32],
    ranking: NDArray[np.int64],
    clicks: NDArray[np.bool_],
    learning_rate: float,
    proximal: float = 0.0,
    base: NDArray[np.floating] | None = None,
    reversals: NDArray[np.float64] | None = None,
) -> NDArray[np.floating]:
    """Return the neural ranker's weights after one interaction; as `foltr.core.learning.pdgd.pdgd_step`.

    Args:
        weights: (hidden * (d + 2),).
        features: (docs, d) float32: all candidates.
        ranking: (k,) the documents shown.
        clicks: (k,) whether each was clicked.
        learning_rate: the step; 0.1 in the published experiments.
        proximal: FedProx' mu, >= 0; 0 is plain FedAvg.
        base: (hidden * (d + 2),) the global weights; needed if proximal is not 0.
        reversals: of the list as it was drawn; None if these weights drew it.

    Returns:
        a new array of the weights' shape and type.

    Raises:
        DataError: as `foltr.core.learning.pdgd.pdgd_gradient`, or the weights are not as many as the ranker's.
    """
    tanhs, scores = neural_forward(weights, features, len(weights) // (features.shape[1] + 2))
    stepped = weights.copy()
    anchor = stepped if base is None else base.astype(weights.dtype, copy=False)
    if reversals is None:
        reversals = clicked_reversals(scores, ranking, clicks)
    neural_step(stepped, features, tanhs, scores, ranking, clicks, reversals, learning_rate, proximal, anchor, False)
    return stepped


@compiled
def neural_step(
    weights: NDArray[np.floating],
    features: NDArray[np.float32],
    tanhs: NDArray[np.float32],
    scores: NDArray[np.float32],
    ranking: NDArray[np.int64],
    clicks: NDArray[np.bool_],
    reversals: NDArray[np.float64],
    learning_rate: float,
    proximal: float,
    base: NDArray[np.floating],
    is_at_base: bool,
) -> bool:
    """The kernel of `neural_pdgd_step`; `weights` is stepped in place, which spares the simulator a copy.

    Args:
        weights: (hidden * (d + 2),), written to.
        features: (docs, d) float32.
        tanhs: (docs, hidden) float32 of `neural_forward`.
        scores: (docs,) float32.
        ranking: (k,) int64.
        clicks: (k,) bool.
        reversals: of the list as it was drawn.
        learning_rate: the step.
        proximal: FedProx' mu.
        base: (hidden * (d + 2),).
        is_at_base: whether the ranker's weights are the base; `weights` may then hold anything, and receives the first
            step; it is not written to without one.

    Returns:
        whether the weights may have changed.
    """
    n_features, hidden = features.shape[1], tanhs.shape[1]
    if features.shape[0] != scores.shape[0] or weights.shape[0] != hidden * (n_features + 2):
        raise DataError("features must be documents by features, and weights hidden by features + 2")
    if base.shape[0] != weights.shape[0]:
        raise DataError("the base weights must be as many as the weights")
    gradient = score_gradient(scores, ranking, clicks, reversals)
    n_first = n_features * hidden
    # Copied before the pull: the gradient belongs to the weights that were shown.
    output = (base if is_at_base else weights)[n_first + hidden :].astype(np.float32)
    is_pulled = proximal != 0.0 and not is_at_base
    if is_pulled:
        weights -= learning_rate * proximal * (weights - base)
    if not gradient.any():
        return is_pulled
    if is_at_base:
        weights[n_first:] = base[n_first:]
    used, carried = step_above_features(weights[n_first:], output, tanhs, ranking, learning_rate * gradient)
    change = (features[used].T @ carried).reshape(n_first)
    if is_at_base:
        _write_sum(base[:n_first], change, weights[:n_first])
    else:
        _add(weights[:n_first], change)
    return True


def _step_above_whole(
    weights: NDArray[np.floating],
    output: NDArray[np.float32],
    tanhs: NDArray[np.float32],
    ranking: NDArray[np.int64],
    steps: NDArray[np.float64],
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    hidden = output.shape[0]
    used = np.flatnonzero(steps)
    carried = np.empty((used.shape[0], hidden), np.float32)
    for i in range(used.shape[0]):
        step = np.float32(steps[used[i]])
        tanh = tanhs[ranking[used[i]]]
        carried[i] = step * np.float32(0.25) * (output * (np.float32(1.0) - tanh * tanh))
        weights[:hidden] += carried[i]
        weights[hidden:] += step * np.float32(0.5) * (np.float32(1.0) + tanh)
    return ranking[used], carried


@compiled_instead_of(_step_above_whole)
def step_above_features(
    weights: NDArray[np.floating],
    output: NDArray[np.float32],
    tanhs: NDArray[np.float32],
    ranking: NDArray[np.int64],
    steps: NDArray[np.float64],
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Step the hidden bias and the output layer in place, and return how to step the first layer.

    Args:
        weights: (2 * hidden,) bias and output layer.
        output: (hidden,) float32, the output layer that the list was shown by.
        tanhs: (docs, hidden) float32.
        ranking: (k,) int64.
        steps: (k,) learning rate times the gradient of the shown scores.

    Returns:
        (m,) the documents that are in a pair, and (m, hidden) float32: the first layer's step is the sum of the outer
        products of their features and these.
    """
    hidden = output.shape[0]
    # Most shown documents are in no pair.
    used = np.flatnonzero(steps)
    carried = np.empty((used.shape[0], hidden), np.float32)
    one, bias, layer = np.float32(1.0), weights[:hidden], weights[hidden:]
    for i in range(used.shape[0]):
        step = np.float32(steps[used[i]])
        of_inputs, of_output = step * np.float32(0.25), step * np.float32(0.5)
        tanh, row = tanhs[ranking[used[i]]], carried[i]
        for j in range(hidden):
            # h = (1 + tanh) / 2, so h (1 - h) = (1 - tanh^2) / 4.
            row[j] = of_inputs * (output[j] * (one - tanh[j] * tanh[j]))
        for j in range(hidden):
            bias[j] += row[j]
        for j in range(hidden):
            layer[j] += of_output * (one + tanh[j])
    return ranking[used], carried


def _add_whole(weights: NDArray[np.floating], change: NDArray[np.float32]) -> None:
    weights += change


@compiled_instead_of(_add_whole)
def _add(weights: NDArray[np.floating], change: NDArray[np.float32]) -> None:
    """Add numbers of another type in place: numba would first make whole arrays of what a loop adds one by one."""
    for i in range(change.shape[0]):
        weights[i] += change[i]


def _write_whole_sum(base: NDArray[np.floating], change: NDArray[np.float32], weights: NDArray[np.floating]) -> None:
    np.add(base, change, out=weights)


@compiled_instead_of(_write_whole_sum)
def _write_sum(base: NDArray[np.floating], change: NDArray[np.float32], weights: NDArray[np.floating]) -> None:
    """Write base + change to the weights; in place as in `_add`."""
    for i in range(change.shape[0]):
        weights[i] = base[i] + change[i]
