"""Rounds of the adaptive defence on made-up updates: clients with a direction in common and noise of their own."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from foltr.core.aggregation.fates import Fate
from foltr.core.aggregation.round_aggregation import RoundAggregate, TooFewUpdatesError, aggregate_round
from foltr.core.aggregation.round_report import Finding
from foltr.core.aggregation.rule_spec import RuleSpec, read_rule

DIM = 24
ADAPTIVE = read_rule("adaptive")
Attack = Callable[[NDArray[np.float64], np.random.Generator], NDArray[np.float64]]


def names_of(n: int) -> list[str]:
    return [f"device-{i:03d}" for i in range(1, n + 1)]


@dataclass
class Federation:
    """Clients of which the first ``n_attackers`` attack, what their rounds were made into, and which made no model."""

    n: int = 10
    n_attackers: int = 0
    attack: Attack | None = None
    signal: float = 0.5
    seed: int = 3
    spec: RuleSpec = ADAPTIVE
    memory: bytes | None = None
    played: list[RoundAggregate] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)
        self.direction = self.rng.normal(size=DIM) / np.sqrt(DIM)
        self.names = names_of(self.n)

    def updates(self) -> NDArray[np.float64]:
        rows = self.signal * self.direction + self.rng.normal(size=(self.n, DIM)) / np.sqrt(DIM)
        if self.attack is not None:
            rows[: self.n_attackers] = self.attack(rows, self.rng)[: self.n_attackers]
        return rows

    def play(self, rounds: int, n_present: int | None = None, weights: Sequence[float] | None = None) -> "Federation":
        """Go on for so many rounds, each with all clients or with so many drawn at random."""
        weighed = np.full(self.n, 5.0) if weights is None else np.asarray(weights, float)
        for _ in range(rounds):
            here = np.sort(self.rng.choice(self.n, n_present or self.n, replace=False))
            rows = self.updates()[here].astype(np.float32)
            present = [self.names[i] for i in here]
            try:
                one = aggregate_round(self.spec, present, rows, weighed[here], self.memory)
            except TooFewUpdatesError as error:
                self.refused.append(str(error))
                continue
            self.memory = one.memory
            self.played.append(one)
        return self

    @property
    def attackers(self) -> set[str]:
        return set(self.names[: self.n_attackers])

    def found(self, kind: str) -> list[Finding]:
        return [finding for one in self.played for finding in one.report.findings if finding.kind == kind]

    def ever_dropped(self) -> set[str]:
        return set().union(*(dropped(one) for one in self.played))


def dropped(one: RoundAggregate) -> set[str]:
    return {fate.client_id for fate in one.report.fates if fate.fate is Fate.DROPPED}


def clipped(one: RoundAggregate) -> set[str]:
    return {fate.client_id for fate in one.report.fates if fate.fate is Fate.CLIPPED}
