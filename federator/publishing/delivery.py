"""What senders wait for: something to publish, a broker that takes it, and an empty queue."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

import structlog

from foltr.core.errors import UnavailableError

log = structlog.get_logger(__name__)

_RETRY_S = 1.0


class ConnectedLink(Protocol):
    """A link to a broker that says whether it is connected."""

    @property
    def connected(self) -> bool: ...


async def publish_on_change(
    link: ConnectedLink, changed: asyncio.Event, publish: Callable[[], Awaitable[None]], delayed: str
) -> None:
    """Publish after every change, for ever; try again after a pause if the broker did not take it.

    Args:
        link: a lost link logs itself, and a new connection publishes again. If it is connected the broker hangs, which
            nothing else reports: the first time is a warning.
        delayed: the event that is logged then.
    """
    is_told = False
    while True:
        await changed.wait()
        changed.clear()
        try:
            await publish()
            is_told = False
        except UnavailableError as error:
            if link.connected and not is_told:
                log.warning(delayed, cause=str(error))
                is_told = True
            else:
                log.debug(delayed, cause=str(error))
            await asyncio.sleep(_RETRY_S)
            changed.set()


async def wait_while(busy: Callable[[], bool], done: asyncio.Event, timeout_s: float) -> None:
    """Wait, up to ``timeout_s``, until nothing is ``busy``; ``done`` is set whenever that may be the case."""
    try:
        async with asyncio.timeout(timeout_s):
            while busy():
                done.clear()
                await done.wait()
    except TimeoutError:
        pass
