"""Every attack is what its paper says: literal transcriptions, and the bounds that keep it unnoticed."""

import itertools
import math
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foltr.core.aggregation.krum import krum
from foltr_research.attacks.crafting import (
    fang_krum,
    fang_krum_partial,
    fang_trimmed_mean,
    inner_product,
    largest_lambda,
    lie,
    lie_z,
    min_max,
    min_sum,
    reversed_direction,
)

D = 30


def updates(k, seed=1, spread=1.0):
    """Honest updates that roughly agree."""
    rng = np.random.default_rng(seed)
    return rng.standard_normal(D) + spread * rng.standard_normal((k, D))


def test_lie_is_the_mean_less_z_deviations():
    """Baruch et al., Algorithm 3, line 3, coordinate by coordinate; Xie et al.: -epsilon times the mean."""
    known = updates(4)
    crafted = lie(known, 0.7)
    for j in range(D):
        mean = sum(known[:, j]) / 4
        deviation = math.sqrt(sum((value - mean) ** 2 for value in known[:, j]) / 4)
        assert crafted[j] == pytest.approx(mean - 0.7 * deviation, rel=1e-12)
    np.testing.assert_array_equal(lie(updates(1), 3.0), updates(1)[0])
    known = updates(4)
    np.testing.assert_allclose(inner_product(known, 0.5), -0.5 * sum(known) / 4, rtol=1e-12)


@pytest.mark.parametrize(("n", "m", "supporters"), [(50, 12, 14), (50, 24, 2), (10, 4, 2), (10, 3, 3), (11, 4, 2)])
def test_lie_takes_z_from_the_normal_quantile(n, m, supporters):
    """s = floor(n / 2 + 1) - m honest clients must seem to agree: z is the quantile of (n - m - s) / (n - m)."""
    assert supporters == math.floor(n / 2 + 1) - m
    assert lie_z(n, m) == NormalDist().inv_cdf((n - m - supporters) / (n - m))
    assert lie_z(n, m) > 0


@given(n=st.integers(1, 60), m=st.integers(1, 60))
def test_lie_has_a_z_for_any_numbers(n, m):
    """One attacker, two clients, attackers only: never negative, always a number."""
    z = lie_z(n, min(n, m))
    assert math.isfinite(z)
    assert z >= 0.0


def literal_lambda(benign, n, c):
    """Fang et al., Theorem 1, term by term."""
    k, d = benign.shape
    sums = []
    for i in range(k):
        squared = sorted(float(((benign[i] - benign[j]) ** 2).sum()) for j in range(k) if j != i)
        sums.append(sum(squared[: n - c - 2]))
    first = math.sqrt(min(sums) / ((n - 2 * c - 1) * d))
    return first + max(float(np.linalg.norm(row)) for row in benign) / math.sqrt(d)


@pytest.mark.parametrize(("n", "m"), [(10, 1), (10, 2), (10, 3), (10, 4), (20, 7)])
def test_fangs_lambda_begins_at_its_bound(n, m):
    """The bound of Theorem 1, as the sum it is written as."""
    benign = updates(n - m)
    assert largest_lambda(benign, n, m) == pytest.approx(literal_lambda(benign, n, m), rel=1e-12)


def literal_fang_krum(benign, direction, m):
    """Fang et al., Section 4.2: halve lambda until Krum chooses a crafted update."""
    scale = literal_lambda(benign, m + len(benign), m)
    while scale > 1e-5:
        rows = np.array([scale * direction] * m + list(benign)).astype(np.float32).astype(np.float64)
        scores = []
        for i in range(len(rows)):
            squared = sorted(float(((rows[i] - rows[j]) ** 2).sum()) for j in range(len(rows)) if j != i)
            scores.append(sum(squared[: len(rows) - m - 2]))
        if scores.index(min(scores)) < m:
            return rows[0], True
        scale /= 2
    return 1e-5 * direction, False


@pytest.mark.parametrize(("n", "m"), list(itertools.product([10, 15], [2, 3, 4])))
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_fang_on_krum_is_the_search_of_the_paper(n, m, seed):
    """The same update as a literal search, and Krum itself chooses it."""
    benign = updates(n - m, seed, spread=3.0).astype(np.float32).astype(np.float64)
    direction = reversed_direction(benign)
    crafted, chosen = fang_krum(benign, direction, m, m)
    expected, expected_chosen = literal_fang_krum(benign, direction, m)
    assert chosen == expected_chosen
    np.testing.assert_array_equal(crafted, expected)
    if chosen:
        rows = np.concatenate([np.tile(crafted, (m, 1)), benign]).astype(np.float32)
        assert np.argmax(krum(rows, m).shares) < m


@pytest.mark.parametrize("m", [1, 2, 3, 4])
def test_fang_with_partial_knowledge_is_defined_for_any_number(m):
    """Even for a single attacker, whose own update is all there is to compare with."""
    own = updates(m, spread=2.0)
    crafted = fang_krum_partial(own)
    assert np.isfinite(crafted).all()
    assert float(crafted @ own.mean(axis=0)) < 0, "it points against the learning direction"
    np.testing.assert_array_equal(np.sign(crafted), reversed_direction(own))


def test_fang_with_partial_knowledge_adds_supporters():
    """As long as Krum among own and crafted updates chooses none, one more crafted update stands by (Section 4.2)."""
    own = np.ones((4, D)) + 1e-9 * updates(4)
    direction = reversed_direction(own)
    outcomes = [fang_krum(own, direction, n_crafted, n_crafted) for n_crafted in range(1, 5)]
    first = next(crafted for crafted, chosen in outcomes if chosen)
    assert not outcomes[0][1]
    np.testing.assert_array_equal(fang_krum_partial(own), first)


def test_nothing_learned_is_nothing_crafted():
    """Of zeros no direction is the wrong one; honest clients who all agree leave no room."""
    zeros = np.zeros((3, D))
    np.testing.assert_array_equal(fang_krum_partial(zeros), np.zeros(D))
    np.testing.assert_array_equal(fang_trimmed_mean(zeros, 3, 2.0, np.random.default_rng(1)), zeros)
    for perturbation in ("unit", "std", "sign"):
        np.testing.assert_array_equal(min_max(zeros, perturbation), np.zeros(D))
        np.testing.assert_array_equal(min_sum(zeros, perturbation), np.zeros(D))
    crafted, chosen = fang_krum(np.ones((9, D)), -np.ones(D), 1, 1)
    assert not chosen
    np.testing.assert_array_equal(crafted, -1e-5 * np.ones(D))


def test_fang_on_trimmed_mean_is_just_beyond_the_honest():
    """Fang et al., Section 4.3, with b = 2: the interval of each weight depends on its side and on its sign."""
    known = np.array([[-1.0, 3.0, -3.0, 1.0, 0.0], [-2.0, 4.0, -4.0, 2.0, 0.0], [5.0, -9.0, -5.0, 3.0, 0.0]])
    crafted = fang_trimmed_mean(known, 400, 2.0, np.random.default_rng(1))
    # Means: +, -, -, +, 0; so s is -, +, +, -, 0.
    for j, (low, high) in enumerate([(2 * -2.0, -2.0), (4.0, 2 * 4.0), (-3.0, -3.0 / 2), (1.0 / 2, 1.0), (0.0, 0.0)]):
        column = crafted[:, j]
        assert low <= column.min() <= column.max() <= high
        if high > low:
            assert column.min() < low + 0.1 * (high - low)
            assert column.max() > high - 0.1 * (high - low)


def literal_min_max(known, p):
    """Shejwalkar and Houmansadr, Algorithm 1: the largest gamma by halving steps."""
    mean = known.mean(axis=0)
    limit = max(float(np.linalg.norm(a - b)) for a in known for b in known)
    return literal_gamma(lambda gamma: max(np.linalg.norm(mean + gamma * p - row) for row in known) <= limit)


def literal_min_sum(known, p):
    """Likewise, with the sums of squared distances of Eq. 14."""
    mean = known.mean(axis=0)
    limit = max(sum(float(((a - b) ** 2).sum()) for b in known) for a in known)
    return literal_gamma(lambda gamma: sum(((mean + gamma * p - row) ** 2).sum() for row in known) <= limit)


def literal_gamma(allowed):
    gamma, step, found = 50.0, 50.0, 0.0
    while step > 1e-9:
        if allowed(gamma):
            found = gamma
            gamma += step / 2
        else:
            gamma -= step / 2
        step /= 2
    return found


@pytest.mark.parametrize("perturbation", ["unit", "std", "sign"])
@pytest.mark.parametrize("k", [2, 3, 7])
def test_min_max_and_min_sum_find_the_papers_gamma(perturbation, k):
    """The closed form ends where the paper's search does."""
    known = updates(k, seed=k)
    mean = known.mean(axis=0)
    p = -{"unit": mean / np.linalg.norm(mean), "std": known.std(axis=0), "sign": np.sign(mean)}[perturbation]
    for attack, literal in ((min_max, literal_min_max), (min_sum, literal_min_sum)):
        np.testing.assert_allclose(attack(known, perturbation), mean + literal(known, p) * p, rtol=1e-6, atol=1e-7)


@given(
    seed=st.integers(0, 2**32),
    k=st.integers(1, 8),
    scale=st.sampled_from([1e-6, 1.0, 1e5]),
    perturbation=st.sampled_from(["unit", "std", "sign"]),
)
def test_min_max_and_min_sum_stay_among_the_honest(seed, k, scale, perturbation):
    """Their largest distance, or sum of squares, is no more than the honest have among themselves."""
    known = scale * np.random.default_rng(seed).standard_normal((k, 4))
    squared = ((known[:, None] - known) ** 2).sum(axis=2)
    near, even = min_max(known, perturbation), min_sum(known, perturbation)
    room = 1 + 1e-9
    assert np.linalg.norm(near - known, axis=1).max() <= math.sqrt(squared.max()) * room + 1e-12 * scale
    assert ((even - known) ** 2).sum() <= squared.sum(axis=1).max() * room + 1e-12 * scale**2


def test_inputs_are_not_changed():
    """Honest updates belong to those who made them."""
    known = updates(4)
    before = known.copy()
    lie(known, 1.0)
    fang_krum(known, reversed_direction(known), 2, 2)
    fang_krum_partial(known)
    fang_trimmed_mean(known, 2, 2.0, np.random.default_rng(1))
    min_max(known, "std")
    min_sum(known, "unit")
    np.testing.assert_array_equal(known, before)
