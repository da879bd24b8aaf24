"""What a round costs beside its updates is told from rounds of several sizes."""

import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[3] / "research/benchmarks"


def test_it_is_the_intercept_whatever_the_longest_round_errs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exact on a line; a tenth more of the longest round moves it by little; one size says nothing."""
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])
    from fixed_cost import fixed_cost

    assert fixed_cost([10, 100, 1000], [6 + 0.4 * 10, 6 + 0.4 * 100, 6 + 0.4 * 1000]) == pytest.approx(6)
    assert fixed_cost([10, 100, 1000], [10, 46, 1.1 * 406]) == pytest.approx(6, abs=0.5)
    assert fixed_cost([100, 100], [46, 47]) is None


def test_each_line_has_the_fixed_cost_of_its_variant(monkeypatch: pytest.MonkeyPatch) -> None:
    """From the lines of the same variant alone."""
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])
    monkeypatch.delitem(sys.modules, "servers", raising=False)  # of the tests: benchmarks have their own
    from round_overhead import Measured, with_fixed_costs

    def line(n: int, variant: str, fixed_ms: float) -> Measured:
        of = dict.fromkeys(("federator_cpu_ms", "device_cpu_ms", "broker_cpu_ms", "bare_ms"), 0.1)
        return Measured(n=n, variant=variant, round_ms=fixed_ms + n, per_update_ms=1.0, n_rounds=3, **of)

    lines = [line(n, variant, fixed_ms) for n in (3, 5) for variant, fixed_ms in (("unsigned", 6.0), ("signed", 8.0))]
    assert [one.fixed_ms for one in with_fixed_costs(lines)] == pytest.approx([6.0, 8.0, 6.0, 8.0])
