"""``foltr orders``: what an operator has ordered, and what became of it; and sending what is still unanswered."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

from foltr.cli import options
from foltr.cli.listed import fitting, rows_to_list, say_more
from foltr.cli.operator.access import OperatorFolder, open_authority
from foltr.cli.operator.sending import publish_retained, send_unanswered
from foltr.cli.output import print_json, print_rows, say
from foltr.operator.next_commands import DEFAULT_OPERATOR_FOLDER, command_in
from foltr.protocol.orders import Order, VoidOrder, named_client

if TYPE_CHECKING:
    from foltr.operator.authority import Authority
    from foltr.operator.order_log import LoggedOrder

app = typer.Typer(help="Look at the orders of an operator's folder, and send them.", no_args_is_help=True)

_NOT_SHOWN = ("federation", "client_id", "salt", "tombstone", "replaces", "old_key", "new_key")


@dataclass(frozen=True)
class OrderLine:
    """One order as ``foltr orders list`` prints it."""

    number: int
    order: str
    client_id: str | None
    what: str
    state: str
    code: str | None
    detail: str


@app.command("list")
def orders_list(
    operator: OperatorFolder = DEFAULT_OPERATOR_FOLDER, limit: options.Limit = None, json: options.Json = False
) -> None:
    """Every order that was given with an operator's folder, newest last, and the federator's answer."""
    with open_authority(operator) as authority:
        lines = sorted(_lines(authority), key=lambda line: line.number)
        federation = authority.federation
    n_all = len(lines)
    n = n_all if json and limit is None else rows_to_list(limit, json=json)
    lines = lines[max(0, n_all - n) :]
    if json:
        print_json({"federation": federation, "orders": lines})
        return
    columns = ("number", "order", "client_id", "what", "state", "code", "detail")
    lines = fitting(lines, columns, limit)
    print_rows(lines, columns, title=f"Orders of {operator} to {federation}", as_json=False)
    say_more(n_all - len(lines), "Earlier orders", f"--limit {n_all}")


@app.command("send")
def orders_send(operator: OperatorFolder = DEFAULT_OPERATOR_FOLDER, broker: options.Broker = None) -> None:
    """Send the orders that the federator has not answered, and wait until it has."""
    with open_authority(operator) as authority:
        waiting = len(authority.orders.unanswered())
        if waiting:
            send_unanswered(authority, broker)
        else:
            publish_retained(authority, broker)
    listed = command_in(operator, "foltr orders list")
    say(f"{waiting} orders are answered; see: {listed}" if waiting else "No order waits for an answer")


def _lines(authority: "Authority") -> Iterator[OrderLine]:
    for entry in authority.orders.entries():
        yield _line(entry)
    for numbers in authority.orders.lost():
        for number in numbers:
            yield OrderLine(number, "-", None, "", "lost", None, "given by a later copy of this folder")


def _line(entry: "LoggedOrder") -> OrderLine:
    signed, answer = entry.signed, entry.answer
    order = signed.order
    state = "unanswered" if answer is None else str(answer.reply)
    return OrderLine(
        signed.number,
        order.kind_name,
        named_client(order),
        _what(order),
        state,
        None if answer is None or answer.code is None else str(answer.code),
        "" if answer is None else answer.detail,
    )


def _what(order: Order) -> str:
    if isinstance(order, VoidOrder):
        return (
            "lost"
            if order.replaces is None
            else "named somebody who was forgotten, or allowed a reset before a restore"
        )
    return ", ".join(f"{key} {value}" for key, value in order.model_dump().items() if key not in _NOT_SHOWN)
