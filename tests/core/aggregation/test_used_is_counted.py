"""What enters the mean is what is counted of each client, for the rule that remembers."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from foltr.core.aggregation.adaptive import assess, remember
from foltr.core.aggregation.budgets import HORIZONS
from foltr.core.aggregation.client_records import ClientRecords
from foltr.core.aggregation.round_aggregation import aggregate_round
from foltr.core.aggregation.rule_spec import RULES, read_rule

N, DIM = 9, 12
NAMES = tuple(f"device-{i}" for i in range(N))
RULE = read_rule("adaptive")


def test_adaptive_is_the_only_rule_that_remembers():
    rows = np.random.default_rng(1).normal(size=(N, DIM))
    remembers = [name for name in RULES if aggregate_round(read_rule(name), NAMES, rows, np.ones(N)).memory is not None]
    assert remembers == ["adaptive"]


@settings(max_examples=20)
@given(
    seed=st.integers(0, 2**32 - 1),
    lengths=st.lists(st.floats(0.0, 12.0), min_size=4, max_size=4),
    period=st.integers(1, 9),
)
def test_what_is_used_of_a_step_is_what_its_budgets_count(seed, lengths, period):
    """Round after round, for all who are not left out: one number makes usual lengths of all, and so it adds up."""
    rng = np.random.default_rng(seed)
    memory, fades = None, np.array([horizon.fade for horizon in HORIZONS])[:, None]
    for number in range(25):
        rows = rng.normal(size=(N, DIM)) / np.sqrt(DIM)
        for i, length in enumerate(lengths):
            rows[i] *= 0.3
            rows[i, 0] += length * (1.0 if number % period == 0 else -1.0 / period)
        found = assess(memory, NAMES, rows, np.ones(N), RULE)
        assert found.median_step is not None
        used = rows * found.factors[:, None] + found.median_factors[:, None] * found.median_step
        before = np.zeros((N, len(HORIZONS), DIM)) if memory is None else budgets_of(memory)
        counted = found.memory.for_clients(NAMES)["budgets"] - fades * before
        kept = np.flatnonzero(~found.excluded)
        of_used = used[kept] - used[kept[0]]
        for of_horizon in counted.transpose(1, 0, 2):
            of_counted = of_horizon[kept] - of_horizon[kept[0]]
            scale = float((of_used * of_counted).sum() / (of_counted**2).sum())
            np.testing.assert_allclose(of_used, scale * of_counted, atol=1e-4 * np.abs(of_used).max())
            np.testing.assert_allclose(of_horizon[found.excluded], 0.0, atol=1e-5)
        memory = remember(found, used[kept].mean(axis=0))


def budgets_of(memory: bytes) -> np.ndarray:
    return ClientRecords.from_bytes(memory, DIM).for_clients(NAMES)["budgets"].astype(np.float64)
