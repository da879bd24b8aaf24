"""The reward of a shown list: how far up its user clicked, there and in another order.

The reward is the reciprocal rank of the first click, as in FOLtR-ES (Kharitonov 2019), which learns from nothing else.
Users click on what is shown, and more on what is shown first, so the shown order is favoured: compare the rewards of
one order over time, but those of two orders on one list only with this in mind.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import fsum

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class ListRewards:
    """The rewards of one list.

    Attributes:
        reward: 1 / rank of the first click as it was shown, 0 without one.
        base_reward: 1 / rank of the best clicked document in the application's order, 0 without one.
        credit: of a list that mixed both orders (`foltr.core.learning.gate.credit_of`); 0 of any other.
    """

    reward: float
    base_reward: float
    credit: float = 0.0


def first_click_reward(clicks: NDArray[np.bool_]) -> float:
    """Return the reciprocal rank of the first click, in [0, 1]; 0 without one.

    Args:
        clicks: (shown,).
    """
    first = int(clicks.argmax()) if len(clicks) else 0
    return 1.0 / (1 + first) if len(clicks) and clicks[first] else 0.0


def base_order_reward(base_positions: NDArray[np.integer], clicks: NDArray[np.bool_]) -> float:
    """Return the reciprocal rank of the best clicked document in the base order; 0 without a click.

    Args:
        base_positions: (shown,) of each shown document in the base order of all candidates, from 0.
        clicks: (shown,).
    """
    clicked = base_positions[clicks]
    return 1.0 / (1 + int(clicked.min())) if len(clicked) else 0.0


def mean_of_lists(lists: Sequence[ListRewards]) -> tuple[float, float, float]:
    """Return the share of clicked lists, at least one list being given, and their mean rewards, each in [0, 1]."""
    # Exactly rounded sums, so that a sum never exceeds that of larger terms.
    totals = (
        float(sum(each.reward > 0.0 for each in lists)),
        fsum(each.reward for each in lists),
        fsum(each.base_reward for each in lists),
    )
    clicked, reward, base_reward = (total / len(lists) for total in totals)
    return clicked, reward, base_reward
