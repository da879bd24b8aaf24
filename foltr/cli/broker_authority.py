"""``foltr broker authority``: replace the certificate authority while devices trust both the old and the new one."""

from pathlib import Path
from typing import TYPE_CHECKING

import typer

from foltr.broker.authorities import (
    begin_authority,
    end_former_authority,
    issuing_authority,
    step_of,
    switch_authority,
    trusted_ca_files,
)
from foltr.broker.broker_records import BrokerRecord, Mode, writing
from foltr.broker.certificates import common_name_of, expiry_of
from foltr.broker.provision import reload_broker
from foltr.broker.renewal import distribute_authorities, renew_server
from foltr.broker.users import folder_of
from foltr.cli import options
from foltr.cli.operator.sending import publish
from foltr.cli.options import OperatorFolder
from foltr.cli.output import report, say
from foltr.core.errors import SettingsError, UnavailableError
from foltr.core.operator.folder import is_authority
from foltr.core.operator.next_commands import DEFAULT_OPERATOR_FOLDER, command_in
from foltr.core.protocol.topics import Topics
from foltr.operations.operator_access import RELOAD, broker_record, open_authority

if TYPE_CHECKING:
    from collections.abc import Callable


app = typer.Typer(help="Replace the certificate authority, in steps that devices follow.", no_args_is_help=True)

_NOT_TOLD = "Devices do not know it yet: {} Publish it with: {}"


@app.command("begin")
def begin(operator: OperatorFolder = DEFAULT_OPERATOR_FOLDER, broker: options.Broker = None) -> None:
    """Make the next authority and publish it: everybody trusts both, and the old one still issues."""
    record = _record(operator)
    _step(operator, lambda: begin_authority(operator, record.federation))
    _tell_everybody(operator, broker)
    switch_ = command_in(operator, "foltr broker authority switch")
    say(
        "Devices that connect from now on trust both authorities. Wait until all that you want to keep have "
        f"connected (foltr device list says when), copy federator.json to its machine, then: {switch_}"
    )


@app.command("switch")
def switch(operator: OperatorFolder = DEFAULT_OPERATOR_FOLDER, broker: options.Broker = None) -> None:
    """Issue certificates by the next authority, the broker's first; the former stays trusted."""
    _step(operator, lambda: switch_authority(operator))
    # After the services' credentials: this folder's commands must know the broker by its new certificate.
    renew_server(operator, issuing_authority(operator))
    _reload(operator)
    _tell_everybody(operator, broker)
    readmit, last = (command_in(operator, f"foltr broker {step}") for step in ("readmit NAME.json", "authority end"))
    say(
        "The new authority has issued the broker's certificate. A device that does not know it cannot connect: "
        f"renew a copy of its file with `{readmit}`. Then: {last}"
    )


@app.command("end")
def end(operator: OperatorFolder = DEFAULT_OPERATOR_FOLDER, broker: options.Broker = None) -> None:
    """Stop trusting the former authority and destroy its key, so that a stolen copy of it is useless."""
    _step(operator, lambda: end_former_authority(operator))
    _tell_everybody(operator, broker)
    say("Devices that hear of it, and credentials made from now on, no longer trust the former authority.")


@app.command("show")
def show(operator: OperatorFolder = DEFAULT_OPERATOR_FOLDER, json: options.Json = False) -> None:
    """Show the progress of the replacement, and the trusted authorities."""
    step, found = step_of(operator), []
    for files in trusted_ca_files(operator):
        pem = files.load().certificate_pem
        found.append({"file": str(files.certificate), "name": common_name_of(pem), "ends": expiry_of(pem)})
    report(
        json,
        {"step": step, "authorities": found},
        f"replacement of the authority: {step}",
        *(f"trusted: {each['name']} until {each['ends']:%Y-%m-%d} ({each['file']})" for each in found),
    )


def _record(operator: Path) -> "BrokerRecord":
    record = broker_record(operator)
    if record is None:
        raise SettingsError(
            f"operator: {operator} has no broker.json; `{command_in(operator, 'foltr broker config --tls')}` writes it"
        )
    return record


def _step(operator: Path, change: "Callable[[], None]") -> None:
    """Change the folder's authorities if this is the broker's machine, then update everything that depends on them."""
    with writing(folder_of(_record(operator))):
        change()
    distribute_authorities(operator)
    _reload(operator)


def _reload(operator: Path) -> None:
    if not reload_broker(operator):
        say(RELOAD)
    elif _record(operator).mode is Mode.MTLS:
        say("Restart the broker: Mosquitto reads the authorities of client certificates only at its start.")


def _tell_everybody(operator: Path, broker: str | None) -> None:
    """Sign and retain the list of authorities. A broker that is away gets it with the next command."""
    if not is_authority(operator):
        return  # nobody is enrolled yet
    with open_authority(operator) as authority:
        authority.issue_authorities([files.load().certificate_pem for files in trusted_ca_files(operator)])
        try:
            authority.publish_again()
            publish(authority, broker, Topics(authority.federation).authorities)
        except UnavailableError as error:
            say(_NOT_TOLD.format(error, command_in(operator, "foltr operator publish")))
