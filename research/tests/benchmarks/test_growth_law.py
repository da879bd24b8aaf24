"""The law of growth is what was measured, and what leaves it is found."""

from itertools import product

import pytest

SIZES = list(product((10, 100, 1000, 3000), (46, 1000, 20_000)))


def test_a_law_is_found_exactly(benchmark_module) -> None:
    """From rounds that follow one, whatever the largest costs; a cost that falls by chance has no coefficient."""
    law = benchmark_module("growth_law")
    costs = [6 + 0.3 * n + 2e-5 * n * d * (1 if n * d <= 5_000_000 else 2) for n, d in SIZES]
    found = law.fit_law(SIZES, costs)
    assert (found.round, found.update, found.weight) == pytest.approx((6, 0.3, 2e-5))
    assert found.error == pytest.approx(0, abs=1e-9)
    assert found(1000, 136) == pytest.approx(6 + 300 + 2.72)
    law = benchmark_module("growth_law")
    found = law.fit_law(SIZES, [1 + 0.1 * n * (1.01 if d == 46 else 1) for n, d in SIZES])
    assert found.weight == 0
    assert found.update == pytest.approx(0.1, rel=0.02)


def test_where_it_bends(benchmark_module) -> None:
    """Sizes whose cost is off by more than a quarter, upwards or downwards, with how much."""
    law = benchmark_module("growth_law")
    costs = {(n, d): 6 + 0.3 * n for n, d in SIZES}
    found = law.fit_law(list(costs), list(costs.values()))
    costs[3000, 46] *= 2
    costs[3000, 1000] *= 0.5
    costs[1000, 46] *= 1.2
    bends = law.bends(found, list(costs), list(costs.values()))
    assert bends == {(3000, 46): pytest.approx(2), (3000, 1000): pytest.approx(0.5)}


def test_too_few_rounds_make_no_law_and_points_a_line(benchmark_module) -> None:
    """Two sizes, or more beyond what it is fitted to; a line is exact on one, and never below 0 at 0."""
    law = benchmark_module("growth_law")
    with pytest.raises(ValueError, match="2 rounds"):
        law.fit_law([(10, 46), (100, 46)], [1, 2])
    with pytest.raises(ValueError, match="0 rounds"):
        law.fit_law([(3000, 46)] * 5, [1] * 5)
    with pytest.raises(ValueError, match="1 points"):
        law.fit_line([3, 3], [1, 2])
    law = benchmark_module("growth_law")
    assert law.fit_line([1, 10, 100], [5, 14, 104]) == pytest.approx((4, 1))
    at_zero, slope = law.fit_line([1, 2], [1, 5])
    assert at_zero == 0
    assert slope > 0


def test_each_round_has_the_fixed_cost_of_its_variant(benchmark_module) -> None:
    """From the lines of the same variant alone; one size says nothing."""
    law = benchmark_module("growth_law")
    assert law.fit_line([10, 100, 1000], [10, 46, 1.1 * 406])[0] == pytest.approx(6, abs=0.5)
    measured = benchmark_module("round_overhead")

    def line(n: int, variant: str, fixed_ms: float) -> object:
        of = dict.fromkeys(("federator_cpu_ms", "device_cpu_ms", "broker_cpu_ms", "bare_ms"), 0.1)
        return measured.Measured(n=n, variant=variant, round_ms=fixed_ms + n, per_update_ms=1.0, n_rounds=3, **of)

    lines = [line(n, variant, fixed_ms) for n in (3, 5) for variant, fixed_ms in (("unsigned", 6.0), ("signed", 8.0))]
    assert [one.fixed_ms for one in measured.with_fixed_costs(lines)] == pytest.approx([6.0, 8.0, 6.0, 8.0])
    assert measured.with_fixed_costs([line(3, "signed", 8.0)])[0].fixed_ms is None
