import functools

import numpy as np
import pytest
from support import paper_formulas

from foltr.core.errors import DataError
from foltr.core.learning.neural import n_neural_weights, neural_forward
from foltr.core.learning.neural_pdgd import neural_pdgd_step, neural_step
from foltr.core.learning.pdgd import clicked_reversals

HIDDEN = 3


@pytest.fixture
def seen(rng: np.random.Generator) -> tuple[np.ndarray, ...]:
    """Weights, features, ranking and clicks."""
    features = rng.random((12, 5), dtype=np.float32)
    weights = rng.normal(size=n_neural_weights(5, HIDDEN))
    return weights, features, rng.permutation(12)[:8], np.array([0, 1, 0, 0, 1, 0, 0, 0], bool)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("pattern", range(6))
def test_step_follows_the_differences_of_the_objective(rng: np.random.Generator, dtype: type, pattern: int) -> None:
    """The gradient is that of the pairs' objective, rho held constant, for every weight and many clicks."""
    features = rng.random((12, 5), dtype=np.float32)
    weights = rng.normal(size=n_neural_weights(5, HIDDEN)).astype(dtype)
    ranking, clicks = rng.permutation(12)[:8], rng.random(8) < (pattern + 1) / 8
    step = neural_pdgd_step(weights, features, ranking, clicks, 1.0) - weights
    expected = paper_formulas.pdgd_gradient(
        functools.partial(paper_formulas.neural, hidden=HIDDEN),
        weights.astype(np.float64),
        features,
        ranking.tolist(),
        clicks.tolist(),
    )
    assert step.dtype == dtype
    np.testing.assert_allclose(step, expected, rtol=1e-4, atol=3e-6 if dtype == np.float32 else 1e-7)


def test_a_step_is_a_new_array(seen: tuple[np.ndarray, ...]) -> None:
    """And sizes must fit."""
    before = seen[0].copy()
    assert (neural_pdgd_step(*seen, 0.1) != before).any()
    assert (seen[0] == before).all()
    weights, features, ranking, clicks = seen
    with pytest.raises(DataError, match="weights"):
        neural_pdgd_step(weights[:-1], features, ranking, clicks, 0.1)
    tanhs, scores = neural_forward(weights, features, HIDDEN)
    reversals = clicked_reversals(scores, ranking, clicks)
    with pytest.raises(DataError, match="hidden by features"):
        neural_step(weights[:-1], features, tanhs, scores, ranking, clicks, reversals, 0.1, 0.0, weights, False)
    with pytest.raises(DataError, match="base weights"):
        neural_pdgd_step(weights, features, ranking, clicks, 0.1, 0.5, weights[:-1])


@pytest.mark.parametrize("click", [False, True])
def test_fedprox_pulls_towards_the_base(seen: tuple[np.ndarray, ...], rng: np.random.Generator, click: bool) -> None:
    """w + eta (g - mu (w - base)), with the gradient of w itself; also where nothing is learned."""
    weights, features, ranking, clicks = seen
    clicks = clicks & click
    base = rng.normal(size=weights.shape)
    plain = neural_pdgd_step(weights, features, ranking, clicks, 0.1)
    pulled = neural_pdgd_step(weights, features, ranking, clicks, 0.1, 0.5, base)
    np.testing.assert_allclose(pulled, plain - 0.1 * 0.5 * (weights - base), rtol=1e-12)
    assert (plain == weights).all() != click
