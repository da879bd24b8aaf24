"""The device side: rank, record clicks, train, send."""

import sys

import structlog

if not structlog.is_configured():
    # An application's standard output is its own. Configure structlog before or after to have it otherwise.
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger("warning"),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
