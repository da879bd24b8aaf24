"""A device subscribes to the chunks of a model that it lacks, and ends that once they are there or given up."""

import time
from collections.abc import Callable, Sequence

from foltr.broker.link import MqttLink
from foltr.edge_client.messaging.transfer import ModelInParts


class ChunkSubscription:
    """The subscription to the chunks beside one topic.

    Args:
        topic_of: the topic of a chunk, by its index.
    """

    def __init__(self, link: MqttLink, in_parts: ModelInParts, topic_of: Callable[[int], str]) -> None:
        self._link = link
        self._in_parts = in_parts
        self._topic_of = topic_of
        self._subscribed: list[int] = []

    def begin_connection(self) -> None:
        """Begin a connection, which has the link's own subscriptions and no other."""
        self._subscribed = []

    def gives_up_at(self) -> float:
        """Return when `follow` will next have something to do, if nothing arrives before."""
        return self._in_parts.gives_up_at()

    async def follow(self) -> None:
        """Subscribe to what a new model lacks, and to nothing else. UnavailableError where the broker is away."""
        self._in_parts.give_up(time.monotonic())
        wanted = self._in_parts.to_subscribe
        if self._subscribed and (wanted is not None or not self._in_parts.collecting):
            # Also before it subscribes again: not every broker repeats to a subscriber what it retains.
            unwanted, self._subscribed = self._subscribed, []
            await self._link.unsubscribe(self._topics(unwanted))
        if wanted is not None and wanted is self._in_parts.to_subscribe:
            self._in_parts.to_subscribe = None
            self._subscribed = wanted
            await self._link.subscribe(self._topics(wanted))

    def _topics(self, indices: Sequence[int]) -> list[str]:
        return [self._topic_of(index) for index in indices]
