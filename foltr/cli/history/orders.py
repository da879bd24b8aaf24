"""``foltr rounds deadline``, ``foltr clients quarantine``: what an operator tells the federator."""

from typing import Annotated

import typer

from foltr.cli import options
from foltr.cli.history.quarantine import check_client, show_quarantine
from foltr.cli.operator.access import OperatorFolder, open_authority
from foltr.cli.operator.sending import send_order
from foltr.cli.output import say
from foltr.errors import SettingsError
from foltr.operator.next_commands import DEFAULT_OPERATOR_FOLDER

_LONGEST_S = 30 * 86_400


def deadline(
    number: Annotated[int, typer.Argument(min=1, max=2**31 - 1, help="The round's number")],
    max_time: Annotated[
        float,
        typer.Option(
            "--max-time",
            min=0.0,
            max=_LONGEST_S,
            help="Seconds from its opening to its deadline",
        ),
    ],
    operator: OperatorFolder = DEFAULT_OPERATOR_FOLDER,
    broker: options.Broker = None,
) -> None:
    """Give one round another deadline, signed by the operator."""
    if not 0 < max_time <= _LONGEST_S:
        raise SettingsError(f"max_time: {max_time:g}; give more than 0 and at most {_LONGEST_S} seconds")
    with open_authority(operator) as authority:
        answer = send_order(authority, authority.deadline(number, max_time), broker)
        say(
            f"Order {answer.number} is obeyed: round {number} of {authority.federation} lasts {max_time:g} s from its "
            f"opening; see: foltr rounds show {number}"
        )


def quarantine(
    client: Annotated[str | None, typer.Argument(help="The client's name; without one, who is in quarantine")] = None,
    reason: Annotated[str | None, typer.Option("--reason", help="Why, for whoever reads it later")] = None,
    lift: Annotated[bool, typer.Option("--lift", help="Take the client's updates again")] = False,
    dismiss: Annotated[
        bool, typer.Option("--dismiss", help="Decide against a quarantine for what was found so far")
    ] = False,
    operator: OperatorFolder = DEFAULT_OPERATOR_FOLDER,
    broker: options.Broker = None,
    db: options.Db = None,
    federation: options.Federation = None,
    json: options.Json = False,
) -> None:
    """Keep a client's updates out of the rounds, signed by the operator; or see who is, and who is proposed and why."""
    if client is None:
        if reason is not None or lift or dismiss:
            raise SettingsError("client: name the client that --reason, --lift or --dismiss is about")
        show_quarantine(db, federation, json=json)
        return
    if (reason is not None) + lift + dismiss != 1:
        raise SettingsError(
            "reason: say why with --reason, let the client out with --lift, or close what it was proposed for with "
            "--dismiss; one of them"
        )
    with open_authority(operator, federation) as authority:
        check_client(db, authority.federation, client)
        if reason is not None:
            order, done = authority.quarantine(client, reason), "is in quarantine"
        elif lift:
            order, done = authority.lift_quarantine(client), "is out of quarantine"
        else:
            order, done = authority.dismiss(client), "is proposed for quarantine no more, by what was found so far"
        answer = send_order(authority, order, broker)
        say(
            f"Order {answer.number} is obeyed: {client} of {authority.federation} {done}; "
            f"see: foltr clients show {client}"
        )
