"""Tests whether messages to the group of the ingest workers reach a worker: probes, which workers send back.

The prober joins no group. It writes to the topic of a device's updates, under a name that no device has, and the worker
that gets a message returns it to the inbox of that name. A message that does not come back reached a hanging worker or
an outsider.
"""

import asyncio
import secrets
from collections import deque
from contextlib import suppress
from typing import Final

from foltr.broker.link import InboundMessage, MqttLink
from foltr.core.errors import UnavailableError
from foltr.core.protocol.topics import Topics

_PROBE_BYTES: Final = 16
_MOST_WAITING: Final = 1000


class GroupProbe:
    """Sends probes to the group, and counts what comes back.

    Args:
        prober: a name that begins with ``@``; at a broker with users, the user's own.

    Attributes:
        answers_on: the topic that the link must subscribe to.
    """

    def __init__(self, topics: Topics, prober: str) -> None:
        self._asks_on = topics.probe(prober)
        self.answers_on = topics.probe_answer(prober)
        self._unanswered: set[bytes] = set()
        self._all_came = asyncio.Event()

    def receive(self, payload: bytes) -> None:
        """Take a message that arrived on `answers_on`."""
        self._unanswered.discard(payload)
        if not self._unanswered:
            self._all_came.set()

    async def count_unanswered(self, link: MqttLink, n_messages: int, within_s: float) -> int:
        """Send so many probes; return how many did not come back in time. UnavailableError: they could not be sent."""
        probes = [secrets.token_bytes(_PROBE_BYTES) for _ in range(n_messages)]
        self._unanswered = set(probes)
        self._all_came.clear()
        await link.publish_in_order([(self._asks_on, each) for each in probes])
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._all_came.wait()
        return len(self._unanswered)


class ProbeAnswers:
    """Sends a worker's answers to probes of its group."""

    def __init__(self, topics: Topics, link: MqttLink) -> None:
        self._topics, self._link = topics, link
        self._waiting: deque[tuple[str, bytes]] = deque(maxlen=_MOST_WAITING)
        self._some = asyncio.Event()

    def accept_probe(self, message: InboundMessage) -> bool:
        """Return whether a message is a probe, and if so answer it later; called in the event loop, never blocks."""
        prober = self._topics.prober_of(message.topic)
        if prober is None:
            return False
        if len(message.payload) == _PROBE_BYTES:
            self._waiting.append((self._topics.probe_answer(prober), message.payload))
            self._some.set()
        return True

    async def run(self) -> None:
        """Send the waiting answers; drop them while the broker is away."""
        while True:
            await self._some.wait()
            self._some.clear()
            answers = list(self._waiting)
            self._waiting.clear()
            with suppress(UnavailableError):
                await self._link.publish_at_most_once(answers)
