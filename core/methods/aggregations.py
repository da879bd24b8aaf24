"""The federator part of methods whose updates are differences of weights."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from foltr.core.aggregation.mean import RunningMean
from foltr.core.aggregation.rule_spec import MEAN, RuleSpec
from foltr.core.errors import DataError
from foltr.core.methods.base import NO_MEMORY, Aggregation, Memory, NextModel
from foltr.core.protocol.fields import unpack_vector
from foltr.core.protocol.updates import DenseDelta, EvolutionPair, PartDelta, UpdateBody

_FIRST_CAPACITY = 16


@runtime_checkable
class RowAggregation(Aggregation, Protocol):
    """An aggregation that takes many differences of weights at a time."""

    def add_rows(
        self, values: NDArray[np.float32], n_interactions: NDArray[np.int64], client_ids: Sequence[str]
    ) -> None:
        """Take many updates: like `add`, with the bare values of each row of (n, n_values)."""


class DeltaAggregation:
    """base + step * aggregate of the updates, all of which cover the same entries (FPDGD, Eq. 10; FedIPS, Algorithm 1).

    The plain mean adds updates up as they come. Any other rule compares them, so they are kept in one array until the
    round ends.

    Args:
        dim: entries of the model.
        start, n_values: the entries the updates cover; the others stay.
        by_interactions: weigh an update by its interactions; else all count alike.
        step: the federator's learning rate.
        rule: how updates become one.
        n_expected: how many updates to allocate for; more are accepted too.
        rng: for the pre-step bucketing.

    Attributes:
        covered: the entries of the model that updates cover.
    """

    def __init__(
        self,
        dim: int,
        *,
        start: int = 0,
        n_values: int | None = None,
        by_interactions: bool = True,
        step: float = 1.0,
        rule: RuleSpec = MEAN,
        n_expected: int | None = None,
        rng: np.random.Generator | None = None,
    ) -> None:
        self._dim = dim
        self.covered = slice(start, dim if n_values is None else start + n_values)
        self._mean = RunningMean(self.n_values)
        self._by_interactions = by_interactions
        self._step = step
        self._rule = rule
        self._rng = rng
        self._updates = None if is_plain_mean(rule) else UpdateRows(self.n_values, n_expected)

    @property
    def n_values(self) -> int:
        """Return how many values an update has."""
        return self.covered.stop - self.covered.start

    @property
    def is_mean_by_interactions(self) -> bool:
        """Return whether the next model is exactly the base plus the mean of the updates by their interactions."""
        return self._updates is None and self._by_interactions and self._step == 1.0

    def add(self, body: UpdateBody, n_interactions: int, staleness_weight: float = 1.0, client_id: str = "") -> None:
        values, weight = self.values_of(body), float(n_interactions) if self._by_interactions else 1.0
        if self._updates is None:
            self._mean.add(values, weight, staleness_weight)
        else:
            self._updates.add(
                values if staleness_weight == 1.0 else values * np.float32(staleness_weight), weight, client_id
            )

    def add_rows(
        self, values: NDArray[np.float32], n_interactions: NDArray[np.int64], client_ids: Sequence[str]
    ) -> None:
        counts = n_interactions.astype(np.float64)
        weights = counts if self._by_interactions else np.ones(len(counts))
        if self._updates is None:
            self._mean.add_rows(values, weights)
        else:
            self._updates.add_rows(values, weights, client_ids)

    def values_of(self, body: UpdateBody) -> NDArray[np.float32]:
        """Return (n_values,) of an update; DataError if it is not of this federation's form."""
        covers = isinstance(body, PartDelta) and body.start == self.covered.start
        if isinstance(body, DenseDelta):
            covers = self.covered == slice(0, self._dim)
        if isinstance(body, EvolutionPair) or not covers or body.dim != self._dim:
            raise DataError(f"an update of kind {body.kind} that does not cover what this federation shares")
        return unpack_vector(body.values)

    def finish(self, base: NDArray[np.float32], memory: Memory = NO_MEMORY) -> NextModel:
        report = None
        if self._updates is not None:
            rows, weights, client_ids = self._updates.all()
            from foltr.core.aggregation.round_aggregation import aggregate_round  # a device needs no rules

            result = aggregate_round(self._rule, client_ids, rows, weights, memory.defence, self._rng)
            # The one vector takes the same step as a mean does.
            self._mean.add(result.vector, 1.0)
            memory, report = replace(memory, defence=result.memory), result.report
        changed = base.copy()
        changed[self.covered] = self._mean.apply_to(base[self.covered], self._step)
        return NextModel(changed, memory, report)


class UpdateRows:
    """The updates of one round in one array, which grows if more come than expected."""

    def __init__(self, n_values: int, n_expected: int | None) -> None:
        self._rows = np.empty((n_expected or _FIRST_CAPACITY, n_values), np.float32)
        self._weights: list[float] = []
        self._client_ids: list[str] = []

    def add(self, values: NDArray[np.float32], weight: float, client_id: str) -> None:
        """Keep a copy of (n_values,); DataError for another shape."""
        if values.shape != self._rows.shape[1:]:
            raise DataError(f"an update has shape {values.shape}, expected {self._rows.shape[1:]}")
        self.add_rows(values[None], np.array([weight]), [client_id])

    def add_rows(
        self, values: NDArray[np.float32], weights: NDArray[np.float64] | NDArray[np.int64], client_ids: Sequence[str]
    ) -> None:
        """Keep copies of (n, n_values); DataError for another shape."""
        if values.ndim != 2 or values.shape[1:] != self._rows.shape[1:]:
            raise DataError(f"updates have shape {values.shape}, expected (n, {self._rows.shape[1]})")
        done = len(self._weights)
        needed = done + len(values)
        if needed > len(self._rows):
            grown = np.empty((max(needed, 2 * len(self._rows)), self._rows.shape[1]), np.float32)
            grown[:done] = self._rows[:done]
            self._rows = grown
        self._rows[done:needed] = values
        self._weights.extend(weights.tolist())
        self._client_ids.extend(client_ids)

    def all(self) -> tuple[NDArray[np.float32], NDArray[np.float64], list[str]]:
        """Return (n, n_values) rows, without a copy; (n,) weights; and their clients, in order of arrival."""
        n = len(self._weights)
        return self._rows[:n], np.array(self._weights, np.float64), list(self._client_ids)


def is_plain_mean(rule: RuleSpec) -> bool:
    """Return whether the rule needs of an update only its share of a sum."""
    return rule.rule == MEAN.rule and rule.pre_step is None
