"""The broker stopped, killed, hung, cut off and slow in mid-round: the rounds go on and every sum stays exact."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
from integration.deployment import FEDERATION, SQLITE, Deployment
from integration.oracle import contribute
from integration.tcp_proxy import TcpProxy

from foltr.broker.link import MqttLink
from foltr.storage.queries import list_rounds

pytestmark = [SQLITE]

N_CLIENTS, N_ROUNDS = 4, 20
# So many rounds are completed before each; a slow machine completes some more before it begins.
OUTAGES_AT = (2, 5, 8)


@pytest.fixture(autouse=True)
def soon_again(monkeypatch):
    """What a broker lost, a device has to send again."""
    monkeypatch.setattr("foltr.edge_client.participation.FIRST_RESEND_S", 0.5)


@pytest.fixture
async def proxy(mosquitto_server) -> AsyncIterator[TcpProxy]:
    async with TcpProxy(mosquitto_server.port) as opened:
        yield opened


async def run_with_outages(
    deployment: Deployment,
    outage: Callable[[], Awaitable[None]],
    *,
    federator_url: str = "",
    device_url: str | None = None,
    at: tuple[int, ...] = OUTAGES_AT,
    n_rounds: int = N_ROUNDS,
) -> None:
    """A whole run with an outage after each of ``at`` rounds, which others follow."""
    async with asyncio.TaskGroup() as group:
        deployment.start_federator(n_rounds, broker_url=federator_url)
        await deployment.serves()
        told = [group.create_task(contribute(one, broker=device_url)) for one in deployment.devices]
        for n_before in at:
            await deployment.rounds_reach(n_before)
            await outage()
            n_completed = await deployment.n_completed()
            await deployment.rounds_reach(min(n_completed + 1, n_rounds))
        assert await deployment.exit_code() == 0, deployment.said()
    await deployment.check_told(told)
    rounds = await list_rounds(deployment.database, FEDERATION)
    assert [(row.round, row.state, row.n_updates) for row in rounds] == [
        (number, "completed", N_CLIENTS) for number in range(1, n_rounds + 1)
    ]


@pytest.mark.nightly
async def test_stopped_and_started(mosquitto_server, deployment):
    """SIGTERM, half a second of nothing, and a broker that has kept its sessions."""

    async def outage() -> None:
        await asyncio.to_thread(mosquitto_server.stop)
        await asyncio.sleep(0.5)  # clock: away
        await asyncio.to_thread(mosquitto_server.start)

    await run_with_outages(deployment, outage)


async def test_killed_and_started(mosquitto_server, deployment):
    """SIGKILL: retained messages, sessions and what it held for a session are gone."""

    async def outage() -> None:
        await asyncio.to_thread(mosquitto_server.kill)
        (mosquitto_server.folder / "mosquitto.db").unlink(missing_ok=True)
        await asyncio.to_thread(mosquitto_server.start)

    await run_with_outages(deployment, outage)


async def test_hanging(mosquitto_server, deployment):
    """SIGSTOP for a second: connected to all, answering none."""

    async def outage() -> None:
        with mosquitto_server.hung():
            await asyncio.sleep(1)  # clock: away

    await run_with_outages(deployment, outage, at=OUTAGES_AT[:2])


async def test_connections_reset(deployment, proxy):
    """Every connection is reset at once, and new ones for a moment too, three times."""

    async def outage() -> None:
        proxy.refuses = True
        proxy.drop()
        await asyncio.sleep(0.3)  # clock: away
        proxy.refuses = False

    await run_with_outages(deployment, outage, federator_url=proxy.url, device_url=proxy.url)


@pytest.mark.nightly
async def test_federator_cut_off(deployment, proxy):
    """The devices have their broker, the federator has not: nothing moves for a second, then all of it does."""

    async def outage() -> None:
        proxy.stall()
        await asyncio.sleep(0.5)  # clock: away
        proxy.drop()
        await asyncio.sleep(0.5)  # clock: away
        proxy.resume()

    await run_with_outages(deployment, outage, federator_url=proxy.url)


@pytest.mark.nightly
async def test_slow(deployment, proxy):
    """200 ms each way and 20 KB/s for everybody: the rounds take their time and lose nothing."""
    proxy.latency_s, proxy.bytes_per_s = 0.2, 20_000

    async def outage() -> None:
        proxy.drop()

    await run_with_outages(deployment, outage, federator_url=proxy.url, device_url=proxy.url, at=(1,), n_rounds=3)


async def test_a_route_that_swallows_everything(deployment, proxy, monkeypatch):
    """No reset, no answer: the keepalive notices, and new connections take the place of the dead ones."""
    monkeypatch.setattr("foltr.broker.connection._KEEPALIVE_S", 2)
    monkeypatch.setitem(MqttLink.__init__.__kwdefaults__, "timeout_s", 2.0)
    deployment.broker_url = proxy.url
    async with asyncio.TaskGroup() as group:
        running = group.create_task(deployment.service(10, deployment.database).run())
        told = [group.create_task(contribute(one, broker=proxy.url)) for one in deployment.devices]
        await deployment.rounds_reach(3)
        proxy.swallows = True
        await asyncio.sleep(1)  # clock: away
        proxy.swallows = False  # the connections of then have lost bytes: they are dead for good
        await deployment.rounds_reach(await deployment.n_completed() + 1)
        await running
    await deployment.check_told(told)
    assert {task.result() for task in told} == {10}
