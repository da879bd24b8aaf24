"""The two-layer ranker of FOLtR-ES as published: f(x) = w2 . max(x W1 + b1, 0), without an output bias.

Kharitonov (WSDM 2019), and the code published with it (``facebookresearch/foltr-es``, ``foltr/client/rankers.py``),
which Wang's thesis, Section 3.1.2, uses with 10 units. All weights begin at zero: evolution strategies perturb them,
and need no gradient of the scores. The weights lie as in `foltr.core.learning.neural`.
"""

import numpy as np
from numpy.typing import NDArray

from foltr.core.errors import DataError
from foltr.core.numerics.compiled import compiled


@compiled
def relu_score(weights: NDArray[np.floating], features: NDArray[np.float32], hidden: int) -> NDArray[np.float32]:
    """Score documents; a kernel for the reason that `foltr.core.learning.linear.score` is one.

    Args:
        weights: (hidden * (d + 2),), C order.
        features: (docs, d) float32, C order.
        hidden: units of the hidden layer.

    Returns:
        (docs,) float32.

    Raises:
        DataError: the weights are not as many as the ranker's.
    """
    n_features = features.shape[1]
    if weights.shape[0] != hidden * (n_features + 2):
        raise DataError("a ReLU ranker's weights must be hidden by features + 2")
    single = weights.astype(np.float32)
    n_first = n_features * hidden
    units = features @ single[:n_first].reshape((n_features, hidden))
    units += single[n_first : n_first + hidden]
    scores: NDArray[np.float32] = np.maximum(units, np.float32(0.0)) @ single[n_first + hidden :]
    return scores
