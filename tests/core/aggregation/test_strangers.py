"""Clients that are little known have one budget together, also in rounds that are theirs for the most part."""

import numpy as np
from support.adaptive_rounds import ADAPTIVE, DIM, Federation, names_of

from foltr.core.aggregation.budgets import HORIZONS, SharedSum
from foltr.core.aggregation.round_aggregation import aggregate_round

N, N_STRANGERS = 12, 8


def known_for_long() -> Federation:
    """Twelve honest clients, all of them well known."""
    return Federation(n=N).play(80)


def play(federation: Federation, n_known: int, strangers: list[str], push: np.ndarray | float = 0.0) -> np.ndarray:
    """A round of so many known clients and these strangers, who push; what it makes."""
    rows = federation.updates()
    rows = np.concatenate([rows[:n_known], rows[: len(strangers)] + push]).astype(np.float32)
    names = [*federation.names[:n_known], *strangers]
    one = aggregate_round(ADAPTIVE, names, rows, np.ones(len(names)), federation.memory)
    federation.memory = one.memory
    return one.vector


def test_new_names_that_fill_rounds_lead_the_model_nowhere() -> None:
    """In a third of all rounds they are the most, under new names each time; none of them is ever judged."""
    for n_known in [0, 1, 3]:
        federation, push = known_for_long(), np.zeros(DIM)
        push[0] = 1.9
        moved = 0.0
        for number in range(90):
            strangers = [f"{name}-{number}" for name in names_of(N_STRANGERS)]
            if number % 3:
                play(federation, N, [])
            else:
                moved += play(federation, n_known, strangers, push)[0]
        assert abs(moved) < 15.0, "of some thirty where they are measured by themselves"


def test_newcomers_that_stay_are_soon_counted_whole() -> None:
    """Honest ones who come eight at a time, beside two known ones: the model gets nearly all that they teach."""
    federation, made = known_for_long(), np.zeros(DIM)
    ahead = federation.direction / np.linalg.norm(federation.direction)
    for number in range(90):
        vector = play(federation, N, []) if number % 3 else play(federation, 2, names_of(20)[N:])
        made += vector if number % 3 == 0 else 0.0
    expected = 30 * federation.signal * np.linalg.norm(federation.direction)
    assert made @ ahead > 0.85 * expected


def test_without_anybody_known_the_sum_of_all_steps_counts() -> None:
    """As many squared steps as there are strangers, and no more for the unevenness of others."""
    step = np.full((4, 3), 0.1)
    share, after, _ = SharedSum.empty(3).granted(step, np.zeros((0, 3)), 1.0)
    assert share == 1.0
    np.testing.assert_allclose(after.sums, np.full((len(HORIZONS), 3), 0.4), atol=1e-6)
    assert after.steps.tolist() == [4.0] * len(HORIZONS)
    assert after.granted(100.0 * step, np.zeros((0, 3)), 1.0)[0] < 0.2
