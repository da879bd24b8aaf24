"""Tests whether a broker shares updates out among ingest workers, by sending messages.

A granted subscription proves nothing: some brokers grant it and deliver nothing, and bridged ones deliver to each
bridge. So a trial subscribes to a separate group, and sends empty messages of clients that do not exist.
"""

import asyncio
import secrets
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from enum import StrEnum

from foltr.broker.address import BrokerAddress
from foltr.broker.link import InboundMessage, MqttLink, SubscriptionRefusedError
from foltr.core.protocol.topics import ClientTopic, Topics

# That chance sends all of them to the same one of two workers happens once in 2**39 times.
N_MESSAGES = 40
_ANSWER_S = 3.0
# Servers of a cluster tell each other of a subscription after they have granted it.
_SETTLE_S = 0.3
# A message that has not come after this long is lost.
_QUIET_S = 1.5


class SharedSubscriptionResult(StrEnum):
    """The outcome of messages to a group of workers."""

    SHARED = "shared"
    """Each arrived once, and every worker got some."""
    ONE_TAKES_ALL = "one_takes_all"
    """Each arrived once, all of them at one of several workers."""
    COPIED = "copied"
    """Some arrived more than once."""
    LOST = "lost"
    """Some arrived, others did not."""
    NONE = "none"
    """The subscription was granted, and nothing arrived."""
    REFUSED = "refused"
    """The subscription of the group, or of one client's updates, was not granted."""
    UNHEARD = "unheard"
    """A plain subscription received nothing either: these users may not write or not read there."""

    @property
    def may_be_used(self) -> bool:
        """Whether workers get every update; with copies each worker gets all of them."""
        return self in (
            SharedSubscriptionResult.SHARED,
            SharedSubscriptionResult.ONE_TAKES_ALL,
            SharedSubscriptionResult.COPIED,
        )


@dataclass(frozen=True)
class SharedSubscriptionTrial:
    """What a trial has found.

    Attributes:
        n_sent: messages that the broker has acknowledged.
        n_received: of each worker, repetitions included.
        n_lost: that no worker received.
        n_repeated: that were received more than once, by the same worker or by several.
    """

    sharing: SharedSubscriptionResult
    n_sent: int = 0
    n_received: tuple[int, ...] = ()
    n_lost: int = 0
    n_repeated: int = 0


async def probe_shared_subscription(
    federation: str, workers: Sequence[BrokerAddress], n_messages: int = N_MESSAGES
) -> SharedSubscriptionTrial:
    """Connect as several workers and test whether each of ``n_messages`` arrives at exactly one of them.

    Args:
        workers: how each connects, e.g. each to another server of a cluster. If the broker names sessions after users,
            the users must differ, and none may be the federator's, whose session would be taken over.

    Raises:
        UnavailableError: a worker cannot connect, or lost its connection, e.g. to another process of its name.
        SettingsError: an address holds certificates that cannot be used.
    """
    trial = _Trial(federation, len(workers))
    async with AsyncExitStack() as stack:
        links = [await stack.enter_async_context(trial.link(each, i)) for i, each in enumerate(workers)]
        for link in links:
            await link.wait_connected(_ANSWER_S)
        try:
            if not await trial.is_heard(links):
                _check_connected(links)
                return SharedSubscriptionTrial(SharedSubscriptionResult.UNHEARD)
            for link in links:
                await link.subscribe([trial.group])
        except SubscriptionRefusedError:
            return SharedSubscriptionTrial(SharedSubscriptionResult.REFUSED)
        await asyncio.sleep(_SETTLE_S)
        await trial.send(links, n_messages)
        _check_connected(links)
    return judge_trial(n_messages, trial.received)


def _check_connected(links: Sequence[MqttLink]) -> None:
    """Raise UnavailableError if a worker has lost its connection: missing messages then prove nothing."""
    for link in links:
        if (outage := link.outage) is not None:
            raise outage


def judge_trial(n_sent: int, received: Sequence[Sequence[str]]) -> SharedSubscriptionTrial:
    """Judge a trial by the topics, one for each message, that each worker heard, in any order."""
    times = Counter(topic for each in received for topic in each)
    n_lost, n_repeated = n_sent - len(times), sum(count > 1 for count in times.values())
    if not times:
        sharing = SharedSubscriptionResult.NONE
    elif n_lost:
        sharing = SharedSubscriptionResult.LOST
    elif n_repeated:
        sharing = SharedSubscriptionResult.COPIED
    else:
        sharing = SharedSubscriptionResult.SHARED if all(received) else SharedSubscriptionResult.ONE_TAKES_ALL
    return SharedSubscriptionTrial(sharing, n_sent, tuple(map(len, received)), n_lost, n_repeated)


class _Trial:
    """The messages of one trial, each on a separate topic."""

    def __init__(self, federation: str, n_workers: int) -> None:
        self._topics = Topics(federation)
        self._nonce = secrets.token_hex(8)
        self.group = f"$share/foltr-probe-{self._nonce}/{self._topics.client('+', ClientTopic.UPDATES)}"
        self.received: list[list[str]] = [[] for _ in range(n_workers)]
        self._sent: set[str] = set()
        self._came = asyncio.Event()

    def link(self, address: BrokerAddress, index: int) -> MqttLink:
        """Return the connection of one worker."""

        def receive(message: InboundMessage) -> None:
            # Updates of real devices arrive as well.
            if message.topic in self._sent:
                self.received[index].append(message.topic)
                self._came.set()

        return MqttLink(
            address,
            client_id=f"foltr-probe-{self._nonce}-{index}",
            subscriptions=(),
            on_message=receive,
            persistent=False,
            timeout_s=_ANSWER_S,
            give_up_after_s=0.0,
        )

    async def is_heard(self, links: Sequence[MqttLink]) -> bool:
        """Whether all workers hear the first one by a plain subscription; then clears what was received."""
        topic = self._topic("plain")
        for link in links:
            await link.subscribe([topic])
        await asyncio.sleep(_SETTLE_S if len(links) > 1 else 0.0)
        await links[0].publish(topic, b"")
        is_heard = await self._until(lambda: all(self.received))
        for link in links:
            await link.unsubscribe([topic])
        for each in self.received:
            each.clear()
        return is_heard

    async def send(self, links: Sequence[MqttLink], n_messages: int) -> None:
        """Send so many, by the workers in turn, and wait until all have arrived and no repetition follows."""
        for i in range(n_messages):
            await links[i % len(links)].publish(self._topic(f"{i:04d}"), b"")
        await self._until(lambda: len({topic for each in self.received for topic in each}) == n_messages)
        await asyncio.sleep(_SETTLE_S)

    def _topic(self, name: str) -> str:
        topic = self._topics.client(f"probe-{self._nonce}-{name}", ClientTopic.UPDATES)
        self._sent.add(topic)
        return topic

    async def _until(self, condition: Callable[[], bool]) -> bool:
        """Wait until the condition holds, as long as messages keep arriving."""
        while not condition():
            self._came.clear()
            try:
                await asyncio.wait_for(self._came.wait(), _QUIET_S)
            except TimeoutError:
                return condition()
        return True
