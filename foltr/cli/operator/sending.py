"""Sends an operator's orders until the federator has answered, or for as long as one waits."""

import asyncio
import contextlib
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

from foltr.cli.operator.access import redirect
from foltr.cli.output import say
from foltr.cli.progress import telling
from foltr.errors import DataError, MessageError, UnavailableError
from foltr.failpoints import Failpoint, failpoint
from foltr.operator.conversation import Conversation, Question
from foltr.operator.credentials import OPERATOR_USER, BrokerAccess
from foltr.operator.next_commands import command_in
from foltr.protocol.codec import open_envelope
from foltr.protocol.orders import OrderAnswer, OrderReply
from foltr.protocol.topics import Topics

if TYPE_CHECKING:
    from broker.link import InboundMessage, MqttLink
    from foltr.operator.authority import Authority
    from foltr.protocol.signed_orders import SignedOrder

ANSWER_S = 15.0
_QUESTION_S = 5.0
_CONNECT_S = 5.0
_SEND_AGAIN_S = 2.0
_TELL_AFTER_S = 2.0


def send_order(
    authority: "Authority", signed: "SignedOrder", broker: str | None, timeout_s: float = ANSWER_S
) -> OrderAnswer:
    """Send what is unanswered, and see this order obeyed.

    Raises:
        UnavailableError: no broker, or no answer in time. The order stays in the folder, and goes with the next.
        DataError: the federator refuses it.
    """
    talk = Conversation(authority, signed.number)
    try:
        _converse(talk, authority, broker, timeout_s)
    except UnavailableError as error:
        raise UnavailableError(
            f"{error} Order {talk.number} is kept in {authority.folder} and goes with the next command that gives one; "
            f"or send it with: {command_in(authority.folder, 'foltr operator send')}"
        ) from error
    if talk.answer is None:
        raise RuntimeError("the talk is over without an answer")
    if talk.answer.reply is OrderReply.REFUSED:
        raise DataError(f"the federator refuses order {talk.number}: {talk.answer.code}, {talk.answer.detail}")
    return talk.answer


def send_unanswered(authority: "Authority", broker: str | None, timeout_s: float = ANSWER_S) -> None:
    """Send all that is unanswered, and wait until nothing is; UnavailableError where something still is."""
    try:
        _converse(Conversation(authority, None), authority, broker, timeout_s)
    except UnavailableError as error:
        numbers = ", ".join(str(signed.number) for signed in authority.orders.unanswered()[:20])
        kept = f"Unanswered in {authority.folder}: {numbers}" if numbers else "Nothing is unanswered"
        send = command_in(authority.folder, "foltr operator send")
        raise UnavailableError(f"{error} {kept}; try again with: {send}") from error


def ask_newest(authority: "Authority", broker: str | None, timeout_s: float = _QUESTION_S) -> OrderAnswer | None:
    """How far the federator knows this operator; None where it does not answer.

    Raises:
        DataError: it believes another operator.
    """
    talk = Question(authority)
    with contextlib.suppress(UnavailableError):
        asyncio.run(_Talk(talk, authority, redirect(authority.operator.broker, broker), say).run(timeout_s))
    return talk.answer


def publish_roster(authority: "Authority", broker: str | None) -> str:
    """Retain the roster and what else devices hear from the operator at the broker; returns the broker's address."""
    authority.publish_again()
    return publish(authority, broker, Topics(authority.federation).roster)


def publish(authority: "Authority", broker: str | None, topic: str) -> str:
    """Retain what is unpublished at the broker, and see what is for this topic delivered: its list may forbid it.

    Returns:
        the broker's address.

    Raises:
        UnavailableError: no broker, or it does not deliver it.
    """
    access, wanted = redirect(authority.operator.broker, broker), dict(authority.unpublished())[topic]
    with telling("waiting for the broker"):
        asyncio.run(_publish_retained(authority, access, topic, wanted))
    return access.broker_url


def _converse(talk: Conversation, authority: "Authority", broker: str | None, timeout_s: float) -> None:
    access = redirect(authority.operator.broker, broker)
    with telling("waiting for the broker", changes=True) as tell:
        asyncio.run(_Talk(talk, authority, access, tell).run(timeout_s))
    if talk.lost:
        numbers = f"order {talk.lost[0]}" if len(talk.lost) == 1 else f"orders {talk.lost[0]} to {talk.lost[-1]}"
        say(
            f"{authority.folder} does not have {numbers}, which the federator knows: was it restored from a backup? "
            "What was ordered is done, and stands in the federator's database; this folder goes on above"
        )
    if talk.sent_again:
        say(
            f"The federator had lost {len(talk.sent_again)} orders from {min(talk.sent_again)} on (was its database "
            "restored?); they were sent again"
        )


class _Talk:
    """One command's talk with the federator, over as many connections as it takes."""

    def __init__(
        self, talk: Conversation | Question, authority: "Authority", access: BrokerAccess, tell: Callable[[str], None]
    ) -> None:
        self._talk = talk
        self._authority = authority
        self._access = access
        self._tell = tell
        self._topics = Topics(authority.federation)
        self._arrived: asyncio.Queue[InboundMessage] = asyncio.Queue()
        self._came_back = self._other_federator = False

    async def run(self, timeout_s: float) -> None:
        from broker.visit import visit_again

        telling = asyncio.create_task(self._tell_later())
        try:
            async with asyncio.timeout(timeout_s):
                await visit_again(self._visit)
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

    async def _listen(self, link: "MqttLink") -> None:
        while not self._talk.is_over:
            message = await self._arrived.get()
            if message.topic == self._topics.operator_answers:
                await self._publish(link, self._talk.received(message.payload))
            elif message.topic == self._topics.federator_key:
                self._authority.take_statement(message.payload)
            elif message.topic == self._topics.operator:
                self._came_back = True
            else:
                self._other_federator = not self._is_believed(message)

    async def _publish(self, link: "MqttLink", payloads: list[bytes]) -> None:
        for payload in payloads:
            await link.publish(self._topics.operator, payload)
            failpoint(Failpoint.ORDER_SENT)

    def _is_believed(self, message: "InboundMessage") -> bool:
        try:
            envelope = open_envelope(message.payload)
        except MessageError:
            return False
        return any(envelope.is_signed_by(key, message.topic) for key in self._authority.federator_keys)

    async def _tell_later(self) -> None:
        await asyncio.sleep(_TELL_AFTER_S)
        self._tell(f"waiting for the federator's answer; {self._silence()}")

    def _silence(self) -> str:
        """What may be the matter while the federator has not answered."""
        if not self._came_back:
            return "the broker has not delivered the order; is this user allowed to write there?"
        told = "the broker has the order; see whether the federator runs"
        if self._other_federator:
            told += ", and whether it is this operator's: the round announced here is not signed by it"
        return told


async def _publish_retained(authority: "Authority", access: BrokerAccess, topic: str, wanted: bytes) -> None:
    """Retain what is to be retained, and see one of it delivered: a broker acknowledges what its list forbids, too."""
    back = asyncio.Event()

    def received(message: "InboundMessage") -> None:
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
    access: BrokerAccess, heard: list[str], on_message: "Callable[[InboundMessage], None]"
) -> "AbstractAsyncContextManager[MqttLink]":
    from broker.address import BrokerAddress
    from broker.visit import visiting

    return visiting(BrokerAddress.of(access), OPERATOR_USER, heard, on_message, _CONNECT_S)


async def _retain(link: "MqttLink", authority: "Authority") -> None:
    """Publish what is retained of this operator, where it has changed since it was published last."""
    for topic, payload in authority.unpublished():
        await link.publish(topic, payload, retain=True)
    authority.note_published()
