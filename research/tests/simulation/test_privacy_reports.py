"""What privacy parameters claim, beside what they give."""

import itertools
import json
import math

import numpy as np
import pytest
import scipy

from foltr.core.errors import SettingsError
from foltr.core.learning.laplace_shares import clip_weights, gamma_noise
from foltr_research.simulation.privacy_reports import (
    _log_bessel_k,
    actual_epsilon,
    bare_share_probability,
    epsilon_bound,
)


def difference_density(x: np.ndarray, shape: float) -> np.ndarray:
    """The density of gamma - gamma' at scale 1, x != 0 (variance-gamma distribution)."""
    order, x = shape - 0.5, np.abs(x)
    return (x / 2.0) ** order * scipy.special.kv(order, x) / (math.sqrt(math.pi) * scipy.special.gamma(shape))


def test_the_published_setting() -> None:
    """The paper's sensitivity 5, epsilon 4.5 and 136 features; several rounds multiply each figure."""
    report = actual_epsilon(5.0, 4.5, 136, 1000)
    assert report.claimed_epsilon_per_round == 4.5
    assert report.epsilon_per_round_add_remove == pytest.approx(math.sqrt(136) * 4.5 / 2)
    assert report.epsilon_per_round_add_remove == pytest.approx(26.2, abs=0.05)
    assert report.epsilon_per_round_replace == pytest.approx(52.5, abs=0.05)
    assert report.epsilon_per_round_published_code == pytest.approx(105.0, abs=0.05)
    assert report.bare_share_probability == pytest.approx(0.97, abs=0.005)
    assert report.epsilon_without_secure_aggregation == math.inf
    assert "26.2" in report.summary
    assert "no finite epsilon" in report.summary
    report = actual_epsilon(5.0, 4.5, 136, 1000, rounds=200)
    assert report.claimed_epsilon == 900.0
    assert report.epsilon_add_remove == pytest.approx(200 * report.epsilon_per_round_add_remove)
    assert report.epsilon_replace == pytest.approx(200 * report.epsilon_per_round_replace)
    assert report.epsilon_published_code == pytest.approx(200 * report.epsilon_per_round_published_code)


def test_one_number_of_one_client_is_what_was_claimed(rng: np.random.Generator) -> None:
    """Where L1 and L2 agree; a shift that clipping allows really has the loss that is reported, no other one more."""
    report = actual_epsilon(2.0, 0.7, 1, 1)
    assert report.epsilon_per_round_replace == pytest.approx(0.7)
    assert report.epsilon_without_secure_aggregation == pytest.approx(0.35)
    scale, dim = 5.0 / 4.5, 136
    report = actual_epsilon(5.0, 4.5, dim, 1000)
    worst = np.full(dim, 2.5 / math.sqrt(dim))
    assert np.linalg.norm(worst) == pytest.approx(2.5)
    assert np.abs(worst).sum() / scale == pytest.approx(report.epsilon_per_round_add_remove)
    for _ in range(100):
        shift = clip_weights(rng.normal(scale=9.0, size=dim), 5.0)
        assert np.abs(shift).sum() / scale <= report.epsilon_per_round_add_remove + 1e-9


@pytest.mark.parametrize(("arrived", "dim"), [(95, 1), (80, 1), (60, 1), (95, 5), (60, 5)])
def test_fewer_shares_cost_epsilon_exactly(rng: np.random.Generator, arrived: int, dim: int) -> None:
    """The reported epsilon bounds the log ratio of densities at every point and shift tried, and is reached."""
    report = actual_epsilon(2.0, 3.0, dim, 100, arrived)
    shape, bound = arrived / 100, 1.0 * 3.0 / 2.0
    grid = np.concatenate(([1e-13], np.geomspace(1e-6, 20.0, 400)))
    grid = np.concatenate((-grid[::-1], grid))

    def worst_loss(shift: float) -> float:
        return float(np.max(np.log(difference_density(grid, shape) / difference_density(grid - shift, shape))))

    even = dim * worst_loss(bound / math.sqrt(dim))
    # The density at 1e-13 stands in for that at zero; for shape 0.6 it is still 1 % below in the logarithm.
    assert even <= report.epsilon_per_round_add_remove + 1e-9
    assert even == pytest.approx(report.epsilon_per_round_add_remove, rel=0.01)
    for _ in range(20):
        shift = np.abs(rng.normal(size=dim))
        shift *= bound / np.linalg.norm(shift)
        assert sum(worst_loss(float(each)) for each in shift) <= report.epsilon_per_round_add_remove + 1e-9


def test_epsilon_rises_as_shares_go_missing_and_ends_at_half() -> None:
    """Monotone in what arrives, continuous at all of them, infinite from half on."""
    figures = [actual_epsilon(5.0, 4.5, 136, 1000, m).epsilon_per_round_add_remove for m in range(1000, 500, -25)]
    assert all(a < b < math.inf for a, b in itertools.pairwise(figures))
    nearly = actual_epsilon(5.0, 4.5, 136, 10**6, 10**6 - 1).epsilon_per_round_add_remove
    assert nearly == pytest.approx(figures[0], rel=1e-4)
    half = actual_epsilon(5.0, 4.5, 136, 1000, 500)
    assert half.epsilon_per_round_add_remove == math.inf
    assert "only 500 of 1000" in half.summary


@pytest.mark.parametrize("order", [0.001, 0.1, 0.3, 0.499])
@pytest.mark.parametrize("x", [1e-5, 0.01, 0.2, 3.0, 50.0])
def test_bessel_function_agrees_with_scipy(order: float, x: float) -> None:
    """The trapezoidal rule against the reference implementation."""
    assert _log_bessel_k(order, x) == pytest.approx(math.log(scipy.special.kve(order, x)) - x, abs=1e-10)


@pytest.mark.parametrize(
    ("n_clients", "scale", "threshold"),
    [(1, 1.0, 0.5), (2, 1.0, 0.1), (3, 2.0, 1e-3), (10, 1.0, 3.0), (1000, 5 / 4.5, 1e-6), (1000, 2.5, 1e-6)],
)
def test_bare_probability_is_the_frequency(
    rng: np.random.Generator, n_clients: int, scale: float, threshold: float
) -> None:
    """Within 4 standard errors of what is drawn, from one client to a thousand."""
    drawn = np.abs(gamma_noise(n_clients, scale, 1.0, 200_000, rng)) < threshold
    probability = bare_share_probability(n_clients, scale, threshold)
    assert abs(drawn.mean() - probability) < 4 * math.sqrt(probability * (1 - probability) / drawn.size)


def test_bare_probability_in_closed_form() -> None:
    """One client's noise is Laplace; nothing is private at p = 1, and nothing is said at p = 1 / n."""
    for threshold in (1e-6, 0.01, 1.0, 5.0):
        assert bare_share_probability(1, 1.0, threshold) == pytest.approx(1 - math.exp(-threshold), rel=1e-7)
    assert bare_share_probability(10, 1.0, 1e4) == 1.0
    assert epsilon_bound(0.9, 11) == pytest.approx(math.log(0.9 * 10 / 0.1))
    assert epsilon_bound(1.0, 11) == math.inf
    for p in (1 / 11, 0.0, 1.1, math.nan):
        with pytest.raises(SettingsError, match="above 1/11 and at most 1"):
            epsilon_bound(p, 11)


@pytest.mark.parametrize("arrived", [0, 11])
def test_no_more_shares_arrive_than_there_are(arrived: int) -> None:
    """A sum has at least one share, and none twice; an infinite epsilon is null in JSON."""
    with pytest.raises(SettingsError, match="arrived"):
        actual_epsilon(1.0, 1.0, 4, 10, arrived)
    report = json.loads(json.dumps(actual_epsilon(5.0, 4.5, 136, 1000, 400, 10).to_dict(), allow_nan=False))
    assert report["epsilon_add_remove"] is None
    assert report["claimed_epsilon"] == 45.0
    assert report["arrived"] == 400
