"""Replays a log: `replay_log`. An event is a search, an update that arrives, or a moment at which a round may end.

Events of one moment happen in this order: searches, then arrivals, then the ends of rounds. So updates that arrive
together are in one round, as in the service, and if all do, the models equal those of the synchronous simulator bit for
bit. In memory are the lists that wait, the updates on their way, and one small record for each user seen.
"""

import heapq
import inspect
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from foltr.core.errors import DataError, SettingsError
from foltr.core.evaluation.metrics import mean_ndcg_of_scores
from foltr.core.evaluation.named_metrics import NDCG_AT_10, means_over_queries, read_metric, values_by_query
from foltr.core.methods.base import scores_of
from foltr.core.methods.registry import initial_weights
from foltr.core.numerics.streams import first_model_rng
from foltr.core.protocol.receipts import ReceiptCode
from foltr.federator.plan import FederationPlan
from foltr.federator.round import Reject
from foltr_research.simulation.config import SimulationConfig
from foltr_research.simulation.logged_clicks.devices import DeviceSettings, ReplayedDevice, Update
from foltr_research.simulation.logged_clicks.federator import ReplayedFederator
from foltr_research.simulation.logged_clicks.logs import Log, LoggedQuery
from foltr_research.simulation.logged_clicks.results import Point, Replay
from foltr_research.simulation.logged_clicks.settings import RoundSettings, plan_of

OnPoint = Callable[[Point], None]


@dataclass
class _Counts:
    """What is counted on the way; see `Replay`."""

    staleness: Counter[int] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    rounds_abandoned: int = 0
    lists_shown: int = 0
    lists_counted: int = 0
    sum_of_rr: float = 0.0


def replay_log(
    log: Log,
    config: SimulationConfig,
    settings: RoundSettings,
    *,
    most_rounds: int | None = None,
    on_point: OnPoint | None = None,
) -> Replay:
    """Replay a log until it ends and all its updates have arrived.

    Args:
        config: what is in `foltr_research.simulation.logged_clicks.settings.LEFT_OPEN`.
        most_rounds: stop after so many models; None: at the end of the log.
        on_point: called with each evaluation.

    Raises:
        SettingsError: the settings do not fit each other.
        DataError: the log is empty, not in the order of time or of a wrong form, it cannot be learned from, or no round
            made a model.
    """
    _check_log(log)
    return _Run(log, config, settings, on_point).run(math.inf if most_rounds is None else most_rounds)


class _Run:
    def __init__(self, log: Log, config: SimulationConfig, settings: RoundSettings, on_point: OnPoint | None) -> None:
        self._log, self._config, self._settings = log, config, settings
        self._plan: FederationPlan = plan_of(config, settings, log.n_features)
        self._metrics = [read_metric(name) for name in config.other_metrics]
        self._on_point = on_point
        self._of_devices = DeviceSettings(
            self._plan.training, self._plan.ranker, config.interactions, settings.relearns, config.seed
        )
        self._delays = np.random.default_rng(np.random.SeedSequence([config.seed, *b"delays"]))
        self._devices: dict[str, ReplayedDevice] = {}
        # By the time of arrival, and those of one moment in the order in which they were sent.
        self._arrivals: list[tuple[float, int, Update]] = []
        self._counts = _Counts()
        self._points: list[Point] = []

    def run(self, most_rounds: float) -> Replay:
        queries = _checked(self._log, self._log.n_features)
        query = next(queries, None)
        if query is None:
            raise DataError("the log has no query to replay")
        now = query.time
        first = initial_weights(self._plan.training, self._plan.ranker, first_model_rng(self._config.seed))
        federator = ReplayedFederator(self._plan, first, self._config.seed, now)
        self._evaluate(federator, now)
        while federator.newest.version < most_rounds:
            is_over = query is None and not self._arrivals
            if is_over and not federator.has_updates:
                break
            coming = math.inf if query is None else query.time
            arrival = self._arrivals[0][0] if self._arrivals else math.inf
            federator.rest_until(min(coming, arrival))
            now = max(now, min(coming, arrival, federator.wake_at()))
            while query is not None and query.time <= now:
                if query.time < now:
                    raise DataError(f"query {query.query_id}: its time {query.time} is before {now}; sort the log")
                self._search(federator, query, now)
                query = next(queries, None)
            self._arrive(federator, now)
            self._end_rounds(federator, now)
        if federator.newest.version == 0:
            raise DataError(
                f"no round made a model: {self._settings.min_clients} of the log's {len(self._devices)} users must "
                f"send an update of {self._config.interactions} queries within {self._settings.max_time_s:g} s; lower "
                "min_clients or interactions, or raise max_time_s"
            )
        if self._points[-1].round != federator.newest.version:
            self._evaluate(federator, now)
        return self._result(federator)

    def _search(self, federator: ReplayedFederator, query: LoggedQuery, now: float) -> None:
        """Let a user search; the device may send an update afterwards."""
        device = self._devices.get(query.user)
        if device is None:
            device = self._devices[query.user] = ReplayedDevice(self._of_devices, query.user)
        try:
            self._counts.sum_of_rr += device.show(query, federator.newest)
        except DataError as error:
            raise DataError(f"query {query.query_id} of {query.user}: {error}") from error
        self._counts.lists_shown += 1
        update = device.to_send(federator.newest)
        if update is not None:
            mean = self._settings.delay_s
            delay = float(self._delays.exponential(mean)) if mean else 0.0
            heapq.heappush(self._arrivals, (now + delay, self._counts.lists_shown, update))

    def _arrive(self, federator: ReplayedFederator, now: float) -> None:
        """Have the updates decided that arrive now, until the round is full; the next one takes the rest."""
        was_full = federator.is_full
        while self._arrivals and self._arrivals[0][0] <= now and (was_full or not federator.is_full):
            _, _, update = heapq.heappop(self._arrivals)
            device = self._devices[update.header.client_id]
            decision = federator.decide(update, now)
            if not isinstance(decision, Reject):
                device.settle(update, counts_in=federator.newest.round)
                continue
            self._counts.refused[decision.code.value] += 1
            if decision.code is ReceiptCode.BUSY:
                device.send_later()
            else:
                device.settle(update, counts_in=None)

    def _end_rounds(self, federator: ReplayedFederator, now: float) -> None:
        ended = federator.end_due(now)
        if ended is None:
            return
        if not ended.made_model:
            self._counts.rounds_abandoned += 1
            for update in ended.taken_back:
                self._devices[update.header.client_id].take_back(update)
            return
        self._counts.staleness.update(ended.staleness)
        self._counts.lists_counted += ended.n_interactions
        if federator.newest.version % self._config.eval_every == 0:
            self._evaluate(federator, now)

    def _evaluate(self, federator: ReplayedFederator, now: float) -> None:
        test, ranker = self._log.test, self._plan.ranker
        scores = scores_of(ranker, federator.newest.values[: ranker.n_weights], test.features)
        means = {NDCG_AT_10: mean_ndcg_of_scores(scores, test).mean}
        if self._metrics:
            means |= means_over_queries(values_by_query(self._metrics, scores, test))
        self._points.append(Point(now, federator.newest.version, means))
        if self._on_point is not None:
            self._on_point(self._points[-1])

    def _result(self, federator: ReplayedFederator) -> Replay:
        counts = self._counts
        return Replay(
            config=self._config,
            settings=self._settings,
            points=tuple(self._points),
            weights=federator.newest.values[: self._plan.ranker.n_weights],
            staleness=counts.staleness,
            refused=counts.refused,
            users=len(self._devices),
            rounds_abandoned=counts.rounds_abandoned,
            lists_shown=counts.lists_shown,
            lists_counted=counts.lists_counted,
            lists_dropped=sum(device.n_dropped for device in self._devices.values()),
            online_rr=counts.sum_of_rr / counts.lists_shown,
        )


def _check_log(log: Log) -> None:
    """Raise SettingsError for what is no log."""
    # Looked for without making it: the test queries may take a while.
    if any(inspect.getattr_static(log, name, None) is None for name in ("n_features", "test", "__iter__")):
        raise SettingsError(
            f"log: expected SyntheticLog, AolLog, or an object with n_features, test and queries, not {log!r:.60}"
        )


def _checked(queries: Iterable[LoggedQuery], n_features: int) -> Iterator[LoggedQuery]:
    """Yield queries. Raises DataError for one at no time, which nothing would come after, or of a wrong form."""
    for query in queries:
        # One of another's log may hold anything.
        time: Any
        user: Any
        time, user, query_id, features, relevance = query
        if not (isinstance(time, int | float | np.number) and math.isfinite(time)):
            raise DataError(f"query {query_id}: its time {time!r:.40} is no finite number of epoch seconds")
        if not isinstance(user, str):
            raise DataError(f"query {query_id}: its user {user!r:.40} is no text")
        if np.shape(features) != (*np.shape(relevance), n_features):
            raise DataError(
                f"query {query_id}: features {np.shape(features)}, relevance {np.shape(relevance)}; expected "
                f"{n_features} features and a grade for each document"
            )
        yield query
