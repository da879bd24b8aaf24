"""What a process of a federation waits for before it serves."""

import asyncio
import math

from foltr.broker.link import MqttLink


async def wait_for_broker(link: MqttLink, stopped: asyncio.Event, patience_s: float = math.inf) -> bool:
    """Wait for a broker; False if the process is stopped first, or after so many seconds.

    Raises:
        UnavailableError: the link has given up.
    """
    is_stopped = asyncio.create_task(stopped.wait())
    connected = asyncio.create_task(link.wait_connected(math.inf))
    limit = None if patience_s == math.inf else patience_s
    try:
        await asyncio.wait({is_stopped, connected}, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
        if connected.done():
            connected.result()
        return connected.done() and not stopped.is_set()
    finally:
        is_stopped.cancel()
        connected.cancel()
