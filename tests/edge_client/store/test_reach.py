"""A device says if newer lists displace those that still wait for clicks."""

import numpy as np
import pytest
from support.device_under_policy import DeviceUnderPolicy
from support.federator_by_hand import N_FEATURES

from foltr.edge_client.device_state import cut_short


@pytest.fixture
def device(tmp_path):
    made = DeviceUnderPolicy(tmp_path / "store")
    yield made
    made.store.close()


def show(device, n):
    for _ in range(n):
        device.agent.rank(np.eye(3, N_FEATURES, dtype=np.float32), k=3)
    device.store.recent.save()


def test_it_says_so_while_the_newest_lists_do_not_reach_back_as_far_as_clicks_are_awaited(device) -> None:
    device.store.recent._most = 5  # noqa: SLF001 (as many as a busy application fills)
    device.store.click_window.length_s = 240.0
    show(device, 4)
    assert cut_short(device.store) == []
    show(device, 4)
    (said,) = cut_short(device.store)
    assert "not of 240 s: raise recent_lists" in said
    with device.store.transaction() as cursor:
        cursor.execute("UPDATE recent_lists SET shown_at = shown_at - 400")
    assert cut_short(device.store) == []
    device.store.click_window.length_s = 0.0
    show(device, 5)
    assert cut_short(device.store) == []
    device.store.close()
    assert cut_short(device.store) == []
