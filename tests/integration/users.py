"""Devices with users, for tests that go through a whole federation."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from integration.deployment import DIM
from integration.oracle import power_learner
from numpy.typing import NDArray
from support.waiting import PATIENCE_S

from foltr.core.errors import UnavailableError
from foltr.core.operator.credentials import Credentials
from foltr.edge_client.client import EdgeClient
from foltr.edge_client.options import Experiment


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


def oracle_device(credentials: Credentials, store: str | Path = ":memory:") -> EdgeClient:
    """A device that adds 1 to the first weight with every click."""
    return EdgeClient(credentials, store=store, experiment=Experiment(learner=power_learner(0), seed=0))


async def contribute_once(client: EdgeClient, after: int = 0) -> int:
    """Have the user click once, in a round after this one, and wait for the answer; the round."""
    round_ = await client.next_round(after=after, timeout_s=PATIENCE_S)
    client.record_clicks(client.rank(np.ones((1, DIM), np.float32)), [0])
    assert not (await client.wait_settled(PATIENCE_S)).is_pending
    return round_.round


@dataclass
class Plot:
    """The first devices attack, once it has begun: they have learned like everybody up to then."""

    n_attackers: int
    attacks: bool = False

    def learner(self, i: int, step: float) -> Callable[..., Any]:
        """What device i learns from any list: to rank by the first feature, or, of an attacker, never to."""

        def learn(weights, _interaction, _training):
            stepped = weights.copy()
            stepped[0] += -30.0 if self.attacks and i < self.n_attackers else step
            return stepped

        return learn


def click_best(client: EdgeClient, features: NDArray[np.float32], **options: Any) -> None:
    """Have the user click the one document of whom the first feature is largest."""
    shown = client.rank(features, **options)
    client.record_clicks(shown, [int(np.argmax(features[shown.ranking, 0]))])
