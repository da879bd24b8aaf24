"""A norm to clip to that follows the honest norms: its course, who can move it, its cost, and that runs resume."""

import math

import numpy as np
import pytest
from simulated import check_resumed, config, simulated

from foltr.core.errors import SettingsError
from foltr.core.learning.comparison import Opinion
from foltr_research.simulation.config import check_config, resolve
from foltr_research.simulation.secure_sums import secure_sums_of

HALF = 0.5


def secure(**values):
    given = {"privacy": "secure", "clip_quantile": HALF, "clients": 40, "rounds": 40, "participations": 40}
    return config(**{**given, **values})


def sums_of(of):
    return secure_sums_of(of, *resolve(of, 400))


def follow(sums, norms, rounds, n_hostile=0):
    """C after so many rounds in which honest clients have these norms and hostile ones deny that theirs is within C."""
    rows = [np.array([norm, 0.0], np.float32) for norm in norms]
    clip_norm = sums.clip_norm
    for _ in range(rounds):
        within = sum(
            int(sums.encode_beside(row, Opinion.NONE, hostile=i < n_hostile)[-1]) * (np.linalg.norm(row) <= clip_norm)
            for i, row in enumerate(rows)
        )
        clip_norm *= sums.next_clip_norm(within, len(rows)) / sums.clip_norm
    return clip_norm


def test_it_reaches_the_quantile_of_the_norms_from_above_and_below():
    norms = np.linspace(0.01, 0.21, 101)
    assert follow(sums_of(secure(clip_norm=5.0)), norms, 200) == pytest.approx(0.11, rel=0.1)


def test_hostile_clients_move_it_by_their_share_at_most():
    """A tenth that always denies leads to the quantile 0.5 / 0.9 of the honest, not away from them."""
    norms = np.linspace(0.01, 0.21, 1001)
    at = follow(sums_of(secure(clip_norm=5.0)), np.random.default_rng(1).permutation(norms), 200, n_hostile=100)
    assert at == pytest.approx(0.01 + 0.2 * HALF / 0.9, rel=0.1)


def test_noise_beyond_the_possible_moves_it_by_one_step_at_most():
    sums = sums_of(secure())
    steps = [sums.next_clip_norm(within, 10) / sums.clip_norm for within in (-(10**9), 10**9)]
    assert steps == pytest.approx([math.exp(0.1), math.exp(-0.1)])
    assert sums.next_clip_norm(5, 0) == sums.clip_norm


def test_it_is_in_the_sensitivity():
    """Whether a norm is within C is one number of the weight of a vote: C_int^2 + w^2 in place of C_int^2."""
    follows, stays = sums_of(secure()), sums_of(secure(clip_quantile=None))
    larger = (stays.bound**2 + follows.norm_weight**2) / stays.bound**2
    assert follows.noise == pytest.approx(stays.noise * larger, rel=1e-6)
    assert follows.noise >= stays.noise * larger


def test_the_longest_update_that_passes_is_as_long_as_the_norm_allows():
    of = secure(clip_norm=0.1, norm_proof="l2")
    sums, drawn = sums_of(of), np.random.default_rng(1)
    encoded = sums.encode_hostile(drawn.normal(size=400).astype(np.float32), drawn.bytes)
    assert sums.is_proved(encoded)
    assert math.sqrt(encoded @ encoded) > 0.97 * sums.bound


def test_a_run_with_it_continues_as_if_it_had_not_stopped(tmp_path):
    of = secure(rounds=8, participations=4, mechanism="correlated", take_back=True, attackers=2, attack="scaled")
    check_resumed(of, tmp_path / "run.checkpoint", after=5)


def test_the_norm_of_a_run_follows_its_updates():
    """The first C is a hundred times too long, so its noise hides everything until C is near the updates' norms."""
    given = {"clip_norm": 30.0, "rounds": 60, "participations": 60, "epsilon": 1000.0}
    follows, stays = simulated(secure(**given)), simulated(secure(**given, clip_quantile=None))
    assert follows.privacy["clip_quantile"] == HALF
    assert follows.final_ndcg > stays.final_ndcg + 0.05


def test_gamma_has_none():
    with pytest.raises(SettingsError, match="clip_quantile"):
        check_config(secure(mechanism="gamma"))
