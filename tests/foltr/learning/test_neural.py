import numpy as np
import pytest
import transcriptions

from foltr.errors import DataError
from foltr.learning.neural import init_neural, n_neural_weights, neural_forward, neural_score


def test_scores_are_those_of_the_formula(rng: np.random.Generator) -> None:
    """w2 . sigmoid(x W1 + b1), with the weights in the order the messages have them."""
    features = rng.random((20, 6), dtype=np.float32)
    weights = rng.normal(size=n_neural_weights(6, 4))
    result = neural_score(weights, features, 4)
    np.testing.assert_allclose(result, transcriptions.neural(weights, features, 4), rtol=1e-5, atol=1e-6)
    assert result.dtype == np.float32


def test_one_unit_by_hand() -> None:
    """One feature, one unit: 3 * sigmoid(2 x + 1)."""
    result = neural_score(np.array([2.0, 1.0, 3.0]), np.array([[0.5]], np.float32), 1)
    assert result[0] == pytest.approx(3 / (1 + np.exp(-2.0)), rel=1e-6)


def test_inputs_of_any_size_do_not_overflow() -> None:
    """Hidden units saturate at 0 and 1."""
    weights = np.array([1e30, 0.0, 1.0])
    assert neural_score(weights, np.array([[1.0], [-1.0]], np.float32), 1).tolist() == [1.0, 0.0]


def test_initial_weights_have_the_published_spread() -> None:
    """Normal with 1 / fan-in as standard deviation, layer by layer; a function of the generator."""
    weights = init_neural(100, 64, np.random.default_rng(1))
    assert weights.shape == (n_neural_weights(100, 64),)
    assert weights.dtype == np.float32
    assert weights[:6400].std() == pytest.approx(1 / 100, rel=0.05)
    assert weights[6400:6464].std() == pytest.approx(1 / 100, rel=0.35)
    assert weights[6464:].std() == pytest.approx(1 / 64, rel=0.35)
    assert (weights == init_neural(100, 64, np.random.default_rng(1))).all()


def test_weights_must_fit() -> None:
    """The message says how many are needed."""
    with pytest.raises(DataError, match="need 10 weights"):
        neural_forward(np.zeros(9), np.zeros((4, 3), np.float32), 2)
