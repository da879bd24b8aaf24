"""Devices with users, for tests that go through a whole federation."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager

from support.waiting import PATIENCE_S

from foltr.core.errors import UnavailableError
from foltr.edge_client.client import EdgeClient


@asynccontextmanager
async def in_use(
    devices: Iterable[EdgeClient], use: Callable[[EdgeClient, int], Awaitable[None]]
) -> AsyncIterator[list[EdgeClient]]:
    """Enter the devices, and have each used by its user, in a task of its own, until the end."""
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(device) for device in devices]
        using = [asyncio.ensure_future(use(client, i)) for i, client in enumerate(clients)]
        try:
            yield clients
        finally:
            for task in using:
                task.cancel()
            await asyncio.gather(*using, return_exceptions=True)


async def in_each_round(client: EdgeClient, act: Callable[[], None]) -> None:
    """Have the user act once a round, and wait for the answer, until there are no more rounds for this device."""
    last = 0
    while not client.forgotten:
        with contextlib.suppress(UnavailableError):
            last = (await client.next_round(after=last, timeout_s=PATIENCE_S)).round
            act()
            await client.wait_settled(PATIENCE_S)
