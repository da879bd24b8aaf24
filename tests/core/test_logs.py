"""A library logs where its application wants it, and configures nothing."""

import logging
import sys
from pathlib import Path

import pytest
import structlog
from structlog.testing import capture_logs
from support.completed_process import completed

from foltr.core.logs import get_logger

REPOSITORY = Path(__file__).parents[2]
log = get_logger("foltr.edge_client.client")


@pytest.fixture(autouse=True)
def _unconfigured():
    structlog.reset_defaults()
    yield
    structlog.reset_defaults()


def test_lines_go_to_standard_logging(caplog):
    """Under the module's name below foltr, with level, fields of any name, and traceback."""
    log.warning("broker_unreachable", method="GET", share="100 %")
    assert [(record.name, record.levelname, record.getMessage()) for record in caplog.records] == [
        ("foltr.edge_client.client", "WARNING", "broker_unreachable method=GET share=100 %")
    ]
    try:
        raise ValueError("reason")
    except ValueError:
        log.exception("handler_failed")
    assert caplog.records[-1].exc_info[0] is ValueError
    caplog.clear()

    class Unprintable:
        def __str__(self):
            raise AssertionError

    log.debug("quiet", value=Unprintable())
    with caplog.at_level(logging.DEBUG, logger="foltr"):
        log.debug("loud")
    assert [record.getMessage() for record in caplog.records] == ["loud"]


def test_an_application_with_structlog_gets_them_there(caplog):
    """Configured before or after the import, as the command line does."""
    structlog.configure(processors=[structlog.processors.KeyValueRenderer()])
    with capture_logs() as lines:
        log.info("round_opened", round=3)
    assert lines == [{"event": "round_opened", "round": 3, "log_level": "info"}]
    assert not caplog.records


def test_importing_a_device_configures_nothing_and_standard_output_stays_the_applications():
    """In a process of its own: warnings on standard error, nothing on standard output."""
    program = (
        "import foltr.edge_client.client, edge_client.session, broker.link, structlog, logging\n"
        "assert not structlog.is_configured() and not logging.getLogger().handlers\n"
        "foltr.broker.link.log.warning('broker_unreachable', attempt=1); broker.link.log.debug('quiet')\n"
    )
    done = completed([sys.executable, "-c", program], cwd=REPOSITORY, check=True)
    assert (done.stdout, done.stderr) == ("", "broker_unreachable attempt=1\n")
