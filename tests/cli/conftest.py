"""Brokers of the command line's tests, and commands that no broker is too slow for."""

from collections.abc import Iterator

import pytest
from support.kept_backups import Kept, keep
from support.servers import ProvisionedMosquitto
from support.waiting import PATIENCE_S

from foltr.broker import short_connections
from foltr.cli import status
from foltr.cli.doctor import checks_broker, doctor
from foltr.cli.operator import sending
from foltr.operations import erasure_answers, order_session


@pytest.fixture(autouse=True)
def _nobody_is_too_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command in the tests' process gives up on a broker or a federator as late as a test does."""
    for module in (short_connections, erasure_answers, order_session):
        monkeypatch.setattr(module, "_CONNECT_S", PATIENCE_S)
    monkeypatch.setattr(checks_broker, "_ANSWER_S", PATIENCE_S)
    monkeypatch.setattr(doctor, "_LIMIT_S", PATIENCE_S)
    monkeypatch.setattr(status, "_LOOK_S", PATIENCE_S)
    for command in (sending.send_order, sending.send_unanswered):
        monkeypatch.setattr(command, "__defaults__", (PATIENCE_S,))


@pytest.fixture
def kept(migrated_url, tmp_path, request) -> Kept:
    """A federation with a backup, on either database."""
    server = None if migrated_url.startswith("sqlite") else request.getfixturevalue("postgres_server")
    return keep(tmp_path, migrated_url, server)


@pytest.fixture
def on_sqlite(tmp_path) -> Kept:
    return keep(tmp_path, f"sqlite:///{tmp_path}/foltr.sqlite", None)


@pytest.fixture(params=["passwords", pytest.param("mtls", marks=pytest.mark.nightly)])
def guarded_broker(request: pytest.FixtureRequest, tmp_path) -> Iterator[ProvisionedMosquitto]:
    """A Mosquitto with TLS that lets in only who was enrolled in federation mail, and the operator's folder for it."""
    server = ProvisionedMosquitto(tmp_path, request.param, "mail")
    server.start()
    yield server
    server.stop()
