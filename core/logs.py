"""Loggers for code that also runs inside other people's programs: a library does not configure logging.

If structlog is configured, by the command line or by the application, lines go there. Otherwise they go to the standard
library's logger of the same name, below ``foltr``. So an application sees warnings on standard error by default, and
nothing is ever written to its standard output.
"""

import logging
from typing import Any

import structlog
from structlog.typing import EventDict, WrappedLogger


class LibraryLogger:
    """``log.warning("event_name", key=value)``, and so on; each call decides the destination."""

    def __init__(self, name: str) -> None:
        self._structured = structlog.get_logger(name)
        self._plain = structlog.wrap_logger(
            logging.getLogger(name),
            processors=[structlog.stdlib.filter_by_level, _as_line],
            wrapper_class=structlog.stdlib.BoundLogger,
        )

    def __getattr__(self, method: str) -> Any:
        return getattr(self._structured if structlog.is_configured() else self._plain, method)


def get_logger(module: str) -> LibraryLogger:
    """The logger of a module: ``get_logger(__name__)``."""
    return LibraryLogger(module)


def _as_line(_logger: WrappedLogger, _method: str, event: EventDict) -> tuple[tuple[str], dict[str, Any]]:
    """``event key=value ...`` for a logger of the standard library, which handles tracebacks itself."""
    for_logger = {key: event.pop(key) for key in ("exc_info", "stack_info") if key in event}
    line = " ".join([str(event.pop("event")), *(f"{key}={value}" for key, value in event.items())])
    # It formats messages with % only if they have arguments.
    return (line,), for_logger
