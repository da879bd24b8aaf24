"""One MQTT session that keeps itself up.

aiomqtt acknowledges a message when it arrives, not when it has been dealt with, so QoS 1 gives no durability here; the
federator's receipts do. This module promises less: messages are handed on in order of arrival, a lost connection is
noticed and remade with backoff and jitter, and every wait is bounded.
"""

import asyncio
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import aiomqtt
from paho.mqtt.reasoncodes import ReasonCode

from foltr.broker.address import BrokerAddress
from foltr.broker.backoff import Backoff
from foltr.broker.connection import GOODBYE_S, QOS, Connection
from foltr.broker.failures import (
    CONNECTS_AGAIN,
    DisconnectCapture,
    FailureCause,
    FailureKind,
    LinkError,
    explain,
    how_to_start,
    lacks_version_5,
)
from foltr.broker.pending_calls import PendingCall, PendingCalls
from foltr.broker.tls import TlsMaterial, client_context
from foltr.core.errors import UnavailableError
from foltr.core.logs import get_logger

log = get_logger(__name__)

_MOST_EARLY = 1000
_ENDED = "the connection ended"


class SubscriptionRefusedError(UnavailableError):
    """The broker answered, and did not grant a subscription."""


class InboundMessage(NamedTuple):
    """A message as it arrived."""

    topic: str
    payload: bytes
    retained: bool


@dataclass(frozen=True)
class LastWill:
    """The message that the broker publishes, retained, if this session ends without a goodbye."""

    topic: str
    payload: bytes


class MqttLink:
    """A persistent MQTT session. SettingsError if the address holds certificates that cannot be used.

    Args:
        on_message: called for every message as it arrives, in the event loop; must not block. The caller provides the
            buffer behind it, and its bound.
        last_will: called before every connection for what the broker publishes if that one is lost; None: nothing.
        before_connecting: awaited before every connection; any error other than UnavailableError ends the link.
        on_connected: awaited after every (re)connection, once the subscriptions are granted.
        persistent: the broker keeps the subscriptions and queues messages while this session is away.
        give_up_after_s: how long one outage may last before the link fails; None: it never does.
        on_failed: called when the link has given up.

    Attributes:
        tls_context: of the next connection; None without TLS.
    """

    def __init__(
        self,
        address: BrokerAddress,
        *,
        client_id: str,
        subscriptions: Sequence[str],
        on_message: Callable[[InboundMessage], None],
        before_connecting: Callable[[], Awaitable[None]] | None = None,
        on_connected: Callable[[], Awaitable[None]] | None = None,
        last_will: Callable[[], LastWill | None] | None = None,
        persistent: bool = True,
        timeout_s: float = 10.0,
        give_up_after_s: float | None = None,
        on_failed: Callable[[], None] | None = None,
    ) -> None:
        self.address = address
        self.client_id = client_id
        self._subscriptions = [(topic, QOS) for topic in subscriptions]
        self._on_message = on_message
        self._before_connecting = before_connecting
        self._on_connected = on_connected
        self._last_will = last_will
        self._persistent = persistent
        self._timeout_s = timeout_s
        self._give_up_after_s = give_up_after_s
        self._on_failed = on_failed
        self.tls_context = client_context(address.tls_material) if address.tls else None
        self._cause: FailureCause | None = None
        self._backoff: Backoff | None = None
        # The connection may use MQTT 5, in which the broker says why it ends one.
        self._may_speak_5 = not persistent
        self._was_up, self._leaving, self._up_since = False, False, 0.0
        self._ending = DisconnectCapture()
        self._connection: Connection | None = None
        self._up = asyncio.Event()
        self._early: list[InboundMessage] | None = None
        self._pending_calls = PendingCalls(timeout_s)
        self._task: asyncio.Task[None] | None = None

    @property
    def connected(self) -> bool:
        return self._up.is_set()

    def trust_authorities(self, ca: str) -> None:
        """Trust these certificate authorities, PEM text, from the next connection on.

        Raises:
            SettingsError: it holds no certificate; the trusted authorities stay as they were.
        """
        if not self.address.tls:
            return
        material = replace(self.address.tls_material or TlsMaterial(), ca=ca)
        self.tls_context = client_context(material)
        self.address = replace(self.address, tls_material=material)

    async def __aenter__(self) -> Self:
        """Start connecting in the background; `wait_connected` waits for it."""
        self._leaving = False
        self._task = asyncio.create_task(self._stay_connected(), name=f"mqtt-link-{self.client_id}")
        self._task.add_done_callback(self._ended)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.disconnect()

    async def disconnect(self) -> None:
        """Disconnect, and stay disconnected until the link is entered again."""
        self._leaving = True
        while self._task is not None and not self._task.done():
            # Repeatedly: in Python 3.11 asyncio.wait_for, which aiomqtt uses, may swallow a cancellation.
            self._task.cancel()
            await asyncio.wait({self._task}, timeout=2 * GOODBYE_S)
        if self._task is not None and not self._task.cancelled():
            self._task.exception()  # it gave up earlier, and its waiters got the error
        self._cause = None

    async def wait_connected(self, timeout_s: float) -> None:
        """Wait for the connection. UnavailableError after ``timeout_s``, which may be infinite, or once it gave up."""
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + timeout_s
        while not self._up.is_set():  # again where a connection came and went before anybody could look
            up = asyncio.create_task(self._up.wait())
            try:
                waiting = {up} if self._task is None else {up, self._task}
                limit = None if timeout_s == math.inf else give_up_at - loop.time()
                done, _ = await asyncio.wait(waiting, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
            finally:
                up.cancel()
            if self._task in done:
                self._task.result()
            if not self._up.is_set() and done != {up}:
                raise self._no_connection(f"no connection within {timeout_s:g} s")

    @property
    def cause(self) -> FailureCause | None:
        """Why it is down; None while it is connected, or if nothing is known yet."""
        return None if self.connected else self._cause

    @property
    def failure_kind(self) -> FailureKind | None:
        """What keeps it down; None as for `cause`."""
        return None if self.cause is None else self.cause.failure_kind

    @property
    def shares_session(self) -> bool:
        """Whether another process seems to connect as this user: each ends the other's connections."""
        lasts_s = time.monotonic() - self._up_since if self.connected else 0.0
        return self._backoff is not None and self._backoff.shares_session(lasts_s)

    @property
    def outage(self) -> UnavailableError | None:
        """Why it is not connected, and since when; None while it is."""
        if self.connected:
            return None
        if self.failure is not None or self._backoff is None:
            return self.failure or self._no_connection("not connected")
        seconds = time.monotonic() - self._backoff.down_since  # also called by threads that have no loop
        return self._no_connection(f"{'lost' if self._was_up else 'no connection'} for {seconds:.0f} s")

    @property
    def failure(self) -> UnavailableError | None:
        """Why the link gave up, if it did."""
        if self._task is None or not self._task.done() or self._task.cancelled():
            return None
        error = self._task.exception()
        if error is None or isinstance(error, UnavailableError):
            return error
        return self._unavailable(f"the link failed: {error!r}")

    async def wait_failed(self) -> None:
        """Return only by raising: UnavailableError once the link has given up. For a task group to watch."""
        if self._task is not None:
            await asyncio.shield(self._task)

    async def publish(self, topic: str, payload: bytes, *, retain: bool = False) -> None:
        """Publish at QoS 1 and wait for the broker's acknowledgement; raises as `publish_in_order`."""
        await self.publish_in_order([(topic, payload)], retain=retain)

    async def publish_in_order(self, messages: Iterable[tuple[str, bytes]], *, retain: bool = False) -> None:
        """Publish topics and payloads at QoS 1; wait until the broker has acknowledged all.

        Messages are sent in order, without waiting for one another's acknowledgement. Large ones get more time.

        Raises:
            UnavailableError: not connected, or no acknowledgement in time. Some of the messages may have arrived.
        """
        async with self._acknowledged("no acknowledgement of a message") as (connection, wait):
            await connection.publish(wait.extended_for(messages), retain=retain)

    async def publish_at_most_once(self, messages: Sequence[tuple[str, bytes]]) -> None:
        """Publish at QoS 0, for requests that are repeated if lost; returns once all are written, in order.

        Raises:
            UnavailableError: not connected, or not written in time. Some of the messages may have arrived.
        """
        async with self._acknowledged("a message cannot be written") as (connection, wait):
            await connection.send(wait.extended_for(messages))

    async def subscribe(self, topics: Sequence[str], qos: int = QOS) -> None:
        """Subscribe for this connection only; the broker delivers what it retains there.

        Args:
            qos: at 0 retained messages do not wait for those that the broker has queued for this session.

        Raises:
            SubscriptionRefusedError: the broker did not grant it.
            UnavailableError: not connected, or no answer in time.
        """
        async with self._acknowledged("no answer to a subscription") as (connection, _):
            self._check_granted(await connection.client.subscribe([(topic, qos) for topic in topics], timeout=math.inf))

    async def unsubscribe(self, topics: Sequence[str]) -> None:
        """Undo `subscribe`. Raises UnavailableError: not connected, or no answer in time."""
        async with self._acknowledged("no answer to the end of a subscription") as (connection, _):
            await connection.client.unsubscribe(list(topics), timeout=math.inf)

    @asynccontextmanager
    async def _acknowledged(self, otherwise: str) -> AsyncIterator[tuple[Connection, PendingCall]]:
        """The connection for one call that waits for the broker's answer; UnavailableError if it takes too long.

        The call itself must have no timeout: aiomqtt would use asyncio.wait_for, which in Python 3.11 may swallow a
        cancellation.
        """
        connection = self._connection
        if connection is None or not self._up.is_set():
            raise self._unavailable("not connected")
        async with self._answered(connection, otherwise) as wait:
            yield connection, wait

    @asynccontextmanager
    async def _answered(self, connection: Connection, otherwise: str) -> AsyncIterator[PendingCall]:
        """One call of ``connection``, ended with the connection; raises as `_acknowledged`."""
        try:
            if connection.ended:
                raise TimeoutError
            async with self._pending_calls.bounded() as wait:
                yield wait
        except TimeoutError as error:
            raise self._unavailable(_ENDED if connection.ended else otherwise, CONNECTS_AGAIN) from error
        except (aiomqtt.MqttError, ValueError, OSError) as error:
            raise self._unavailable(str(error), CONNECTS_AGAIN) from error

    def _check_granted(self, granted: Iterable[int | ReasonCode]) -> None:
        if any((code if isinstance(code, int) else code.value) >= 128 for code in granted):
            raise SubscriptionRefusedError(
                f"the broker refused a subscription of {self.client_id} (see its access list)"
            )

    async def _stay_connected(self) -> None:
        backoff = self._backoff = Backoff(time.monotonic())
        while not self._leaving:
            try:
                if self._before_connecting is not None:
                    await self._before_connecting()
                async with self._new_connection() as connection:
                    self._up_since = time.monotonic()
                    await self._serve(connection)
            except (aiomqtt.MqttError, UnavailableError, OSError, ValueError) as error:
                answered, now = self._up.is_set(), time.monotonic()
                if self._diagnoses_with_mqtt5 and not answered and lacks_version_5(error):
                    self._may_speak_5 = False
                    continue
                cause = explain(error, self._ending, tls=self.address.tls, answered=answered)
                in_order = self._ending.error is None
                self._cause = backoff.note(cause, now, self._up_since if answered else None, in_order=in_order)
            finally:
                self._up.clear()
                self._connection = None
                self._pending_calls.end()
            await self._pause(backoff, time.monotonic())

    async def _pause(self, backoff: Backoff, now: float) -> None:
        """Wait before the next connection. Raises UnavailableError when it is time to give up."""
        cause, time_left = self._cause, math.inf
        if cause is None:
            return  # disconnected on purpose
        if self._give_up_after_s is not None:
            time_left = backoff.down_since + self._give_up_after_s - now
            if time_left <= 0:
                raise self._unavailable(f"{cause.in_words}; gave up after {self._give_up_after_s:g} s", cause.next_step)
        pause = backoff.pause_s()
        if backoff.is_worth_a_line:
            told = {"client_id": self.client_id, "cause": cause.in_words, "next_step": cause.next_step}
            log.warning(cause.failure_kind, broker=str(self.address), **told, pause_s=round(pause, 1))
        await asyncio.sleep(min(pause, time_left))

    @property
    def _diagnoses_with_mqtt5(self) -> bool:
        """Whether to speak MQTT 5, to learn why the next connection ends; too costly to do always."""
        return self._may_speak_5 and self._backoff is not None and self._backoff.suspects_another

    async def _serve(self, connection: Connection) -> None:
        self._connection = connection
        connection.when_ended(self._pending_calls.end)
        try:
            if self._subscriptions:
                async with self._answered(connection, "no answer to the subscriptions"):
                    self._check_granted(await connection.client.subscribe(self._subscriptions, timeout=math.inf))
            if self._leaving:
                return
            self._up.set()
        finally:
            # The messages were acknowledged, so hand them on even if the connection fails now.
            self._dispatch_early()
        self._was_up, self._cause = True, None
        log.debug("broker_connected", broker=str(self.address), client_id=self.client_id)
        if self._on_connected is not None:
            await self._on_connected()
        # Messages never reach this iterator (see `Connection`); it ends by raising when the connection does.
        async for _ in connection.client.messages:
            pass

    def _new_connection(self) -> Connection:
        self._early = []
        will = None if self._last_will is None else self._last_will()
        connection = Connection(
            self.address,
            self.tls_context,
            self._receive,
            client_id=self.client_id,
            persistent=self._persistent,
            will=aiomqtt.Will(will.topic, will.payload, qos=QOS, retain=True) if will else None,
            timeout_s=self._timeout_s,
            speaks_5=self._diagnoses_with_mqtt5,
        )
        self._ending = connection.ending
        return connection

    def _receive(self, topic: str, payload: bytes, retained: bool) -> None:
        message = InboundMessage(topic, payload, retained)
        if self._early is None:
            self._dispatch(message)
            return
        # Messages that come with the answer to the subscriptions wait until the link counts as connected, so that a
        # device that hears of a round can answer.
        self._early.append(message)
        if len(self._early) >= _MOST_EARLY:
            self._dispatch_early()

    def _dispatch_early(self) -> None:
        early, self._early = self._early or (), None
        for message in early:
            self._dispatch(message)

    def _dispatch(self, message: InboundMessage) -> None:
        try:
            self._on_message(message)
        except Exception:
            # An exception here would end the connection, and the same message would end the next one. Log the kind of
            # topic only: the rest may be a person's name.
            kind, n_bytes = message.topic.rpartition("/")[2], len(message.payload)
            log.exception("message_handler_failed", kind=kind, n_bytes=n_bytes)

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None and self._on_failed is not None:
            self._on_failed()

    def _no_connection(self, since: str) -> UnavailableError:
        if self._cause is None:
            return self._unavailable(since)
        return self._unavailable(f"{since}: {self._cause.in_words}", self._cause.next_step)

    def _unavailable(self, cause: str, next_step: str | None = None) -> LinkError:
        start = how_to_start(None if self.address.tls else self.address.port)
        return LinkError(f"MQTT broker {self.address}: {cause}. {next_step or start}", cause)
