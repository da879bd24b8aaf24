"""How long a call waits for the broker: as long as what it sends may be on its way, and never for ever."""

import asyncio

import pytest
from integration.tcp_proxy import TcpProxy
from support.broker_links import Inbox, connected
from support.waiting import PATIENCE_S

from foltr.broker import waits
from foltr.broker.waits import Waits
from foltr.core.errors import UnavailableError

LARGE = bytes(200_000)


@pytest.fixture
async def proxy(mosquitto_server, monkeypatch):
    """A line of a megabyte a second, a thousand times what one must have: no slow machine makes it too slow."""
    monkeypatch.setattr(waits, "SLOWEST_BYTES_PER_S", 1_000)
    async with TcpProxy(mosquitto_server.port) as proxy:
        proxy.bytes_per_s = 1_000_000
        yield proxy


def link_over(proxy):
    """A link whose messages would have a tenth of a second, whatever their size."""
    return connected(proxy.url, "b", timeout_s=0.1)  # clock: runs out


async def test_what_is_large_has_the_time_that_a_slow_line_takes(mosquitto_server, proxy):
    """And what follows a large model in one call, such as the round that is to be learned in, comes with it."""
    inbox = Inbox()
    async with connected(mosquitto_server.url, "a", inbox, ["t/+"]), link_over(proxy) as link:
        await link.publish_in_order([("t/model", LARGE), ("t/round", b"open")])
        assert await inbox.payloads(2) == [LARGE, b"open"]


async def test_what_waits_behind_something_large_has_its_time_too(mosquitto_server, proxy):
    """It is not late for what was given to the socket before it."""
    inbox = Inbox()
    async with connected(mosquitto_server.url, "a", inbox, ["t/+"]), link_over(proxy) as link:
        await asyncio.gather(link.publish("t/1", LARGE), link.publish("t/2", LARGE), link.publish("t/3", b"small"))
        assert await inbox.payloads(3) == [LARGE, LARGE, b"small"]


async def test_a_line_that_carries_nothing_is_waited_for_no_longer(proxy, monkeypatch):
    """However much is to be sent: so much longer, and not for ever."""
    monkeypatch.setattr(waits, "SLOWEST_BYTES_PER_S", 100_000)
    async with link_over(proxy) as link, asyncio.timeout(PATIENCE_S):
        proxy.stall()
        before = asyncio.get_running_loop().time()
        with pytest.raises(UnavailableError, match="no acknowledgement"):
            await link.publish("t", bytes(50_000))
        assert asyncio.get_running_loop().time() - before > 0.5
        proxy.resume()


async def test_waits_end_with_their_connection():
    """What it did not acknowledge nobody will; and a wait that is over stays so."""
    running = Waits(10.0)

    async def call():
        async with running.one() as wait:
            messages = wait.each_of([("t", LARGE), ("t", LARGE)])
            next(messages)
            try:
                await asyncio.Event().wait()
            finally:
                next(messages)

    calls = [asyncio.create_task(call()) for _ in range(2)]
    await asyncio.sleep(0)
    running.end()
    assert [type(error) for error in await asyncio.gather(*calls, return_exceptions=True)] == [TimeoutError] * 2
