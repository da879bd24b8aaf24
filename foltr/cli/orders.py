"""``foltr rounds deadline``: what an operator tells the federator."""

from typing import Annotated

import typer

from foltr.cli import options
from foltr.cli.access import DEFAULT_OPERATOR_FOLDER, OperatorFolder, opened, publish_once, redirected
from foltr.cli.output import console
from foltr.credentials import OPERATOR_USER
from foltr.errors import SettingsError
from foltr.topics import Topics

_LONGEST_S = 30 * 86_400


def deadline(
    number: Annotated[int, typer.Argument(min=1, max=2**31 - 1, help="The round's number")],
    max_time: Annotated[float, typer.Option("--max-time", help="Seconds from its opening to its deadline")],
    operator: OperatorFolder = DEFAULT_OPERATOR_FOLDER,
    broker: options.Broker = None,
) -> None:
    """Give one round another deadline, signed by the operator."""
    if not 0 < max_time <= _LONGEST_S:
        raise SettingsError(f"max_time: {max_time:g}; give more than 0 and at most {_LONGEST_S} seconds")
    with opened(operator) as authority:
        access = redirected(authority.operator.broker, broker)
        order = authority.deadline(number, max_time)
        publish_once(access, OPERATOR_USER, Topics(authority.federation).operator, order)
        console.print(
            f"round {number} of {authority.federation}: {max_time:g} s from its opening, sent to the federator; "
            f"see: foltr rounds show {number}",
            soft_wrap=True,
            highlight=False,
        )
