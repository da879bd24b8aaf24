"""What senders wait for: something to publish, a broker that takes it, and that nothing is left."""

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from foltr.errors import UnavailableError

log = structlog.get_logger(__name__)

_RETRY_S = 1.0


async def keep_published(changed: asyncio.Event, publish: Callable[[], Awaitable[None]], delayed: str) -> None:
    """Publish whenever something has changed, without end; again after a pause where the broker did not take it.

    Args:
        delayed: the event that is logged then.
    """
    while True:
        await changed.wait()
        changed.clear()
        try:
            await publish()
        except UnavailableError as error:
            # A new connection publishes again by itself; this covers a broker that hangs.
            log.debug(delayed, cause=str(error))
            await asyncio.sleep(_RETRY_S)
            changed.set()


async def wait_while(busy: Callable[[], bool], done: asyncio.Event, timeout_s: float) -> None:
    """Wait, up to ``timeout_s``, until nothing is ``busy``; ``done`` is set whenever that may have come true."""
    try:
        async with asyncio.timeout(timeout_s):
            while busy():
                done.clear()
                await done.wait()
    except TimeoutError:
        pass
