"""Budgets hold for everybody: the guarantee of docs/robustness.md as an inequality, and what they let through."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foltr.core.aggregation import budgets

N, K = 9, 6


def peers_of(sums, n_steps, deviation=1.0):
    return budgets.BudgetPeers(sums, np.full(len(sums), n_steps), deviation)


def test_a_budget_is_what_chance_makes_or_what_clients_are_apart():
    """Of sums that are all alike it is by chance alone, and it grows with the steps up to its horizon."""
    alike = budgets.deviation_budgets(peers_of(np.zeros((N, len(budgets.HORIZONS), K)), 4, deviation=2.0))
    np.testing.assert_allclose(alike.squares, [2.0 * horizon.chance for horizon in budgets.HORIZONS])
    apart = np.zeros((N, len(budgets.HORIZONS), K))
    apart[:, :, 0] = 100.0 * np.where(np.arange(N) % 2, 1.0, -1.0)[:, None]
    apart[0] = 0.0
    wide = budgets.deviation_budgets(peers_of(apart, 4))
    np.testing.assert_allclose(wide.squares, budgets.OVER_MEDIAN * 100.0**2 / budgets.faded_steps(np.array([4]))[0])
    steps = budgets.faded_steps(np.array([1, 10, 100, 10_000]))
    assert (np.diff(steps, axis=0) >= 0.0).all()
    np.testing.assert_allclose(steps[-1], [1.0 + 1.0 / (1.0 - horizon.fade**2) for horizon in budgets.HORIZONS])


def test_what_is_within_every_budget_is_let_through_to_the_last_bit():
    """1, not nearly 1; of who is far beyond a step back is let through; it says how far the farthest is."""
    rng = np.random.default_rng(1)
    bounds = budgets.deviation_budgets(peers_of(np.zeros((N, len(budgets.HORIZONS), K)), 5))
    assert budgets.granted_shares(
        np.zeros((N, len(budgets.HORIZONS), K)),
        0.1 * rng.normal(size=(N, K)),
        budgets.faded_steps(np.full(N, 5)),
        bounds,
    ).tolist() == ([1.0] * N)
    bounds = budgets.deviation_budgets(peers_of(np.zeros((N, len(budgets.HORIZONS), K)), 50))
    sums = np.zeros((2, len(budgets.HORIZONS), K))
    sums[:, :, 0] = 1000.0
    step = np.zeros((2, K))
    step[:, 0] = (1.0, -1.0)
    assert budgets.granted_shares(sums, step, budgets.faded_steps(np.full(2, 50)), bounds).tolist() == [0.0, 1.0]
    sums, steps = np.zeros((2, len(budgets.HORIZONS), K)), budgets.faded_steps(np.ones(2, int))
    bounds = budgets.DeviationBudgets(np.zeros((len(budgets.HORIZONS), K)), np.full(len(budgets.HORIZONS), 2.0))
    deviations = np.zeros((2, K))
    deviations[:, 0] = 0.5 * np.sqrt(2.0 * steps.min(axis=1)) * (1.0, 10.0)
    shares = budgets.granted_shares(sums, deviations, steps, bounds)
    assert budgets.farthest_in_budgets(sums, deviations, shares, steps, bounds) == pytest.approx(1.0)
    assert budgets.farthest_in_budgets(sums[:1], deviations[:1], shares[:1], steps[:1], bounds) == pytest.approx(0.5)
    assert budgets.farthest_in_budgets(sums, deviations, np.ones(2), steps, bounds) == pytest.approx(5.0)
    sums[1] = 100.0
    assert budgets.farthest_in_budgets(sums, deviations, np.zeros(2), steps, bounds) == pytest.approx(1.0), (
        "who comes nearer may be beyond"
    )


@settings(max_examples=60)
@given(
    seed=st.integers(0, 2**32 - 1),
    length=st.floats(0.0, 6.0),
    turn=st.integers(1, 30),
    n_hostile=st.integers(1, (N - 1) // 2),
    leaps=st.floats(0.0, 1.0),
)
def test_no_client_gets_farther_from_the_median_client_than_its_budget(seed, length, turn, n_hostile, leaps):
    """In each round and in all: |sum (a - e)| <= R (1 + (1 - fade)(T - 1)), for all that hostile clients send."""
    rng = np.random.default_rng(seed)
    sums, centres, squares = np.zeros((N, len(budgets.HORIZONS), K)), [], []
    deviations_used, distances = [], []
    for number in range(1, 61):
        asked = rng.normal(size=(N, K)) / np.sqrt(K)
        direction = np.zeros(K)
        direction[(number // turn) % K] = 1.0
        leap = length if rng.random() < leaps else -0.3 * length
        asked[:n_hostile] = leap * direction + 0.1 * asked[:n_hostile]
        n_steps = np.full(N, number)
        bounds = budgets.deviation_budgets(budgets.BudgetPeers(budgets.sums_if_unlimited(sums, asked), n_steps, 1.0))
        shares = budgets.granted_shares(sums, asked, budgets.faded_steps(n_steps), bounds)
        before = np.linalg.norm(np.array([h.fade for h in budgets.HORIZONS])[:, None] * sums - bounds.centre, axis=2)
        sums = budgets.sums_after(sums, asked, shares)
        distance = np.linalg.norm(sums - bounds.centre, axis=2)
        budget = np.sqrt(bounds.squares * budgets.faded_steps(n_steps))
        assert (distance <= np.maximum(budget, before) + 1e-9).all()
        deviations_used.append(asked * shares[:, None])
        centres.append(bounds.centre)
        squares.append(budget)
        distances.append(distance)
    for j, horizon in enumerate(budgets.HORIZONS):
        path = np.array([centre[j] for centre in centres])
        of_median = path - horizon.fade * np.vstack([np.zeros(K), path[:-1]])
        total = np.cumsum(np.array(deviations_used) - of_median[:, None, :], axis=0)
        most = np.maximum.accumulate(np.array(distances)[:, :, j], axis=0)
        rounds = np.arange(1, len(total) + 1)[:, None]
        assert (np.linalg.norm(total, axis=2) <= most * (1.0 + (1.0 - horizon.fade) * (rounds - 1)) + 1e-9).all()


@pytest.mark.parametrize("n_hostile", [1, 4])
def test_the_median_client_is_between_honest_ones(n_hostile):
    """Fewer than half move no number of the centre beyond those of the others, however far they are."""
    rng = np.random.default_rng(2)
    sums = rng.normal(size=(N, len(budgets.HORIZONS), K))
    sums[:n_hostile] = 1e9
    centre = budgets.deviation_budgets(peers_of(sums, 10)).centre
    assert (centre <= sums[n_hostile:].max(axis=0)).all()
    assert (centre >= sums[n_hostile:].min(axis=0)).all()


@pytest.mark.parametrize("n_strangers", [1, 4])
def test_strangers_lead_as_far_together_as_one_client_does(n_strangers):
    """Under any names in a round: their sum is counted, and what they have in common with the others is not."""
    rng = np.random.default_rng(4)
    shared, total = budgets.SharedSum.empty(K), np.zeros(K)
    for _ in range(400):
        known = rng.normal(size=(6, K)) / np.sqrt(K)
        strangers = rng.normal(size=(n_strangers, K)) / np.sqrt(K)
        strangers[:, 0] += 1.0
        share, shared, _ = shared.granted(strangers, known, 1.0)
        total += share * strangers.sum(axis=0) - n_strangers * known.mean(axis=0)
    for j, horizon in enumerate(budgets.HORIZONS):
        budget = np.sqrt(horizon.chance * (1.0 + shared.steps[j]))
        assert np.linalg.norm(shared.sums[j]) <= budget + n_strangers
        assert np.linalg.norm(total) <= (budget + n_strangers) * (1.0 + (1.0 - horizon.fade) * 399)
    assert total[0] > 0.0


def test_honest_strangers_are_let_through():
    """They differ from the others by chance, in a hundred rounds of four of them and six others."""
    rng, shared, shares = np.random.default_rng(5), budgets.SharedSum.empty(K), []
    for _ in range(100):
        rows = 2.0 + rng.normal(size=(10, K)) / np.sqrt(K)
        share, shared, _ = shared.granted(rows[:4], rows[4:], 1.0)
        shares.append(share)
    assert np.mean(np.array(shares) < 1.0) < 0.03
    _, shared, _ = budgets.SharedSum.empty(K).granted(np.ones((2, K)), np.zeros((3, K)), 1.0)
    again = budgets.SharedSum.from_bytes(shared.to_bytes(), K)
    assert (again.sums.tolist(), again.steps.tolist()) == (shared.sums.tolist(), shared.steps.tolist())
    with pytest.raises(ValueError, match="shared sum"):
        budgets.SharedSum.from_bytes(shared.to_bytes()[1:], K)
