"""Devices know whether their federator is there: stopped, killed, hung, and replaced by another one."""

import asyncio
import signal

from integration.deployment import SQLITE, Deployment
from support.waiting import PATIENCE_S, until

from foltr.edge_client.client import EdgeClient

pytestmark = SQLITE

N_CLIENTS = 2


def device(deployment: Deployment, i: int = 0) -> EdgeClient:
    return EdgeClient(deployment.devices[i], store=":memory:")


async def believes(client: EdgeClient, online: bool) -> None:
    await until(lambda: client.federator_online is online, f"the device does not see {online}")


async def test_devices_know_at_once_that_it_is_there_or_not(deployment):
    """Killed, started again, stopped: those that watch are told, and those that come later too."""
    async with device(deployment) as client:
        assert client.federator_online is None
        await client.wait_connected(PATIENCE_S)
        assert client.federator_online is None
        deployment.start_federator(9)
        await believes(client, online=True)
        for end in (signal.SIGKILL, signal.SIGTERM):
            deployment.federator.send_signal(end)
            await believes(client, online=False)
            async with device(deployment, 1) as newcomer:
                await believes(newcomer, online=False)
            await deployment.exit_code()
            deployment.start_federator(9)
            await believes(client, online=True)


async def test_one_that_was_replaced_does_not_say_that_the_living_one_is_dead(deployment):
    """Two federators of one name throw each other out, until the older one hears that it is replaced."""
    first = deployment.start_federator(9)
    await deployment.serves()
    try:
        async with device(deployment) as client:
            await believes(client, online=True)
            deployment.start_federator(9)
            await until(lambda: first.poll() is not None, "the older federator goes on")
            assert deployment.is_alive
            await believes(client, online=True)
            async with device(deployment, 1) as newcomer:
                await believes(newcomer, online=True)
            for _ in range(20):
                assert client.federator_online
                await asyncio.sleep(0.05)
    finally:
        first.kill()
        first.wait(PATIENCE_S)
