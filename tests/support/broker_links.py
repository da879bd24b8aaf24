"""A link to a broker, connected, where its messages go, and its sockets, for the tests of `foltr.broker.link`."""

import asyncio
import contextlib
import os
import socket
import stat
from pathlib import Path

from support.waiting import PATIENCE_S

from foltr.broker.address import BrokerAddress
from foltr.broker.link import MqttLink
from foltr.core.errors import UnavailableError


def wait_for_the_broker(monkeypatch):
    """Have links and the broker wait for each other as long as tests wait: how soon they give up is not the subject.

    A process that compiles beside many others may be silent for longer than the usual keepalive.
    """
    monkeypatch.setitem(MqttLink.__init__.__kwdefaults__, "timeout_s", PATIENCE_S)
    monkeypatch.setattr("foltr.broker.connection._KEEPALIVE_S", round(PATIENCE_S))


class Inbox:
    """Where a link's messages go; ``next`` waits for one, but not for ever."""

    def __init__(self):
        self._queue = asyncio.Queue()
        self.take = self._queue.put_nowait

    async def next(self, within_s=PATIENCE_S):
        async with asyncio.timeout(within_s):
            return await self._queue.get()

    async def payloads(self, n):
        return [(await self.next()).payload for _ in range(n)]

    @property
    def empty(self):
        return self._queue.empty()


class NotedLink:
    """In place of a link: it notes what is published, as long as it is connected."""

    address = BrokerAddress("127.0.0.1")

    def __init__(self):
        self.connected = True
        self.published = []

    async def publish(self, topic, payload, *, retain=False):
        if not self.connected:
            raise UnavailableError("no broker")
        self.published.append((topic, payload, retain))

    def taken(self):
        """What was published since this was last asked."""
        published, self.published = self.published, []
        return published


def link_to(url, client_id="link", inbox=None, topics=(), **options):
    options.setdefault("persistent", False)
    address = url if isinstance(url, BrokerAddress) else BrokerAddress.parse(url)
    on_message = inbox.take if inbox is not None else lambda _: None
    return MqttLink(address, client_id=client_id, subscriptions=topics, on_message=on_message, **options)


@contextlib.asynccontextmanager
async def connected(url, client_id="link", inbox=None, topics=(), **options):
    async with link_to(url, client_id, inbox, topics, **options) as link:
        await link.wait_connected(PATIENCE_S)
        yield link


def are_sent_at_once(port):
    """Whether small packets wait for nothing (TCP_NODELAY), of each connection of this process to ``port``."""
    options = []
    for number in [int(path.name) for path in Path("/dev/fd").iterdir()]:
        with contextlib.suppress(OSError):  # closed meanwhile, or a socket that is no connection
            if stat.S_ISSOCK(os.fstat(number).st_mode):
                with socket.socket(fileno=os.dup(number)) as connection:
                    if connection.family != socket.AF_UNIX and connection.getpeername()[1] == port:
                        options.append(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0)
    return options
