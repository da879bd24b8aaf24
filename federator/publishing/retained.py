"""Retained messages besides the model and the round: kept here until the broker has stored or cleared them."""

import asyncio
from collections.abc import Callable

from foltr.broker.link import InboundMessage, MqttLink
from foltr.core.protocol.codec import Signer
from foltr.core.protocol.fields import Message
from foltr.core.protocol.topics import Topics
from foltr.federator.publishing.delivery import publish_on_change, wait_while

# For unexpected topics: on a broker without access control anybody may retain messages on any number of them.
MAX_WAITING = 1000
# Further ones are delivered at the next connection. Who was forgotten is unknown before the federator has started.
MOST_NAMES = 100_000


class RetainedTopics:
    """Keeps some retained topics equal to what was put there last."""

    def __init__(self, link: MqttLink, signer: Signer) -> None:
        self._link = link
        self._signer = signer
        self._wanted: dict[str, Message | None] = {}
        self._waiting: set[str] = set()
        self._when_done: dict[str, Callable[[], None]] = {}
        self._changed = asyncio.Event()
        self._settled = asyncio.Event()

    def put(self, topic: str, message: Message | None, when_done: Callable[[], None] | None = None) -> None:
        """Retain this message on the topic; None clears it.

        Args:
            when_done: called once the broker has it.
        """
        self._wanted[topic] = message
        self._waiting.add(topic)
        if when_done is not None:
            self._when_done[topic] = when_done
        self._changed.set()

    def clear_foreign(self, topic: str) -> None:
        """Clear another's retained message; not while many topics wait, since it comes again at the next connection."""
        if topic not in self._waiting and len(self._waiting) < MAX_WAITING:
            self.put(topic, None)

    def put_again(self) -> None:
        """Publish everything again: the connection, perhaps the broker, is new."""
        self._waiting |= self._wanted.keys()
        self._changed.set()

    async def wait_settled(self, timeout_s: float) -> None:
        """Wait, up to ``timeout_s``, until the broker has everything."""
        await wait_while(lambda: bool(self._waiting), self._settled, timeout_s)

    async def run(self) -> None:
        await publish_on_change(self._link, self._changed, self._publish, "retained_message_delayed")

    async def _publish(self) -> None:
        while self._waiting:
            topic = next(iter(self._waiting))
            message = self._wanted[topic]
            payload = b"" if message is None else self._signer.sign(message, topic)
            await self._link.publish(topic, payload, retain=True)
            if self._wanted.get(topic) is not message:
                continue  # something newer was put there meanwhile
            self._waiting.discard(topic)
            if message is None:
                del self._wanted[topic]
            when_done = self._when_done.pop(topic, None)
            if when_done is not None:
                when_done()
        self._settled.set()


class DroppedRetained:
    """The clients' names in retained messages for which the intake had no room."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics
        self._names: set[str] = set()

    def note(self, message: InboundMessage) -> None:
        """Note a message that the intake has refused."""
        client_id, kind = self._topics.parse(message.topic) or ("", None)
        # An empty message clears a retained one.
        if kind is not None and kind.is_retained and message.payload and len(self._names) < MOST_NAMES:
            self._names.add(client_id)

    def drain(self) -> set[str]:
        """Return and clear the names."""
        names, self._names = self._names, set()
        return names
