"""Correlated noise: its sensitivity by brute force, its epsilon by dp-accounting, its sums, and that runs resume."""

import itertools
import math

import numpy as np
import pytest
from dp_accounting import GaussianDpEvent
from dp_accounting.rdp import RdpAccountant
from scipy.linalg import toeplitz
from simulated import check_resumed, config, simulated

from foltr_research.simulation.config import resolve
from foltr_research.simulation.correlated_noise import (
    CorrelatedNoise,
    best_correlation,
    inverse_column,
    square_root_column,
    squared_sensitivity,
)
from foltr_research.simulation.secure_sums import secure_sums_of


def lower(column, rounds):
    """The (rounds, rounds) Toeplitz matrix with this first column."""
    return np.tril(toeplitz(np.pad(column, (0, max(0, rounds - len(column))))[:rounds]))


def test_the_whole_column_is_the_square_root_of_prefix_sums():
    root = lower(square_root_column(12), 12)
    assert np.allclose(root @ root, np.tril(np.ones((12, 12))))


@pytest.mark.parametrize("band", [1, 2, 5, 12])
def test_the_inverse_undoes_the_column(band):
    column = square_root_column(band)
    assert np.allclose(lower(column, 12) @ lower(inverse_column(column, 12), 12), np.eye(12))


@pytest.mark.parametrize(("rounds", "period", "turns"), [(9, 3, 3), (9, 4, 3), (8, 1, 8), (7, 3, 2)])
@pytest.mark.parametrize("band", [1, 2, 3, 5, 9])
def test_no_client_changes_more_than_its_sensitivity(rounds, period, turns, band):
    """All first turns, all signs of vectors; fewer turns change less."""
    matrix = lower(square_root_column(band), rounds)
    largest = max(
        float(np.square(sum(sign * matrix[:, turn] for sign, turn in zip(signs, of_client, strict=True))).sum())
        for first in range(period)
        if (of_client := list(range(first, rounds, period))[:turns])
        for signs in itertools.product((-1.0, 1.0), repeat=len(of_client))
    )
    found = squared_sensitivity(square_root_column(band), rounds, period, turns)
    assert found == pytest.approx(largest)


def test_a_band_within_the_period_costs_a_column_for_each_turn():
    column = square_root_column(10)
    assert squared_sensitivity(column, 200, 10, 19) == pytest.approx(19 * float(column @ column))


def test_its_error_is_below_that_of_independent_noise_where_turns_are_rare():
    """Independent: k columns of 1, and the t-th model has t of them: sqrt(k (n + 1) / 2)."""
    independent = math.sqrt(20 * 201 / 2)
    assert best_correlation(200, 10, 20).error < 0.41 * independent
    assert best_correlation(200, 1, 200).band == 1


def test_noise_is_the_inverse_times_independent_draws():
    band, rounds, size = 4, 9, 3000
    noise = CorrelatedNoise(b"seed", band, 10**8)
    drawn = np.array([noise.of_round(number, size) for number in range(1, rounds + 1)], np.float64)
    independent = lower(square_root_column(band), rounds) @ drawn / 1e4
    assert np.allclose(np.cov(independent), np.eye(rounds), atol=0.1)


def test_rounds_that_were_left_out_change_no_later_noise():
    every, some = CorrelatedNoise(b"seed", 5, 10**6), CorrelatedNoise(b"seed", 5, 10**6)
    rounds = [every.of_round(number, 4) for number in range(1, 9)]
    assert np.array_equal(some.of_round(3, 4), rounds[2])
    assert np.array_equal(some.of_round(8, 4), rounds[7])


def secure(**values):
    given = {"privacy": "secure", "mechanism": "correlated", "clients": 40, "rounds": 12, "participations": 3}
    return config(**{**given, **values})


@pytest.mark.parametrize("rounds", [60, 12])
def test_its_epsilon_is_that_of_dp_accounting(rounds):
    """One Gaussian mechanism on all rounds at once, whose sensitivity is a client's in C x."""
    of = secure(rounds=rounds, norm_proof="none", epsilon=4.0)
    sums = secure_sums_of(of, *resolve(of, 400))
    changed = sums.bound * math.sqrt(sums.correlation.squared_sensitivity)
    accountant = RdpAccountant(orders=[1 + x / 20 for x in range(1, 2000)])
    accountant.compose(GaussianDpEvent(math.sqrt(sums.noise) / changed))
    assert accountant.get_epsilon(1e-6) == pytest.approx(4.0, rel=1e-3)


def test_a_short_run_has_the_noise_of_all_turns():
    """Epsilon is for 20 turns where a run has four, and for three where the last one would be after the end."""
    few, plain = (secure(rounds=4, participations=20, mechanism=one) for one in ("correlated", "gaussian"))
    few, plain = (secure_sums_of(one, *resolve(one, 400)) for one in (few, plain))
    assert few.noise >= plain.noise
    short, whole = (secure(rounds=rounds) for rounds in (10, 12))
    short, whole = (secure_sums_of(one, *resolve(one, 400)) for one in (short, whole))
    assert (short.noise, short.correlation) == (whole.noise, whole.correlation)


def test_votes_have_independent_noise_within_the_same_epsilon():
    """rho of all turns: squares of what they change in C x and of their votes, over twice the variance."""
    of = secure(take_back=True, norm_proof="l2")
    sums, plain = (secure_sums_of(one, *resolve(one, 400)) for one in (of, of.changed(mechanism="gaussian")))
    of_turns = sums.correlation.squared_sensitivity * sums.bound**2 + 3 * sums.vote_weight**2
    rho = 3 * (sums.bound**2 + sums.vote_weight**2) / (2 * plain.noise)
    assert of_turns / (2 * sums.noise) <= rho
    assert of_turns / (2 * sums.noise) == pytest.approx(rho, rel=1e-4)
    assert len(sums.noise_in(1, 0, 0, 402, np.random.default_rng(1).bytes)) == 402


def test_helpers_and_cohorts_have_their_own():
    sums = secure_sums_of(secure(), *resolve(secure(), 400))
    draws = [sums.noise_in(1, cohort, helper, 50, None).tolist() for cohort in (0, 1) for helper in (0, 1)]
    assert all(one != other for one, other in itertools.combinations(draws, 2))


def test_a_run_tells_its_band_and_continues_as_if_it_had_not_stopped(tmp_path):
    of = secure(cohorts=3, aggregation="median")
    promise = simulated(of).privacy
    assert promise["band"] == 4
    assert "correlated: epsilon 8" in promise["summary"]
    check_resumed(of, tmp_path / "run.checkpoint", after=5)
