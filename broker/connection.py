"""One connection to a broker: aiomqtt's client, without what it leaks, overlooks and drops."""

import asyncio
import logging
import math
import socket
import ssl
from collections.abc import Callable, Iterable
from typing import Any, Protocol, Self

import aiomqtt

from foltr.broker.address import BrokerAddress
from foltr.broker.failures import DisconnectCapture, NoAnswerError
from foltr.broker.packets import PacketStream

QOS = 1  # QoS 2 livelocks in Mosquitto with more than 20 messages in flight.
GOODBYE_S = 1.0
# Otherwise a small QoS-1 exchange waits 40 ms for Nagle and delayed acknowledgements.
_SOCKET_OPTIONS = ((socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),)
_MAX_INFLIGHT = 1000
_KEEPALIVE_S = 30
_SESSION_TAKEN_OVER = 142


class Connection:
    """One connection: made when it is entered, and closed when it is left.

    Args:
        take: called with each message as it arrives: topic, payload, and whether it was retained. ``client.messages``
            yields nothing, and raises when the connection ends.
        speaks_5: use MQTT 5, in which the broker says why it ends a connection; slower.

    Attributes:
        client: for calls that need no care.
        ending: how the connection ended.
    """

    def __init__(
        self,
        address: BrokerAddress,
        tls_context: ssl.SSLContext | None,
        take: Callable[[str, bytes, bool], None],
        *,
        client_id: str,
        persistent: bool,
        will: aiomqtt.Will | None,
        timeout_s: float,
        speaks_5: bool,
    ) -> None:
        class _DirectQueue(asyncio.Queue[aiomqtt.Message]):
            """Hands each message on at once: aiomqtt's queue is unbounded or drops, and costs a task per message."""

            def put_nowait(self, item: aiomqtt.Message) -> None:
                take(str(item.topic), item.payload, item.retain)

        # A separate logger: the library's warns above ten pending publishes, of which a federator has hundreds, and
        # logs a traceback when a connection is left while it subscribes.
        logger, self.ending = logging.Logger("foltr.mqtt", logging.ERROR), DisconnectCapture()  # noqa: LOG001
        logger.addHandler(self.ending)
        self.client = aiomqtt.Client(
            address.host,
            address.port,
            username=address.username,
            password=address.password,
            identifier=client_id,
            protocol=aiomqtt.ProtocolVersion.V5 if speaks_5 else aiomqtt.ProtocolVersion.V311,
            clean_session=None if speaks_5 else not persistent,
            queue_type=_DirectQueue,
            will=will,
            keepalive=_KEEPALIVE_S,
            timeout=timeout_s,
            max_inflight_messages=_MAX_INFLIGHT,
            socket_options=_SOCKET_OPTIONS,
            tls_context=tls_context,
            logger=logger,
        )
        capture_disconnect(self.client, self.ending)
        write_while_open(self.client)
        self._packet_stream = None if speaks_5 else PacketStream(self.client, take)

    async def __aenter__(self) -> Self:
        """Connect.

        aiomqtt leaks an open connection when cancelled while connecting. So it gets a moment to finish, and is then
        closed.
        """
        entering = asyncio.create_task(self.client.__aenter__())
        try:
            await asyncio.shield(entering)
        except asyncio.CancelledError:
            await asyncio.wait({entering}, timeout=GOODBYE_S)
            entering.cancel()
            await asyncio.gather(entering, return_exceptions=True)
            # Neither library has a public API for this. The connecting thread goes on, and may open a socket later.
            self.client._client.on_socket_open = lambda _client, _userdata, opened: opened.close()  # noqa: SLF001
            self.client._client._sock_close()  # noqa: SLF001
            raise
        except aiomqtt.MqttError as error:
            self.client._client._sock_close()  # noqa: SLF001
            if self.ending.error is not None and not isinstance(error, aiomqtt.MqttCodeError):
                raise self.ending.error from error
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.client.__aexit__(None, None, None)

    @property
    def ended(self) -> bool:
        """Whether it is over, so that nothing will be answered."""
        return self.client._disconnected.done()  # noqa: SLF001 (aiomqtt has no public API)

    def when_ended(self, call: Callable[[], None]) -> None:
        """Call ``call`` in the event loop once the connection is over."""
        self.client._disconnected.add_done_callback(lambda _: call())  # noqa: SLF001 (aiomqtt has no public API)

    async def publish(self, messages: Iterable[tuple[str, bytes]], *, retain: bool) -> None:
        """Send topics and payloads at QoS 1 while the iterable yields them, and wait until all are acknowledged."""
        if self._packet_stream is not None:
            await self._packet_stream.publish(messages, retain=retain)
            return
        for topic, payload in messages:
            await self.client.publish(topic, payload, qos=QOS, retain=retain, timeout=math.inf)

    async def send(self, messages: Iterable[tuple[str, bytes]]) -> None:
        """Send topics and payloads at QoS 0, and wait until all are written."""
        if self._packet_stream is not None:
            await self._packet_stream.send(messages)
            return
        for topic, payload in messages:
            await self.client.publish(topic, payload, qos=0, timeout=math.inf)


def capture_disconnect(client: aiomqtt.Client, ending: DisconnectCapture) -> None:
    """Note in ``ending`` why the broker ends a connection, and fail if it ends one before its answer.

    In TLS 1.3 a broker refuses a client certificate that way; aiomqtt overlooks it and keeps waiting for the answer.
    """
    loop = asyncio.get_running_loop()
    answered = client._connected  # noqa: SLF001 (aiomqtt has no public API for this)
    and_then = client._client.on_disconnect  # noqa: SLF001

    def fail() -> None:
        if not answered.done():
            answered.set_exception(NoAnswerError("it closed the connection without an answer"))

    def on_disconnect(*arguments: Any) -> None:
        ending.taken_over |= any(getattr(one, "value", None) == _SESSION_TAKEN_OVER for one in arguments)
        loop.call_soon_threadsafe(fail)  # paho-mqtt may call this from the thread that connects
        if and_then is not None:
            and_then(*arguments)
        if client._disconnected.done():  # noqa: SLF001
            # Read the exception: if nobody waits just then, asyncio complains that it was never retrieved.
            client._disconnected.exception()  # noqa: SLF001

    client._client.on_disconnect = on_disconnect  # noqa: SLF001


class _Socket(Protocol):
    """What we need of a socket; paho-mqtt defines its type for type checkers only."""

    def fileno(self) -> int: ...


def write_while_open(client: aiomqtt.Client) -> None:
    """Wait for a socket to become writable only while it is open.

    aiomqtt registers the socket's number with the loop one turn later. If the broker has ended the connection by then,
    that logs a traceback, or the number belongs to another connection.
    """
    loop, sends = asyncio.get_running_loop(), client._client  # noqa: SLF001 (aiomqtt has no public API for this)

    def begin(sock: _Socket) -> None:
        if sock.fileno() >= 0:
            loop.add_writer(sock.fileno(), write)

    def write() -> None:
        try:
            sends.loop_write()
        except Exception as error:  # noqa: BLE001 (as in aiomqtt: any error ends the connection)
            if not client._disconnected.done():  # noqa: SLF001
                client._disconnected.set_exception(error)  # noqa: SLF001

    def begin_soon(_client: object, _userdata: object, sock: _Socket) -> None:
        loop.call_soon_threadsafe(begin, sock)  # paho-mqtt may call this from the thread that connects

    sends.on_socket_register_write = begin_soon
