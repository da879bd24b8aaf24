"""Fixtures of the device's tests."""

import socket
from functools import partial

import pytest
from support.broker_links import wait_for_the_broker
from support.device_stores import stored
from support.waiting import PATIENCE_S

from foltr.edge_client.runtime import Runtime
from foltr.edge_client.store.click_window import ClickWindow


@pytest.fixture
def resend_fast(monkeypatch):
    """Five seconds between two sendings are too long for a test."""
    monkeypatch.setattr("foltr.edge_client.participation.FIRST_RESEND_S", 0.05)
    monkeypatch.setattr("foltr.edge_client.participation.RESEND_LIMIT_S", 0.1)


@pytest.fixture
def resend_never(monkeypatch):
    """Nothing is sent twice because the machine was slow."""
    for name in ("FIRST_RESEND_S", "RESEND_LIMIT_S", "ANSWER_TIME_S"):
        monkeypatch.setattr(f"foltr.edge_client.participation.{name}", 3600.0)


@pytest.fixture(autouse=True)
def _waits_are_patient(monkeypatch):
    """Where a test does not say how long it waits: a minute may pass while kernels are compiled beside other tests."""
    for wait in (Runtime.wait_connected, Runtime.next_round, Runtime.wait_settled, Runtime.leave, Runtime.forget_me):
        monkeypatch.setattr(wait, "__defaults__", (*wait.__defaults__[:-1], PATIENCE_S))


@pytest.fixture(autouse=True)
def _at_a_brokers_pace(request, monkeypatch):
    """A device connects again soon, sends nothing twice because the machine was slow, and has time to say goodbye."""
    wait_for_the_broker(monkeypatch)
    monkeypatch.setattr("foltr.edge_client.runtime._GOODBYE_S", PATIENCE_S)
    if "mqtt_broker" in request.fixturenames:
        monkeypatch.setattr("foltr.broker.backoff.FIRST_S", 0.02)
        if "resend_fast" not in request.fixturenames:
            request.getfixturevalue("resend_never")
    elif "mosquitto_server" in request.fixturenames:
        monkeypatch.setattr("foltr.broker.backoff.FIRST_S", 0.02)
        request.getfixturevalue("resend_fast")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "device.sqlite"


@pytest.fixture
def store(path):
    with stored(path) as opened:
        yield opened


class HandClock:
    def __init__(self):
        self.seconds = 1_700_000_000.0

    def __call__(self):
        return self.seconds

    def passes(self, seconds):
        self.seconds += seconds


@pytest.fixture
def clock(monkeypatch):
    """By which the lists of stores that are opened from here on wait for more clicks."""
    clock = HandClock()
    monkeypatch.setattr("foltr.edge_client.store.store.ClickWindow", partial(ClickWindow, clock))
    return clock


@pytest.fixture
def nowhere():
    """A port on which nobody listens, also of another run of these tests: it is taken."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"mqtt://127.0.0.1:{taken.getsockname()[1]}"
