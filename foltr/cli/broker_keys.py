"""``foltr broker renew`` and ``readmit``: another certificate for the broker, and another way in for its users."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from foltr.cli import options
from foltr.cli.operator.access import OperatorFolder
from foltr.cli.output import report, say
from foltr.core.errors import SettingsError
from foltr.core.operator.next_commands import DEFAULT_OPERATOR_FOLDER, command_in
from foltr.operations.operator_access import RELOAD, open_authority

if TYPE_CHECKING:
    from foltr.core.operator.authority import Authority
    from foltr.core.operator.credentials import Credentials


def renew(
    operator: OperatorFolder = DEFAULT_OPERATOR_FOLDER,
    host: Annotated[
        list[str] | None,
        typer.Option("--host", help="A name or address that devices connect to, may be repeated; default: as before"),
    ] = None,
    days: Annotated[int | None, typer.Option(min=1, max=36_500, help="How long it lasts; default: 825")] = None,
    json: options.Json = False,
) -> None:
    """Give the broker another key and certificate now, on its machine: nobody is enrolled anew, and nobody waits.

    Devices believe the old certificate, too, until it ends. Where its key was stolen, replace the authority after
    this: foltr broker authority begin.
    """
    from foltr.broker.authorities import issuing_authority
    from foltr.broker.certificates import CERTIFICATE_DAYS
    from foltr.broker.provision import reload_broker
    from foltr.broker.renewal import renew_server

    done = renew_server(operator, issuing_authority(operator), hosts=host or (), days=days or CERTIFICATE_DAYS)
    told = reload_broker(operator)
    begin = command_in(operator, "foltr broker authority begin")
    report(
        json,
        {"hosts": done.hosts, "ends": done.ends, "old_ends": done.old_ends, "broker_to_reload": not told},
        f"The broker has another key and a certificate for {', '.join(done.hosts)} until {done.ends:%Y-%m-%d}.",
        "The running broker shows it at every connection from now on." if told else RELOAD,
        ""
        if done.old_ends is None
        else f"Who has the old key can pass for the broker until {done.old_ends:%Y-%m-%d}. If it was stolen: {begin}",
    )


def readmit(
    files: Annotated[
        list[Path], typer.Argument(metavar="FILE.json...", help="Credentials of devices, helpers or the services")
    ],
    operator: OperatorFolder = DEFAULT_OPERATOR_FOLDER,
) -> None:
    """Write another password or certificate for the broker into credentials files; the former count no more.

    The keys in the files stay. Bring a copy of a file that was moved away, and copy it back: until then its process
    does not get in.
    """
    from foltr.broker.provision import reload_broker
    from foltr.broker.users import readmit_user
    from foltr.core.operator.credentials import write_credentials

    with open_authority(operator) as authority:
        found = [(path, _known(authority, path)) for path in files]
        for path, credentials in found:
            admitted = readmit_user(operator, _user_of(credentials), credentials.broker.certificate)
            write_credentials(path, credentials.model_copy(update={"broker": admitted}))
            say(f"{path} gets {credentials.name} in by what is in it now, and by nothing that it held before")
    # The operator's own, should it be among them, is in the folder when it is opened again.
    with open_authority(operator):
        pass
    say("The broker knows them already." if reload_broker(operator) else RELOAD)


def _known(authority: "Authority", path: Path) -> "Credentials":
    """The credentials in a file, of somebody whom this folder knows by the key that is in it."""
    from foltr.core.operator.credentials import Credentials
    from foltr.core.operator.register import read_private
    from foltr.core.protocol.signing import key_to_text

    try:
        credentials = Credentials.model_validate_json(read_private(path))
    except ValueError:
        raise SettingsError(f"credentials: {path} is not what `foltr device enrol` writes") from None
    register, name = authority.register, credentials.name
    match credentials.role:
        case "device":
            device = register.enrolled.get(name)
            known = None if device is None else device.public_key
            mine = known if credentials.signing_key is None else key_to_text(credentials.key.public)
        case "helper":
            known, mine = register.helpers.get(name), key_to_text(credentials.key.public)
        case _:
            known, mine = authority.operator.enrolment_key, credentials.enrolment_key
    if credentials.federation != authority.federation or known is None or known != mine:
        raise SettingsError(
            f"credentials: {path} is not of somebody whom {authority.folder} lets in; enrol {name} anew: "
            f"{command_in(authority.folder, 'foltr device enrol')}"
        )
    return credentials


def _user_of(credentials: "Credentials") -> str:
    from foltr.broker.access import helper_user

    return helper_user(credentials.name) if credentials.role == "helper" else credentials.name
