"""Fixtures of the device's tests."""

import pytest
from support.servers import free_port


@pytest.fixture
def resend_fast(monkeypatch):
    """Five seconds between two sendings are too long for a test."""
    monkeypatch.setattr("foltr.edge_client.participation.FIRST_RESEND_S", 0.05)
    monkeypatch.setattr("foltr.edge_client.participation.RESEND_LIMIT_S", 0.1)


@pytest.fixture
def path(tmp_path):
    """Where a device keeps its store."""
    return tmp_path / "device.sqlite"


@pytest.fixture
def nowhere():
    """A broker that is not there."""
    return f"mqtt://127.0.0.1:{free_port()}"
