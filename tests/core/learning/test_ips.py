import numpy as np
import pytest

from foltr.core.errors import DataError, SettingsError
from foltr.core.learning.ips import ips_step, position_propensities


def literal_step(weights, features, ranking, clicks, propensities, learning_rate) -> np.ndarray:
    """FedIPS, Algorithm 1, lines 5 to 8, with the gradient of each hinge by itself."""
    weights = weights.copy()
    for i, document in enumerate(ranking):
        if not clicks[i]:
            continue
        gradient = np.zeros(len(weights))
        for other in range(len(features)):
            difference = features[document].astype(float) - features[other].astype(float)
            if 1.0 - weights @ difference > 0.0:
                gradient -= difference
        weights = weights - learning_rate * gradient / propensities[i]
    return weights


def interaction(rng: np.random.Generator, docs: int = 15, d: int = 6, k: int = 5) -> tuple:
    weights, features = rng.normal(size=d), rng.random((docs, d), dtype=np.float32)
    return weights, features, rng.permutation(docs)[:k], rng.random(k) < 0.5, position_propensities(1.0, k)


def test_one_click_by_hand() -> None:
    """From zero weights: eta / p times the sum of x_d - x_d'. Attention is (1 / rank)^exponent."""
    features = np.array([[1, 0], [0, 1], [1, 1]], np.float32)
    after = ips_step(np.zeros(2), features, np.array([2, 0]), np.array([False, True]), np.array([1.0, 0.25]), 0.1)
    assert after == pytest.approx(0.1 * 4 * np.array([(1 - 0) + (1 - 1), (0 - 1) + (0 - 1)]))
    assert position_propensities(1.0, 4).tolist() == [1.0, 1 / 2, 1 / 3, 1 / 4]
    assert position_propensities(0.5, 4)[3] == pytest.approx(0.5)
    assert position_propensities(0.0, 3).tolist() == [1.0, 1.0, 1.0]
    for exponent in [-0.5, np.nan, np.inf]:
        with pytest.raises(SettingsError, match="at least 0"):
            position_propensities(exponent, 3)


def test_step_is_the_published_algorithm(rng: np.random.Generator) -> None:
    """Many interactions in a row end where the slow transcription of Algorithm 1 ends."""
    mine, slow = np.zeros(6), np.zeros(6)
    for _ in range(60):
        _, *seen = interaction(rng)
        mine, slow = ips_step(mine, *seen, 0.02), literal_step(slow, *seen, 0.02)
        np.testing.assert_allclose(mine, slow, rtol=1e-9, atol=1e-12)


def test_without_a_click_nothing_is_learned_and_nothing_is_overwritten(rng: np.random.Generator) -> None:
    weights, features, ranking, _, propensities = interaction(rng)
    after = ips_step(weights, features, ranking, np.zeros(5, bool), propensities, 0.1)
    assert (after == weights).all()
    before = weights.copy()
    ips_step(weights, features, ranking, np.ones(5, bool), propensities, 0.1)
    assert (weights == before).all()
    assert not np.shares_memory(after, weights)


def test_wrong_interactions_are_refused() -> None:
    """What compiled code could turn into a wrong read of memory or a silent NaN is an error with a reason."""
    for wrong, complaint in [
        ({"ranking": [0, 9]}, "candidates"),
        ({"ranking": [-1, 0]}, "candidates"),
        ({"ranking": [1, 1]}, "twice"),
        ({"clicks": [True]}, "one entry for each"),
        ({"propensities": [1.0]}, "one entry for each"),
        ({"propensities": [1.0, 0.0]}, "outside"),
        ({"propensities": [1.5, 1.0]}, "outside"),
        ({"weights": [0.0]}, "features"),
        ({"weights": [0.0, np.nan]}, "finite"),
    ]:
        seen = {
            "weights": np.zeros(2),
            "features": np.ones((4, 2), np.float32),
            "ranking": np.arange(2),
            "clicks": np.array([True, False]),
            "propensities": np.ones(2),
        } | {name: np.array(value) for name, value in wrong.items()}
        with pytest.raises(DataError, match=complaint):
            ips_step(*seen.values(), 0.1)
