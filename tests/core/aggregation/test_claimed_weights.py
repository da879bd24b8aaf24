"""A claimed weight buys no more than its cap."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from foltr.core.aggregation.claimed_weights import capped_weights

claims = st.lists(st.floats(1, 1e9), min_size=1, max_size=40)


@given(claims, st.integers(0, 20))
def test_no_m_clients_hold_more_than_their_limit(claimed: list[float], m: int) -> None:
    """Halfway from m / n to a half; nobody gains, and who is below the cap keeps what it has."""
    weights = np.array(claimed)
    n = len(weights)
    capped = capped_weights(weights, m)
    assert (capped <= weights * (1 + 1e-12)).all()
    assert (capped > 0).all()
    untouched = capped == weights
    assert untouched.all() or capped[~untouched].max() <= capped.max() * (1 + 1e-12)
    limit = (m / n + 0.5) / 2 if 2 * m < n else m / n
    assert np.sort(capped)[::-1][:m].sum() <= limit * capped.sum() * (1 + 1e-9) or m >= n


def test_by_hand() -> None:
    """Two of ten claim 1,000 interactions where the others have 5: together they may hold 35 % of the weight."""
    weights = np.array([5.0] * 8 + [1000.0] * 2)
    capped = capped_weights(weights, 2)
    assert capped[:8].tolist() == [5.0] * 8
    np.testing.assert_allclose(capped[8:].sum() / capped.sum(), (0.2 + 0.5) / 2)
    assert capped_weights(weights, 0) is weights
    assert capped_weights(weights, 5).tolist() == [5.0] * 10
    modest = np.array([1.0, 3, 5, 7, 9, 1, 3, 5, 7, 9])
    assert capped_weights(modest, 1) is modest
