"""Exposes a process's measures to Prometheus on a separate port.

prometheus-client answers in threads, so a slow reader blocks nothing. The values are read in the event loop. If the
loop is stuck, the process does not answer and Prometheus reports `up` as 0.
"""

import asyncio
import concurrent.futures
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import structlog

from foltr.core.errors import SettingsError
from foltr.core.measures import Counter, Gauge, Measures
from foltr.core.version import __version__

if TYPE_CHECKING:
    from prometheus_client.core import Metric

log = structlog.get_logger(__name__)

_READ_WITHIN_S = 5.0


@contextmanager
def metrics_port(host: str, port: int | None, read: Callable[[], Measures]) -> Iterator[int | None]:
    """Expose what ``read`` returns until the block ends. Yields the port, None without one.

    Args:
        port: 0 takes a free one; None exposes nothing.
        read: called in the running event loop.

    Raises:
        SettingsError: the port cannot be opened.
    """
    if port is None:
        yield None
        return
    # Imported here: without a port this extra is not needed.
    from prometheus_client import CollectorRegistry, ProcessCollector, start_http_server

    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    registry.register(_InLoop(asyncio.get_running_loop(), read))
    try:
        server, thread = start_http_server(port, host, registry)
    except OSError as error:
        raise SettingsError(
            f"metrics_port: {host}:{port} cannot be listened on ({error.strerror or error}); choose another one"
        ) from error
    url = f"http://{host}:{server.server_port}/metrics"
    log.info("metrics_shown", url=url)
    try:
        yield server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _InLoop:
    """A collector whose measures are read in the event loop, so they cannot change meanwhile."""

    def __init__(self, loop: asyncio.AbstractEventLoop, read: Callable[[], Measures]) -> None:
        self._loop = loop
        self._read = read

    def describe(self) -> "Iterable[Metric]":
        """Return nothing: measures are unknown before they are read."""
        return ()

    def collect(self) -> "Iterable[Metric]":
        done: concurrent.futures.Future[list[Metric]] = concurrent.futures.Future()

        def read() -> None:
            try:
                done.set_result(list(families(self._read())))
            except Exception as error:  # noqa: BLE001 (the caller gets the error; the loop continues)
                done.set_exception(error)

        self._loop.call_soon_threadsafe(read)
        return done.result(_READ_WITHIN_S)


def families(measures: Measures) -> "Iterable[Metric]":
    """Make Prometheus' metric families of measures, and one with foltr's version."""
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

    names, values = list(measures.about), tuple(measures.about.values())
    build = GaugeMetricFamily("foltr_build_info", "The version of foltr that runs.", labels=[*names, "version"])
    build.add_metric((*values, __version__), 1.0)
    yield build
    for measure in measures.all:
        labels = names if measure.label is None else [*names, measure.label.name]
        family: CounterMetricFamily | GaugeMetricFamily | HistogramMetricFamily
        if isinstance(measure, Counter):
            family = CounterMetricFamily(measure.name, measure.meaning, labels=labels)
            for value, n in measure.counts.items():
                family.add_metric(_of(values, value), n)
        elif isinstance(measure, Gauge):
            family = GaugeMetricFamily(measure.name, measure.meaning, labels=labels)
            for value, now in measure.now.items():
                if now is not None:
                    family.add_metric(_of(values, value), now)
        else:
            family = HistogramMetricFamily(measure.name, measure.meaning, labels=labels)
            for value in measure.values:
                family.add_metric(_of(values, value), measure.buckets(value), measure.sum(value))
        yield family


def _of(values: tuple[str, ...], value: str) -> tuple[str, ...]:
    return values if value == "" else (*values, value)
