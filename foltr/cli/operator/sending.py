"""Sends an operator's orders until the federator has answered, or for as long as one waits."""

import asyncio
import contextlib

from foltr.cli.output import say
from foltr.cli.progress import telling
from foltr.core.errors import DataError, UnavailableError
from foltr.core.operator.authority import Authority
from foltr.core.operator.conversation import Conversation, Question
from foltr.core.operator.next_commands import command_in
from foltr.core.protocol.orders import OrderAnswer, OrderReply
from foltr.core.protocol.signed_orders import SignedOrder
from foltr.core.protocol.topics import Topics
from foltr.operations.operator_access import redirect
from foltr.operations.order_talk import Talk, publish_retained

ANSWER_S = 15.0
_QUESTION_S = 5.0


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
        asyncio.run(Talk(talk, authority, redirect(authority.operator.broker, broker), say).run(timeout_s))
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
        asyncio.run(publish_retained(authority, access, topic, wanted))
    return access.broker_url


def _converse(talk: Conversation, authority: "Authority", broker: str | None, timeout_s: float) -> None:
    access = redirect(authority.operator.broker, broker)
    with telling("waiting for the broker", changes=True) as tell:
        asyncio.run(Talk(talk, authority, access, tell).run(timeout_s))
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
