"""Results as runs would have given them, with chosen numbers."""

from collections.abc import Mapping, Sequence

from foltr_research.reproductions.outcomes import DataProfile, Outcome, Results
from foltr_research.simulation.config import SimulationConfig

ROUNDS = 20


def profile(n_grades: int = 5, *, folds: tuple[int, ...] = (), intents: bool = False) -> DataProfile:
    return DataProfile("made", "synthetic", folds, n_grades, 8, 30, 10, 9, intents)


def outcome(
    labels: Mapping[str, str], seed: int, final: float, first: float = 0.2, peak: float | None = None
) -> Outcome:
    """A run whose curves go straight from ``first`` to ``final``; through ``peak`` in the middle if given."""
    half = ROUNDS // 2
    middle = (first + final) / 2 if peak is None else peak
    points = [(0, first), (half, middle), (ROUNDS, final)]
    per_round = [first] * (half // 2) + [middle] * half + [final] * (ROUNDS - half - half // 2)
    return Outcome(
        labels,
        None,
        seed,
        SimulationConfig(seed=seed, rounds=ROUNDS),
        {
            "ndcg_at_10": [{"round": at, "value": value} for at, value in points],
            "ndcg_at_10_global": None,
            "online_per_round": per_round,
            "max_rr": per_round,
            "online_ndcg": sum(per_round),
            "interactions": 100,
            "bytes": {"up": 32, "down": 32},
            "seconds": {"learning": 0.1, "wall": 0.2},
        },
    )


def results(values: Mapping[tuple[tuple[str, str], ...], Sequence[float]], n_grades: int = 5) -> Results:
    """One run for each value: labels as pairs, and the final values by seed."""
    return Results(
        tuple(
            outcome(dict(labels), seed, value)
            for labels, finals in values.items()
            for seed, value in enumerate(finals, start=1)
        ),
        profile(n_grades),
    )


def by_method(**finals: Sequence[float]) -> Results:
    """Methods with perfect clicks."""
    return results({(("method", name), ("clicks", "perfect")): values for name, values in finals.items()})
