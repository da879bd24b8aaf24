"""Loggers for code that also runs inside other people's programs: a library does not configure logging.

If structlog is configured, by the command line or by the application, lines go there. Otherwise they go to the standard
library's logger of the same name, below ``foltr``. So an application sees warnings on standard error by default, and
nothing is ever written to its standard output. A device does without structlog, so this never imports it.
"""

import logging
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

_FOR_LOGGER = ("exc_info", "stack_info")


class LibraryLogger:
    """``log.warning("event_name", key=value)``, and so on; each call decides the destination."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._plain = logging.getLogger(name)
        self._structured: Any = None

    def __getattr__(self, method: str) -> Callable[..., None]:
        structlog = sys.modules.get("structlog")
        if structlog is None or not structlog.is_configured():
            return partial(_say, self._plain, method)
        if self._structured is None:
            self._structured = structlog.get_logger(self._name)
        structured: Callable[..., None] = getattr(self._structured, method)
        return structured


def get_logger(module: str) -> LibraryLogger:
    """The logger of a module: ``get_logger(__name__)``."""
    return LibraryLogger(module)


def _say(logger: logging.Logger, method: str, event: str, /, **fields: object) -> None:
    """Log ``event key=value ...`` with a logger of the standard library, which handles tracebacks itself."""
    level = logging.ERROR if method == "exception" else logging.getLevelNamesMapping()[method.upper()]
    if not logger.isEnabledFor(level):
        return
    for_logger: dict[str, Any] = {"exc_info": True} if method == "exception" else {}
    for_logger |= {key: fields.pop(key) for key in _FOR_LOGGER if key in fields}
    # It formats messages with % only if they have arguments.
    logger.log(level, " ".join([event, *(f"{key}={value}" for key, value in fields.items())]), **for_logger)
