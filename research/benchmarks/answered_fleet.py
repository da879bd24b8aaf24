"""Devices without a network: a federation's actor serves them as in the service, with a real database and clock."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from itertools import count

import numpy as np

from foltr.broker.link import InboundMessage
from foltr.core.protocol.announcements import ModelAnnouncement, RoundAnnouncement, UnlearningRound
from foltr.core.protocol.codec import encode
from foltr.core.protocol.fields import Message, pack_vector
from foltr.core.protocol.membership import Status
from foltr.core.protocol.receipts import ErasureNotice, UpdateReceipt
from foltr.core.protocol.topics import ClientTopic, Topics
from foltr.core.protocol.updates import DenseDelta, ModelUpdate, UnlearningUpdate
from foltr.federator.actor import FederationActor
from foltr.federator.clock import SteadyClock
from foltr.federator.plan import FederationPlan
from foltr.federator.store import FederationStore

NAME = "web"
TOPICS = Topics(NAME)
PAUSE_S = 0.5  # between an answer and the next update: 200 devices send at most 400 updates a second


@dataclass
class Fleet:
    """All devices, without a network: the actor's messages to them, and each update's time to its answer.

    Attributes:
        dim: weights of a model.
        waits_s: waiting time of each update from devices that stay, in order of answers.
        leaving: devices that ask to be forgotten, and send nothing more.
        forgotten: devices that were notified of it.
    """

    names: Sequence[str]
    dim: int
    waits_s: list[float] = field(default_factory=list)
    leaving: set[str] = field(default_factory=set)
    forgotten: set[str] = field(default_factory=set)
    opened: asyncio.Event = field(default_factory=asyncio.Event)
    round: RoundAnnouncement | None = None
    # By update: its device, and when it was sent.
    _sent: dict[str, tuple[str, float]] = field(default_factory=dict)
    _answered: dict[str, asyncio.Future[UpdateReceipt]] = field(default_factory=dict)
    _actor: FederationActor | None = None
    _sequence: Callable[[], int] = field(default_factory=lambda: count(1).__next__)

    def attach(self, actor: FederationActor) -> None:
        self._actor = actor

    def say(self, name: str, topic: ClientTopic, message: Message) -> None:
        """Deliver a message to the actor, like the broker."""
        assert self._actor is not None
        address = TOPICS.client(name, topic)
        self._actor.receive(InboundMessage(address, encode(message, address, self._sequence(), None), retained=False))

    # --- what the actor tells ---------------------------------------------------------------------------------

    def announce(self, _model: ModelAnnouncement, shown: RoundAnnouncement, *_others: Message | None) -> None:
        self.round = shown
        self.opened.set()
        self.opened = asyncio.Event()

    def send(self, receipts: Sequence[Message]) -> None:
        for receipt in receipts:
            if isinstance(receipt, ErasureNotice):
                self.forgotten.add(receipt.client_id)
            elif isinstance(receipt, UpdateReceipt) and receipt.update_id in self._sent:
                name, at = self._sent.pop(receipt.update_id)
                if name not in self.leaving:
                    self.waits_s.append(time.perf_counter() - at)
                answered = self._answered.pop(receipt.update_id)
                if not answered.done():  # its device has ended
                    answered.set_result(receipt)

    def notify(self, notices: Sequence[Message]) -> None:
        """Ignore notices."""

    def put(self, _topic: str, message: Message | None, when_done: Callable[[], None] | None = None) -> None:
        if isinstance(message, UnlearningRound):
            asyncio.get_running_loop().call_later(0.05, self._answer_step, message)
        if when_done is not None:
            asyncio.get_running_loop().call_soon(when_done)

    def clear_foreign(self, _topic: str) -> None:
        """Ignore foreign topics: nothing is retained here."""

    def _answer_step(self, asked: UnlearningRound) -> None:
        body = DenseDelta(dim=self.dim, values=pack_vector(np.ones(self.dim)))
        for name in self.names:
            if name not in self.forgotten:
                answer = UnlearningUpdate(
                    federation=NAME, client_id=name, job=asked.job, step=asked.step, n_interactions=1, body=body
                )
                self.say(name, ClientTopic.UNLEARNING, answer)

    # --- a device ---------------------------------------------------------------------------------------------

    async def train(self, name: str, rng: np.random.Generator, after: int) -> None:
        """Send an update for each round, until the device asks to be forgotten."""
        last = 0
        while name not in self.leaving:
            shown = self.round
            if shown is None or not shown.open or shown.round <= last:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self.opened.wait(), 1.0)
                continue
            last, update_id = shown.round, f"{self._sequence():032x}"
            update = ModelUpdate(
                federation=NAME, client_id=name, update_id=update_id, round=shown.round,
                base_version=shown.base_version, base_hash=shown.base_hash, after=after, through=after + 5,
                n_interactions=5,
                body=DenseDelta(dim=self.dim, values=pack_vector(rng.normal(size=self.dim))),
            )  # fmt: skip
            self._answered[update_id] = answered = asyncio.get_running_loop().create_future()
            self._sent[update_id] = name, time.perf_counter()
            self.say(name, ClientTopic.UPDATES, update)
            receipt = await answered
            after = receipt.counted_through if receipt.counted_through is not None else after
            await asyncio.sleep(PAUSE_S * (0.5 + rng.random()))

    def longest_wait_s(self) -> float:
        """Return the longest time to an answer. An update still waiting counts until now.

        Devices that ask to be forgotten get a notice and do not count.
        """
        now = time.perf_counter()
        waiting = (now - at for name, at in self._sent.values() if name not in self.leaving)
        return max([*self.waits_s, *waiting], default=0.0)


@contextlib.asynccontextmanager
async def serving(plan: FederationPlan, store: FederationStore, fleet: Fleet) -> AsyncIterator[asyncio.Task[None]]:
    """Let the actor serve the fleet: all devices are online and train from their watermarks. Yields its task."""
    actor = FederationActor(plan, store, fleet, SteadyClock(), retained=fleet)
    fleet.attach(actor)
    await actor.start()
    actor.attach(fleet)
    marks = {client.client_id: client.counted_through for client in await store.load_clients()}
    running = asyncio.create_task(actor.run())
    training = [
        asyncio.create_task(fleet.train(name, np.random.default_rng(i), marks[name]))
        for i, name in enumerate(fleet.names)
    ]
    for name in fleet.names:
        fleet.say(name, ClientTopic.STATUS, Status(federation=NAME, client_id=name, online=True))
    try:
        yield running
    finally:
        for task in training:
            task.cancel()
        actor.stop()
        await asyncio.gather(*training, return_exceptions=True)
        await running
        await actor.close()
