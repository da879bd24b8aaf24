"""Waiting for an event that may not come."""

import asyncio

import pytest

from foltr.edge_client.messaging.outbox import is_set_within


async def test_an_event_in_time_is_seen_at_once():
    """The rest of the time is not waited for."""
    event, loop = asyncio.Event(), asyncio.get_running_loop()
    loop.call_later(0.01, event.set)
    before = loop.time()
    assert await is_set_within(event, 60.0)
    assert loop.time() - before < 5.0


@pytest.mark.parametrize("timeout_s", [0.02, 0.0, -1.0, float("-inf")])
async def test_an_event_that_does_not_come_is_given_up(timeout_s):
    """Also when the time was over before it began; then what is set counts still."""
    event = asyncio.Event()
    assert not await is_set_within(event, timeout_s)
    event.set()
    assert await is_set_within(event, timeout_s)
