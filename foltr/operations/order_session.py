"""Exchanges an operator's orders with the federator, and updates what the operator retains at the broker."""

import asyncio
import contextlib
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from foltr.broker.address import BrokerAddress
from foltr.broker.link import InboundMessage, MqttLink
from foltr.broker.short_connections import retry_taken_over, short_connection
from foltr.core.errors import MessageError, UnavailableError
from foltr.core.failpoints import Failpoint, failpoint
from foltr.core.operator.authority import Authority
from foltr.core.operator.credentials import OPERATOR_USER, BrokerAccess
from foltr.core.operator.order_dialogue import NewestOrderQuery, OrderDialogue
from foltr.core.protocol.codec import open_envelope
from foltr.core.protocol.topics import Topics

_CONNECT_S = 5.0
_SEND_AGAIN_S = 2.0
_TELL_AFTER_S = 2.0


class OrderSession:
    """One command's exchange with the federator, over as many connections as needed."""

    def __init__(
        self,
        talk: OrderDialogue | NewestOrderQuery,
        authority: Authority,
        access: BrokerAccess,
        tell: Callable[[str], None],
    ) -> None:
        self._talk = talk
        self._authority = authority
        self._access = access
        self._tell = tell
        self._topics = Topics(authority.federation)
        self._arrived: asyncio.Queue[InboundMessage] = asyncio.Queue()
        self._came_back = self._other_federator = False

    async def run(self, timeout_s: float) -> None:
        telling = asyncio.create_task(self._tell_later())
        try:
            async with asyncio.timeout(timeout_s):
                await retry_taken_over(self._visit)
        except TimeoutError as error:
            raise UnavailableError(f"no answer of the federator within {timeout_s:g} s: {self._silence()}.") from error
        finally:
            telling.cancel()

    async def _visit(self) -> None:
        topics = self._topics
        heard = [topics.operator_answers, topics.federator_key, topics.operator, topics.round]
        async with _linked(self._access, heard, self._arrived.put_nowait) as link:
            await _retain(link, self._authority)
            while not self._talk.is_over:
                await self._publish(link, self._talk.to_send())
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(_SEND_AGAIN_S):
                        await self._listen(link)

    async def _listen(self, link: MqttLink) -> None:
        while not self._talk.is_over:
            message = await self._arrived.get()
            if message.topic == self._topics.operator_answers:
                await self._publish(link, self._talk.received(message.payload))
            elif message.topic == self._topics.federator_key:
                self._authority.accept_statement(message.payload)
            elif message.topic == self._topics.operator:
                self._came_back = True
            else:
                self._other_federator = not self._is_believed(message)

    async def _publish(self, link: MqttLink, payloads: list[bytes]) -> None:
        for payload in payloads:
            await link.publish(self._topics.operator, payload)
            failpoint(Failpoint.ORDER_SENT)

    def _is_believed(self, message: InboundMessage) -> bool:
        try:
            envelope = open_envelope(message.payload)
        except MessageError:
            return False
        return any(envelope.is_signed_by(key, message.topic) for key in self._authority.federator_keys)

    async def _tell_later(self) -> None:
        await asyncio.sleep(_TELL_AFTER_S)
        self._tell(f"waiting for the federator's answer; {self._silence()}")

    def _silence(self) -> str:
        """Describe possible causes while the federator has not answered."""
        if not self._came_back:
            return "the broker has not delivered the order; is this user allowed to write there?"
        told = "the broker has the order; check that the federator runs"
        if self._other_federator:
            told += ", and that it is this operator's: the round announced here is not signed by it"
        return told


async def publish_retained(authority: Authority, access: BrokerAccess, topic: str, wanted: bytes) -> None:
    """Publish retained messages, and confirm that one is delivered: a broker acknowledges forbidden messages, too."""
    back = asyncio.Event()

    def received(message: InboundMessage) -> None:
        if message.payload == wanted:
            back.set()

    async with _linked(access, [topic], received) as link:
        await _retain(link, authority)
        try:
            async with asyncio.timeout(_CONNECT_S):
                await back.wait()
        except TimeoutError as error:
            raise UnavailableError(
                f"MQTT broker {link.address}: it took a message for {topic} and did not deliver it; "
                "is this user allowed to write there?"
            ) from error


def _linked(
    access: BrokerAccess, heard: list[str], on_message: Callable[[InboundMessage], None]
) -> AbstractAsyncContextManager[MqttLink]:
    return short_connection(BrokerAddress.of(access), OPERATOR_USER, heard, on_message, _CONNECT_S)


async def _retain(link: MqttLink, authority: Authority) -> None:
    """Publish this operator's retained messages if they have changed since the last time."""
    for topic, payload in authority.unpublished():
        await link.publish(topic, payload, retain=True)
    authority.note_published()
