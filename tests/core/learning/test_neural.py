import numpy as np
import pytest
from support import paper_formulas

from foltr.core.errors import DataError
from foltr.core.learning import neural
from foltr.core.learning.neural import hidden_inputs, init_neural, n_neural_weights, neural_forward, neural_score
from foltr.core.learning.relu import relu_score
from foltr.core.numerics.compiled import plain_functions


def test_scores_are_those_of_the_formula(rng: np.random.Generator) -> None:
    """w2 . sigmoid(x W1 + b1), with the weights in the order the messages have them."""
    features = rng.random((20, 6), dtype=np.float32)
    weights = rng.normal(size=n_neural_weights(6, 4))
    result = neural_score(weights, features, 4)
    np.testing.assert_allclose(result, paper_formulas.neural(weights, features, 4), rtol=1e-5, atol=1e-6)
    assert result.dtype == np.float32


def test_one_unit_by_hand() -> None:
    """Sigmoid: 3 * sigmoid(2 x + 1). ReLU: two units of which one is off. Weights must fit."""
    result = neural_score(np.array([2.0, 1.0, 3.0]), np.array([[0.5]], np.float32), 1)
    assert result[0] == pytest.approx(3 / (1 + np.exp(-2.0)), rel=1e-6)
    weights = np.array([1e30, 0.0, 1.0])
    assert neural_score(weights, np.array([[1.0], [-1.0]], np.float32), 1).tolist() == [1.0, 0.0]
    with pytest.raises(DataError, match="need 10 weights"):
        neural_forward(np.zeros(9), np.zeros((4, 3), np.float32), 2)
    # W1 is (1, 2) row-major, then b1, then w2.
    weights = np.array([2.0, -3.0, 0.5, 1.0, 10.0, 100.0])
    features = np.array([[1.0], [-1.0]], np.float32)
    expected = [10 * (2 * 1 + 0.5), 100 * (-3 * -1 + 1)]
    assert relu_score(weights, features, 2).tolist() == expected
    with plain_functions():
        assert relu_score(weights, features, 2).tolist() == expected
    features = np.ones((3, 4), np.float32)
    assert relu_score(np.zeros(12), features, 2).tolist() == [0.0, 0.0, 0.0]
    assert relu_score(-np.ones(12), features, 2).tolist() == [0.0, 0.0, 0.0]
    with pytest.raises(DataError, match="hidden by features"):
        relu_score(np.zeros(9), np.zeros((4, 3), np.float32), 2)


def test_initial_weights_have_the_published_spread() -> None:
    """Normal with 1 / fan-in as standard deviation, layer by layer; a function of the generator."""
    weights = init_neural(100, 64, np.random.default_rng(1))
    assert weights.shape == (n_neural_weights(100, 64),)
    assert weights.dtype == np.float32
    assert weights[:6400].std() == pytest.approx(1 / 100, rel=0.05)
    assert weights[6400:6464].std() == pytest.approx(1 / 100, rel=0.35)
    assert weights[6464:].std() == pytest.approx(1 / 64, rel=0.35)
    assert (weights == init_neural(100, 64, np.random.default_rng(1))).all()


def test_products_in_parts_are_the_whole_product(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many documents go into one product, also in machine code; a larger layer is multiplied whole."""
    halved = rng.normal(size=4 * 7).astype(np.float32)
    for n_documents in (0, 1, 5, 40):
        features = rng.random((n_documents, 6), dtype=np.float32)
        expected = features @ halved[:24].reshape(6, 4) + halved[24:]
        for most in (1, 24, 100, 10**6):
            monkeypatch.setattr(neural, "_PRODUCTS_UNPACKED", most)
            inputs = np.full((n_documents, 4), np.nan, np.float32)
            with plain_functions():
                hidden_inputs(halved, features, inputs)
            np.testing.assert_allclose(inputs, expected, rtol=1e-5, atol=1e-6)
    for n_features, hidden in ((136, 64), (300, 64)):
        features = rng.random((250, n_features), dtype=np.float32)
        halved = rng.normal(size=hidden * (n_features + 1)).astype(np.float32)
        inputs = np.empty((250, hidden), np.float32)
        hidden_inputs(halved, features, inputs)
        expected = features.astype(np.float64) @ halved[: n_features * hidden].reshape(n_features, hidden)
        np.testing.assert_allclose(inputs, expected + halved[n_features * hidden :], rtol=1e-4, atol=1e-4)
