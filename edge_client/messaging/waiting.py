"""Waiting for something that may not come."""

import asyncio


async def is_set_within(event: asyncio.Event, timeout_s: float) -> bool:
    """Whether the event is set before ``timeout_s`` have passed; of no time, or less, whether it is set now."""
    try:
        async with asyncio.timeout(max(0.0, timeout_s)):
            await event.wait()
    except TimeoutError:
        pass
    return event.is_set()
