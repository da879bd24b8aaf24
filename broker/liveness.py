"""Shows a health check that a process connected to a broker still works."""

import asyncio
import time
from collections.abc import Callable

from foltr.broker.link import MqttLink
from foltr.core.alive_file import AliveFile

_EVERY_S = 10.0


async def touch_while_alive(
    alive_file: AliveFile, link: MqttLink, at_work_since: Callable[[], float | None], longest_work_s: float
) -> None:
    """Touch a file for ever while the broker is connected and no work takes longer than allowed.

    Args:
        at_work_since: when the current work began, by the monotonic clock; None while it waits.
    """
    while True:
        since = at_work_since()
        if link.connected and (since is None or time.monotonic() - since < longest_work_s):
            alive_file.touch()
        await asyncio.sleep(_EVERY_S)
