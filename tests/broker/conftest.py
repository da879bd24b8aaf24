"""What speaks MQTT is tried with both brokers."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.broker_links import wait_for_the_broker
from support.servers import ProvisionedMosquitto
from support.waiting import PATIENCE_S

from foltr.broker.address import BrokerAddress


@pytest.fixture(autouse=True)
def _no_broker_is_too_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither to answer, nor to handle signals after its start, unless a test says how long it has."""
    wait_for_the_broker(monkeypatch)
    monkeypatch.setattr("foltr.broker.provision.START_TIMEOUT_S", PATIENCE_S)


@pytest.fixture
def connects_again_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quarter of a second and more between two attempts is too long for a test."""
    monkeypatch.setattr("foltr.broker.backoff.FIRST_S", 0.02)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The clock by which links know how long an outage lasts; ``now`` moves when a test says so."""
    clock = SimpleNamespace(now=1_000.0)
    monkeypatch.setattr("foltr.broker.link.time", SimpleNamespace(monotonic=lambda: clock.now))
    return clock


@pytest.fixture(params=["mosquitto_server", "iotcore_broker"])
def mqtt_broker(request: pytest.FixtureRequest) -> str:
    """The address of a real broker: Mosquitto, then iotcore."""
    return request.getfixturevalue(request.param).url


@pytest.fixture
def tls_server(tmp_path: Path) -> Iterator[ProvisionedMosquitto]:
    """A real Mosquitto with TLS and passwords, which the test may stop, kill and start again."""
    server = ProvisionedMosquitto(tmp_path, "passwords")
    server.start()
    yield server
    server.stop()


@pytest.fixture(params=["mosquitto_server", "iotcore_broker", "tls_server"])
def any_broker(request: pytest.FixtureRequest) -> BrokerAddress:
    """How to reach a real broker: Mosquitto, iotcore, and Mosquitto with TLS and passwords."""
    server = request.getfixturevalue(request.param)
    is_guarded = request.param == "tls_server"
    return BrokerAddress.of(server.service("operator")) if is_guarded else BrokerAddress.parse(server.url)


@pytest.fixture(params=["passwords", "mtls"])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ProvisionedMosquitto]:
    """A real Mosquitto on what `foltr broker config` wrote, not started yet."""
    server = ProvisionedMosquitto(tmp_path, request.param)
    yield server
    server.stop()


@pytest.fixture
def guarded(server: ProvisionedMosquitto) -> ProvisionedMosquitto:
    """The same, started."""
    server.start()
    return server
