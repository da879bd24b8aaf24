"""What a device adds to a sum for its lists' rewards, three numbers of 0 or u, and credits, one of -w, 0 or w.

An evaluation is three means over the lists of an update, each from 0 to 1: how many were clicked, their reward, and
their base reward (`foltr.core.protocol.evaluations`). A sum takes whole numbers, and a number that is one of two can be
proven (`foltr.core.secure.vote_proof`), so each mean becomes u with its own probability and else 0. On average many
devices add u times the sum of their means.

One draw decides all three numbers. Each still has its probability. A mean that is no larger than another one never
becomes u if that does not, so nothing is rewarded without a click. And the difference of two varies as little as
possible, which helps to compare the reward with the base reward.

Credits of interleaved lists say whether the model is better (`foltr.core.learning.credits`). Their total, cut to -1 to
1, is rounded to one of three in the same way. If the model is no better it is 0 on average, also cut and rounded.
"""

import math
from typing import Final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foltr.core.secure.accounting import N_CREDITS, N_EVALUATION
from foltr.core.secure.coins import Entropy

_DRAWN_BYTES: Final = 8
_DRAWN: Final = 2 ** (8 * _DRAWN_BYTES)


def encode_evaluation(means: ArrayLike | None, weight: int, entropy: Entropy) -> NDArray[np.int64]:
    """Return (N_EVALUATION,) what a client adds to the numbers of evaluations; (0,) without them.

    Args:
        means: (N_EVALUATION,) clicked, reward and base reward, from 0 to 1 each; None: no report, which looks like
            lists without clicks.
        weight: u; 0 without evaluations.
        entropy: gives random bytes. They protect nobody, since an honest client's number is at most the weight.
    """
    if weight == 0:
        return np.zeros(0, np.int64)
    if means is None:
        return np.zeros(N_EVALUATION, np.int64)
    drawn = int.from_bytes(entropy(_DRAWN_BYTES), "little")
    # A mean is a fraction over a power of two, and Python compares it exactly: 0 never, 1 always.
    return weight * np.array([drawn < mean * _DRAWN for mean in np.asarray(means, np.float64).tolist()], np.int64)


def encode_credit(total: float, weight: int, entropy: Entropy) -> NDArray[np.int64]:
    """Return (N_CREDITS,) what a client adds to the number of credits; (0,) without them.

    Args:
        total: of its lists since it sent one; 0 without any.
        weight: w; 0 without credits.
        entropy: gives random bytes, as `encode_evaluation`.
    """
    if weight == 0:
        return np.zeros(0, np.int64)
    is_counted = int.from_bytes(entropy(_DRAWN_BYTES), "little") < min(1.0, abs(total)) * _DRAWN
    return np.full(N_CREDITS, math.copysign(weight, total) if is_counted else 0, np.int64)


def longest_credit(weight: int) -> NDArray[np.int64]:
    """Return (N_CREDITS,) the longest that a client adds; (0,) without credits."""
    return np.full(N_CREDITS if weight else 0, weight, np.int64)


def longest_evaluation(weight: int) -> NDArray[np.int64]:
    """Return (N_EVALUATION,) the longest that a client adds, with all numbers at the weight; (0,) without any."""
    return np.full(N_EVALUATION if weight else 0, weight, np.int64)
