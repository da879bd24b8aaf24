"""Sends a process's spans to an OpenTelemetry collector, by OTLP over HTTP, where one is named.

How many are kept OpenTelemetry's own variables say, such as OTEL_TRACES_SAMPLER. What goes wrong is said without the
error's words: they might name a client.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from foltr.core.tracing import NO_TRACER, Attributes, Span, Tracer
from foltr.core.version import __version__

if TYPE_CHECKING:
    from opentelemetry import trace

# A collector that is away must not keep a process from ending.
_SEND_WITHIN_S = 5.0


@contextmanager
def tracer_to(endpoint: str | None, federation: str) -> Iterator[Tracer]:
    """Give a tracer that sends to this address until the block is left; None traces nothing."""
    if endpoint is None:
        yield NO_TRACER
        return
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    about = {"service.name": "foltr-federator", "service.version": __version__, "foltr.federation": federation}
    provider = TracerProvider(resource=Resource.create(about), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint, timeout=_SEND_WITHIN_S)))
    try:
        yield _Tracer(provider.get_tracer("foltr"))
    finally:
        provider.shutdown()


class _Tracer:
    def __init__(self, tracer: "trace.Tracer") -> None:
        self._tracer = tracer

    def begin(self, name: str, at: float, attributes: Attributes) -> Span:
        span = self._tracer.start_span(name, start_time=_nanoseconds(at), attributes=dict(attributes))
        return _Span(self._tracer, span)


class _Span:
    def __init__(self, tracer: "trace.Tracer", span: "trace.Span") -> None:
        from opentelemetry.trace import set_span_in_context

        self._tracer = tracer
        self._span = span
        self._within = set_span_in_context(span)

    @contextmanager
    def child(self, name: str, attributes: Attributes) -> Iterator[None]:
        from opentelemetry.trace import StatusCode

        span = self._tracer.start_span(name, context=self._within, attributes=dict(attributes))
        try:
            yield
        except BaseException:
            span.set_status(StatusCode.ERROR)
            raise
        finally:
            span.end()

    def note(self, name: str, began: float, ended: float) -> None:
        span = self._tracer.start_span(name, context=self._within, start_time=_nanoseconds(began))
        span.end(_nanoseconds(ended))

    def end(self, at: float, attributes: Attributes) -> None:
        self._span.set_attributes(dict(attributes))
        self._span.end(_nanoseconds(at))


def _nanoseconds(at: float) -> int:
    return int(at * 1e9)
