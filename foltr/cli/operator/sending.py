"""Sends an operator's orders until the federator answers; ``foltr operator orders``, ``send``, ``publish``."""

import asyncio
import contextlib
from collections.abc import Iterator
from operator import itemgetter
from typing import Any

from foltr.cli import options
from foltr.cli.options import OperatorFolder
from foltr.cli.output import fitting, print_json, print_rows, say, say_more
from foltr.cli.progress import progress_reporter
from foltr.core.errors import DataError, UnavailableError
from foltr.core.operator.authority import Authority
from foltr.core.operator.next_commands import DEFAULT_OPERATOR_FOLDER, command_in
from foltr.core.operator.order_dialogue import NewestOrderQuery, OrderDialogue
from foltr.core.protocol.orders import Order, OrderAnswer, OrderReply, VoidOrder, named_client
from foltr.core.protocol.signed_orders import SignedOrder
from foltr.core.protocol.topics import Topics
from foltr.operations.operator_access import open_authority, redirect
from foltr.operations.order_session import OrderSession, publish_retained

ANSWER_S = 15.0
_QUESTION_S = 5.0


_NOT_SHOWN = ("federation", "client_id", "salt", "tombstone", "replaces", "old_key", "new_key")


def send_order(
    authority: "Authority", signed: "SignedOrder", broker: str | None, timeout_s: float = ANSWER_S
) -> OrderAnswer:
    """Send unanswered orders, and wait until this one is obeyed.

    Raises:
        UnavailableError: no broker, or no answer in time. The order stays in the folder and goes with the next.
        DataError: the federator refuses it.
    """
    talk = OrderDialogue(authority, signed.number)
    try:
        _converse(talk, authority, broker, timeout_s)
    except UnavailableError as error:
        raise UnavailableError(
            f"{error} Order {talk.number} is kept in {authority.folder} and sent with the next order, or with: "
            f"{command_in(authority.folder, 'foltr operator send')}"
        ) from error
    if talk.answer is None:
        raise RuntimeError("the talk is over without an answer")
    if talk.answer.reply is OrderReply.REFUSED:
        raise DataError(f"the federator refuses order {talk.number}: {talk.answer.code}, {talk.answer.detail}")
    return talk.answer


def send_unanswered(authority: "Authority", broker: str | None, timeout_s: float = ANSWER_S) -> None:
    """Send all unanswered orders and wait for the answers. Raises UnavailableError if some are missing."""
    try:
        _converse(OrderDialogue(authority, None), authority, broker, timeout_s)
    except UnavailableError as error:
        numbers = ", ".join(str(signed.number) for signed in authority.orders.unanswered()[:20])
        kept = f"Unanswered in {authority.folder}: {numbers}" if numbers else "All orders are answered"
        send = command_in(authority.folder, "foltr operator send")
        raise UnavailableError(f"{error} {kept}; try again with: {send}") from error


def ask_newest(authority: "Authority", broker: str | None, timeout_s: float = _QUESTION_S) -> OrderAnswer | None:
    """Ask the federator for the newest order it knows. None if it does not answer.

    Raises:
        DataError: it trusts another operator.
    """
    talk = NewestOrderQuery(authority)
    with contextlib.suppress(UnavailableError):
        asyncio.run(OrderSession(talk, authority, redirect(authority.operator.broker, broker), say).run(timeout_s))
    return talk.answer


def publish_roster(authority: "Authority", broker: str | None) -> str:
    """Retain the roster and the operator's other messages at the broker. Return the broker's address."""
    authority.publish_again()
    return publish(authority, broker, Topics(authority.federation).roster)


def publish(authority: "Authority", broker: str | None, topic: str) -> str:
    """Retain unpublished messages, and check that this topic's is delivered: the access list may forbid it.

    Returns:
        the broker's address.

    Raises:
        UnavailableError: no broker, or it does not deliver it.
    """
    access, wanted = redirect(authority.operator.broker, broker), dict(authority.unpublished())[topic]
    with progress_reporter("waiting for the broker"):
        asyncio.run(publish_retained(authority, access, topic, wanted))
    return access.broker_url


def _converse(talk: OrderDialogue, authority: "Authority", broker: str | None, timeout_s: float) -> None:
    access = redirect(authority.operator.broker, broker)
    with progress_reporter("waiting for the broker", changes=True) as tell:
        asyncio.run(OrderSession(talk, authority, access, tell).run(timeout_s))
    if talk.lost:
        numbers = f"order {talk.lost[0]}" if len(talk.lost) == 1 else f"orders {talk.lost[0]} to {talk.lost[-1]}"
        say(
            f"{authority.folder} does not have {numbers}, which the federator knows: was it restored from a "
            "backup? These orders were carried out, and the federator's database has them; this folder continues "
            "with higher numbers"
        )
    if talk.resent:
        say(
            f"The federator had lost {len(talk.resent)} orders from {min(talk.resent)} on (was its database "
            "restored?); they were sent again"
        )


def orders(
    operator: OperatorFolder = DEFAULT_OPERATOR_FOLDER, limit: options.Limit = None, json: options.Json = False
) -> None:
    """List every order given with an operator's folder, newest last, and the federator's answer."""
    with open_authority(operator) as authority:
        lines = sorted(_lines(authority), key=itemgetter("number"))
        federation = authority.federation
    chosen = lines if limit is None else lines[-limit:]
    if json:
        print_json({"federation": federation, "orders": chosen})
    else:
        shown = fitting(chosen, newest=True) if limit is None else chosen
        print_rows(shown, title=f"Orders of {operator} to {federation}")
        say_more(len(lines) - len(shown), "Earlier orders", f"--limit {len(lines)}")


def send(operator: OperatorFolder = DEFAULT_OPERATOR_FOLDER, broker: options.Broker = None) -> None:
    """Send the orders that the federator has not answered, and wait for its answers."""
    with open_authority(operator) as authority:
        waiting = len(authority.orders.unanswered())
        if waiting:
            send_unanswered(authority, broker)
        else:
            publish_roster(authority, broker)
    listed = command_in(operator, "foltr operator orders")
    say(f"{waiting} orders are answered; see: {listed}" if waiting else "No order waits for an answer")


def publish_again(operator: OperatorFolder = DEFAULT_OPERATOR_FOLDER, broker: options.Broker = None) -> None:
    """Publish the signed roster and the federator's newest key again, if the broker has lost them."""
    with open_authority(operator) as authority:
        where = publish_roster(authority, broker)
        register = authority.register
    say(
        f"published roster {register.roster_version} of {register.federation} at {where}: "
        f"{len(register.enrolled)} enrolled, {len(register.revoked)} with void keys"
    )


def _lines(authority: Authority) -> Iterator[dict[str, Any]]:
    for entry in authority.orders.entries():
        signed, answer = entry.signed, entry.answer
        yield {
            "number": signed.number,
            "order": signed.order.kind_name,
            "client_id": named_client(signed.order),
            "what": _what(signed.order),
            "state": "unanswered" if answer is None else str(answer.reply),
            "code": None if answer is None or answer.code is None else str(answer.code),
            "detail": "" if answer is None else answer.detail,
        }
    for numbers in authority.orders.lost():
        for number in numbers:
            lost = {"number": number, "order": "-", "client_id": None, "what": "", "state": "lost", "code": None}
            yield {**lost, "detail": "given by a later copy of this folder"}


def _what(order: Order) -> str:
    if isinstance(order, VoidOrder):
        is_lost = order.replaces is None
        return "lost" if is_lost else "named somebody who was forgotten, or allowed a reset before a restore"
    return ", ".join(f"{key} {value}" for key, value in order.model_dump().items() if key not in _NOT_SHOWN)
