"""Shares of noise: what t of them add up to, what more do, and why fewer are refused."""

from decimal import Decimal, localcontext

import numpy as np
import pytest
from support.chi_squared import discrete_laplace, p_value, polya_difference

from foltr.core.errors import SettingsError
from foltr.core.secure.polya import PRECISION_BITS, PolyaTable, draw_from, draw_polya_share, polya_table

N, SCALE = 100_000, 10
COUNTS = [2, 5, 20]


def sum_of_shares(rng, n_arrived, n_shares):
    return sum(draw_polya_share(N, SCALE, n_shares, rng.bytes) for _ in range(n_arrived))


def loss(probability_of, epsilon):
    """How much more likely than exp(epsilon) times an event can become when the sum moves by one."""
    values = np.arange(-400, 401)
    here, moved = probability_of(values), probability_of(values - 1)
    return float(np.maximum(moved - np.exp(epsilon) * here, 0.0).sum())


def test_all_shares_add_up_to_laplace_noise(rng):
    for n_shares in COUNTS:
        assert p_value(sum_of_shares(rng, n_shares, n_shares), discrete_laplace(SCALE)) > 1e-3, n_shares


def test_more_shares_than_needed_promise_no_less(rng):
    """Their sum has the distribution with the larger shape, and no event is likelier than the claim allows."""
    for n_more in [1, 3]:
        for n_shares in COUNTS:
            shape = (n_shares + n_more) / n_shares
            assert p_value(sum_of_shares(rng, n_shares + n_more, n_shares), polya_difference(SCALE, shape)) > 1e-3
            assert loss(polya_difference(SCALE, shape), 1 / SCALE) < 1e-12, (n_more, n_shares)


def test_the_table_is_good_to_96_bits():
    """Beside the same probabilities by decimal fractions with sixty digits, all but the last entry's rounding."""
    for scale, n_shares in [(1, 1), (10, 2), (640, 1000)]:
        table = polya_table(scale, n_shares)
        with localcontext() as context:
            context.prec = 60
            alpha, shape = (Decimal(-1) / scale).exp(), Decimal(1) / n_shares
            probability = total = ((1 - alpha).ln() * shape).exp()
            for k, (high, low) in enumerate(zip(table.high.tolist(), table.low.tolist(), strict=True)):
                assert abs(Decimal((high << 32) + low) / 2**PRECISION_BITS - total) < Decimal(2) ** (1 - PRECISION_BITS)
                probability *= alpha * (k + shape) / (k + 1)
                total += probability
            assert 1 - total < Decimal(2) ** -PRECISION_BITS, (scale, n_shares)


def test_a_number_that_meets_an_entry_draws_the_rest_of_its_digits(rng):
    """Shares of nothing are refused; of a thousand clients P(X = 0) = (1 - alpha)^(1/t), and Y the same."""
    table = PolyaTable(np.array([5, 7, 7, 9], np.uint64), np.array([0, 10, 20, 0], np.uint32))

    def entropy_of(word, *rest):
        pieces = [word.to_bytes(8, "little"), *(one.to_bytes(4, "little") for one in rest)]
        return lambda _: pieces.pop(0)

    assert draw_from(table, 1, entropy_of(6)).tolist() == [1]
    assert draw_from(table, 1, entropy_of(10)).tolist() == [4]
    assert [draw_from(table, 1, entropy_of(7, low)).tolist() for low in (9, 10, 19, 20)] == [[1], [2], [2], [3]]
    for scale, n_shares in [(0, 2), (2**16 + 1, 2), (10, 0)]:
        with pytest.raises(SettingsError, match="must be"):
            polya_table(scale, n_shares)
    drawn = draw_polya_share(N, 640, 1000, rng.bytes)
    assert np.mean(drawn == 0) == pytest.approx((1 - np.exp(-1 / 640)) ** (2 / 1000), abs=0.002)
