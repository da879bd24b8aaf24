"""A federation that one client leaves, and the ways to forget it (thesis, chapter 6).

The federation keeps what the service keeps: the length of each client's update in each round, the model before the
leaver's first round and, on request, interactions. Unlearning then makes a model of the remaining clients by one of the
service's strategies, with the federation's aggregation rule.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from foltr.core.aggregation.rule_spec import MEAN
from foltr.core.data.dataset import RankingDataset, select_queries
from foltr.core.errors import SettingsError
from foltr.core.evaluation.metrics import mean_ndcg_of_scores
from foltr.core.methods.aggregations import DeltaAggregation
from foltr.core.methods.base import NO_MEMORY, NextModel, scores_of
from foltr.core.methods.registry import Ranker, initial_weights, learns_from_kept_lists, make_aggregation
from foltr.core.numerics.streams import first_model_rng
from foltr.core.protocol.states import Strategy
from foltr.core.unlearning.schedule import FEWEST_INTERACTIONS, Schedule
from foltr_research.simulation.blocks.block_runners import PdgdBlockRunner, block_runner
from foltr_research.simulation.clients.crowd import Crowd
from foltr_research.simulation.clients.population import Population
from foltr_research.simulation.config import SimulationConfig, resolve, rule_of
from foltr_research.simulation.learner_factory import RunnerKind, compile_kernels
from foltr_research.simulation.learners import participants_of
from foltr_research.simulation.method_names import has_personal_rankers
from foltr_research.simulation.runners import ReferenceRunner, Runner
from foltr_research.simulation.unlearning.ascent import projected
from foltr_research.simulation.unlearning.history import History
from foltr_research.simulation.unlearning.kept_interactions import Log, Recorder, Replay, drawn
from foltr_research.simulation.unlearning.rounds import Calibration, Change, Progress, Rounds, Step, Trained, unchanged
from foltr_research.simulation.unlearning.stored_updates import Sent, Stored

Interactions = Literal["fresh", "kept", "drawn"]

_EVALUATIONS = 20
# More than one, since a client without clicks learns nothing.
_CLIENTS_COMPILED_FOR = 20


@dataclass(frozen=True)
class Leaver:
    """The client that is to be forgotten.

    Attributes:
        client: its index in the population.
        z: it sends the model -z * M_local instead of M_local, so that its effect shows (thesis, Eq. 6.3); None for an
            honest client.
        joined: its first round, from 1.
    """

    client: int
    z: float | None = 2.0
    joined: int = 1


class UnlearningSimulation:
    """A federation of clients, one of whom leaves after the last round.

    Args:
        config: of the federation. Its attackers are not simulated here: only the leaver may do harm.
        population: of the size in ``config``.

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
        self._rounds = Rounds(self._training, self._ranker, rule_of(config), config.seed, self._ndcg)
        self._first = initial_weights(self._training, self._ranker, first_model_rng(config.seed))
        names = [client.name for client in population.clients]
        self._index = {name: i for i, name in enumerate(names)}
        # The order in which a federator adds updates.
        self._in_order = np.array(sorted(range(len(names)), key=names.__getitem__), np.int64)
        self._others_in_order = self._in_order[self._in_order != leaver.client]
        compile_kernels(config, population, self._training, self._ranker, self._first, "auto")
        self._compile_rounds()

    @property
    def ranker(self) -> Ranker:
        return self._ranker

    @property
    def population(self) -> Population:
        return self._population

    @property
    def leaver(self) -> Leaver:
        return self._leaver

    def others_ndcg(self, weights: NDArray[np.floating]) -> float:
        """Return the mean nDCG@10 on the other clients' training queries; mean over data sets."""
        return self._mean_ndcg(weights, self._asked_by([i for i in self._in_order if i != self._leaver.client]))

    def own_ndcg(self, weights: NDArray[np.floating]) -> float:
        """Return the mean nDCG@10 on the leaver's queries, by its labels."""
        return self._mean_ndcg(weights, self._asked_by([self._leaver.client]))

    def _asked_by(self, clients: Sequence[int]) -> list[RankingDataset]:
        """Return the queries of these clients, one set per data set."""
        asked: dict[int, set[int]] = {}
        for client in (self._population.clients[i] for i in clients):
            asked.setdefault(client.dataset, set()).update(client.queries.tolist())
        return [
            select_queries(self._population.datasets[dataset], np.array(sorted(queries), np.int64))
            for dataset, queries in asked.items()
        ]

    def federate(
        self,
        *,
        with_leaver: bool = True,
        record_every: int | None = None,
        record_last: int = 0,
        keep_updates: bool = False,
    ) -> History:
        """Run the federation; without the leaver it is the retraining that unlearning is compared with.

        Args:
            record_every: keep the interactions of rounds 1, 1 + this, ...; None keeps none.
            record_last: also keep those of this many last rounds.
            keep_updates: keep every update, like a federator with enough disk.
        """
        config, leaver = self._config, self._leaver
        crowd = Crowd(self._population, config.seed, self._training.serp_length)
        runner = self._runner(self._population, crowd)
        recorder = Recorder(self._population, crowd, self._training, self._ranker)
        sent = Sent(config.rounds, len(self._population.clients), self._ranker.n_weights if keep_updates else None)
        kept: dict[int, Log] = {}
        progress = Progress(self._rounds, self.start, config.eval_every, config.rounds)
        before_leaver = before_last = progress.model
        recorded = {
            number
            for number in range(1, config.rounds + 1)
            if number > config.rounds - record_last or (record_every is not None and (number - 1) % record_every == 0)
        }
        steps = [
            self._step_as_sent(number, recorder if number in recorded else runner, with_leaver=with_leaver)
            for number in range(1, config.rounds + 1)
        ]
        # Something is kept before or after these rounds, so they are made in separate calls.
        alone = recorded | {leaver.joined, config.rounds}
        for _, run in itertools.groupby(steps, lambda step: step.number if step.number in alone else 0):
            ahead = list(run)
            while ahead:
                number, base = ahead[0].number, progress.model
                if number == leaver.joined:
                    before_leaver = base
                del ahead[: progress.play_some(ahead, sent.keep)]
                if progress.model is base:
                    sent.discard(number)
                else:
                    before_last = base
                if number in recorded:
                    kept[number] = recorder.take()
        return History(progress.trained(), sent.lengths, before_leaver, before_last, sent.updates, kept, crowd.state())

    def unlearn(
        self,
        history: History,
        schedule: Schedule,
        *,
        interactions: Interactions = "fresh",
        runner: RunnerKind = "auto",
    ) -> Trained:
        """Make the model without the leaver, like a job of the service without concurrent live rounds.

        ``fed_eraser`` replays the rounds from the first model on, ``rollback`` those since the leaver joined from the
        model before that, and ``relearn`` is `relearn`.

        Args:
            schedule: the rounds to replay, and how much is learned in each.
            interactions: ``fresh``, as in the thesis: users continue from the end of the federation. Kept: the first
                ones of each client in the replayed round. Drawn: from the newest kept ones, like the service's devices.
            runner: of fresh interactions; see `foltr_research.simulation.federated.run`. It affects only the time.

        Raises:
            SettingsError: the method cannot learn from kept interactions, or a round was not recorded.
        """
        if schedule.strategy is Strategy.RELEARN:
            interval = schedule.interval_over(len(self._stored(history, self._leaver.joined)))
            return self.relearn(history, interval, "fresh" if interactions == "fresh" else "drawn")
        first, start = 1, self.start
        if schedule.strategy is Strategy.ROLLBACK:
            first, start = self._leaver.joined, history.before_leaver
        course, rounds = schedule.begin(self._stored(history, first))
        local_interactions = schedule.interactions_of(self._most_interactions, course.interval)
        steps = self._steps(history, rounds, course.interval, local_interactions, interactions, runner, calibrates=True)
        return self._play(start, steps)

    def retrain(
        self, history: History, *, interactions: Interactions = "fresh", runner: RunnerKind = "auto"
    ) -> Trained:
        """Learn all rounds again from the first model on, with equally many interactions and without calibration.

        Args:
            interactions, runner: see `unlearn`.
        """
        n_interactions = max(FEWEST_INTERACTIONS, self._most_interactions)
        rounds = self._stored(history, 1)
        steps = self._steps(history, rounds, 1, n_interactions, interactions, runner, calibrates=False)
        return self._play(self.start, steps)

    @property
    def _most_interactions(self) -> int:
        return max(client.n_interactions for client in self._population.clients)

    def _steps(
        self,
        history: History,
        rounds: Sequence[int],
        interval: int,
        local_interactions: int,
        interactions: Interactions,
        runner: RunnerKind,
        *,
        calibrates: bool,
    ) -> list[Step]:
        """Return one step per round, in which the others learn from ``local_interactions``."""
        if interactions == "kept":
            self._check_kept(history, rounds, interval)
        population = self._learning_from(local_interactions)
        crowd, chosen = self._going_on(history, population, runner)
        steps = []
        for number in rounds:
            players = chosen
            if interactions == "kept":
                log = history.interactions[number]
                players = Replay(log, local_interactions, population, crowd, self._training, self._ranker)
            elif interactions == "drawn":
                players = self._drawing(history, number, population, crowd)
            change = Calibration(history.lengths[number - 1], self._index) if calibrates else unchanged
            steps.append(self._step_of_others(number, players, change))
        return steps

    def relearn(self, history: History, interval: int, interactions: Literal["fresh", "drawn"] = "fresh") -> Trained:
        """Learn again from the model before the leaver joined, in long steps of many rounds' interactions.

        Args:
            interval: rounds per step. A client learns in it from this many times its interactions.
            interactions: see `unlearn`.

        Raises:
            SettingsError: the method cannot learn from kept interactions.
        """
        clients = self._population.clients
        more = tuple(replace(client, n_interactions=interval * client.n_interactions) for client in clients)
        population = replace(self._population, clients=more)
        crowd, players = self._going_on(history, population)
        steps = [
            self._step_of_others(
                number,
                players if interactions == "fresh" else self._drawing(history, number, population, crowd),
                unchanged,
            )
            for number in self._stored(history, self._leaver.joined)[::interval]
        ]
        return self._play(history.before_leaver, steps)

    def remove(self, history: History) -> Trained:
        """Add the stored updates again, without the leaver's, to the model before it joined (FedRemove).

        No client is involved. The others' updates were learned from models that the leaver influenced.

        Raises:
            SettingsError: the updates were not kept.
        """
        numbers = self._stored(history, self._leaver.joined)
        return self._play(history.before_leaver, [self._stored_step(history, number) for number in numbers])

    def remove_last(self, history: History) -> Trained:
        """Replace the newest model by the mean of the others' last local models.

        This is the result of the code of the study that names FedRemove: its rounds average models, so each overwrites
        the one before (`Unlearning-for-FOLTR`, `fed_remove`).

        Raises:
            SettingsError: the updates were not kept.
        """
        [number] = self._stored(history, 1)[-1:]
        return self._play(history.before_last, [self._stored_step(history, number)])

    def fine_tune(self, history: History, start: Trained, n_rounds: int) -> Trained:
        """Let the others continue from a model for ``n_rounds`` ordinary rounds without the leaver."""
        _, players = self._going_on(history, self._population)
        numbers = range(self._config.rounds + 1, self._config.rounds + n_rounds + 1)
        steps = [self._step_of_others(number, players, unchanged) for number in numbers]
        return start.then(self._play(start.model, steps))

    def ascend(self, history: History, n_steps: int) -> Trained:
        """Let the leaver itself unlearn: by gradient ascent on its loss, near the others' models (Halimi et al. 2022).

        It shows lists as always and takes the opposite of what it learns. It begins with the others' last local models,
        and stays within a third of their distance to the first model.

        Raises:
            SettingsError: the updates were not kept.
        """
        begun = self.remove_last(history)
        centre = begun.model.weights
        radius = float(np.linalg.norm(centre - self._first)) / 3
        _, players = self._going_on(history, self._population)
        leaver = np.array([self._leaver.client], np.int64)
        change = partial(_ascending, centre, radius)
        numbers = range(self._config.rounds + 1, self._config.rounds + n_steps + 1)
        steps = [Step(number, leaver, players, change) for number in numbers]
        # A single update cannot be compared by a rule.
        return begun.then(self._play(begun.model, steps, replace(self._rounds, rule=MEAN)))

    @property
    def start(self) -> NextModel:
        return NextModel(self._first, NO_MEMORY)

    def _play(self, start: NextModel, steps: Sequence[Step], rounds: Rounds | None = None) -> Trained:
        progress = Progress(rounds or self._rounds, start, max(1, len(steps) // _EVALUATIONS), len(steps))
        progress.play_all(steps)
        return progress.trained()

    def _step_of_others(self, number: int, players: Runner, change: Change) -> Step:
        return Step(number, self._participants(number, with_leaver=False), players, change)

    def _stored_step(self, history: History, number: int) -> Step:
        if history.updates is None:
            raise SettingsError("keep_updates: no update was kept")
        players = Stored(history.updates[number - 1], self._population)
        return self._step_of_others(number, players, unchanged)

    def _going_on(self, history: History, population: Population, kind: RunnerKind = "auto") -> tuple[Crowd, Runner]:
        """Return users who continue from the end of the federation."""
        crowd = Crowd(population, self._config.seed, self._training.serp_length)
        crowd.restore(history.crowd)
        return crowd, self._runner(population, crowd, kind)

    def _drawing(self, history: History, number: int, population: Population, crowd: Crowd) -> Runner:
        """Return clients who draw what they learn from out of their newest kept interactions."""
        self._check_learnable()
        rng = np.random.default_rng(np.random.SeedSequence([self._config.seed, number, *b"drawn"]))
        quantities = [client.n_interactions for client in population.clients]
        log = drawn(history.interactions, quantities, rng)
        return Replay(log, max(quantities), population, crowd, self._training, self._ranker)

    def _check_kept(self, history: History, rounds: Sequence[int], interval: int) -> None:
        self._check_learnable()
        if not all(number in history.interactions for number in rounds):
            raise SettingsError(f"interactions: those of every {interval}-th round were not recorded")

    def _check_learnable(self) -> None:
        if not learns_from_kept_lists(self._training, self._ranker):
            raise SettingsError(
                f"interactions: what {self._config.method} learns cannot be learned again from kept ones"
            )

    def _learning_from(self, local_interactions: int) -> Population:
        """Return the population with at most ``local_interactions`` per client and round."""
        clients = tuple(
            replace(client, n_interactions=min(local_interactions, client.n_interactions))
            for client in self._population.clients
        )
        return replace(self._population, clients=clients)

    def _stored(self, history: History, first: int) -> list[int]:
        """Return the rounds from ``first`` on that made a model with an update of a remaining client."""
        rounds = range(first, self._config.rounds + 1)
        of_others = np.delete(history.lengths, self._leaver.client, axis=1)
        return [number for number in rounds if not np.isnan(of_others[number - 1]).all()]

    def _participants(self, number: int, *, with_leaver: bool) -> NDArray[np.int64]:
        chosen = participants_of(self._config.seed, number, len(self._in_order), self._config.participants)
        if chosen is None:
            return self._in_order if with_leaver else self._others_in_order
        clients = self._in_order[chosen]
        return clients if with_leaver else clients[clients != self._leaver.client]

    def _step_as_sent(self, number: int, players: Runner, *, with_leaver: bool) -> Step:
        """Return a round of the federation, in which the leaver's update may be reversed."""
        leaver = self._leaver
        clients = self._participants(number, with_leaver=with_leaver and number >= leaver.joined)
        turns = leaver.z is not None and leaver.client in clients
        return Step(number, clients, players, self._with_leaver_turned if turns else unchanged)

    def _with_leaver_turned(
        self, rows: NDArray[np.float32], base: NDArray[np.float32], names: Sequence[str]
    ) -> NDArray[np.float32]:
        """Return all updates, the leaver's reversed."""
        rows, at = rows.copy(), list(names).index(self._population.clients[self._leaver.client].name)
        rows[at] = turned_round(rows[at], base, self._leaver.z or 0.0)
        return rows

    def _compile_rounds(self) -> None:
        """Let some clients play two successive rounds apart from the federation, as `compile_kernels` does one."""
        clients = self._in_order[:_CLIENTS_COMPILED_FOR]
        runner = self._runner(self._population, Crowd(self._population, self._config.seed, self._training.serp_length))
        if isinstance(runner, PdgdBlockRunner) and runner.rounds_at_once(clients) > 1:
            runner.rounds(self._first, clients, 2)

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
    """Return the update to send in place of a (d,) update: base + sent is -z * (base + update) (thesis, Eq. 6.4)."""
    sent: NDArray[np.float64] = -z * update.astype(np.float64) - (z + 1.0) * base.astype(np.float64)
    return sent


def _ascending(
    centre: NDArray[np.float32],
    radius: float,
    rows: NDArray[np.float32],
    base: NDArray[np.float32],
    names: Sequence[str],  # noqa: ARG001 (as `Change`)
) -> NDArray[np.float32]:
    """Return the step from the base to the end of the opposite of the updates, projected into the ball."""
    return (projected(base - rows, centre, radius) - base).astype(np.float32)
