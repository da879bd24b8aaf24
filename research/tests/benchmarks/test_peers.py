"""The same results as byzfl and as Flower's functions, where those are installed (make bench-peers)."""

import sys
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[3] / "research/benchmarks"


@pytest.fixture
def updates() -> np.ndarray:
    return np.random.default_rng(3).normal(size=(23, 50)).astype(np.float32)


@pytest.mark.parametrize("peer", ["byzfl", "flwr"])
def test_equals_the_peer(peer: str, updates: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rule by rule, with the definitions brought into line as research/benchmarks/aggregation.py says."""
    pytest.importorskip(peer, reason=f"{peer} is no dependency of the project: make bench-peers installs it apart")
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])
    import aggregation

    functions = aggregation.byzfl_functions(updates, 5) if peer == "byzfl" else aggregation.flower_functions(updates, 5)
    assert len(functions) >= 6
    for rule, (function, expected) in functions.items():
        np.testing.assert_allclose(function(), expected, rtol=1e-4, atol=1e-5, err_msg=rule)
