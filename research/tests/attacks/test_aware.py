"""What is sent by who has read the defence: what adds up, what evidence counts of it, and what today's falls for."""

from itertools import count

import numpy as np
import pytest
from support.adaptive_rounds import Federation

from foltr.core.errors import SettingsError
from foltr_research.attacks.aware import (
    Laundering,
    acceptable,
    alternate,
    creep,
    framing,
    launder,
    openly_hostile,
    resembling,
    turncoat,
    usual_length,
)
from foltr_research.attacks.directions import TOWARDS, direction_of, unit

D = 8
OWN = np.random.default_rng(3).normal(size=(4, D))
MODEL = np.arange(1.0, D + 1.0)
AIM = direction_of("orthogonal", MODEL)


def laundered(turn, noise=0.0, model=MODEL, aim=AIM):
    return launder(OWN, model, aim, turn, Laundering(4, 5.0, 2.0, noise), np.random.default_rng(turn))


def test_what_is_counted_adds_up_to_nothing_and_what_is_used_does_not():
    """In four rounds each goes 5 - 3 * 2/3 usual lengths, of which 2 - 3 * 2/3 are counted; noise tells them apart."""
    usual = np.median(np.linalg.norm(OWN, axis=1))
    steps = np.array([laundered(turn) for turn in range(4)])
    lengths = np.linalg.norm(steps, axis=2, keepdims=True) / usual
    counted = steps * np.minimum(1.0, 2.0 / lengths)
    np.testing.assert_allclose(counted.sum(axis=0), 0.0, atol=1e-12)
    np.testing.assert_allclose(np.linalg.norm(steps.sum(axis=0), axis=1), 3.0 * usual)
    assert (laundered(0)[1] == laundered(0)[2]).all()
    apart = laundered(0, noise=0.5)
    assert (apart[1] != apart[2]).any()
    aim = direction_of("orthogonal", np.ones(D))
    np.testing.assert_allclose(laundered(0, model=np.ones(D), aim=aim), 0.0, atol=1e-12)


@pytest.mark.parametrize("noise", [0.0, 0.5])
def test_no_step_is_along_progress(noise):
    """The model is the direction of progress; what is left of "each feature counts for less" is not along it."""
    np.testing.assert_allclose(laundered(0, noise) @ MODEL, 0.0, atol=1e-12)
    assert laundered(0).sum(axis=1)[0] < 0.0


def test_creeping_adds_the_same_in_every_round():
    """A bias of so many usual lengths, never longer than is set; of the honest update as much as is set."""
    usual = usual_length(OWN)
    np.testing.assert_allclose(creep(OWN, AIM, 0.25, 1.0, 100.0) - OWN, np.tile(0.25 * usual * AIM, (4, 1)))
    np.testing.assert_allclose(creep(OWN, AIM, 0.25, 0.0, 100.0), np.tile(0.25 * usual * AIM, (4, 1)))
    sent, plain = creep(OWN, AIM, 3.0, 1.0, 1.5), creep(OWN, AIM, 3.0, 1.0, 100.0)
    np.testing.assert_allclose(np.linalg.norm(sent, axis=1), 1.5 * usual_length(OWN))
    np.testing.assert_allclose(unit(sent[0]), unit(plain[0]))
    assert np.linalg.norm(creep(0.1 * OWN, AIM, 0.0, 0.5, 2.0) - 0.05 * OWN) == 0.0


def test_what_is_acceptable_explains_clicks_as_much_better_as_is_left():
    """Against the clicks as far as leaves a fifth of what the mean improves; who has no room left is honest."""
    own, clicks = OWN + 3.0, (OWN + 3.0).mean(axis=0)
    against = acceptable(own, clicks, unit(-clicks), 0.2, 100.0)
    np.testing.assert_allclose(against @ clicks, 0.2 * (clicks @ clicks))
    longest = acceptable(own, clicks, unit(clicks), 0.2, 1.5) - own
    np.testing.assert_allclose(longest, np.tile(1.5 * usual_length(own) * unit(clicks), (4, 1)))
    own = np.array([[1.0, 0.0], [-1.0, 0.0]])
    sent = acceptable(own, np.array([1.0, 0.0]), np.array([-1.0, 0.0]), 0.1, 5.0)
    np.testing.assert_allclose(sent, [[0.1, 0.0], [-1.0, 0.0]])


def test_alternation_is_hostile_for_a_while_in_each_period():
    """Two rounds of five; before it begins none."""
    for turn, is_bad in [(-1, False), (0, True), (1, True), (2, False), (4, False), (5, True), (11, True), (13, False)]:
        assert (alternate(OWN, -OWN, turn, 5, 2) == (-OWN if is_bad else OWN)).all()


def test_a_turncoat_turns_once():
    """What it did before ends with the round in which it begins: -z times the honest update, or z lengths beside it."""
    assert [(turncoat(OWN, -OWN, turn) == -OWN).all() for turn in (-2, -1, 0, 1)] == [False, False, True, True]
    np.testing.assert_array_equal(openly_hostile(OWN, None, 2.0), -2.0 * OWN)
    np.testing.assert_allclose((openly_hostile(OWN, AIM, 2.0) - OWN) @ AIM, 2.0 * usual_length(OWN))


def test_what_resembles_the_honest_has_their_length_and_spread():
    """The mean is theirs, each row is another one, and all are as long as their median."""
    others = np.random.default_rng(5).normal(size=(6, 400)) * np.linspace(0.1, 1.0, 400) + 0.5
    alike = resembling(others, 3, 1.0, np.random.default_rng(1))
    np.testing.assert_allclose(np.linalg.norm(alike, axis=1), usual_length(others))
    assert len({row.tobytes() for row in alike}) == 3
    apart = alike - others.mean(axis=0)
    assert np.linalg.norm(apart, axis=1).mean() == pytest.approx(np.sqrt((others.var(axis=0)).sum()), rel=0.15)
    assert np.corrcoef(np.abs(apart).mean(axis=0), others.std(axis=0))[0, 1] > 0.5


def test_launderers_lead_adaptive_nowhere():
    """Four of ten who take turns to leap and to pay back go on for 200 rounds, caught or not; so does the mean."""
    turns, federation = count(), Federation(n_attackers=4, signal=0.1)
    progress = federation.direction
    aim = direction_of("orthogonal", progress)
    federation.attack = lambda rows, rng: launder(
        rows[:4], progress, aim, next(turns), Laundering(4, 5.0, 2.0, 0.5), rng
    )
    federation.play(200)
    moved = np.mean([one.vector for one in federation.played], axis=0)
    # The mean goes 0.3 usual lengths a round.
    assert abs(moved @ aim) < 0.06
    assert moved @ progress > 0.0


def test_adaptive_leaves_out_nobody_who_is_framed():
    """Framers share the weight of whom they copy, and nobody is suspected."""
    federation = Federation(n_attackers=4, attack=lambda rows, _: framing(rows[:4], rows[4:])).play(30)
    assert federation.ever_dropped() == set()
    shares = {fate.client_id: fate.share for fate in federation.played[-1].report.fates}
    pairs = zip(federation.names[:4], federation.names[4:8], strict=True)
    assert [round(shares[framer] + shares[victim], 6) for framer, victim in pairs] == [round(1 / 6, 6)] * 4


RANKER = np.array([3.0, 0.0, 4.0])


def test_what_each_direction_does_to_a_ranker():
    """Reverse is against the model, orthogonal lets features count for less at a right angle, a feature falls alone."""
    np.testing.assert_allclose(direction_of("reverse", RANKER), [-0.6, 0.0, -0.8])
    expected = np.array([-1.0 + 1.4 * 0.6, -1.0, -1.0 + 1.4 * 0.8])
    np.testing.assert_allclose(direction_of("orthogonal", RANKER), expected / np.linalg.norm(expected))
    assert direction_of("orthogonal", RANKER) @ RANKER == pytest.approx(0.0)
    np.testing.assert_array_equal(direction_of("feature", RANKER, 3), [0.0, 0.0, -1.0])
    with pytest.raises(SettingsError, match="feature: 4; the ranker has 3"):
        direction_of("feature", RANKER, 4)
    assert not direction_of("reverse", np.zeros(3)).any()
    assert (direction_of("orthogonal", np.zeros(3)) < 0.0).all()
    assert not direction_of("orthogonal", np.ones(3)).any()
    for towards in TOWARDS:
        assert np.linalg.norm(direction_of(towards, 100.0 * RANKER)) == pytest.approx(1.0)
