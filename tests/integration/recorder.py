"""What a broker hears: recorded, and said again."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from support.waiting import PATIENCE_S

from foltr.broker.address import BrokerAddress
from foltr.broker.link import InboundMessage, MqttLink


class Recorder:
    """Everybody's ear at a broker without access control, which remembers what it heard and can say it again."""

    def __init__(self, url: str, *topics: str) -> None:
        self.heard: dict[str, list[bytes]] = {}
        self.link = MqttLink(
            BrokerAddress.parse(url),
            client_id="recorder",
            subscriptions=topics,
            on_message=self._hear,
            persistent=False,
        )

    @asynccontextmanager
    async def listening(self) -> AsyncIterator["Recorder"]:
        """Connect; it hears every message that is published while the block lasts."""
        async with self.link:
            await self.link.wait_connected(PATIENCE_S)
            yield self

    def _hear(self, message: InboundMessage) -> None:
        if message.payload:
            self.heard.setdefault(message.topic, []).append(message.payload)

    def first(self, topic: str) -> bytes:
        return self.heard[topic][0]

    async def say_again(self, topic: str, payload: bytes, *, retain: bool) -> None:
        await self.link.publish(topic, payload, retain=retain)
