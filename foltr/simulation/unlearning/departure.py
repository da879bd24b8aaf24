"""A federation that one client leaves, and what is done to forget it (thesis, chapter 6).

The federation keeps what the service keeps: how long each client's update was in each round, the model before the
leaver's first round, and, where it is told to, interactions. Unlearning then makes a model of the retained clients, by
one of the strategies of the service, with the federation's own aggregation rule.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from foltr.aggregation.round_aggregation import TooFewUpdatesError
from foltr.data.dataset import RankingDataset
from foltr.errors import SettingsError
from foltr.evaluation.metrics import mean_ndcg_of_scores
from foltr.methods.aggregations import DeltaAggregation, is_plain_mean
from foltr.methods.base import NO_MEMORY, Memory, NextModel, scores_of
from foltr.methods.registry import Ranker, initial_weights, learns_from_kept_lists, make_aggregation
from foltr.numerics.streams import first_model_rng
from foltr.protocol.states import Strategy
from foltr.simulation.blocks.block_runners import block_runner
from foltr.simulation.clients.crowd import Crowd
from foltr.simulation.clients.population import Population
from foltr.simulation.config import SimulationConfig, resolve, rule_of
from foltr.simulation.kept_updates import KeptUpdates
from foltr.simulation.learner_factory import RunnerKind, compile_kernels
from foltr.simulation.learners import participants_of
from foltr.simulation.method_names import has_personal_rankers
from foltr.simulation.runners import ReferenceRunner, Runner, State
from foltr.simulation.unlearning.kept_interactions import Log, Recorder, Replay
from foltr.unlearning.calibration import calibrated
from foltr.unlearning.schedule import Schedule

Interactions = Literal["fresh", "kept"]
Curve = tuple[tuple[int, float], ...]
# (n, d) updates, (d,) the model they start from, names of their clients: what is aggregated in their place.
Change = Callable[[NDArray[np.float32], NDArray[np.float32], Sequence[str]], NDArray[np.float32]]

_EVALUATIONS = 20


@dataclass(frozen=True)
class Leaver:
    """The client that is to be forgotten.

    Attributes:
        client: its index in the population.
        z: it sends the model -z * M_local in place of its own, so that its part shows (thesis, Eq. 6.3); None of a
            client that is honest.
        joined: the first round it takes part in, from 1.
    """

    client: int
    z: float | None = 2.0
    joined: int = 1


@dataclass(frozen=True, eq=False)
class Trained:
    """A model, and what it took to make it.

    Attributes:
        weights: (n_weights,) float32.
        ndcg: (round or calibration round, nDCG@10 on the test set), from round 0 on.
        interactions: that clients learned from.
        seconds: of learning and aggregation, without evaluations.
    """

    weights: NDArray[np.float32]
    ndcg: Curve
    interactions: int
    seconds: float


@dataclass(frozen=True, eq=False)
class History:
    """A federation's model and what is kept for unlearning.

    Attributes:
        lengths: (rounds, clients) float64 L2 norms of the updates; NaN where a client was not part of a round, or no
            model came of it.
        before_leaver: the model and the federator's memory before the leaver's first round.
        interactions: by round, those each client learned from, as far as they were recorded.
        crowd: where the clients' random streams stand.
    """

    trained: Trained
    lengths: NDArray[np.float64]
    before_leaver: NextModel
    interactions: Mapping[int, Log]
    crowd: State


class UnlearningSimulation:
    """A federation of clients, one of whom leaves after the last round.

    Args:
        config: of the federation. Its attackers are not simulated here: the leaver is the only client that may harm.
        population: as many clients as ``config`` says.

    Raises:
        SettingsError: no such leaver, or a method whose update is not the difference of all weights.
    """

    def __init__(self, config: SimulationConfig, population: Population, leaver: Leaver) -> None:
        if not (0 <= leaver.client < len(population.clients) and 1 <= leaver.joined <= config.rounds):
            raise SettingsError(
                f"leaver: client {leaver.client} of {len(population.clients)} that joined in round {leaver.joined} of "
                f"{config.rounds}; the first client is 0, the first round 1"
            )
        self._training, self._ranker = resolve(config, population.datasets[0].n_features)
        whole = make_aggregation(self._training, self._ranker)
        if has_personal_rankers(config.method) or not (
            isinstance(whole, DeltaAggregation) and whole.n_values == self._ranker.n_weights
        ):
            raise SettingsError(f"method: {config.method} sends no difference of all weights to calibrate; use fpdgd")
        self._config = config
        self._population = population
        self._leaver = leaver
        self._rule = rule_of(config)
        self._first = initial_weights(self._training, self._ranker, first_model_rng(config.seed))
        names = [client.name for client in population.clients]
        self._index = {name: i for i, name in enumerate(names)}
        # The order in which a federator adds updates up.
        self._in_order = np.array(sorted(range(len(names)), key=names.__getitem__), np.int64)
        compile_kernels(config, population, self._training, self._ranker, self._first, "auto")

    @property
    def ranker(self) -> Ranker:
        return self._ranker

    def training_ndcg(self, weights: NDArray[np.floating]) -> float:
        """Mean nDCG@10 over the queries that clients learn from; the mean over data sets."""
        return self._mean_ndcg(weights, self._population.datasets)

    def federate(self, *, with_leaver: bool = True, record_every: int | None = None) -> History:
        """Run the federation; without the leaver it is the retraining that unlearning is compared with.

        Args:
            record_every: keep the interactions of rounds 1, 1 + so many, ...; None keeps none.
        """
        config, leaver = self._config, self._leaver
        crowd = Crowd(self._population, config.seed, self._training.serp_length)
        runner = self._runner(self._population, crowd)
        recorder = Recorder(self._population, crowd, self._training, self._ranker)
        lengths = np.full((config.rounds, len(self._population.clients)), np.nan)
        kept: dict[int, Log] = {}
        progress = _Progress(NextModel(self._first, NO_MEMORY), self._ndcg, config.eval_every, config.rounds)
        before_leaver = progress.model
        for number in range(1, config.rounds + 1):
            if number == leaver.joined:
                before_leaver = progress.model
            clients = self._participants(number, with_leaver=with_leaver and number >= leaver.joined)
            recording = record_every is not None and (number - 1) % record_every == 0

            sent = partial(self._as_sent, lengths[number - 1])
            players = recorder if recording else runner
            base = progress.model
            progress.learn(len(clients), partial(self._round, players, number, clients, sent))
            if progress.model is base:
                lengths[number - 1] = np.nan  # no model came of it
            if recording:
                kept[number] = recorder.take()
        return History(progress.trained(self._ranker), lengths, before_leaver, kept, crowd.state())

    def unlearn(
        self,
        history: History,
        schedule: Schedule,
        *,
        interactions: Interactions = "fresh",
        runner: RunnerKind = "auto",
    ) -> Trained:
        """Make the model without the leaver, as a job of the service that no live rounds go on beside.

        ``fed_eraser`` and ``retrain`` go through the rounds from the first model on, ``rollback`` through those since
        the leaver joined from the model before that; ``retrain`` calibrates nothing.

        Args:
            schedule: which rounds are gone through, and how much is learned in each.
            interactions: fresh ones, as in the thesis, whose users go on where the federation ended; or the first ones
                of each client in the replayed round, as a device that keeps a log has them.
            runner: of fresh interactions; see `foltr.simulation.federated.run`. The model is the same, its time is not.

        Raises:
            SettingsError: the method cannot learn from kept interactions, or a round was not recorded.
        """
        first, start = 1, NextModel(self._first, NO_MEMORY)
        if schedule.strategy is Strategy.ROLLBACK:
            first, start = self._leaver.joined, history.before_leaver
        course, rounds = schedule.begin(self._stored(history, first))
        n_most = max(client.n_interactions for client in self._population.clients)
        local_interactions = schedule.interactions_of(n_most)
        if interactions == "kept":
            self._check_kept(history, rounds, course.interval)
        population = self._learning_from(local_interactions)
        crowd = Crowd(population, self._config.seed, self._training.serp_length)
        crowd.restore(history.crowd)
        chosen = self._runner(population, crowd, runner)
        progress = _Progress(start, self._ndcg, max(1, len(rounds) // _EVALUATIONS), len(rounds))
        for number in rounds:
            clients = self._participants(number, with_leaver=False)
            is_anew = schedule.strategy is Strategy.RETRAIN
            sent = _unchanged if is_anew else partial(self._calibrated, history.lengths[number - 1])
            players = chosen
            if interactions == "kept":
                log = history.interactions[number]
                players = Replay(log, local_interactions, population, crowd, self._training, self._ranker)
            progress.learn(len(clients), partial(self._round, players, number, clients, sent))
        return progress.trained(self._ranker)

    def _check_kept(self, history: History, rounds: Sequence[int], interval: int) -> None:
        if not learns_from_kept_lists(self._training, self._ranker):
            raise SettingsError(
                f"interactions: what {self._config.method} learns cannot be learned again from kept ones"
            )
        if not all(number in history.interactions for number in rounds):
            raise SettingsError(f"interactions: those of every {interval}-th round were not recorded")

    def _learning_from(self, local_interactions: int) -> Population:
        """Return the population, each client of which learns from at most so many interactions in a round."""
        clients = tuple(
            replace(client, n_interactions=min(local_interactions, client.n_interactions))
            for client in self._population.clients
        )
        return replace(self._population, clients=clients)

    def _stored(self, history: History, first: int) -> list[int]:
        """The rounds from one on that made a model, with an update of somebody who stays: as the service has them."""
        rounds = range(first, self._config.rounds + 1)
        of_others = np.delete(history.lengths, self._leaver.client, axis=1)
        return [number for number in rounds if not np.isnan(of_others[number - 1]).all()]

    def _participants(self, number: int, *, with_leaver: bool) -> NDArray[np.int64]:
        chosen = participants_of(self._config.seed, number, len(self._in_order), self._config.participants)
        clients = self._in_order if chosen is None else self._in_order[chosen]
        return clients if with_leaver else clients[clients != self._leaver.client]

    def _round(
        self, runner: Runner, number: int, clients: NDArray[np.int64], change: Change, model: NextModel
    ) -> tuple[NextModel, int]:
        """The next model, and how many interactions it was learned from."""
        rng = None
        if not is_plain_mean(self._rule):
            rng = np.random.default_rng(np.random.SeedSequence([self._config.seed, number, *b"aggregation"]))
        inner = make_aggregation(self._training, self._ranker, self._rule, n_expected=len(clients), rng=rng)
        if not isinstance(inner, DeltaAggregation):
            raise TypeError(f"{type(inner).__name__} takes no differences of weights")
        aggregation = _ChangedAggregation(inner, len(clients), change)
        experience = runner.run(model.weights, number - 1, clients, aggregation)
        try:
            return aggregation.finish(model.weights, model.memory), experience.n_interactions
        except TooFewUpdatesError:
            return model, experience.n_interactions

    def _as_sent(
        self,
        lengths: NDArray[np.float64],
        rows: NDArray[np.float32],
        base: NDArray[np.float32],
        names: Sequence[str],
    ) -> NDArray[np.float32]:
        """Return all, the leaver's turned round; ``lengths`` is written to."""
        z, leaver = self._leaver.z, self._population.clients[self._leaver.client].name
        if z is not None and leaver in names:
            rows, at = rows.copy(), list(names).index(leaver)
            rows[at] = turned_round(rows[at], base, z)
        lengths[[self._index[name] for name in names]] = np.linalg.norm(rows.astype(np.float64), axis=1)
        return rows

    def _calibrated(
        self,
        lengths: NDArray[np.float64],
        rows: NDArray[np.float32],
        base: NDArray[np.float32],  # noqa: ARG002 (as `Change`)
        names: Sequence[str],
    ) -> NDArray[np.float32]:
        """Return the updates, each as long as the client's stored one (thesis, Eq. 6.2)."""
        stored = [float(lengths[self._index[name]]) for name in names]
        return np.stack([calibrated(length, row) for length, row in zip(stored, rows, strict=True)]).astype(np.float32)

    def _runner(self, population: Population, crowd: Crowd, kind: RunnerKind = "auto") -> Runner:
        blocks = None
        if kind != "reference":
            blocks = block_runner(population, crowd, self._training, self._ranker)
        return ReferenceRunner(population, crowd, self._training, self._ranker) if blocks is None else blocks

    def _ndcg(self, weights: NDArray[np.floating]) -> float:
        return self._mean_ndcg(weights, self._population.tests)

    def _mean_ndcg(self, weights: NDArray[np.floating], datasets: Sequence[RankingDataset]) -> float:
        scores = [scores_of(self._ranker, weights, one.features) for one in datasets]
        return float(np.mean([mean_ndcg_of_scores(*pair).mean for pair in zip(scores, datasets, strict=True)]))


def turned_round(update: NDArray[np.float32], base: NDArray[np.float32], z: float) -> NDArray[np.float64]:
    """Return what to send in place of a (d,) update: base + sent is -z * (base + update) (thesis, Eq. 6.4)."""
    sent: NDArray[np.float64] = -z * update.astype(np.float64) - (z + 1.0) * base.astype(np.float64)
    return sent


def _unchanged(rows: NDArray[np.float32], base: NDArray[np.float32], names: Sequence[str]) -> NDArray[np.float32]:  # noqa: ARG001
    return rows


class _Progress:
    """A model from round to round, and the log of it."""

    def __init__(
        self, model: NextModel, ndcg: Callable[[NDArray[np.floating]], float], every: int, n_rounds: int
    ) -> None:
        self.model = model
        self._ndcg, self._every, self._n_rounds = ndcg, every, n_rounds
        self._curve = [(0, ndcg(model.weights))]
        self._done = self._interactions = 0
        self._seconds = 0.0

    def learn(self, n_clients: int, a_round: Callable[[NextModel], tuple[NextModel, int]]) -> None:
        """Learn one more round; one without clients changes nothing."""
        if n_clients:
            began = time.perf_counter()
            self.model, n_interactions = a_round(self.model)
            self._seconds += time.perf_counter() - began
            self._interactions += n_interactions
        self._done += 1
        if self._done % self._every == 0 or self._done == self._n_rounds:
            self._curve.append((self._done, self._ndcg(self.model.weights)))

    def trained(self, ranker: Ranker) -> Trained:
        weights = self.model.weights[: ranker.n_weights]
        return Trained(weights, tuple(self._curve), self._interactions, self._seconds)


class _ChangedAggregation(KeptUpdates):
    """Keeps the updates of a round until it ends, and aggregates what they are changed to."""

    def __init__(self, aggregation: DeltaAggregation, n_expected: int, change: Change) -> None:
        super().__init__(aggregation, n_expected)
        self._change = change

    def finish(self, base: NDArray[np.float32], memory: Memory = NO_MEMORY) -> NextModel:
        rows, n_interactions, names = self._updates.all()
        self._aggregation.add_rows(self._change(rows, base, names), n_interactions.astype(np.int64), names)
        return self._aggregation.finish(base, memory)
