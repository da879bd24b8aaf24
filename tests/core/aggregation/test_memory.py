"""A round of robust aggregation holds the updates once and no second copy of them."""

import tracemalloc
from collections.abc import Callable

import numpy as np
import pytest

from foltr.core.aggregation.round_aggregation import aggregate_round
from foltr.core.aggregation.rule_spec import RULES, read_rule

N, DIM = 200, 5_000
IDS = [f"client-{i:03}" for i in range(N)]


def peak(work: Callable[[], object]) -> int:
    """Bytes above what there was."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("text", [rule for rule in RULES if rule != "adaptive"])
@pytest.mark.parametrize("weighted", [False, True])
def test_no_second_copy(text: str, weighted: bool) -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(N, DIM)).astype(np.float32)
    weights = rng.integers(1, 9, N).astype(np.float64) if weighted else np.ones(N)
    used = peak(lambda: aggregate_round(read_rule(text, byzantine=0.2), IDS, rows, weights))
    assert used < 0.9 * rows.nbytes


def test_huge_updates_and_mixing_make_at_most_one_copy() -> None:
    """Under attack Krum does its sums again in float64; NNM's result is a second array."""
    rows = np.random.default_rng(0).normal(size=(N, DIM)).astype(np.float32)
    rows[:20] = 1e25
    assert peak(lambda: aggregate_round(read_rule("krum"), IDS, rows, np.ones(N))) < 0.9 * rows.nbytes
    rows = np.random.default_rng(0).normal(size=(N, DIM)).astype(np.float32)
    assert peak(lambda: aggregate_round(read_rule("nnm+krum"), IDS, rows, np.ones(N))) < 1.3 * rows.nbytes
