"""``foltr broker renew``: another key and certificate for the broker, at any time."""

from typing import Annotated

import typer

from foltr.cli.operator.access import DEFAULT_OPERATOR_FOLDER, OperatorFolder
from foltr.cli.output import print_json, say

RELOAD = "The broker was not told (is it in a container?): send it SIGHUP, or restart it."


def renew(
    operator: OperatorFolder = DEFAULT_OPERATOR_FOLDER,
    host: Annotated[
        list[str] | None,
        typer.Option("--host", help="A name or address that devices connect to, may be repeated; default: as before"),
    ] = None,
    days: Annotated[int | None, typer.Option(min=1, help="How long it lasts; default: 825")] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object")] = False,
) -> None:
    """Give the broker another key and certificate now, on its machine: nobody is enrolled anew, and nobody waits.

    Devices believe the old certificate, too, until it ends. Where its key was stolen, replace the authority after
    this: foltr broker authority begin.
    """
    from broker.authorities import issuing_authority
    from broker.certificates import CERTIFICATE_DAYS
    from broker.provision import reload_broker
    from broker.renewal import renew_server

    done = renew_server(operator, issuing_authority(operator), hosts=host or (), days=days or CERTIFICATE_DAYS)
    told = reload_broker(operator)
    if json:
        print_json({"hosts": done.hosts, "ends": done.ends, "old_ends": done.old_ends, "broker_to_reload": not told})
        return
    say(f"The broker has another key and a certificate for {', '.join(done.hosts)} until {done.ends:%Y-%m-%d}.")
    say("The running broker shows it at every connection from now on." if told else RELOAD)
    if done.old_ends is not None:
        say(
            f"Whoever has the old key can pass for the broker until {done.old_ends:%Y-%m-%d}. If it was stolen: "
            "foltr broker authority begin"
        )
