"""What devices under a policy leave open is closed, and what they send is sent once."""

import functools

import pytest
from support.device_under_policy import POLICY, DeviceUnderPolicy

from foltr.edge_client.store.store import DeviceStore


@pytest.fixture(autouse=True)
def _nothing_is_sent_twice(resend_never):
    """A device is given its turns by hand: what it sends in one it does not repeat in a later one that comes late."""


@pytest.fixture(autouse=True)
def _stores_are_closed(monkeypatch):
    """Also where a test fails, or starts a device again and again."""
    opened = []

    def noting(*arguments, **options):
        opened.append(DeviceStore(*arguments, **options))
        return opened[-1]

    monkeypatch.setattr("support.device_under_policy.DeviceStore", noting)
    yield
    for store in opened:
        store.close()


@pytest.fixture
def device(path):
    return DeviceUnderPolicy(path, POLICY)


@pytest.fixture
def make(path):
    return functools.partial(DeviceUnderPolicy, path)
