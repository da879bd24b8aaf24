"""Attacks by who has read the defence: what a client may send although `foltr.core.aggregation.adaptive` looks for it.

All are ours, made for the rule as it was when they were made, and stay as it is changed: a defence is tried with what
was made against it. Each aims at one hole:

- Laundering: evidence that counts less of a long step than the mean takes. A long step repaid by short ones back adds
  up to nothing there, and to a walk in the mean.
- Framing: of clients that send the same all but one are left out, and an attacker may be that one.
- Creeping: a bias so small that it looks like chance for as long as evidence remembers, and goes on for longer.
- Alternating: evidence that has faded, or was paid off by honest updates, before the next hostile ones.
- Being acceptable: a judge who asks only whether an update explains clicks better than the model did.
- Turning the coat: a good name that was earned honestly, or by having had others left out, and is used up at once.

Names that change and clients that come late are in `foltr_research.attacks.presence`.

Shapes: m attackers, k honest clients, d values of an update; float64. A usual length is the median L2 length of the
updates that the attackers would have sent if they were honest.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foltr_research.attacks.directions import unit, without

_ROUNDING = 1e-9


@dataclass(frozen=True)
class Laundering:
    """The steps of `launder`.

    Attributes:
        period: how many steps a burst and its repayment take, at least 2.
        burst: how many usual lengths a burst has.
        counted: as how many usual lengths the evidence is believed to count it.
        noise: how many usual lengths of each one's own noise, orthogonal to both directions, hide that they agree.
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
    """(m, d) steps of which every ``period``-th is a burst, and the others take back what the evidence counts of it.

    All go along one direction; the attackers take turns to burst. It aims at evidence that counts a long step as a
    shorter one than the mean does.

    Args:
        own: their honest updates, of which only the usual length is used.
        model: (d,) that the round trains from; noise has no part along it, which would be progress.
        aim: (d,) of length 1, or zeros.
        turn: how many rounds the attack has lasted.
    """
    drawn = without(without(rng.normal(size=own.shape), unit(model)), aim)
    hiding = steps.noise * drawn / np.maximum(np.linalg.norm(drawn, axis=1, keepdims=True), _ROUNDING)
    bursts = (turn + np.arange(len(own))) % steps.period == 0
    repayment = -steps.counted / (steps.period - 1)
    along: NDArray[np.float64] = np.where(bursts, steps.burst, repayment)[:, None] * aim
    sent: NDArray[np.float64] = usual_length(own) * (along + hiding)
    return sent


def framing(own: NDArray[np.float64], others: NDArray[np.float64]) -> NDArray[np.float64]:
    """(m, d) copies of the honest updates (k, d), each of another one as far as they go; ``own`` where there are none.

    The clients that are copied look like the copies if they have not been there longer and do not come first by name.
    """
    return others[np.arange(len(own)) % len(others)] if len(others) else own


def creep(
    own: NDArray[np.float64], aim: NDArray[np.float64], step: float, honest: float, longest: float
) -> NDArray[np.float64]:
    """(m, d) honest updates, or a share of them, with a constant bias: a slow drift that hides in their noise.

    It aims at what evidence forgets: a bias below every bound is repeated for as long as the federation learns.

    Args:
        own: what they would have sent if they were honest.
        aim: (d,) of length 1, or zeros.
        step: the bias, in usual lengths.
        honest: in [0, 1], how much of the honest update is left.
        longest: in usual lengths; what is longer is shortened to it.
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
    """(m, d) honest updates, each with as much along a direction as leaves it an improvement by what users click.

    It is our guess at the adaptive attack on RankGuard (Gregoriadis et al. 2026, arXiv:2606.12246). Published is that a
    node there takes a model only if it explains the node's own clicks better than the model it has, and that one of
    the four attacks is made for this; how that one is made we could not read. Ours takes such a test to first order: an
    honest update is a step up the likelihood of clicks, so another one improves it if their scalar product is above 0.
    It aims at whatever asks only that: `alignment` does, in this defence.

    Args:
        own: what they would have sent if they were honest.
        clicks: (d,) the mean honest update that the attackers know of, which stands for that gradient.
        aim: (d,) of length 1, or zeros.
        least: how much of the improvement by the mean honest update is to be left.
        longest: how many usual lengths along the direction are sent at most.
    """
    usual, slope = usual_length(own), float(aim @ clicks)
    room = np.maximum(own @ clicks - least * float(clicks @ clicks), 0.0)
    most = np.full(len(own), longest * usual)
    steps = np.minimum(most, room / -slope) if slope < 0.0 else most
    sent: NDArray[np.float64] = own + steps[:, None] * aim
    return sent


def openly_hostile(own: NDArray[np.float64], aim: NDArray[np.float64] | None, z: float) -> NDArray[np.float64]:
    """(m, d) bad updates that hide nothing: the honest ones times -z, or with z usual lengths along a direction.

    Args:
        own: what they would have sent if they were honest.
        aim: (d,) of length 1, or zeros; None: against what each one has learned.
    """
    return -z * own if aim is None else own + z * usual_length(own) * aim


def alternate(
    own: NDArray[np.float64], bad: NDArray[np.float64], turn: int, period: int, hostile: int
) -> NDArray[np.float64]:
    """(m, d) the bad updates in the first ``hostile`` rounds of each ``period`` rounds, the honest ones in the others.

    It aims at evidence that fades: who is honest for long enough is counted again, or never suspected.

    Args:
        turn: how many rounds the attack has lasted; negative before it begins.
    """
    return bad if turn >= 0 and turn % period < hostile else own


def turncoat(before: NDArray[np.float64], bad: NDArray[np.float64], turn: int) -> NDArray[np.float64]:
    """(m, d) what earns a good name until the attack begins, and the bad updates from then on.

    It aims at evidence that outlives what it was of: the longer a client has been counted, the longer it goes on to be.

    Args:
        before: the honest updates, or copies of others' (`framing`), which have those others left out.
        turn: how many rounds the attack has lasted; negative before it begins.
    """
    return bad if turn >= 0 else before


def resembling(others: NDArray[np.float64], n: int, jitter: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """(n, d) updates that look like the honest ones (k, d): their mean, with noise of their spread, as long as they.

    It aims at comparisons with what is usual: who sees the others can be the most usual of all.

    Args:
        jitter: how many standard deviations of the honest updates, coordinate by coordinate.
    """
    drawn = others.mean(axis=0) + jitter * others.std(axis=0) * rng.normal(size=(n, others.shape[1]))
    lengths = np.linalg.norm(drawn, axis=1, keepdims=True)
    alike: NDArray[np.float64] = drawn * usual_length(others) / np.maximum(lengths, _ROUNDING)
    return alike


def usual_length(rows: NDArray[np.float64]) -> float:
    """Return the median L2 length of updates (n, d), at least one."""
    return float(np.median(np.linalg.norm(rows, axis=1)))
