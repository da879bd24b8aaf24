"""What senders wait for, with an event loop and no broker."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

import pytest
from structlog.testing import capture_logs
from support.waiting import PATIENCE_S, until

from foltr.core.errors import UnavailableError
from foltr.federator.publishing import delivery
from foltr.federator.publishing.delivery import publish_on_change, wait_while


class Link:
    """A link that is there, or is not."""

    def __init__(self, *, connected: bool = True) -> None:
        self.connected = connected


@asynccontextmanager
async def kept(changed: asyncio.Event, publish: Callable[[], Awaitable[None]], *, connected: bool = True):
    task = asyncio.create_task(publish_on_change(Link(connected=connected), changed, publish, "delayed"))
    yield task
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_it_publishes_once_for_each_change():
    """Nothing before the first, nothing without one."""
    changed, n_published = asyncio.Event(), 0

    async def publish():
        nonlocal n_published
        n_published += 1

    def is_published(n):
        return n_published == n

    async with kept(changed, publish):
        for n_changes in range(3):
            await until(partial(is_published, n_changes))
            await asyncio.sleep(0.02)
            assert is_published(n_changes)
            changed.set()


@pytest.mark.parametrize(("connected", "levels"), [(True, ["warning", "debug"]), (False, ["debug", "debug"])])
async def test_a_broker_that_hangs_is_told_once(monkeypatch, connected, levels):
    """Where there is no connection its link has said so."""
    monkeypatch.setattr(delivery, "_RETRY_S", 0.01)
    changed, taken, tries = asyncio.Event(), asyncio.Event(), [UnavailableError("no answer")] * 2
    changed.set()

    async def publish():
        if tries:
            raise tries.pop()
        taken.set()

    with capture_logs() as told:
        async with kept(changed, publish, connected=connected), asyncio.timeout(PATIENCE_S):
            await taken.wait()
    assert [(line["log_level"], line["event"]) for line in told] == [(level, "delayed") for level in levels]


async def test_any_other_error_ends_it():
    """It is a mistake of ours, and must not be tried for ever."""
    changed = asyncio.Event()
    changed.set()

    async def publish():
        raise ValueError("a mistake")

    with pytest.raises(ValueError, match="a mistake"):
        await publish_on_change(Link(), changed, publish, "delayed")


async def test_waiting_ends_when_nothing_is_busy_or_the_time_is_over():
    """An event that came too early does not end it."""
    left, done = [1, 2], asyncio.Event()

    def one_less():
        left.pop()
        done.set()

    done.set()
    loop = asyncio.get_running_loop()
    loop.call_later(0.01, one_less)
    loop.call_later(0.02, one_less)
    await wait_while(lambda: bool(left), done, PATIENCE_S)
    assert left == []
    await wait_while(lambda: True, done, 0.05)
