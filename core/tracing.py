"""Spans of what takes time, for whoever traces (`foltr.cli.tracer`, OpenTelemetry); without a tracer they are nothing.

No attribute says who a client is: what was traced outlives a client that is forgotten. So an attribute is a number, or
a text out of a closed set such as a round's state.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

Attributes = Mapping[str, int | float | str]


class Span(Protocol):
    """What was begun, and ends later, perhaps in another task."""

    def child(self, name: str, attributes: Attributes) -> AbstractContextManager[None]:
        """Trace what is done within as a part of this."""

    def note(self, name: str, began: float, ended: float) -> None:
        """Trace a part of this that is over; times are epoch seconds."""

    def end(self, at: float, attributes: Attributes) -> None:
        """End it; ``at`` is epoch seconds."""


class Tracer(Protocol):
    """Begins spans."""

    def begin(self, name: str, at: float, attributes: Attributes) -> Span:
        """Begin a span that has no parent; ``at`` is epoch seconds."""


class _NoSpan:
    def child(self, name: str, attributes: Attributes) -> AbstractContextManager[None]:  # noqa: ARG002
        return nullcontext()

    def note(self, name: str, began: float, ended: float) -> None: ...

    def end(self, at: float, attributes: Attributes) -> None: ...


class _NoTracer:
    def begin(self, name: str, at: float, attributes: Attributes) -> Span:  # noqa: ARG002
        return NO_SPAN


NO_SPAN: Span = _NoSpan()
NO_TRACER: Tracer = _NoTracer()
