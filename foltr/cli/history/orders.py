"""``foltr rounds deadline``, ``foltr clients quarantine``: what an operator tells the federator."""

from typing import TYPE_CHECKING, Annotated

import typer

from foltr.cli import options
from foltr.cli.history.quarantine import check_client, show_quarantine
from foltr.cli.operator.access import DEFAULT_OPERATOR_FOLDER, OperatorFolder, open_authority, publish_once, redirect
from foltr.cli.output import console
from foltr.errors import SettingsError
from foltr.operator.credentials import OPERATOR_USER
from foltr.protocol.topics import Topics

if TYPE_CHECKING:
    from foltr.operator.authority import Authority

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
    with open_authority(operator) as authority:
        _send(authority, authority.deadline(number, max_time), broker)
        _say(
            f"round {number} of {authority.federation}: {max_time:g} s from its opening, sent to the federator; "
            f"see: foltr rounds show {number}"
        )


def quarantine(
    client: Annotated[str | None, typer.Argument(help="The client's name; without one, who is in quarantine")] = None,
    reason: Annotated[str | None, typer.Option("--reason", help="Why, for whoever reads it later")] = None,
    lift: Annotated[bool, typer.Option("--lift", help="Take the client's updates again")] = False,
    operator: OperatorFolder = DEFAULT_OPERATOR_FOLDER,
    broker: options.Broker = None,
    db: options.Db = None,
    federation: options.Federation = None,
    json: options.Json = False,
) -> None:
    """Keep a client's updates out of the rounds, signed by the operator; or see who is, and who is proposed and why."""
    if client is None:
        if reason is not None or lift:
            raise SettingsError("client: name the client that --reason or --lift is about")
        show_quarantine(db, federation, json=json)
        return
    if lift and reason is not None:
        raise SettingsError("reason: --lift needs none; give one or the other")
    if not lift and reason is None:
        raise SettingsError("reason: say why with --reason, or let the client out with --lift")
    with open_authority(operator, federation) as authority:
        checked = check_client(db, authority.federation, client)
        order = authority.quarantine(client, reason) if reason is not None else authority.lift_quarantine(client)
        _send(authority, order, broker)
        what = "to let {} of {} out of quarantine" if lift else "to put {} of {} into quarantine"
        _say(
            f"Sent the order {what.format(client, authority.federation)}. The federator obeys it at once if it runs, "
            f"else when it is started; see: foltr clients show {client}"
        )
        if not checked:
            _say("Whether there is such a client was not looked up: name the federator's database with --db")


def _send(authority: "Authority", order: bytes, broker: str | None) -> None:
    access = redirect(authority.operator.broker, broker)
    publish_once(access, OPERATOR_USER, Topics(authority.federation).operator, order)


def _say(text: str) -> None:
    console.print(text, soft_wrap=True, highlight=False, markup=False)
