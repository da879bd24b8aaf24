"""A simulated federation from its first model to its last: `run`.

The loop is that of the service: clients interact and learn from the newest model, the federator adds their updates in
the order of their names and makes the next model. With the same seed, service and simulation make bit-equal updates.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foltr.core.aggregation.rule_spec import MEAN
from foltr.core.data.dataset import RankingDataset
from foltr.core.errors import DataError, SettingsError
from foltr.core.evaluation.click_models import check_grades
from foltr.core.evaluation.named_metrics import NDCG_AT_10, read_metric
from foltr.core.learning.lambdarank import logging_policy
from foltr.core.methods.bodies import BodySpec
from foltr.core.methods.registry import Ranker, body_spec, initial_weights
from foltr.core.numerics.compiled import COMPILED
from foltr.core.numerics.streams import first_model_rng
from foltr.core.protocol.trainings import Training
from foltr_research.attacks.presence import all_names
from foltr_research.attacks.registry import CLICKS
from foltr_research.simulation.centralised import CentralPdgd, warmed_up
from foltr_research.simulation.checkpoint import CheckpointPlan, Snapshot, digest_of, load, save
from foltr_research.simulation.clients.attackers import with_poisoned_clicks
from foltr_research.simulation.clients.crowd import Crowd
from foltr_research.simulation.clients.population import Population
from foltr_research.simulation.config import SimulationConfig, attack_of, check_config, resolve
from foltr_research.simulation.defence_record import Robustness
from foltr_research.simulation.evaluation import Evaluation, Evaluator
from foltr_research.simulation.learner_factory import RunnerKind, compile_kernels, make_learner
from foltr_research.simulation.learners import Learner
from foltr_research.simulation.method_names import SIMULATOR_METHODS, has_personal_rankers
from foltr_research.simulation.plugins import fingerprints_of
from foltr_research.simulation.results import Curve, SimulationResult, bytes_of_body, privacy_of
from foltr_research.simulation.secure_sums import SecureSums, promise_of, secure_sums_of


@dataclass(frozen=True)
class Progress:
    """The progress of a run.

    Attributes:
        round: the last finished one; 0 before the first.
        rounds: total number.
        ndcg_at_10: the newest evaluation.
        means: the same and the other metrics, by name.
        weights: (n_weights,) float32, the shared ranker now.
        interactions: so far.
        seconds: since this process began with the run.
    """

    round: int
    rounds: int
    ndcg_at_10: float
    means: Mapping[str, float]
    weights: NDArray[np.float32]
    interactions: int
    seconds: float


@dataclass
class _Log:
    """What `run` has measured so far."""

    round: int = 0
    interactions: int = 0
    seconds_learning: float = 0.0
    seconds_wall: float = 0.0
    evaluations: list[tuple[int, Evaluation]] = field(default_factory=list)
    online: list[float] = field(default_factory=list)
    reciprocal_ranks: list[float] = field(default_factory=list)
    base_online: list[float] = field(default_factory=list)
    robustness: Robustness = field(default_factory=Robustness)

    def curve(self, metric: str) -> Curve:
        return tuple((number, evaluation.means[metric]) for number, evaluation in self.evaluations)

    def curve_global(self, metric: str) -> Curve | None:
        """Return the curve of the shared ranker alone. None if equal by definition."""
        points = [(number, evaluation.means_global) for number, evaluation in self.evaluations]
        return tuple((number, means[metric]) for number, means in points if means is not None) or None


@contextmanager
def _one_blas_thread() -> Iterator[None]:
    """Use one BLAS thread: splitting a matrix product by the number of threads changes its last bits.

    A sweep's processes have other numbers of threads than a single run.
    """
    if COMPILED:
        # numba takes its BLAS from there, and only loaded libraries can be limited.
        import scipy.linalg  # noqa: F401
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:  # an install without the extra `simulation`
        yield
        return
    with threadpool_limits(limits=1, user_api="blas"):
        yield


@_one_blas_thread()
def run(
    config: SimulationConfig,
    population: Population,
    *,
    training: Training | None = None,
    logging_data: RankingDataset | None = None,
    runner: RunnerKind = "auto",
    on_round: Callable[[Progress], None] | None = None,
    checkpoint: CheckpointPlan | None = None,
    stop: Callable[[], bool] | None = None,
    description: str = "",
) -> SimulationResult:
    """Simulate.

    Args:
        config: all of it, except for the fields that choose data and population.
        population: the clients and their data.
        training: settings of the method that override those of ``config``.
        logging_data: training data of the logging policy, with a logging fraction: the training set before it was split
            among clients. None takes the population's data set, if it has one of whole queries.
        runner: ``reference`` runs device code interaction by interaction, ``block`` whole blocks of clients; the
            results are the same. ``auto`` takes blocks if the method has them.
        on_round: called before the first round and after each; after several if they take microseconds.
        checkpoint: the file for resuming later.
        stop: called equally often. True ends the run with `KeyboardInterrupt`, after a checkpoint if there is a plan.
        description: of the data, for reports.

    Raises:
        SettingsError: an invalid configuration, or a checkpoint of another one or another runner.
        DataError: the data cannot be learned from or evaluated, or the checkpoint is damaged.
    """
    began = time.perf_counter()
    check_config(config)
    _check_population(config, population)
    policy = _logging_policy(config, population, logging_data)
    configured, ranker = resolve(config, population.datasets[0].n_features, policy)
    training = configured if training is None else training
    everybody = population
    if config.attack == CLICKS:
        population = with_poisoned_clicks(everybody, config.attackers)
        _check_population(config, population)
    crowd = Crowd(population, config.seed, training.serp_length)
    first = initial_weights(training, ranker, first_model_rng(config.seed))
    if config.warm_up_interactions:
        first = warmed_up(everybody, training, ranker, first, config.seed, config.warm_up_interactions)
    learner, kind = make_learner(config, population, crowd, training, ranker, first, runner)
    personal = has_personal_rankers(config.method)
    metrics = [read_metric(name) for name in config.other_metrics]
    evaluator = Evaluator(population, ranker, config.seed, metrics, personal=personal, n_attackers=config.attackers)
    log = _Log()
    digest = digest_of(population, training, fingerprints_of(config)) if checkpoint is not None else ""
    if checkpoint is not None and checkpoint.resume:
        snapshot = load(checkpoint.path, config, digest)
        _check_runner(checkpoint, snapshot, kind)
        _resume(snapshot, log, learner, crowd)
    else:
        _evaluate(evaluator, learner, log)
    before = log.seconds_wall
    with _errors_of_rounds(1):
        compile_kernels(config, population, training, ranker, first, runner)
    _tell(on_round, log, config, learner, began)
    while log.round < config.rounds:
        n_rounds = _rounds_at_once(learner, log.round, config, checkpoint)
        if n_rounds > 1 and isinstance(learner, CentralPdgd):
            _run_rounds(learner, log, n_rounds, config.attackers)
        else:
            _one_round(learner, log, config.attackers)
        if log.round % config.eval_every == 0 or log.round == config.rounds:
            _evaluate(evaluator, learner, log)
        log.seconds_wall = before + time.perf_counter() - began
        stopping = stop is not None and stop()
        if checkpoint is not None and (stopping or log.round % checkpoint.every == 0 or log.round == config.rounds):
            save(checkpoint.path, _snapshot(config, digest, kind, log, learner, crowd))
        _tell(on_round, log, config, learner, began)
        if stopping and log.round < config.rounds:
            raise KeyboardInterrupt
    return _result(config, population, training, ranker, learner, evaluator, log, description)


def _rounds_at_once(learner: Learner, done: int, config: SimulationConfig, checkpoint: CheckpointPlan | None) -> int:
    """Return how many rounds may be made before the learner is next read."""
    if not isinstance(learner, CentralPdgd):
        return 1
    until = [config.rounds - done, config.eval_every - done % config.eval_every]
    if checkpoint is not None:
        until.append(checkpoint.every - done % checkpoint.every)
    return min(learner.rounds_at_once, *until)


def _run_rounds(learner: CentralPdgd, log: _Log, n_rounds: int, n_attackers: int) -> None:
    """Let a learner make several rounds in one call, and log each of them."""
    began = time.perf_counter()
    with _errors_of_rounds(log.round + 1, log.round + n_rounds):
        stretch = learner.rounds(log.round + 1, log.round + n_rounds)
    log.seconds_learning += time.perf_counter() - began
    log.round += n_rounds
    log.interactions += int(stretch.n_interactions.sum())
    if not n_attackers:
        log.online += stretch.ndcg.mean(axis=1).tolist()
        log.reciprocal_ranks += stretch.reciprocal_ranks.mean(axis=1).tolist()
        return
    for row in range(n_rounds):
        ndcg, reciprocal_ranks, _ = stretch.experience(row).honest(n_attackers)
        log.online.append(_mean(ndcg))
        log.reciprocal_ranks.append(_mean(reciprocal_ranks))


def _one_round(learner: Learner, log: _Log, n_attackers: int) -> None:
    began = time.perf_counter()
    with _errors_of_rounds(log.round + 1):
        experience = learner.round(log.round + 1)
    log.seconds_learning += time.perf_counter() - began
    log.round += 1
    log.interactions += experience.n_interactions
    ndcg, reciprocal_ranks, base_ndcg = experience.honest(n_attackers)
    log.online.append(_mean(ndcg))
    log.reciprocal_ranks.append(_mean(reciprocal_ranks))
    if base_ndcg is not None:
        log.base_online.append(_mean(base_ndcg))
    if experience.defence is not None:
        log.robustness.add(log.round, experience.defence)


def _evaluate(evaluator: Evaluator, learner: Learner, log: _Log) -> None:
    with _errors_of_rounds(log.round):
        log.evaluations.append((log.round, evaluator.evaluate(learner)))


@contextmanager
def _errors_of_rounds(first: int, last: int | None = None) -> Iterator[None]:
    """Add the round or rounds to an error, and advice if weights grew without bounds."""
    try:
        yield
    except DataError as error:
        # Features are finite once they are read, so the infinite values were learned.
        advice = "; lower the learning rate" if "finite" in str(error) else ""
        where = f"round {first}" if last in (None, first) else f"rounds {first} to {last}"
        raise DataError(f"{where}: {error}{advice}") from error


def _logging_policy(
    config: SimulationConfig, population: Population, data: RankingDataset | None
) -> NDArray[np.float32] | None:
    if not config.logging_fraction:
        return None
    if data is None:
        data = population.datasets[0]
        # A query whose documents were dealt out occurs once for each part.
        if len(population.datasets) > 1 or len(np.unique(data.query_ids)) < data.n_queries:
            raise SettingsError(
                f"logging_fraction: population {population.name} has no data set of all labels and whole queries; "
                "pass the training set it was made from as logging_data"
            )
    rng = np.random.default_rng(np.random.SeedSequence([config.seed, *b"logging policy"]))
    return logging_policy(data, rng, config.logging_fraction)


def _check_population(config: SimulationConfig, population: Population) -> None:
    if len(population.clients) != config.clients:
        raise SettingsError(f"clients: {config.clients}, but the population has {len(population.clients)}")
    models = {(client.dataset, model) for client in population.clients for model in client.click_models}
    for dataset, model in sorted(models, key=lambda pair: (pair[0], pair[1].name)):
        relevance = population.datasets[dataset].relevance
        check_grades(model, int(relevance.min()), int(relevance.max()))


def _check_runner(checkpoint: CheckpointPlan, snapshot: Snapshot, kind: str) -> None:
    stored_kind = snapshot.progress.get("runner")
    if stored_kind != kind:
        raise SettingsError(
            f"{checkpoint.path}: the checkpoint is of runner {stored_kind}, this run's is {kind}; choose the same "
            "one, or start over without resuming"
        )


def _snapshot(config: SimulationConfig, digest: str, kind: str, log: _Log, learner: Learner, crowd: Crowd) -> Snapshot:
    progress: dict[str, Any] = {
        "runner": kind,
        "round": log.round,
        "interactions": log.interactions,
        "seconds_learning": log.seconds_learning,
        "seconds_wall": log.seconds_wall,
        "evaluations": [(number, one.means, one.means_global) for number, one in log.evaluations],
        "robustness": log.robustness.to_dict(),
    }
    curves = {
        "online": np.array(log.online),
        "max_rr": np.array(log.reciprocal_ranks),
        "base_online": np.array(log.base_online),
    }
    return Snapshot(config, digest, progress, curves, learner.state(), crowd.state())


def _resume(snapshot: Snapshot, log: _Log, learner: Learner, crowd: Crowd) -> None:
    progress = snapshot.progress
    log.round = progress["round"]
    log.interactions = progress["interactions"]
    log.seconds_learning = progress["seconds_learning"]
    log.seconds_wall = progress["seconds_wall"]
    log.evaluations = [(number, Evaluation(*means)) for number, *means in progress["evaluations"]]
    log.robustness = Robustness.read(progress["robustness"])
    log.online = snapshot.curves["online"].tolist()
    log.reciprocal_ranks = snapshot.curves["max_rr"].tolist()
    log.base_online = snapshot.curves["base_online"].tolist()
    crowd.restore(snapshot.crowd)
    learner.restore(snapshot.learner)


def _result(
    config: SimulationConfig,
    population: Population,
    training: Training,
    ranker: Ranker,
    learner: Learner,
    evaluator: Evaluator,
    log: _Log,
    description: str,
) -> SimulationResult:
    spec = body_spec(training, ranker)
    federated, secure = config.method not in SIMULATOR_METHODS, secure_sums_of(config, training, ranker)
    quantities = {client.n_interactions for client in population.clients}
    return SimulationResult(
        config=config,
        ndcg_at_10=log.curve(NDCG_AT_10),
        ndcg_at_10_global=log.curve_global(NDCG_AT_10),
        metrics={name: log.curve(name) for name in config.other_metrics},
        metrics_global={name: curve for name in config.other_metrics if (curve := log.curve_global(name)) is not None},
        online_k=training.serp_length,
        online_per_round=np.array(log.online),
        reciprocal_ranks=np.array(log.reciprocal_ranks),
        base_online_per_round=np.array(log.base_online) if log.base_online else None,
        weights=learner.weights,
        interactions=log.interactions,
        seconds_learning=log.seconds_learning,
        seconds_wall=log.seconds_wall,
        bytes_up=_bytes_up(spec, secure) if federated else 0,
        bytes_down=4 * spec.dim if federated else 0,
        privacy=promise_of(config, secure)
        if secure is not None
        else privacy_of(
            training,
            spec.dim,
            config.rounds,
            config.participants or config.clients,
            (min(quantities), max(quantities)),
        ),
        robustness=_robustness(config, population, log),
        data={
            "description": description or population.datasets[0].name,
            "population": population.name,
            "train_queries": sum(dataset.n_queries for dataset in population.datasets),
            "features": population.datasets[0].n_features,
            **evaluator.describe(),
        },
    )


def _bytes_up(spec: BodySpec, secure: SecureSums | None) -> int:
    return bytes_of_body(spec) if secure is None else secure.bytes_of_vector(spec.n_values)


def _robustness(config: SimulationConfig, population: Population, log: _Log) -> dict[str, Any] | None:
    """Return the result's part on attackers, rule and lost rounds. None for a run without them."""
    if (
        not config.attackers
        and config.aggregation == MEAN.text
        and config.privacy == "trusted"
        and not config.take_back
    ):
        return None
    hostile, attack = [client.name for client in population.clients[: config.attackers]], attack_of(config)
    if attack is not None:
        hostile = all_names(attack, hostile, config.rounds)
    honest_dropped = sorted(set(log.robustness.dropped) - set(hostile))
    return {"attackers": hostile, **log.robustness.to_dict(), "honest_dropped": honest_dropped}


def _tell(
    on_round: Callable[[Progress], None] | None, log: _Log, config: SimulationConfig, learner: Learner, began: float
) -> None:
    if on_round is not None:
        newest, seconds = log.evaluations[-1][1], time.perf_counter() - began
        weights = learner.weights.copy()
        on_round(Progress(log.round, config.rounds, newest.ndcg, newest.means, weights, log.interactions, seconds))


def _mean(values: NDArray[np.float64]) -> float:
    return float(values.mean()) if len(values) else float("nan")
