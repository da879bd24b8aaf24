"""A federator process: the real `FederationActor`, run by hand from one wait to the next.

Whatever the actor awaits is a pause of the world's. A crash is raised at one of the actor's own failpoints, or the
process is dropped while it waits, and with it everything that is not stored.
"""

import types
from collections.abc import Callable, Coroutine, Generator, Iterator, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING

from simulation.beats import ProcessBeats
from simulation.clock import Clock
from simulation.network import Wire
from simulation.promises import BrokenPromiseError
from simulation.store_unlearning import SimulatedFederationStore

from foltr.broker.buffer import BoundedIntake
from foltr.broker.link import InboundMessage
from foltr.core.errors import ProtocolViolationError, SettingsError, UnavailableError
from foltr.core.failpoints import Failpoint
from foltr.core.protocol.announcements import ModelAnnouncement, RoundAnnouncement
from foltr.core.protocol.codec import Signer
from foltr.core.protocol.fields import Message
from foltr.core.protocol.orders import OrderAnswer
from foltr.core.protocol.receipts import ErasureNotice, MembershipReceipt, UpdateReceipt
from foltr.core.protocol.signing import EpochSequence
from foltr.core.protocol.topics import ClientTopic
from foltr.federator.actor import FederationActor
from foltr.storage.errors import WriterFencedError

if TYPE_CHECKING:
    from simulation.world import World

_LONGEST_TRANSACTION_S = 0.3
_ANNOUNCING_S = 0.01
_PURGE_S = 0.1

Receipt = UpdateReceipt | MembershipReceipt | ErasureNotice | OrderAnswer


class CrashedError(BaseException):
    """The process ends here and now; nothing catches it."""


class ProcessState(StrEnum):
    UP = "up"
    FINISHED = "finished"
    CRASHED = "crashed"
    FENCED = "fenced"
    GAVE_UP = "gave_up"


@types.coroutine
def pause(seconds: float) -> Generator[float, None, None]:
    yield seconds


class Bell:
    """Stands for the event in the intake that says that something has arrived."""

    def __init__(self, on_ring: Callable[[], None]) -> None:
        self._on_ring = on_ring
        self._is_set = False

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        self._on_ring()

    def clear(self) -> None:
        self._is_set = False


class FederatorProcess:
    """One process, from its start to its end: its own clock, receipt sender, announcer and database session."""

    def __init__(self, world: "World") -> None:
        self._world, self.store, self._broker = world, world.store, world.broker
        self._schedule, self._time, self._rng = world.schedule, world.time, world.rng
        self.clock = Clock(world.clock_offset)
        self.state = ProcessState.UP
        self.is_up = True
        self.session = 0  # one for all federators: the broker keeps it
        self.down = Wire(self._schedule, self._rng)
        self.started_at = self.now()
        self.crash_at: Failpoint | None = None
        self.n_database_failures = 0
        self._topics = world.topics
        self._sequence = EpochSequence()
        key = world.federator_key
        self._signer = Signer(key, self._sequence)
        with self._time.of(self.clock):
            store, limits = SimulatedFederationStore(self), world.scenario.limits
            self.actor = FederationActor(world.plan, store, self, self, limits, retained=self, key=key)  # type: ignore[arg-type]
        self.intake: BoundedIntake = self.actor.intake
        self.intake.arrived = self.bell = Bell(self._ring)  # type: ignore[assignment]
        self.intake.wait = self._wait_for_arrivals  # type: ignore[method-assign]
        self._announced: tuple[ModelAnnouncement, RoundAnnouncement] | None = None
        self._receipts: list[Receipt] = []  # of before it may send
        self._retained: dict[str, Message | None] = {}
        self._not_retained: set[str] = set()  # topics that the broker does not have as they are wanted
        self._when_retained: dict[str, Callable[[], None]] = {}
        self._waiting_since: int | None = None
        self._n_pauses = 0
        self._coroutine: Coroutine[float, None, None] | None = None
        self.has_claim = False
        self.beats = ProcessBeats(self, world)
        self._schedule.after(0.0, self._begin)

    async def _live(self) -> None:
        before = self._broker.predecessor(self._world.federator_key)
        await self.actor.start(before.epoch, before.audit_head)
        self._sequence.begin(self.actor.epoch)
        self.has_claim = True
        self.beats.begin(self.actor.epoch)
        self._flush()
        self._schedule.after(_ANNOUNCING_S, self._retain)
        self.actor.attach(self)  # type: ignore[arg-type]
        await self.actor.run()
        await pause(2 * _ANNOUNCING_S)
        await self.actor.batches.commit_deferred()
        await self.actor.close()

    @property
    def serving(self) -> bool:
        """Up, started, and able to be heard."""
        return self.is_up and self.has_claim and not self.down.is_cut

    def now(self) -> float:
        return self.clock.wall(self._schedule.now)

    def kill(self) -> None:
        if self.is_up:
            self._end(ProcessState.CRASHED)

    def pass_failpoint(self, name: Failpoint) -> None:
        if self.crash_at is name:
            self.crash_at = None
            raise CrashedError(name)

    def _begin(self) -> None:
        if self.is_up:
            self._coroutine = self._live()
            self._broker.connect_federator(self)
            self._resume(0)

    def _resume(self, n: int) -> None:
        """Go on after the ``n``-th pause, unless something else has ended it before."""
        if self._coroutine is None or not self.is_up or n != self._n_pauses:
            return
        self._waiting_since = None
        try:
            with self._time.of(self.clock):
                seconds = self._coroutine.send(None)
        except StopIteration:
            self._end(ProcessState.FINISHED)
        except CrashedError:
            self._end(ProcessState.CRASHED)
        except WriterFencedError:
            self._end(ProcessState.FENCED)
        except (UnavailableError, SettingsError):
            self._end(ProcessState.GAVE_UP)
        except ProtocolViolationError as error:
            raise BrokenPromiseError("a federator keeps its own protocol", str(error)) from error
        else:
            self._n_pauses += 1
            n = self._n_pauses
            self._schedule.after(seconds, lambda: self._resume(n))

    def _end(self, state: ProcessState) -> None:
        self.state, self.is_up = state, False
        if self._coroutine is not None:
            self._coroutine.close()
        self.beats.end(goodbye=state in (ProcessState.FINISHED, ProcessState.GAVE_UP))
        self._world.reconnect_successor(self)

    def receive(self, message: InboundMessage) -> None:
        with self._time.of(self.clock):
            n_waiting = len(self.intake)
            self.actor.receive(message)
            if len(self.intake) > n_waiting and message.topic.endswith("/updates"):
                self._world.judge.on_taken(self, message.payload)

    async def _wait_for_arrivals(self, timeout_s: float) -> None:
        if not self.bell.is_set():
            self._waiting_since = self._n_pauses + 1
            await pause(min(max(0.0, timeout_s), 86_400.0))
        await pause(self._rng.uniform(0.0, self._world.scenario.busy_s))

    def _ring(self) -> None:
        if self._waiting_since is not None and self._waiting_since == self._n_pauses:
            self._waiting_since = None
            self._n_pauses += 1
            n = self._n_pauses
            self._schedule.after(0.0, lambda: self._resume(n))

    async def before(self) -> None:
        await self._transact_for_a_while()
        self._fail_perhaps()

    async def after(self) -> None:
        self._fail_perhaps()
        await self._transact_for_a_while()

    async def _transact_for_a_while(self) -> None:
        await pause(self._rng.uniform(0.0, _LONGEST_TRANSACTION_S) if self._rng.random() < 0.3 else 0.0)

    def _fail_perhaps(self) -> None:
        if self.n_database_failures and self._rng.random() < 0.5:
            self.n_database_failures -= 1
            raise OSError("the database is away")

    def require_writer(self) -> None:
        """As `foltr.storage.federations.require_writer` for the heartbeat, which has a session of its own."""
        if self.n_database_failures:
            raise UnavailableError("the database is away")
        federation = self.store.tables.federation
        if federation is None or federation.writer_epoch != self.actor.epoch:
            raise WriterFencedError("another federator has taken over")

    async def purge(self) -> bool:
        if self.n_database_failures:
            return False
        await pause(_PURGE_S)
        self.store.unpurged = False
        return True

    def send(self, receipts: Sequence[Receipt]) -> None:
        self._receipts.extend(receipts)
        if self.has_claim:
            self._flush()

    def notify(self, notices: Iterator[Receipt]) -> None:
        self.send(list(notices))

    def _flush(self) -> None:
        """Send what was told, also before there was an epoch to sign it under."""
        receipts, self._receipts = self._receipts, []
        for receipt in receipts:
            self._world.hear(self, receipt)
            if isinstance(receipt, OrderAnswer):
                continue  # the operator is told by `World.hear`
            topic = self._topics.client(receipt.client_id, ClientTopic.INBOX)
            if not self.down.is_cut:
                self._say(topic, receipt, retain=False)

    def _say(self, topic: str, message: Message, *, retain: bool = True) -> None:
        sequence = self._sequence.next()
        self._world.judge.on_said(self, sequence)
        self._broker.publish(topic, self._signer.sign(message, topic, sequence), retain=retain)

    def put(self, topic: str, message: Message | None, when_done: Callable[[], None] | None = None) -> None:
        """As `foltr.federator.publishing.retained.RetainedTopics.put`."""
        self._retained[topic] = message
        self._not_retained.add(topic)
        if when_done is not None:
            self._when_retained[topic] = when_done
        self._schedule.after(_ANNOUNCING_S, self._retain)

    def clear_foreign(self, topic: str) -> None:
        """As `foltr.federator.publishing.retained.RetainedTopics.clear_foreign`."""
        self.put(topic, None)

    def _retain(self) -> None:
        if not self.is_up or not self.has_claim or self.down.is_cut:
            return
        with self._time.of(self.clock):
            for topic in sorted(self._not_retained):
                message = self._retained[topic]
                if message is not None:
                    self._say(topic, message)
                elif topic in self._broker.retained:
                    self._broker.publish(topic, b"", retain=True)
                self._not_retained.discard(topic)
                if (when_done := self._when_retained.pop(topic, None)) is not None:
                    when_done()

    def announce(self, model: ModelAnnouncement, round_: RoundAnnouncement, *_others: object) -> None:
        self._world.judge.on_announced(model, round_)
        self._announced = (model, round_)
        if not self.down.is_cut:
            self._publish_model()

    def reconnect(self) -> None:
        """A new connection to the broker: what waited there comes in, and everything is announced again."""
        self.down.mend()
        if not self.is_up:
            return
        self.beats.connect()
        self._broker.connect_federator(self)
        self._not_retained |= self._retained.keys()
        self._schedule.after(_ANNOUNCING_S, self._retain)
        if self._announced is not None:
            with self._time.of(self.clock):
                self._publish_model()

    def _publish_model(self) -> None:
        if self._announced is None:
            return
        announced, topic = self._announced, self._topics.model
        self._say(topic, announced[0])
        self._schedule.after(_ANNOUNCING_S, lambda: self._publish_round(announced))

    def _publish_round(self, announced: tuple[ModelAnnouncement, RoundAnnouncement]) -> None:
        if not self.is_up or self.down.is_cut or announced is not self._announced:
            return
        with self._time.of(self.clock):
            topic = self._topics.round
            self._say(topic, announced[1])
            self.actor.batches.model_published(announced[0].version)
