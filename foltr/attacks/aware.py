"""Attacks by who has read the defence: what a client may send although `foltr.aggregation.adaptive` looks for it.

Both are ours, made for the rule as it is, and stay as it is changed: a defence is tried with what was made against it.

- Laundering: evidence of a drift counts a step up to `evidence.LONGEST_STEP` usual lengths, the mean takes up to
  `evidence.LONGEST`. One long step repaid by short ones back adds up to nothing there, and to a walk in the mean.
- Framing: of clients that send the same all but one are left out, and an attacker may be that one.

Shapes: m attackers, k honest clients, d values of an update; float64.
"""

import numpy as np
from numpy.typing import NDArray

from foltr.aggregation.evidence import LONGEST_STEP

_ROUNDING = 1e-9


def launder(
    own: NDArray[np.float64],
    model: NDArray[np.float64],
    turn: int,
    period: int,
    burst: float,
    noise: float,
    rng: np.random.Generator,
) -> NDArray[np.float64]:
    """(m, d) steps of which every ``period``-th is a burst, and the others take back what the evidence counts of it.

    All go along one direction: every feature is to count for less, but only as far as that is orthogonal to the
    model, which stands for the direction of progress that clients are compared with. The attackers take turns to
    burst.

    Args:
        own: their honest updates, of which only the median length is used: it stands for the usual one.
        model: (d,) that the round trains from.
        turn: how many rounds the attack has lasted.
        period: how many steps a burst and its repayment take, at least 2.
        burst: how many usual lengths a burst has, at least those that are counted of it.
        noise: how many usual lengths of each one's own noise, orthogonal to both directions, hide that they agree.
    """
    usual = float(np.median(np.linalg.norm(own, axis=1)))
    progress = _unit(model)
    aim = _unit(_without(-np.ones_like(progress), progress))
    drawn = _without(_without(rng.normal(size=own.shape), progress), aim)
    hiding = noise * drawn / np.maximum(np.linalg.norm(drawn, axis=1, keepdims=True), _ROUNDING)
    bursts = (turn + np.arange(len(own))) % period == 0
    repayment = -LONGEST_STEP / (period - 1)
    steps: NDArray[np.float64] = np.where(bursts, burst, repayment)[:, None] * aim
    sent: NDArray[np.float64] = usual * (steps + hiding)
    return sent


def framing(own: NDArray[np.float64], others: NDArray[np.float64]) -> NDArray[np.float64]:
    """(m, d) copies of the honest updates (k, d), each of another one as far as they go; ``own`` where there are none.

    The clients that are copied look like the copies if they have not been there longer and do not come first by name.
    """
    return others[np.arange(len(own)) % len(others)] if len(others) else own


def _unit(vector: NDArray[np.float64]) -> NDArray[np.float64]:
    """(d,) of length 1; zeros where there is nothing but rounding."""
    length = float(np.linalg.norm(vector))
    return vector / length if length > _ROUNDING else np.zeros_like(vector)


def _without(rows: NDArray[np.float64], direction: NDArray[np.float64]) -> NDArray[np.float64]:
    """(..., d) what is left of the rows without their part along a unit vector or zeros (d,)."""
    left: NDArray[np.float64] = rows - (rows @ direction)[..., None] * direction
    return left
