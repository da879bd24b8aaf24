"""Plays rounds in sequence from any model: those of a federation, and its unlearning steps."""

import contextlib
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from foltr.core.aggregation.round_aggregation import TooFewUpdatesError
from foltr.core.aggregation.rule_spec import RuleSpec
from foltr.core.methods.aggregations import DeltaAggregation, is_plain_mean
from foltr.core.methods.base import NO_MEMORY, Memory, NextModel
from foltr.core.methods.registry import Ranker, make_aggregation
from foltr.core.protocol.trainings import Training
from foltr.core.unlearning.calibration import calibrated
from foltr_research.simulation.blocks.block_runners import PdgdBlockRunner
from foltr_research.simulation.kept_updates import KeptUpdates
from foltr_research.simulation.runners import Runner

Curve = tuple[tuple[int, float], ...]
_MOST_IN_A_ROW = 1024
# From (n, d) updates, (d,) the model they start from and client names to the updates that are aggregated instead.
Change = Callable[[NDArray[np.float32], NDArray[np.float32], Sequence[str]], NDArray[np.float32]]


@dataclass(frozen=True, eq=False)
class Trained:
    """A model, and the cost of making it.

    Attributes:
        weights: (n_weights,) float32.
        model: the same with the federator's memory, to continue from.
        ndcg: (round or step, nDCG@10 on the test set), from round 0 on.
        interactions: that clients learned from.
        updates: requested and sent, each for a model sent to the client.
        seconds: of learning and aggregation, without evaluations.
    """

    weights: NDArray[np.float32]
    model: NextModel
    ndcg: Curve
    interactions: int
    updates: int
    seconds: float

    def at_no_cost(self) -> "Trained":
        """Return the same model at no cost that already existed."""
        return Trained(self.weights, self.model, ((0, self.ndcg[-1][1]),), 0, 0, 0.0)

    def then(self, more: "Trained") -> "Trained":
        """Return the result of continuing from this, with the cost of both."""
        done = self.ndcg[-1][0]
        ndcg = (*self.ndcg, *((done + number, value) for number, value in more.ndcg[1:]))
        taken = (self.interactions + more.interactions, self.updates + more.updates, self.seconds + more.seconds)
        return Trained(more.weights, more.model, ndcg, *taken)


@dataclass(frozen=True, eq=False)
class Step:
    """One round, or one step of unlearning.

    Attributes:
        number: of the round, from 1; its draws depend on it.
        clients: indices in the population, in the order of their names.
        players: the runner that makes their updates.
        change: applied to the updates before aggregation.
    """

    number: int
    clients: NDArray[np.int64]
    players: Runner
    change: Change


@dataclass(frozen=True, eq=False)
class Played:
    """The result of one or several successive steps.

    Attributes:
        model: after the last of them.
        models: (steps, n_values) float32, after each of them.
        sent: (steps, clients, n_weights) float32 updates as aggregated.
        n_interactions, n_updates: of all clients.
    """

    model: NextModel
    models: NDArray[np.float32]
    sent: NDArray[np.float32]
    n_interactions: int
    n_updates: int


# Called with the first of some successive steps, and (steps, clients, n_weights) the aggregated updates.
Take = Callable[[Step, NDArray[np.float32]], None]


@dataclass(frozen=True, eq=False)
class Rounds:
    """The parts of a federation that rounds need.

    Attributes:
        ndcg: of (n_weights,) a ranker.
    """

    training: Training
    ranker: Ranker
    rule: RuleSpec
    seed: int
    ndcg: Callable[[NDArray[np.floating]], float]

    def play(self, model: NextModel, step: Step) -> Played:
        """Return the next model, or the same one if the rule lacks updates."""
        aggregation = _ChangedAggregation(self._aggregation(step), len(step.clients), step.change)
        experience = step.players.run(model.weights, step.number - 1, step.clients, aggregation)
        with contextlib.suppress(TooFewUpdatesError):
            model = aggregation.finish(model.weights, model.memory)
        counted = (experience.n_interactions, len(experience.clients))
        return Played(model, model.weights[None], aggregation.changed[None], *counted)

    def n_alike(self, steps: Sequence[Step]) -> int:
        """Return how many of the first steps can be played in one call: with the same clients, by a kernel; else 1."""
        first = steps[0]
        if not (
            isinstance(first.players, PdgdBlockRunner)
            and len(first.clients)
            and self._aggregation(first).is_mean_by_interactions
        ):
            return 1
        most = first.players.rounds_at_once(first.clients)
        alike = itertools.takewhile(partial(_goes_with, first), itertools.islice(steps, most))
        return max(1, sum(1 for _ in alike))

    def play_in_a_row(self, model: NextModel, steps: Sequence[Step]) -> Played:
        """Return the result of `n_alike` steps, bit-equal to single steps."""
        players, clients = steps[0].players, steps[0].clients
        if not isinstance(players, PdgdBlockRunner):
            raise TypeError(f"{type(players).__name__} plays no rounds in a row")
        stored = [step.change.lengths for step in steps if isinstance(step.change, Calibration)]
        # One memory layout: each would be compiled separately.
        lengths = np.ascontiguousarray(np.array(stored)[:, clients]) if stored else None
        made = players.rounds(model.weights, clients, len(steps), lengths)
        following = NextModel(made.models[-1].copy(), model.memory)
        return Played(following, made.models, made.updates, int(made.counts.sum()), made.counts.size)

    def _aggregation(self, step: Step) -> DeltaAggregation:
        rng = None
        if not is_plain_mean(self.rule):
            rng = np.random.default_rng(np.random.SeedSequence([self.seed, step.number, *b"aggregation"]))
        made = make_aggregation(self.training, self.ranker, self.rule, n_expected=len(step.clients), rng=rng)
        if not isinstance(made, DeltaAggregation):
            raise TypeError(f"{type(made).__name__} takes no differences of weights")
        return made


class Progress:
    """A model that advances by rounds, with a log.

    Args:
        every: rounds between two evaluations; the last is always evaluated.
        n_rounds: total number to be played.
    """

    def __init__(self, rounds: Rounds, model: NextModel, every: int, n_rounds: int) -> None:
        self.model = model
        self._rounds, self._every, self._n_rounds = rounds, every, n_rounds
        self._curve = [(0, self._ndcg(model.weights))]
        self._done = self._interactions = self._updates = 0
        self._seconds = 0.0

    def play_all(self, steps: Sequence[Step]) -> None:
        """Play successive rounds, in one call if possible."""
        done = 0
        while done < len(steps):
            done += self.play_some(steps[done : done + _MOST_IN_A_ROW])

    def play_some(self, steps: Sequence[Step], take: Take | None = None) -> int:
        """Play the first of some rounds and those that can be made in one call with it. Return how many.

        A round without clients changes nothing.

        Args:
            take: called with them.
        """
        models = self.model.weights[None]
        if len(steps[0].clients):
            began = time.perf_counter()
            n = self._rounds.n_alike(steps)
            played = (
                self._rounds.play(self.model, steps[0]) if n == 1 else self._rounds.play_in_a_row(self.model, steps[:n])
            )
            self.model, models = played.model, played.models
            if take is not None:
                take(steps[0], played.sent)
            self._seconds += time.perf_counter() - began
            self._interactions += played.n_interactions
            self._updates += played.n_updates
        for model in models:
            self._done += 1
            if self._done % self._every == 0 or self._done == self._n_rounds:
                self._curve.append((self._done, self._ndcg(model)))
        return len(models)

    def trained(self) -> Trained:
        """Return the model and the log."""
        made = (tuple(self._curve), self._interactions, self._updates, self._seconds)
        return Trained(self._weights(self.model.weights), self.model, *made)

    def _ndcg(self, model: NDArray[np.float32]) -> float:
        return self._rounds.ndcg(self._weights(model))

    def _weights(self, model: NDArray[np.float32]) -> NDArray[np.float32]:
        return model[: self._rounds.ranker.n_weights]


def unchanged(rows: NDArray[np.float32], base: NDArray[np.float32], names: Sequence[str]) -> NDArray[np.float32]:  # noqa: ARG001 (as `Change`)
    """Return the updates as they are."""
    return rows


@dataclass(frozen=True, eq=False)
class Calibration:
    """A `Change` that scales each update to the length of the client's stored one (thesis, Eq. 6.2).

    Attributes:
        lengths: (clients of the population,) float64 L2 norms; NaN without a stored update.
        index: of each client in the population, by name.
    """

    lengths: NDArray[np.float64]
    index: Mapping[str, int]

    def __call__(
        self,
        rows: NDArray[np.float32],
        base: NDArray[np.float32],  # noqa: ARG002 (as `Change`)
        names: Sequence[str],
    ) -> NDArray[np.float32]:
        stored = self.lengths[[self.index[name] for name in names]].tolist()
        return np.stack([calibrated(length, row) for length, row in zip(stored, rows, strict=True)]).astype(np.float32)


def _goes_with(first: Step, step: Step) -> bool:
    """Whether a step can be made in one call with a first one: kernels know no change and calibration."""
    calibrates = isinstance(first.change, Calibration) and isinstance(step.change, Calibration)
    if not calibrates and not first.change is step.change is unchanged:
        return False
    same = step.clients is first.clients or np.array_equal(step.clients, first.clients)
    return same and step.players is first.players


class _ChangedAggregation(KeptUpdates):
    """Keeps the updates of a round until it ends, then changes and aggregates them.

    Attributes:
        changed: (n, n_values) float32, the aggregated updates.
    """

    def __init__(self, aggregation: DeltaAggregation, n_expected: int, change: Change) -> None:
        super().__init__(aggregation, n_expected)
        self._change = change
        self.changed = np.empty((0, aggregation.n_values), np.float32)

    def finish(self, base: NDArray[np.float32], memory: Memory = NO_MEMORY) -> NextModel:
        rows, n_interactions, names = self._updates.all()
        self.changed = self._change(rows, base, names)
        self._aggregation.add_rows(self.changed, n_interactions.astype(np.int64), names)
        return self._aggregation.finish(base, memory)
