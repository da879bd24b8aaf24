"""A device: the real `Agent`, which is all of an `EdgeClient` but its socket, its disk and its event loop.

The store is the disk and survives a crash; everything else is gone then. Device i learns 2^i from an interaction.
"""

from collections.abc import Coroutine
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from simulation.clock import Clock, run_at_once
from simulation.disk import DeviceDisk
from simulation.network import Wire
from simulation.promises import BrokenPromiseError

from foltr.broker.address import BrokerAddress
from foltr.broker.link import InboundMessage, LastWill
from foltr.core.errors import DataError, FoltrError, UnavailableError
from foltr.core.protocol.explorations import NoExploration
from foltr.core.protocol.topics import ClientTopic
from foltr.core.protocol.trainings import PdgdTraining
from foltr.edge_client.agent import Agent
from foltr.edge_client.options import DeviceOptions, Experiment, Privacy, Ranking
from foltr.edge_client.store.store import Interaction
from foltr.edge_client.training.unlearning_limits import UnlearningLimits

if TYPE_CHECKING:
    from simulation.world import World

FEDERATION = "sim"
_FEATURES = np.ones((1, 1), np.float32)
_KEEPALIVE_S = 30.0
# That it is away is no more than the broker says of it.
_SAID_WITH_A_WISH = tuple(f"/{topic}" for topic in (ClientTopic.FORGET, ClientTopic.STATUS))


class SimulatedDevice:
    """One device, its disk, its two wires and its bad clock; its agent has it for an `MqttLink`.

    Attributes:
        papers: what `Agent` needs of `foltr.core.operator.credentials.Credentials`; keys may be stand-ins.
    """

    address = BrokerAddress("127.0.0.1")

    def __init__(self, i: int, world: "World") -> None:
        self.client_id, self.i = f"device-{i}", i
        self.papers: SimpleNamespace | None = None
        self._schedule, self._time, self._broker = world.schedule, world.time, world.broker
        self._rng, self._beats = world.rng, world.beats
        self.clock = Clock(offset=self._rng.uniform(-1e4, 1e4), rate=self._rng.uniform(0.9, 1.1))
        self.store = DeviceDisk(
            self.client_id,
            world.judge.clicks,
            max_interactions=world.scenario.device_backlog,
            max_kept=world.scenario.device_keeps,
        )
        self.up, self.down = Wire(self._schedule, self._rng), Wire(self._schedule, self._rng)
        self.agent: Agent | None = None
        self.is_up = self.left = False
        self.hears_since = 0.0
        self._last_will: LastWill | None = None
        self.session = self._n_started = 0
        self._asking: Coroutine[float, None, None] | None = None

    @property
    def connected(self) -> bool:
        return self.is_up

    async def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        if not self.is_up:
            raise UnavailableError("not connected")
        self.send(topic, payload, retain=retain)

    @property
    def running(self) -> bool:
        return self.agent is not None

    @property
    def is_cut(self) -> bool:
        return self.up.is_cut or self.down.is_cut

    @property
    def takes_part(self) -> bool:
        """Whether it is to be heard: it has not left, and neither was forgotten nor asked to be."""
        return self.agent is not None and not self.agent.participation.left

    @property
    def is_asking(self) -> bool:
        """Whether it asked to be forgotten, and was not answered."""
        return self.agent is not None and self.agent.forgetting.waiting

    def start(self) -> None:
        """Start the process, on the store as it is, and connect."""
        self._n_started += 1
        self.left = False
        with self._time.of(self.clock):
            try:
                self.agent = Agent(
                    self,  # type: ignore[arg-type]
                    self.store,
                    DeviceOptions(
                        FEDERATION,
                        self.client_id,
                        self.papers,  # type: ignore[arg-type]
                        # Whatever is shown, the device learns the same; and nothing need be compiled.
                        ranking=Ranking(exploration=NoExploration()),
                        experiment=Experiment(seed=self.i + 1000 * self._n_started, learner=_power_learner(self.i)),
                        # As its federator asks.
                        privacy=Privacy(unlearning_limits=UnlearningLimits(fewest_interactions=1)),
                    ),
                )
            except DataError:
                return  # the application was told, and does not run
        self.connect()

    def crash(self) -> None:
        self.disconnect()
        self.agent = None
        self.store.crash()
        if self._asking is not None:
            self._asking.close()
            self._asking = None

    def connect(self) -> None:
        """Begin a session; the one before, if the broker still has it, ends without a goodbye."""
        if self.agent is None:
            return
        self.disconnect()
        self.session += 1
        self.up.n_lost = self.down.n_lost = 0
        self.is_up = True
        with self._time.of(self.clock):
            self._last_will = self.agent.begin_session()
            if not self.left:
                run_at_once(self.agent.begin_connection())
        self._broker.connect_device(self)
        self.hears_since = self._schedule.now
        self._beats.connect_device(self)
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

    def reconnect(self) -> None:
        """Connect again, if it can."""
        if self.running and not self.is_up and not self.is_cut:
            self.connect()

    def notice_partition(self) -> None:
        if self.is_cut:
            self.disconnect()

    def heal(self) -> None:
        """Its network is as it should be again."""
        self.up.mend()
        self.down.mend()
        if self.running and (not self.is_up or self.up.n_lost or self.down.n_lost):
            self.connect()

    def leave(self) -> None:
        """Its application calls `EdgeClient.leave`, and does not wait for the receipt."""
        if self.agent is None or not self.is_up or self.left:
            return
        with self._time.of(self.clock):
            run_at_once(self.agent.leave(timeout_s=0.0))
        self.left = True

    def forget_me(self, timeout_s: float) -> bool:
        """Its application calls `EdgeClient.forget_me`; False if it cannot now, or did already."""
        if self.agent is None or self._asking is not None or not self.is_up:
            return False
        self._asking = self.agent.forgetting.ask(timeout_s)  # type: ignore[assignment]
        self._go_on_asking(self._asking)
        return True

    def _go_on_asking(self, asking: Coroutine[float, None, None]) -> None:
        if asking is not self._asking:
            return
        with self._time.of(self.clock):
            try:
                seconds = asking.send(None)
            except StopIteration:
                self._asking = None
            except FoltrError:
                self._asking = None  # the application was told
            else:
                self._schedule.after(self.clock.delay(seconds) + 0.001, lambda: self._go_on_asking(asking))
        self._pump()

    def click(self) -> None:
        """Show a list and record a click on it."""
        if self.agent is None:
            return
        with self._time.of(self.clock):
            try:
                self.agent.record_clicks(self.agent.rank(_FEATURES, k=1), [0])
            except DataError:
                return  # the application was told
        self._pump()

    def receive(self, message: InboundMessage) -> None:
        if self.agent is None or not self.is_up:
            return
        with self._time.of(self.clock):
            self.agent.receive(message)
        self._pump()

    def hear_beat(self, message: InboundMessage) -> None:
        """Receive of the heartbeat, and do nothing by that."""
        if self.agent is not None and self.is_up:
            with self._time.of(self.clock):
                self.agent.receive(message)

    def send(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        if self.store.has_wish and not topic.endswith(_SAID_WITH_A_WISH):
            raise BrokenPromiseError("who asked to be forgotten says nothing else", topic)
        self.up.carry(lambda: self._broker.publish(topic, payload, retain=retain))

    def _pump(self) -> None:
        """Send what is due, and look again when something will be."""
        agent, session = self.agent, self.session
        if agent is None or not self.is_up:
            return
        with self._time.of(self.clock):
            run_at_once(agent.turn())
            due_at = agent.next_due_at()
            pause = self.clock.delay(due_at - self._time.monotonic())
        if pause < float("inf"):
            self._schedule.after(pause + 0.001, lambda: self._wake(agent, session, due_at))

    def _wake(self, agent: Agent, session: int, due_at: float) -> None:
        if (agent, session) == (self.agent, self.session) and agent.next_due_at() == due_at:
            self._pump()


def _power_learner(i: int) -> Any:
    def learn(weights: NDArray[np.float64], _interaction: Interaction, _training: PdgdTraining) -> NDArray[np.float64]:
        return weights + 2.0**i

    return learn
