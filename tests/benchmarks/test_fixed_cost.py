"""What a round costs beside its updates is told from rounds of several sizes."""

import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_it_is_the_intercept_whatever_the_longest_round_errs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exact on a line; a tenth more of the longest round moves it by little; one size says nothing."""
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])
    from fixed_cost import fixed_cost

    assert fixed_cost([10, 100, 1000], [6 + 0.4 * 10, 6 + 0.4 * 100, 6 + 0.4 * 1000]) == pytest.approx(6)
    assert fixed_cost([10, 100, 1000], [10, 46, 1.1 * 406]) == pytest.approx(6, abs=0.5)
    assert fixed_cost([100, 100], [46, 47]) is None
