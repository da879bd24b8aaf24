"""``foltr operator orders``, ``send`` and ``publish``: what an operator has signed, and what became of it."""

from collections.abc import Iterator
from operator import itemgetter
from typing import Any

from foltr.cli import options
from foltr.cli.operator.sending import publish_roster, send_unanswered
from foltr.cli.options import OperatorFolder
from foltr.cli.output import fitting, print_json, print_rows, say, say_more
from foltr.core.operator.authority import Authority
from foltr.core.operator.next_commands import DEFAULT_OPERATOR_FOLDER, command_in
from foltr.core.protocol.orders import Order, VoidOrder, named_client
from foltr.operations.operator_access import open_authority

_NOT_SHOWN = ("federation", "client_id", "salt", "tombstone", "replaces", "old_key", "new_key")


def orders(
    operator: OperatorFolder = DEFAULT_OPERATOR_FOLDER, limit: options.Limit = None, json: options.Json = False
) -> None:
    """Every order that was given with an operator's folder, newest last, and the federator's answer."""
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
    """Send the orders that the federator has not answered, and wait until it has."""
    with open_authority(operator) as authority:
        waiting = len(authority.orders.unanswered())
        if waiting:
            send_unanswered(authority, broker)
        else:
            publish_roster(authority, broker)
    listed = command_in(operator, "foltr operator orders")
    say(f"{waiting} orders are answered; see: {listed}" if waiting else "No order waits for an answer")


def publish(operator: OperatorFolder = DEFAULT_OPERATOR_FOLDER, broker: options.Broker = None) -> None:
    """Retain the signed roster at the broker, and the federator's newest key, should the broker have lost them."""
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
