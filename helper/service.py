"""A helper process: its desk in a thread, its link to the broker, and how they start and end together."""

import asyncio
import math
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from foltr.broker.address import BrokerAddress
from foltr.broker.link import InboundMessage, LastWill, MqttLink
from foltr.broker.liveness import touch_while_alive
from foltr.broker.trusted_cas import TrustedCas
from foltr.core.alive_file import NO_ALIVE_FILE, AliveFile
from foltr.core.errors import DataError, MessageError, SettingsError, UnavailableError, first_cause
from foltr.core.failpoints import Failpoint, failpoint
from foltr.core.logs import get_logger
from foltr.core.operator.credentials import Credentials
from foltr.core.protocol.codec import Signer
from foltr.core.protocol.fields import MAX_MESSAGE_BYTES
from foltr.core.protocol.helper_messages import HelperStatus
from foltr.core.protocol.signing import SessionSequence
from foltr.core.protocol.topics import Topics
from foltr.helper.measures import HelperMeasures
from foltr.helper.noise_pool import TICK_S
from foltr.helper.request_handler import RequestHandler

log = get_logger(__name__)

MAX_WAITING = 256
"""How many messages wait for the desk at most, some 64 MB; senders repeat what does not fit."""
# Checking the proofs of a thousand devices takes seconds.
_LONGEST_WORK_S = 300.0
_IDLE_S = 60.0
_GOODBYE_S = 2.0


class RequestQueue:
    """Messages that wait for the desk. A repeated request that already waits is not queued twice."""

    def __init__(self) -> None:
        self._messages: deque[tuple[str, bytes]] = deque()
        self._arrived = asyncio.Event()

    def __len__(self) -> int:
        return len(self._messages)

    def put(self, topic: str, payload: bytes) -> bool:
        """Queue a message unless it is queued already; return False if it is too long or the queue is full."""
        if (topic, payload) in self._messages:
            return True
        if len(self._messages) >= MAX_WAITING or len(payload) > MAX_MESSAGE_BYTES:
            return False
        self._messages.append((topic, payload))
        self._arrived.set()
        return True

    async def get(self) -> tuple[str, bytes]:
        while not self._messages:
            self._arrived.clear()
            await self._arrived.wait()
        return self._messages.popleft()


class HelperService:
    """Runs one helper until it is stopped.

    Args:
        give_up_after_s: how long the broker may be away before `run` raises UnavailableError; None: for ever.
        alive_file: touched while the broker is there and the desk gets on.
        measures: the desk's.
    """

    def __init__(
        self,
        credentials: Credentials,
        desk: RequestHandler,
        address: BrokerAddress,
        *,
        give_up_after_s: float | None = None,
        alive_file: AliveFile = NO_ALIVE_FILE,
        measures: HelperMeasures | None = None,
    ) -> None:
        topics = Topics(credentials.federation)
        self._desk = desk
        self._answers_on = topics.helper_answers(credentials.name)
        self._commitment_on = topics.helper_commitment(credentials.name)
        self._retained: bytes | None = None
        self._asked_on = topics.helper_requests(credentials.name)
        self._measures = measures or HelperMeasures(credentials.federation, credentials.name)
        self._waiting = RequestQueue()
        self._n_dropped = 0
        self._stopped = asyncio.Event()
        self._alive_file = alive_file
        self._at_work_since: float | None = None
        self._topics = topics
        self._name, self._sequence = credentials.name, SessionSequence()
        self._signer = Signer(credentials.key, self._sequence)
        self._link = MqttLink(
            address,
            client_id=f"foltr-helper:{credentials.federation}:{credentials.name}",
            subscriptions=(
                # The first two first: the others are signed with these keys.
                *(topics.operator_key, topics.kept_enrolments, topics.policy, topics.roster, topics.roster_chunks),
                *(topics.federator_key, topics.authorities),
                # Before requests: what it has signed tells it whether its store is an old copy.
                self._commitment_on,
                self._asked_on,
            ),
            on_message=self._receive,
            on_connected=self._on_connected,
            last_will=self._last_will,
            # The federator repeats its requests, so queued ones from while the helper was away are useless.
            persistent=False,
            give_up_after_s=give_up_after_s,
        )
        self._authorities = TrustedCas(self._link, desk.operator, credentials.federation, desk.authorities)

    async def run(self, on_started: Callable[[], None] | None = None) -> None:
        """Serve.

        Raises:
            UnavailableError: the link gives up.
            DataError: the store cannot be used.
            SettingsError: the store is an old copy, which the federator knows by now.
        """
        if self._desk.restored is not None:
            log.error("store_restored", detail=self._desk.restored)
        await asyncio.to_thread(self._desk.noise.tick)
        try:
            async with self._link, self._goodbye(), asyncio.TaskGroup() as group:
                tasks = [
                    group.create_task(self._serve()),
                    group.create_task(self._fill_noise_pool()),
                    group.create_task(
                        touch_while_alive(self._alive_file, self._link, lambda: self._at_work_since, _LONGEST_WORK_S)
                    ),
                    group.create_task(self._link.wait_failed()),
                ]
                if on_started is not None:
                    on_started()
                await self._stopped.wait()
                for task in tasks:
                    task.cancel()
        except BaseExceptionGroup as group_error:
            # One task's failure cancels the others; raise its own error.
            raise first_cause(group_error) from group_error

    def stop(self) -> None:
        self._stopped.set()

    async def _serve(self) -> None:
        while True:
            try:
                topic, payload = await asyncio.wait_for(self._waiting.get(), _IDLE_S)
            except TimeoutError:
                # Also while no requests arrive: the helper's own clock decides when an epoch ends.
                await asyncio.to_thread(self._desk.destroy_overdue_keys)
                continue
            self._at_work_since = time.monotonic()
            if topic == self._topics.authorities:
                await self._take_authorities(payload)
            else:
                # Thousands of signatures and seals take seconds; the connection is kept alive meanwhile.
                answers = await asyncio.to_thread(self._desk.handle, topic, payload)
                if await self._retain_commitment():
                    for answer in answers:
                        if await self._publish(self._answers_on, answer):
                            failpoint(Failpoint.HELPER_ANSWERED)
                self._measures.answer_took.observe(time.monotonic() - self._at_work_since)
                if answers and self._desk.restored is not None:
                    raise SettingsError(f"store: {self._desk.restored}")
            self._at_work_since = None

    async def _fill_noise_pool(self) -> None:
        """Draw noise by the clock, beside the desk, so that no request decides when or for how long."""
        loop = asyncio.get_running_loop()
        due_at = loop.time()
        while True:
            noise = self._desk.noise
            noise.release()
            while await asyncio.to_thread(noise.draw):  # one at a time, so that an end waits for one only
                pass
            due_at += TICK_S * max(1, math.ceil((loop.time() - due_at) / TICK_S))
            await asyncio.sleep(due_at - loop.time())

    async def _retain_commitment(self) -> bool:
        """Retain the newest commitment before anybody receives it; return False if the broker did not take it.

        Not at start: the retained commitment may be newer than a store that was restored from a copy.
        """
        newest = self._desk.commitment
        if newest is not None and newest != self._retained:
            if not await self._publish(self._commitment_on, newest, retain=True):
                return False
            self._retained = newest
        return True

    async def _publish(self, topic: str, payload: bytes, *, retain: bool = False) -> bool:
        try:
            await self._link.publish(topic, payload, retain=retain)
        except UnavailableError as error:
            log.warning("answer_not_sent", cause=str(error))  # it is in the store, and will be asked for again
            return False
        return True

    def read_measures(self) -> HelperMeasures:
        """Return the measures, up to date; in the event loop."""
        since = self._at_work_since
        self._measures.broker_up.set(float(self._link.connected))
        self._measures.waiting.set(len(self._waiting))
        self._measures.working.set(0.0 if since is None else time.monotonic() - since)
        return self._measures

    def _receive(self, message: InboundMessage) -> None:
        self._measures.messages.add(of="request" if message.topic == self._asked_on else "announcement")
        if not self._waiting.put(message.topic, message.payload):
            self._measures.dropped.add()
            self._n_dropped += 1
            if self._n_dropped & (self._n_dropped - 1) == 0:  # ever more seldom, as in the desk
                log.warning("message_dropped", topic=message.topic, n_dropped=self._n_dropped)

    async def _take_authorities(self, payload: bytes) -> None:
        try:
            self._authorities.operator = self._desk.operator
            kept = self._authorities.accept(payload)
            if kept is not None:
                await asyncio.to_thread(self._desk.keep_authorities, kept)
        except (MessageError, DataError) as error:
            # The broker retains the list for the next start.
            log.warning("trusted_cas_refused", cause=str(error))

    @asynccontextmanager
    async def _goodbye(self) -> AsyncIterator[None]:
        """Say at the end of the block that this helper is gone: the broker sends no last will after a disconnection."""
        try:
            yield
        finally:
            if self._link.connected:
                with suppress(TimeoutError):
                    async with asyncio.timeout(_GOODBYE_S):
                        await self._say(online=False)

    def _last_will(self) -> LastWill:
        self._sequence.begin_session()
        topic = self._topics.helper_status(self._name)
        return LastWill(topic, self._status(online=False, sequence=self._sequence.last_will()))

    def _status(self, *, online: bool, sequence: int | None = None) -> bytes:
        status = HelperStatus(federation=self._topics.federation, helper=self._name, online=online)
        return self._signer.sign(status, self._topics.helper_status(self._name), sequence)

    async def _say(self, *, online: bool) -> None:
        """Say whether this helper is online: the federation's verdict names one that is not."""
        await self._publish(self._topics.helper_status(self._name), self._status(online=online), retain=True)

    async def _on_connected(self) -> None:
        log.info("broker_connected", broker=str(self._link.address))
        await self._say(online=True)
