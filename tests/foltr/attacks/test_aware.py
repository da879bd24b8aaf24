"""Laundering and framing: what adds up, what evidence counts of it, and that today's defence falls for both."""

from itertools import count

import numpy as np
import pytest
from defended import Federation, dropped

from foltr.aggregation.evidence import LONGEST, LONGEST_STEP
from foltr.attacks.aware import framing, launder

D = 8
OWN = np.random.default_rng(3).normal(size=(4, D))
MODEL = np.arange(1.0, D + 1.0)


def laundered(turn, noise=0.0, model=MODEL):
    return launder(OWN, model, turn, 4, 5.0, noise, np.random.default_rng(turn))


def test_what_is_counted_adds_up_to_nothing_and_what_is_used_does_not():
    """In four rounds each client goes 5 - 3 * 2/3 usual lengths, of which 2 - 3 * 2/3 are counted."""
    usual = np.median(np.linalg.norm(OWN, axis=1))
    steps = np.array([laundered(turn) for turn in range(4)])
    lengths = np.linalg.norm(steps, axis=2, keepdims=True) / usual
    assert lengths.max() < LONGEST
    counted = steps * np.minimum(1.0, LONGEST_STEP / lengths)
    np.testing.assert_allclose(counted.sum(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(steps.sum(axis=0), axis=1), 3.0 * usual)


@pytest.mark.parametrize("noise", [0.0, 0.5])
def test_no_step_is_along_progress(noise):
    """The model is the direction of progress; what is left of "each feature counts for less" is not along it."""
    np.testing.assert_allclose(laundered(0, noise) @ MODEL, 0.0, atol=1e-12)
    assert laundered(0).sum(axis=1)[0] < 0.0


def test_noise_tells_launderers_apart():
    """Two who repay in the same round send the same without it."""
    assert (laundered(0)[1] == laundered(0)[2]).all()
    apart = laundered(0, noise=0.5)
    assert (apart[1] != apart[2]).any()


def test_there_may_be_no_direction():
    """Before anything was learned each feature counts for less; where that is the model's own direction, nothing is."""
    assert (laundered(0, model=np.zeros(D))[0] < 0.0).all()
    np.testing.assert_allclose(laundered(0, model=np.ones(D)), 0.0, atol=1e-12)


def test_adaptive_of_today_does_not_find_launderers():
    """Where clicks are noisy four of ten go on for 200 rounds, and the mean goes where they want."""
    turns, federation = count(), Federation(n_attackers=4, signal=0.1)
    progress = federation.direction
    federation.attack = lambda rows, rng: launder(rows[:4], progress, next(turns), 4, 5.0, 0.5, rng)
    federation.play(200)
    assert federation.ever_dropped() == set()
    aim = -np.ones_like(progress) + progress.sum() / (progress @ progress) * progress
    moved = np.mean([one.vector for one in federation.played], axis=0)
    # Four of ten go 0.75 usual lengths a round.
    assert moved @ aim / np.linalg.norm(aim) == pytest.approx(0.3, abs=0.06)


def test_adaptive_of_today_leaves_out_who_is_framed():
    """The victims, one of each framer, and no framer, from the sixth round on."""
    federation = Federation(n_attackers=4, attack=lambda rows, _: framing(rows[:4], rows[4:])).play(30)
    victims = set(federation.names[4:8])
    assert dropped(federation.played[-1]) == federation.ever_dropped() == victims
    assert dropped(federation.played[4]) == set()
