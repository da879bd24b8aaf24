"""Attacks made with knowledge of the defence: updates that `foltr.core.aggregation.adaptive` may fail to detect.

All are ours. They were made for the rule as it was then, and stay when it changes, to test it again. Each aims at one
weakness:

- Laundering: evidence counts less of a long step than the mean takes. A long step repaid by short ones adds up to
  nothing in the evidence, but moves the mean.
- Framing: of several clients with the same update all but one are excluded, and the attacker may be the one.
- Creeping: a bias so small that it looks like chance for as long as evidence remembers, and continues longer.
- Alternating: hostile updates come when old evidence has faded or was paid off by honest ones.
- Being acceptable: a check that only asks whether an update explains clicks better than the model did.
- Turncoat: a reputation earned honestly, or by having others excluded, and spent at once.

Changing names and late clients are in `foltr_research.attacks.presence`.

Shapes: m attackers, k honest clients, d values of an update; float64. A usual length is the median L2 length of the
updates that the attackers would send if they were honest.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foltr_research.attacks.directions import unit, without

_ROUNDING = 1e-9


@dataclass(frozen=True)
class Laundering:
    """Settings of `launder`.

    Attributes:
        period: steps of a burst and its repayment, at least 2.
        burst: length of a burst in usual lengths.
        counted: usual lengths that the evidence is assumed to count for a burst.
        noise: usual lengths of independent noise, orthogonal to both directions, that hides the attackers' agreement.
    """

    period: int
    burst: float
    counted: float
    noise: float


def launder(
    own: NDArray[np.float64],
    model: NDArray[np.float64],
    aim: NDArray[np.float64],
    turn: int,
    steps: Laundering,
    rng: np.random.Generator,
) -> NDArray[np.float64]:
    """(m, d) steps of which every ``period``-th is a burst, while the others take back what the evidence counts of it.

    All go along one direction; the attackers take turns to burst. This targets evidence that counts a long step as
    shorter than the mean does.

    Args:
        own: their honest updates, used only for the usual length.
        model: (d,) that the round trains from. Noise is orthogonal to it, since a part along it would be progress.
        aim: (d,) of length 1, or zeros.
        turn: rounds since the attack began.
    """
    drawn = without(without(rng.normal(size=own.shape), unit(model)), aim)
    hiding = steps.noise * drawn / np.maximum(np.linalg.norm(drawn, axis=1, keepdims=True), _ROUNDING)
    bursts = (turn + np.arange(len(own))) % steps.period == 0
    repayment = -steps.counted / (steps.period - 1)
    along: NDArray[np.float64] = np.where(bursts, steps.burst, repayment)[:, None] * aim
    sent: NDArray[np.float64] = usual_length(own) * (along + hiding)
    return sent


def framing(own: NDArray[np.float64], others: NDArray[np.float64]) -> NDArray[np.float64]:
    """(m, d) copies of the honest updates (k, d), each of a different one if k suffices. Without any, ``own``.

    The copied clients look like the copies unless they are older or come first by name.
    """
    return others[np.arange(len(own)) % len(others)] if len(others) else own


def creep(
    own: NDArray[np.float64], aim: NDArray[np.float64], step: float, honest: float, longest: float
) -> NDArray[np.float64]:
    """(m, d) honest updates, or a share of them, plus a constant bias: a slow drift that hides in their noise.

    This targets the forgetting of evidence: a bias below every bound is repeated as long as the federation learns.

    Args:
        own: the updates they would send if they were honest.
        aim: (d,) of length 1, or zeros.
        step: the bias, in usual lengths.
        honest: in [0, 1], the share of the honest update that is kept.
        longest: upper limit of the length, in usual lengths.
    """
    usual = usual_length(own)
    sent = honest * own + step * usual * aim
    lengths = np.linalg.norm(sent, axis=1, keepdims=True)
    shortened: NDArray[np.float64] = sent * np.minimum(1.0, longest * usual / np.maximum(lengths, _ROUNDING))
    return shortened


def acceptable(
    own: NDArray[np.float64],
    clicks: NDArray[np.float64],
    aim: NDArray[np.float64],
    least: float,
    longest: float,
) -> NDArray[np.float64]:
    """(m, d) honest updates, each plus the longest step along a direction that still improves it by the users' clicks.

    This is our guess at the adaptive attack on RankGuard (Gregoriadis et al. 2026, arXiv:2606.12246). The paper says
    that a node accepts a model only if it explains the node's own clicks better, and that one of four attacks targets
    this; its construction was not available to us. Ours takes the test to first order: an honest update is a gradient
    step on the likelihood of clicks, so another update improves it if their scalar product is above 0. It targets every
    check of only that, such as `alignment` in this defence.

    Args:
        own: the updates they would send if they were honest.
        clicks: (d,) the mean honest update known to the attackers, in place of that gradient.
        aim: (d,) of length 1, or zeros.
        least: share of the mean honest update's improvement that is kept.
        longest: largest part along the direction, in usual lengths.
    """
    usual, slope = usual_length(own), float(aim @ clicks)
    room = np.maximum(own @ clicks - least * float(clicks @ clicks), 0.0)
    most = np.full(len(own), longest * usual)
    steps = np.minimum(most, room / -slope) if slope < 0.0 else most
    sent: NDArray[np.float64] = own + steps[:, None] * aim
    return sent


def openly_hostile(own: NDArray[np.float64], aim: NDArray[np.float64] | None, z: float) -> NDArray[np.float64]:
    """(m, d) undisguised bad updates: the honest ones times -z, or with z usual lengths along a direction.

    Args:
        own: the updates they would send if they were honest.
        aim: (d,) of length 1, or zeros; None: against what each has learned.
    """
    return -z * own if aim is None else own + z * usual_length(own) * aim


def alternate(
    own: NDArray[np.float64], bad: NDArray[np.float64], turn: int, period: int, hostile: int
) -> NDArray[np.float64]:
    """(m, d) the bad updates in the first ``hostile`` rounds of each ``period`` rounds, honest ones in the others.

    This targets evidence that fades: a client that is honest long enough is counted again, or never suspected.

    Args:
        turn: rounds since the attack began; negative before.
    """
    return bad if turn >= 0 and turn % period < hostile else own


def turncoat(before: NDArray[np.float64], bad: NDArray[np.float64], turn: int) -> NDArray[np.float64]:
    """(m, d) updates that earn a reputation until the attack begins, and bad updates from then on.

    This targets evidence that outlasts its cause: the longer a client has been counted, the longer it is trusted.

    Args:
        before: honest updates, or copies of others' (`framing`) that get those excluded.
        turn: rounds since the attack began; negative before.
    """
    return bad if turn >= 0 else before


def resembling(others: NDArray[np.float64], n: int, jitter: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """(n, d) updates that look like the honest ones (k, d): their mean plus noise of their spread, of their length.

    This targets comparisons with the usual update: with sight of the others, an attacker can be the most usual.

    Args:
        jitter: standard deviations of the honest updates, coordinate by coordinate.
    """
    drawn = others.mean(axis=0) + jitter * others.std(axis=0) * rng.normal(size=(n, others.shape[1]))
    lengths = np.linalg.norm(drawn, axis=1, keepdims=True)
    alike: NDArray[np.float64] = drawn * usual_length(others) / np.maximum(lengths, _ROUNDING)
    return alike


def usual_length(rows: NDArray[np.float64]) -> float:
    """Return the median L2 length of at least one update (n, d)."""
    return float(np.median(np.linalg.norm(rows, axis=1)))
