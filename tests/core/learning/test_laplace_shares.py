import numpy as np
import pytest
import scipy

from foltr.core.errors import DataError
from foltr.core.learning.laplace_shares import clip_weights, gamma_noise


def test_clipping_by_hand() -> None:
    """Eq. 13 with the L2 norm: a longer vector ends at Delta / 2, a shorter one stays, in a new array."""
    weights = np.array([3.0, 4.0], np.float32)
    assert clip_weights(weights, 5.0).tolist() == [1.5, 2.0]
    kept = clip_weights(weights, 10.0)
    assert (kept == weights).all()
    assert not np.shares_memory(kept, weights)
    assert kept.dtype == np.float32
    assert clip_weights(np.zeros(3), 1.0).tolist() == [0.0, 0.0, 0.0]
    huge = clip_weights(np.full(4, 1e38, np.float32), 5.0)
    assert np.linalg.norm(huge) == pytest.approx(2.5)
    with pytest.raises(DataError, match="finite"):
        clip_weights(np.array([1.0, np.inf]), 1.0)


def test_all_shares_add_up_to_laplace_noise(rng: np.random.Generator) -> None:
    """Eq. 15: Laplace with scale Delta / epsilon. The order of draws is fixed."""
    for n_clients in [1, 2, 10, 1000]:
        total = sum(gamma_noise(n_clients, 5.0, 4.5, 5000, rng) for _ in range(n_clients))
        assert scipy.stats.kstest(total, scipy.stats.laplace(scale=5.0 / 4.5).cdf).pvalue > 0.001, n_clients
    twin = np.random.default_rng(5)
    expected = twin.gamma(1 / 4, 3 / 2, 7) - twin.gamma(1 / 4, 3 / 2, 7)
    assert (gamma_noise(4, 3.0, 2.0, 7, np.random.default_rng(5)) == expected).all()
