"""The broker stopped, killed, hung, cut off and slow in mid-round: the rounds go on and every sum stays exact."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from integration.deployment import FEDERATION, SQLITE
from integration.oracle import contribute
from integration.tcp_proxy import TcpProxy
from support.servers import MosquittoServer

from foltr.broker.link import MqttLink
from foltr.storage.queries import list_rounds

pytestmark = [SQLITE]

N_CLIENTS = 4


@pytest.fixture(autouse=True)
def soon_again(monkeypatch):
    """What a broker lost, a device has to send again."""
    monkeypatch.setattr("foltr.edge_client.participation.FIRST_RESEND_S", 0.5)


@pytest.fixture
async def proxy(mosquitto_server) -> AsyncIterator[TcpProxy]:
    async with TcpProxy(mosquitto_server.port) as opened:
        yield opened


async def stopped(server: MosquittoServer, _: TcpProxy) -> None:
    """SIGTERM, half a second of nothing, and a broker that has kept its sessions."""
    await asyncio.to_thread(server.stop)
    await asyncio.sleep(0.5)  # clock: away
    await asyncio.to_thread(server.start)


async def killed(server: MosquittoServer, _: TcpProxy) -> None:
    """SIGKILL: retained messages, sessions and what it held for a session are gone."""
    await asyncio.to_thread(server.kill)
    (server.folder / "mosquitto.db").unlink(missing_ok=True)
    await asyncio.to_thread(server.start)


async def hung(server: MosquittoServer, _: TcpProxy) -> None:
    """SIGSTOP for a second: connected to all, answering none."""
    with server.hung():
        await asyncio.sleep(1)  # clock: away


async def reset(_: MosquittoServer, proxy: TcpProxy) -> None:
    """Every connection is reset at once, and new ones for a moment too."""
    proxy.refuses = True
    proxy.drop()
    await asyncio.sleep(0.3)  # clock: away
    proxy.refuses = False


async def cut_off(_: MosquittoServer, proxy: TcpProxy) -> None:
    """The devices have their broker, the federator has not: nothing moves for a second, then all of it does."""
    proxy.stall()
    await asyncio.sleep(0.5)  # clock: away
    proxy.drop()
    await asyncio.sleep(0.5)  # clock: away
    proxy.resume()


async def slow(_: MosquittoServer, proxy: TcpProxy) -> None:
    """200 ms each way and 20 KB/s for everybody, once their connections were reset."""
    proxy.latency_s, proxy.bytes_per_s = 0.2, 20_000
    proxy.drop()


NIGHTLY = pytest.mark.nightly


# An outage comes after so many completed rounds; a slow machine completes some more before it begins.
@pytest.mark.parametrize(
    ("outage", "through_proxy", "at", "n_rounds"),
    [
        pytest.param(stopped, "", (2, 5, 8), 20, marks=NIGHTLY),
        (killed, "", (2, 5, 8), 20),
        (hung, "", (2, 5), 20),
        (reset, "federator and devices", (2, 5, 8), 20),
        pytest.param(cut_off, "federator", (2, 5, 8), 20, marks=NIGHTLY),
        pytest.param(slow, "federator and devices", (1,), 3, marks=NIGHTLY),
    ],
)
async def test_rounds_go_on_after_an_outage(mosquitto_server, deployment, proxy, outage, through_proxy, at, n_rounds):
    """Each round has an update of every device, and every sum is exact."""
    async with asyncio.TaskGroup() as group:
        deployment.start_federator(n_rounds, broker_url=proxy.url if "federator" in through_proxy else "")
        await deployment.serves()
        url = proxy.url if "devices" in through_proxy else None
        told = [group.create_task(contribute(one, broker=url)) for one in deployment.devices]
        for n_before in at:
            await deployment.rounds_reach(n_before)
            await outage(mosquitto_server, proxy)
            await deployment.rounds_reach(min(await deployment.n_completed() + 1, n_rounds))
        assert await deployment.exit_code() == 0, deployment.said()
    await deployment.check_told(told)
    rounds = await list_rounds(deployment.database, FEDERATION)
    assert [(row.round, row.state, row.n_updates) for row in rounds] == [
        (number, "completed", N_CLIENTS) for number in range(1, n_rounds + 1)
    ]


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
