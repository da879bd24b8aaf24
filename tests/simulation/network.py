"""The broker and the wires to it: what it retains, what it queues, and everything a network may do to a message."""

import random
from collections import deque
from collections.abc import Callable
from typing import Any

from simulation.clock import Schedule
from simulation.scenario import Operation

from foltr.broker.link import InboundMessage
from foltr.core.protocol.topics import ClientTopic, Topics
from foltr.federator.predecessor import Predecessor

FAULTS = (Operation.REORDER, Operation.DUPLICATE, Operation.DROP, Operation.DELAY)


class Wire:
    """One direction between a peer and the broker: in order, unless a fault says otherwise."""

    def __init__(self, schedule: Schedule, rng: random.Random) -> None:
        self._schedule = schedule
        self._rng = rng
        self._free_at = 0.0
        self.faults: deque[Operation] = deque()
        self.is_cut = False
        self.n_lost = 0

    def carry(self, deliver: Callable[[], None]) -> None:
        fault = self.faults.popleft() if self.faults else None
        if self.is_cut or fault is Operation.DROP:
            self.n_lost += 1
            return
        latency = self._rng.uniform(0.005, 0.05)
        if fault is Operation.DELAY:
            latency += self._rng.uniform(1.0, 60.0)
        elif fault is Operation.REORDER:
            latency += self._rng.uniform(0.05, 3.0)
        else:
            if fault is Operation.DUPLICATE:
                self._schedule.after(latency + self._rng.uniform(0.0, 40.0), deliver)
            latency = max(latency, self._free_at - self._schedule.now)
            self._free_at = self._schedule.now + latency
        self._schedule.after(latency, deliver)

    def mend(self) -> None:
        self.faults.clear()
        self.is_cut = False


class SimulatedBroker:
    """Routes by topic. Devices have clean sessions; what is for the federator waits while it is away."""

    def __init__(self, topics: Topics, schedule: Schedule) -> None:
        self._topics = topics
        self._to_all = (topics.model, topics.anchor, topics.round, topics.unlearning_round)
        # How far a job is, and the log of erasures: for the operator, who is not here.
        self._for_nobody = (topics.unlearning_round.removesuffix("round"), topics.audit_head)
        self._schedule = schedule
        self.retained: dict[str, bytes] = {}
        self.devices: dict[str, Any] = {}
        self.federator: Any | None = None
        self._queued: list[InboundMessage] = []

    def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        if retain and payload:
            self.retained[topic] = payload
        elif retain:
            self.retained.pop(topic, None)
        message = InboundMessage(topic, payload, retained=False)
        if topic in self._to_all:
            for device in self.devices.values():
                self._to_device(device, message)
            return
        if topic.startswith(self._for_nobody):
            return
        parsed = self._topics.parse(topic)
        if parsed is not None and parsed[1] is ClientTopic.INBOX:
            self._to_device(self.devices[parsed[0]], message)
        else:
            self._to_federator(message)

    def predecessor(self, key: Any) -> Predecessor:
        """What a federator hears of the one before, when it begins."""
        before = Predecessor(self._topics, key)
        for topic in before.topics:
            if topic in self.retained:
                before.receive(InboundMessage(topic, self.retained[topic], retained=True))
        return before

    def connect_device(self, device: Any) -> None:
        """A new session of a device: it is sent what is retained."""
        for topic in self._to_all:
            if topic in self.retained:
                self._to_device(device, InboundMessage(topic, self.retained[topic], retained=True))

    def connect_federator(self, federator: Any) -> None:
        """A federator's session begins or goes on: what waited, and what is retained."""
        self.federator = federator
        waited, self._queued = self._queued, []
        for message in waited:
            self._to_federator(message)
        for topic, payload in list(self.retained.items()):
            if topic not in self._to_all and not topic.startswith(self._for_nobody):
                self._to_federator(InboundMessage(topic, payload, retained=True))

    def forget_everything(self) -> None:
        """The broker was killed, and stored nothing."""
        self.retained.clear()
        self._queued.clear()

    def _to_device(self, device: Any, message: InboundMessage) -> None:
        if device.is_up:
            session = device.session
            device.down.carry(lambda: device.receive(message) if device.session == session else None)

    def _to_federator(self, message: InboundMessage) -> None:
        federator = self.federator
        if federator is None or not federator.is_up or federator.down.is_cut:
            self._queued.append(message)
            return

        def deliver() -> None:
            if federator.is_up and self.federator is federator:
                federator.receive(message)
            else:
                self._queued.append(message)

        federator.down.carry(deliver)
