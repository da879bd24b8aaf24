"""The federator's heartbeat in a world: its real beats and last wills, which everything befalls that befalls messages.

They have a chance and wires of their own, and whoever hears one takes no turn, so that what a seed plays besides does
not depend on them.
"""

import random
from contextlib import suppress
from typing import TYPE_CHECKING

from simulation.clock import run_at_once
from simulation.network import Wire
from simulation.promises import BrokenPromiseError
from simulation.scenario import Operation

from foltr.broker.link import InboundMessage
from foltr.core.errors import UnavailableError
from foltr.federator.publishing.heartbeat import Heartbeat
from foltr.storage.errors import WriterFencedError

if TYPE_CHECKING:
    from simulation.device import SimulatedDevice
    from simulation.process import FederatorProcess
    from simulation.world import World

_INTERVAL_S = 10.0
_KEEPALIVE_S = 45.0
_LATE_WILL_S = 300.0
_FAULTS = (Operation.REORDER, Operation.DUPLICATE, Operation.DROP)
_FAULTY = 0.3
_LOST_WILLS = 0.2
# Beats come so much later at the worst, and copies of them.
_LATEST_S, _LATEST_COPY_S = 4.0, 45.0
# When a device knows that a federator is there which it can hear, whatever one beat meets; its clock may be slow.
_KNOWN_AFTER_S = 2 * _INTERVAL_S / 0.9 + _LATEST_S
# When it knows that none is there.
_MISSED_AFTER_S = 3 * _INTERVAL_S / 0.9 + _LATEST_COPY_S


class BeatBroker:
    """What the broker does with the heartbeats of a world's federators, which share one session.

    Attributes:
        said_at: when one said last that it is there.
    """

    def __init__(self, world: "World") -> None:
        self.rng = random.Random(f"beats {world.scenario.seed}")  # noqa: S311
        self._world, self.schedule = world, world.schedule
        self.said_at = float("-inf")
        self._retained: bytes | None = None
        self._wires: dict[str, Wire] = {}
        self._dropped_at: dict[str, float] = {}
        self._connected: ProcessBeats | None = None

    def connect(self, beats: "ProcessBeats") -> None:
        """Take a new connection: whoever has the session is thrown out, and comes back unless it is told to end."""
        before, self._connected = self._connected, beats
        if before is None:
            return
        self._publish_will(before, 0.0)
        if before is not beats:
            before.be_thrown_out()
            self.schedule.after(self.rng.uniform(0.1, 5.0), before.connect)

    def lose(self, beats: "ProcessBeats") -> None:
        """See sooner or later that a connection is gone."""
        if self._connected is beats:
            self._connected = None
            self._publish_will(beats, self.rng.choice((0.0, 0.1, _KEEPALIVE_S)))

    def release(self, beats: "ProcessBeats") -> None:
        """Take a goodbye: the last will is void."""
        if self._connected is beats:
            self._connected = None

    def forget_everything(self) -> None:
        """The broker was killed, and stored nothing."""
        self._retained = None

    def publish(self, payload: bytes) -> None:
        """Retain what a federator says, and send it to all."""
        self._retained = payload
        for device in self._world.devices:
            self._to_device(device, payload)

    def connect_device(self, device: "SimulatedDevice") -> None:
        """Send what is retained over a new connection."""
        if self._retained is not None:
            self._to_device(device, self._retained)

    def _publish_will(self, beats: "ProcessBeats", pause_s: float) -> None:
        """Say that it is gone; or never, or once more when nobody thinks of it.

        A broker that is restarted with its memory has lost the wills in it; brokers that are linked may repeat them.
        """
        will = beats.will
        if self.rng.random() < _LOST_WILLS:
            return
        if pause_s == 0.0:
            self.publish(will)  # before whatever a new connection brings
        else:
            self.schedule.after(pause_s, lambda: self.publish(will))
        if self.rng.random() < _FAULTY:
            self.schedule.after(self.rng.uniform(0.0, _LATE_WILL_S), lambda: self.publish(will))

    def _to_device(self, device: "SimulatedDevice", payload: bytes) -> None:
        wire = self._wires.setdefault(device.client_id, Wire(self.schedule, self.rng))
        wire.is_cut = device.down.is_cut or not device.is_up
        now = self.schedule.now
        # Never two beats in a row are dropped, also if a late will comes between them.
        is_next = now - self._dropped_at.get(device.client_id, float("-inf")) < 1.5 * _INTERVAL_S
        if self.rng.random() < _FAULTY:
            fault = self.rng.choice(_FAULTS[:-1] if is_next else _FAULTS)
            if fault is Operation.DROP:
                self._dropped_at[device.client_id] = now
            wire.faults.append(fault)
        session, message = device.session, InboundMessage(self._world.topics.federator_status, payload, retained=False)
        wire.carry(lambda: device.hear_beat(message) if device.session == session else None)


class ProcessBeats:
    """The heartbeat of one process.

    Attributes:
        will: what the broker says when the connection is lost.
        serving_since: since when it could be heard, in the world's time; infinite while it cannot.
    """

    def __init__(self, process: "FederatorProcess", world: "World") -> None:
        self._process, self._broker, self._time = process, world.beats, world.time
        key, writer = world.federator_key, self._require_writer
        self._heartbeat = Heartbeat(self, world.topics, key, process, writer, _INTERVAL_S)  # type: ignore[arg-type]
        self._n_connections = 0
        self._is_connected = self._is_fenced = False
        self.will = b""
        self.serving_since = float("inf")

    @property
    def is_alive(self) -> bool:
        return self._process.is_up and not self._is_fenced

    def begin(self, epoch: int) -> None:
        """Speak under a claim."""
        self._heartbeat.begin(epoch)
        self.connect()

    def connect(self) -> None:
        """Begin a connection, and beat from then on."""
        if not self.is_alive or not self._process.has_claim:
            return
        will = self._heartbeat.last_will()
        if will is None:
            raise AssertionError("a claim without a last will")
        self.be_thrown_out()
        self._broker.connect(self)
        self.will, self._is_connected = will.payload, True
        self._n_connections += 1
        self._beat(self._n_connections)

    def end(self, *, goodbye: bool) -> None:
        """End with the process: with a goodbye, without a word, or as who was fenced, with neither."""
        if goodbye and self._is_connected and not self._is_fenced:
            with self._time.of(self._process.clock), suppress(UnavailableError):
                run_at_once(self._heartbeat.__aexit__(None, None, None))
            self._broker.release(self)
        self._lose()

    def be_thrown_out(self) -> None:
        """Have no connection any more."""
        self._is_connected, self.serving_since = False, float("inf")

    async def publish(self, _topic: str, payload: bytes, *, retain: bool) -> None:
        """Publish as an `MqttLink` does."""
        if not retain or not self._is_connected or self._process.down.is_cut:
            raise UnavailableError("not connected")
        self._broker.publish(payload)

    async def _require_writer(self) -> None:
        self._process.require_writer()

    def _beat(self, connection: int) -> None:
        """Beat, again and again until the connection is lost."""
        if not self._is_connected or connection != self._n_connections or not self.is_alive:
            return
        if self._process.down.is_cut:
            self._lose()
            return
        try:
            with self._time.of(self._process.clock):
                run_at_once(self._heartbeat.beat())
        except WriterFencedError:
            self._is_fenced = True
            self._broker.release(self)
            self.be_thrown_out()
            return
        self._note_serving()
        self._broker.schedule.after(_INTERVAL_S, lambda: self._beat(connection))

    def _note_serving(self) -> None:
        now = self._broker.schedule.now
        if self._process.n_database_failures:
            self.serving_since = float("inf")
            return
        self._broker.said_at = now
        self.serving_since = min(self.serving_since, now)

    def _lose(self) -> None:
        self.be_thrown_out()
        self._broker.lose(self)


def check_watches(world: "World") -> None:
    """See that devices know whether a federator is there, as soon as they can, and for no longer than it is so."""
    now, beats = world.schedule.now, world.federator.beats
    serving_s = now - beats.serving_since if world.federator not in world.judge.behind else 0.0
    for device in world.devices:
        agent = device.agent
        if device.down.is_cut:
            device.hears_since = now
        if agent is None or agent.forgotten or not device.is_up:
            continue
        with world.time.of(device.clock):
            online = agent.watch.online(world.time.monotonic())
        heard_s = now - device.hears_since
        if online and min(now - world.beats.said_at, heard_s) > _MISSED_AFTER_S:
            raise BrokenPromiseError("who is gone is not said to be there", f"{device.client_id} at {now:.0f}")
        if not online and min(serving_s, heard_s) > _KNOWN_AFTER_S:
            raise BrokenPromiseError("who is there is not said to be gone", f"{device.client_id} at {now:.0f}")
