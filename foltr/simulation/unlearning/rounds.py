"""Rounds one after the other, from any model on: those of a federation, and the steps that unlearn in it."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foltr.aggregation.round_aggregation import TooFewUpdatesError
from foltr.aggregation.rule_spec import RuleSpec
from foltr.methods.aggregations import DeltaAggregation, is_plain_mean
from foltr.methods.base import NO_MEMORY, Memory, NextModel
from foltr.methods.registry import Ranker, make_aggregation
from foltr.protocol.trainings import Training
from foltr.simulation.kept_updates import KeptUpdates
from foltr.simulation.runners import Experience, Runner

Curve = tuple[tuple[int, float], ...]
# (n, d) updates, (d,) the model they start from, names of their clients: what is aggregated in their place.
Change = Callable[[NDArray[np.float32], NDArray[np.float32], Sequence[str]], NDArray[np.float32]]


@dataclass(frozen=True, eq=False)
class Trained:
    """A model, and what it took to make it.

    Attributes:
        weights: (n_weights,) float32.
        model: the same with the federator's memory, to go on from.
        ndcg: (round or step, nDCG@10 on the test set), from round 0 on.
        interactions: that clients learned from.
        updates: that clients were asked for and sent, each for a model they were sent.
        seconds: of learning and aggregation, without evaluations.
    """

    weights: NDArray[np.float32]
    model: NextModel
    ndcg: Curve
    interactions: int
    updates: int
    seconds: float

    def taken_over(self) -> "Trained":
        """Return the same model as one that was there already: it took nothing."""
        return Trained(self.weights, self.model, ((0, self.ndcg[-1][1]),), 0, 0, 0.0)

    def then(self, more: "Trained") -> "Trained":
        """Return what came of this and of what went on from it, and what both took."""
        done = self.ndcg[-1][0]
        ndcg = (*self.ndcg, *((done + number, value) for number, value in more.ndcg[1:]))
        taken = (self.interactions + more.interactions, self.updates + more.updates, self.seconds + more.seconds)
        return Trained(more.weights, more.model, ndcg, *taken)


@dataclass(frozen=True, eq=False)
class Step:
    """One round, or one step of unlearning.

    Attributes:
        number: of the round, from 1; what is drawn in it depends on it.
        clients: indices in the population, in the order of their names.
        players: who makes their updates.
        change: what is aggregated in place of these.
    """

    number: int
    clients: NDArray[np.int64]
    players: Runner
    change: Change


@dataclass(frozen=True, eq=False)
class Rounds:
    """Rounds play out from what a federation is made of.

    Attributes:
        ndcg: of (n_weights,) a ranker.
    """

    training: Training
    ranker: Ranker
    rule: RuleSpec
    seed: int
    ndcg: Callable[[NDArray[np.floating]], float]

    def play(self, model: NextModel, step: Step) -> tuple[NextModel, Experience]:
        """Return the next model, or the same where the rule lacks updates; and what clients saw."""
        n_clients = len(step.clients)
        rng = None
        if not is_plain_mean(self.rule):
            rng = np.random.default_rng(np.random.SeedSequence([self.seed, step.number, *b"aggregation"]))
        inner = make_aggregation(self.training, self.ranker, self.rule, n_expected=n_clients, rng=rng)
        if not isinstance(inner, DeltaAggregation):
            raise TypeError(f"{type(inner).__name__} takes no differences of weights")
        aggregation = _ChangedAggregation(inner, n_clients, step.change)
        experience = step.players.run(model.weights, step.number - 1, step.clients, aggregation)
        try:
            return aggregation.finish(model.weights, model.memory), experience
        except TooFewUpdatesError:
            return model, experience


class Progress:
    """A model goes from round to round, and a log of it is kept.

    Args:
        every: so many rounds are between two evaluations; the last is evaluated always.
        n_rounds: of all that will be played.
    """

    def __init__(self, rounds: Rounds, model: NextModel, every: int, n_rounds: int) -> None:
        self.model = model
        self._rounds, self._every, self._n_rounds = rounds, every, n_rounds
        self._curve = [(0, self._ndcg())]
        self._done = self._interactions = self._updates = 0
        self._seconds = 0.0

    def play(self, step: Step) -> None:
        """Play one more round; one without clients changes nothing."""
        if len(step.clients):
            began = time.perf_counter()
            self.model, experience = self._rounds.play(self.model, step)
            self._seconds += time.perf_counter() - began
            self._interactions += experience.n_interactions
            self._updates += len(experience.clients)
        self._done += 1
        if self._done % self._every == 0 or self._done == self._n_rounds:
            self._curve.append((self._done, self._ndcg()))

    def trained(self) -> Trained:
        """Return the model and the log."""
        made = (tuple(self._curve), self._interactions, self._updates, self._seconds)
        return Trained(self._weights(), self.model, *made)

    def _weights(self) -> NDArray[np.float32]:
        return self.model.weights[: self._rounds.ranker.n_weights]

    def _ndcg(self) -> float:
        return self._rounds.ndcg(self._weights())


def unchanged(rows: NDArray[np.float32], base: NDArray[np.float32], names: Sequence[str]) -> NDArray[np.float32]:  # noqa: ARG001 (as `Change`)
    """Return the updates as they are."""
    return rows


class _ChangedAggregation(KeptUpdates):
    """Keeps the updates of a round until it ends, and aggregates what they are changed to."""

    def __init__(self, aggregation: DeltaAggregation, n_expected: int, change: Change) -> None:
        super().__init__(aggregation, n_expected)
        self._change = change

    def finish(self, base: NDArray[np.float32], memory: Memory = NO_MEMORY) -> NextModel:
        rows, n_interactions, names = self._updates.all()
        self._aggregation.add_rows(self._change(rows, base, names), n_interactions.astype(np.int64), names)
        return self._aggregation.finish(base, memory)
