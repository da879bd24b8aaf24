"""Metrics in Prometheus' text format. No label holds a client's name, since scraped data outlives an erasure.

Federation metrics come from the same reading as the page and from the totals of rounds. Request metrics are counted
here.
"""

import asyncio
import time
from collections import Counter as Tally
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import get_args

from fastapi import APIRouter, Request
from fastapi.responses import Response
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from foltr.api.access import Looker
from foltr.api.problems import note_unavailable
from foltr.api.server_state import ServerState
from foltr.core.errors import SettingsError
from foltr.core.protocol.verdicts import Level, Reason, Verdict
from foltr.operations.overview import Overview
from foltr.operations.situation import FederatorState
from foltr.operations.verdict import judge
from foltr.storage.pages import RoundTotals, add_rounds

router = APIRouter(tags=["status"])

# The database is read at most once in this many seconds, however often Prometheus scrapes.
_READ_EVERY_S = 2.0
_READ_WITHIN_S = 8.0
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
# Callers can make up other methods, and each would become a time series.
_METHODS = {"GET", "HEAD", "POST"}
_LABEL = ("federation",)


class OpenMetrics(Response):
    """Prometheus' text format."""

    media_type = "text/plain; version=0.0.4; charset=utf-8"


@dataclass(frozen=True)
class _Read:
    at: float
    overview: Overview | None = None
    has_answered: bool = True


class Metrics:
    """The metrics of one server."""

    def __init__(self, served: ServerState) -> None:
        self._served = served
        self._registry = CollectorRegistry()
        self._read = _Read(-_READ_EVERY_S)
        self._totals = RoundTotals()
        self._reading = asyncio.Lock()
        self._requests = Counter(
            "foltr_http_requests", "Requests that were answered", ("method", "route", "status"), registry=self._registry
        )
        self._took = Histogram(
            "foltr_http_request_duration_seconds",
            "How long an answer took to begin",
            ("route",),
            buckets=_SECONDS,
            registry=self._registry,
        )

    def note(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count an answer by its route, not its path: a path may hold a client's name."""
        self._requests.labels(method if method in _METHODS else "other", route, str(status)).inc()
        self._took.labels(route).observe(seconds)

    async def text(self, n_listeners: int) -> bytes:
        """Return all metrics; without a database or the federation those of the federation are missing."""
        async with self._reading:
            if time.monotonic() - self._read.at >= _READ_EVERY_S:
                self._read = await self._ask()
        overview = self._read.overview
        verdict = (await self._served.condition()).verdict if overview is None else judge(overview)
        registry = CollectorRegistry()
        name = self._served.federation
        up = _gauge("foltr_database_up", "Whether the database answered", name, float(self._read.has_answered))
        registry.register(_Once([up, *federation_metrics(name, overview, verdict, self._totals)]))
        listeners = GaugeMetricFamily("foltr_event_listeners", "Open streams of server-sent events", n_listeners)
        registry.register(_Once([listeners]))
        return generate_latest(registry) + generate_latest(self._registry)

    async def _ask(self) -> _Read:
        served = self._served
        try:
            await served.db.follow_file()
            async with asyncio.timeout(_READ_WITHIN_S):
                overview = await served.overview()
                self._totals = await add_rounds(served.db, served.federation, self._totals)
                return _Read(time.monotonic(), overview)
        except Exception as error:  # noqa: BLE001 (drivers raise anything: foltr_database_up reports it)
            note_unavailable(error)
            # It answered that the federation is missing, or that its tables are of another version.
            return _Read(time.monotonic(), has_answered=isinstance(error, SettingsError))


@router.get("/metrics", response_class=OpenMetrics, openapi_extra={"x-who": "viewer, operator"})
async def get_metrics(request: Request, _who: Looker) -> OpenMetrics:
    """Metrics for Prometheus."""
    return OpenMetrics(await request.app.state.metrics.text(request.app.state.live.n_listeners))


def federation_metrics(name: str, overview: Overview | None, verdict: Verdict, totals: RoundTotals) -> Iterable[Metric]:
    """Make the metrics of a federation. Without an overview only those of the verdict."""
    levels = {str(level): float(level is verdict.level) for level in Level}
    yield _gauges("foltr_verdict", "1 for how the federation is, as in foltr status", name, "level", levels)
    found = Tally(each.reason for each in verdict.findings)
    help_ = "Findings of the verdict; docs/runbook.md explains each reason"
    findings = GaugeMetricFamily("foltr_findings", help_, labels=(*_LABEL, "reason", "level"))
    for reason in Reason:
        findings.add_metric((name, reason, reason.level), float(found[reason]))
    yield findings
    if overview is None:
        return
    situation, members = overview.situation, overview.members
    states = {state: state == overview.federator for state in get_args(FederatorState)}
    yield _gauges("foltr_federator_state", "1 for the state the federator is in", name, "state", states)
    if situation.last_activity is not None:
        help_ = "When the federator last stored anything"
        yield _moment("foltr_federator_last_activity_timestamp_seconds", help_, name, situation.last_activity)
    ended = CounterMetricFamily("foltr_rounds", "Rounds that ended", labels=(*_LABEL, "state"))
    ended.add_metric((name, "completed"), totals.n_completed)
    ended.add_metric((name, "abandoned"), totals.n_abandoned)
    yield ended
    counted = CounterMetricFamily("foltr_updates", "Updates that completed rounds closed with", labels=_LABEL)
    counted.add_metric((name,), totals.n_updates)
    yield counted
    if situation.round is not None and not situation.is_over:
        yield _gauge("foltr_round_number", "The open round", name, situation.round.number)
        yield _moment("foltr_round_opened_timestamp_seconds", "When it opened", name, situation.round.opened_at)
        yield _gauge("foltr_round_updates", "Updates that the open round has", name, len(situation.contributed))
        yield _gauge("foltr_round_quorum", "Updates that it needs", name, situation.round.min_clients)
        yield _gauge("foltr_round_overdue_seconds", "Since when it should have ended", name, situation.overdue_s or 0.0)
    stays_connected = situation.round is None or situation.round.period_s is None
    standings = {
        "member": members.n_members,
        # Unknown for devices that connect only for visits. A 0 would raise an alarm.
        **({"online": members.n_online} if stays_connected else {}),
        "quarantined": members.n_quarantined,
        "left": members.n_left,
        "revoked": members.n_revoked,
        "suspect": len(overview.suspects),
    }
    yield _gauges("foltr_clients", "Clients by membership", name, "standing", standings)
    refused = dict(sorted(overview.refusals.by_reason.items()))
    help_ = "Messages refused within the last hour, by reason"
    yield _gauges("foltr_messages_refused_last_hour", help_, name, "code", refused)
    if overview.model is not None:
        tainted = float(overview.model.tainted_at is not None)
        yield _gauge("foltr_model_version", "The newest model", name, overview.model.version)
        yield _moment("foltr_model_created_timestamp_seconds", "When it was made", name, overview.model.created_at)
        yield _gauge("foltr_model_tainted", "Whether it holds what a forgotten client had sent", name, tainted)
    if overview.effectiveness is not None:
        newest = overview.effectiveness.newest
        help_ = (
            "Mean reciprocal rank of the first click in the newest round that says so: as shown, and in the base order"
        )
        rewards = {"shown": newest.reward, "base": newest.base_reward}
        yield _gauges("foltr_round_reward", help_, name, "order", rewards)
        yield _gauge("foltr_round_clicked_ratio", "The share of that round's lists with a click", name, newest.clicked)
    yield from _erasures(name, overview)


def _erasures(name: str, overview: Overview) -> Iterable[Metric]:
    counts, job = overview.erasures, overview.job
    states = {state: getattr(counts, f"n_{state}") for state in ("erasing", "waiting", "unlearning", "done", "overdue")}
    yield _gauges("foltr_erasures", "Requests to be forgotten", name, "state", states)
    held = float(overview.held_reset is not None)
    yield _gauge("foltr_unlearning_held", "Whether a job waits for the operator's order", name, held)
    if job is not None and job.closed_at is None:
        yield _gauge("foltr_unlearning_steps_done", "Steps of the open unlearning job that are done", name, job.step)
        yield _gauge("foltr_unlearning_steps", "Steps that it has, as known now", name, job.n_steps)
        yield _gauge("foltr_unlearning_paused", "Whether it is paused", name, float(job.state == "paused"))


class _Once:
    """A collector that yields metrics read beforehand."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = list(families)

    def collect(self) -> Iterable[Metric]:
        return self._families


def _gauge(metric: str, help_: str, name: str, value: float) -> GaugeMetricFamily:
    family = GaugeMetricFamily(metric, help_, labels=_LABEL)
    family.add_metric((name,), value)
    return family


def _gauges(metric: str, help_: str, name: str, label: str, values: Mapping[str, float]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(metric, help_, labels=(*_LABEL, label))
    for of, value in values.items():
        family.add_metric((name, of), float(value))
    return family


def _moment(metric: str, help_: str, name: str, at: datetime) -> GaugeMetricFamily:
    return _gauge(metric, f"{help_}, seconds since the epoch", name, at.timestamp())
