"""What answers over a connection says to a health check that its work goes on."""

import asyncio
import time
from collections.abc import Callable

from foltr.broker.link import MqttLink
from foltr.core.alive_file import AliveFile

_EVERY_S = 10.0


async def show_alive(
    alive_file: AliveFile, link: MqttLink, at_work_since: Callable[[], float | None], longest_work_s: float
) -> None:
    """Touch a file for ever while the broker is there, and no work takes longer than it may.

    Args:
        at_work_since: when what is done now was begun, of the monotonic clock; None while it waits.
    """
    while True:
        since = at_work_since()
        if link.connected and (since is None or time.monotonic() - since < longest_work_s):
            alive_file.touch()
        await asyncio.sleep(_EVERY_S)
