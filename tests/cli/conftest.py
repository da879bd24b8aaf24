"""Brokers of the command line's tests."""

from collections.abc import Iterator

import pytest
from support.servers import ProvisionedMosquitto


@pytest.fixture(params=["passwords", pytest.param("mtls", marks=pytest.mark.nightly)])
def guarded_broker(request: pytest.FixtureRequest, tmp_path) -> Iterator[ProvisionedMosquitto]:
    """A Mosquitto with TLS that lets in only who was enrolled in federation mail, and the operator's folder for it."""
    server = ProvisionedMosquitto(tmp_path, request.param, "mail")
    server.start()
    yield server
    server.stop()
