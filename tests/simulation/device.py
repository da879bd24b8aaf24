"""A device: the real `EdgeClient` without its socket, its disk and its event loop.

The store is the disk and survives a crash; everything else is gone then. Device i learns 2^i from an interaction.
"""

import random
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from simulation.clock import Clock, Schedule, WorldTime
from simulation.network import SimulatedBroker, Wire

from broker.link import InboundMessage, LastWill
from edge_client.client import EdgeClient
from edge_client.store import Interaction, PendingUpdate
from foltr.credentials import BrokerAccess
from foltr.errors import DataError, UnavailableError
from foltr.messages import Leave, PdgdTraining
from foltr.topics import ClientTopic, Topics

FEDERATION = "sim"
_FEATURES = np.ones((1, 1), np.float32)
_KEEPALIVE_S = 30.0
_BROKER = BrokerAccess(broker_url="mqtt://broker")


@dataclass(frozen=True)
class Papers:
    """What `EdgeClient` needs of `foltr.credentials.Credentials`; keys may be stand-ins."""

    name: str
    key: Any
    enrolment_bytes: bytes
    federator_public_key: bytes
    federation: str = FEDERATION
    broker: BrokerAccess = _BROKER


class TinyStore:
    """`edge_client.store.DeviceStore` in memory: the same functions, each of them whole or not at all."""

    def __init__(
        self,
        on_made: Callable[[PendingUpdate, Sequence[int]], None],
        on_removed: Callable[[str, bool], None],
    ) -> None:
        self._on_made, self._on_removed = on_made, on_removed
        self._interactions: dict[int, tuple[Interaction, str | None]] = {}
        self._serps: set[str] = set()
        self._pending: PendingUpdate | None = None
        self._session = 0
        self._model: bytes | None = None
        self._n_recorded = 0
        self._kept: dict[int, Interaction] = {}
        self.n_dropped = 0
        self.forgotten = False
        self.n_failures_due = 0

    def lose(self) -> None:
        """Another disk: nothing of the old one is left. Identities of interactions are not used again."""
        self._interactions.clear()
        self._kept.clear()
        self._pending, self._session, self._model = None, 0, None
        self.forgotten = False

    def forget(self) -> None:
        self._write()
        self.lose()
        self.forgotten = True

    def close(self) -> None:
        pass

    def newest_session(self) -> int:
        return self._session

    def put_session(self, session: int) -> None:
        self._write()
        self._session = session

    def add_interaction(
        self,
        serp_id: str,
        features: NDArray[np.float32],
        ranking: NDArray[np.int64],
        clicks: NDArray[np.bool_],
        variant: int = 0,
        base_version: int | None = None,
    ) -> Interaction | None:
        self._write()
        if serp_id in self._serps:
            return None
        self._serps.add(serp_id)
        self._n_recorded += 1
        interaction = Interaction(self._n_recorded, features, ranking, clicks, variant, base_version)
        self._interactions[interaction.id] = (interaction, None)
        return interaction

    def waiting_interactions(self, limit: int) -> list[Interaction]:
        return [item for item, update_id in self._interactions.values() if update_id is None][:limit]

    def discard_interactions(self, ids: Sequence[int]) -> None:
        for i in ids:
            self._interactions.pop(i, None)

    def n_waiting(self) -> int:
        return sum(update_id is None for _, update_id in self._interactions.values())

    def put_update(self, update: PendingUpdate, interaction_ids: Sequence[int]) -> None:
        self._write()
        if self._pending is not None:
            raise AssertionError("a second pending update")
        if any(i not in self._interactions or self._interactions[i][1] is not None for i in interaction_ids):
            raise DataError("an interaction is not waiting")
        self._pending = update
        for i in interaction_ids:
            self._interactions[i] = (self._interactions[i][0], update.update_id)
        self._on_made(update, interaction_ids)

    def pending_update(self) -> PendingUpdate | None:
        return self._pending

    def remove_update(self, update_id: str, *, keep_interactions: bool, counted: bool = True) -> None:
        self._write()
        if self._pending is not None and self._pending.update_id == update_id:
            self._pending = None
        for i, (interaction, holder) in list(self._interactions.items()):
            if holder == update_id and keep_interactions:
                self._interactions[i] = (interaction, None)
            elif holder == update_id:
                del self._interactions[i]
                if counted:
                    self._kept[i] = interaction
        self._on_removed(update_id, keep_interactions)

    def kept_ids(self) -> list[int]:
        return list(self._kept)

    def kept_interaction(self, kept_id: int) -> Interaction:
        return self._kept[kept_id]

    def reseal_update(self, update_id: str, payload: bytes) -> None:
        if self._pending is not None and self._pending.update_id == update_id:
            self._pending = PendingUpdate(update_id, self._pending.round, payload)

    def put_model(self, announcement: bytes) -> None:
        self._write()
        self._model = announcement

    def model(self) -> bytes | None:
        return self._model

    def _write(self) -> None:
        if self.n_failures_due:
            self.n_failures_due -= 1
            raise DataError("the disk is full")


class SimulatedLink:
    """What the client has for an `MqttLink`."""

    failure = None

    def __init__(self, device: "SimulatedDevice", **wanted: Any) -> None:
        self._device = device
        self.on_message: Callable[[InboundMessage], None] = wanted["on_message"]
        self.on_connected: Callable[[], Coroutine[Any, Any, None]] = wanted["on_connected"]
        self.last_will: Callable[[], LastWill] = wanted["last_will"]

    @property
    def connected(self) -> bool:
        return self._device.is_up

    async def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        if not self.connected:
            raise UnavailableError("not connected")
        self._device.send(topic, payload, retain=retain)


class SimulatedDevice:
    """One device, its disk, its two wires and its bad clock."""

    def __init__(
        self,
        i: int,
        schedule: Schedule,
        time: WorldTime,
        broker: SimulatedBroker,
        store: TinyStore,
        rng: random.Random,
    ) -> None:
        self.client_id = f"device-{i}"
        self.i = i
        self.papers: Papers | None = None
        self.clock = Clock(offset=rng.uniform(-1e4, 1e4), rate=rng.uniform(0.9, 1.1))
        self.store = store
        self.up, self.down = Wire(schedule, rng), Wire(schedule, rng)
        self.client: EdgeClient | None = None
        self.is_up = False
        self.left = False
        self._schedule, self._time, self._broker, self._rng = schedule, time, broker, rng
        self._link: SimulatedLink | None = None
        self._last_will: LastWill | None = None
        self.session = 0
        self._n_started = 0

    @property
    def running(self) -> bool:
        return self.client is not None

    def make_link(self, *_: Any, **wanted: Any) -> SimulatedLink:
        self._link = SimulatedLink(self, **wanted)
        return self._link

    # --- life -------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the process, on the store as it is, and connect."""
        self._n_started += 1
        self.left = False
        with self._time.of(self.clock):
            self.client = EdgeClient(
                "mqtt://broker" if self.papers is None else None,
                federation=FEDERATION,
                client_id=self.client_id,
                credentials=self.papers,  # type: ignore[arg-type]
                explore=False,  # whatever is shown, the device learns the same; and nothing need be compiled
                seed=self.i + 1000 * self._n_started,
                learner=_power_learner(self.i),
            )
        self.connect()

    def crash(self) -> None:
        self.disconnect()
        self.client = None

    def connect(self) -> None:
        """Begin a session; the one before, if the broker still has it, ends without a goodbye."""
        if self.client is None or self._link is None:
            return
        self.disconnect()
        self.session += 1
        self.up.n_lost = self.down.n_lost = 0
        self.is_up = True
        with self._time.of(self.clock):
            self._last_will = self._link.last_will()
            if not self.left:
                run(self._link.on_connected())
        self._broker.connect_device(self)
        self._pump()

    def disconnect(self) -> None:
        """The connection is lost; the broker may need a while to see it."""
        if not self.is_up:
            return
        self.is_up = False
        will = self._last_will
        if will is not None:
            pause = self._rng.choice((0.0, 0.1, _KEEPALIVE_S))
            self._schedule.after(pause, lambda: self._broker.publish(will.topic, will.payload, retain=True))

    def leave(self) -> None:
        """As `EdgeClient.leave` does, without its waiting."""
        client = self.client
        if client is None or not self.is_up or self.left:
            return
        with self._time.of(self.clock):
            run(client._outbox.publish(ClientTopic.LEAVE, Leave(federation=FEDERATION, client_id=self.client_id)))
        client._participation.left = self.left = True
        self.send(Topics(FEDERATION).client(self.client_id, ClientTopic.STATUS), b"", retain=True)

    # --- what happens to it -----------------------------------------------------------------------------------

    def click(self) -> None:
        """Show a list and record a click on it."""
        if self.client is None:
            return
        with self._time.of(self.clock):
            try:
                self.client.record_clicks(self.client.rank(_FEATURES), [0])
            except DataError:
                return  # the application was told
        self._pump()

    def receive(self, message: InboundMessage) -> None:
        if self.client is None or self._link is None or not self.is_up:
            return
        with self._time.of(self.clock):
            self._link.on_message(message)
        self._pump()

    def send(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        self.up.carry(lambda: self._broker.publish(topic, payload, retain=retain))

    def _pump(self) -> None:
        """Send what is due, and look again when something will be."""
        client, session = self.client, self.session
        if client is None or not self.is_up:
            return
        with self._time.of(self.clock):
            run(client._outbox.send_due())
            due_at = client._outbox.next_due_at()
            pause = self.clock.delay(due_at - self._time.monotonic())
        if pause < float("inf"):
            self._schedule.after(pause + 0.001, lambda: self._wake(client, session, due_at))

    def _wake(self, client: EdgeClient, session: int, due_at: float) -> None:
        if (client, session) == (self.client, self.session) and client._outbox.next_due_at() == due_at:
            self._pump()


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    """Run what never really waits."""
    try:
        coroutine.send(None)
    except StopIteration:
        return
    coroutine.close()
    raise AssertionError("the device waited for something that is not simulated")


def _power_learner(i: int) -> Any:
    def learn(weights: NDArray[np.float64], _interaction: Interaction, _training: PdgdTraining) -> NDArray[np.float64]:
        return weights + 2.0**i

    return learn
