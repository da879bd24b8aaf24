"""``foltr broker renew``, ``readmit`` and ``worker``: a new certificate for the broker, and access for its users."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

from foltr.broker.access import helper_user
from foltr.broker.authorities import issuing_authority
from foltr.broker.certificates import CERTIFICATE_DAYS
from foltr.broker.listed_users import provision_worker, withdraw_worker
from foltr.broker.provision import reload_broker
from foltr.broker.renewal import renew_server
from foltr.broker.users import readmit_user
from foltr.cli import options
from foltr.cli.fields import argument, option
from foltr.cli.options import OperatorFolder
from foltr.cli.output import report, say
from foltr.core.errors import SettingsError
from foltr.core.operator.authority import Authority
from foltr.core.operator.credentials import Credentials, read_credentials, worker_user, write_credentials
from foltr.core.operator.next_commands import DEFAULT_OPERATOR_FOLDER, command_in
from foltr.core.operator.register import read_private
from foltr.core.protocol.signing import key_to_text
from foltr.core.user_files import file_name_of
from foltr.operations.operator_access import RELOAD, broker_record, open_authority, tell_broker


def renew(
    operator: OperatorFolder = DEFAULT_OPERATOR_FOLDER,
    host: Annotated[
        list[str] | None, option("A name or address that devices connect to, may be repeated; default: as before")
    ] = None,
    days: Annotated[int | None, option("Days that it is valid; default: 825", min=1, max=36_500)] = None,
    json: options.Json = False,
) -> None:
    """Replace the broker's key and certificate, on its machine; nobody has to wait or enrol again.

    Devices accept the old certificate until it ends. If its key was stolen, then also replace the authority: foltr
    broker authority begin.
    """
    done = renew_server(operator, issuing_authority(operator), hosts=host or (), days=days or CERTIFICATE_DAYS)
    told = reload_broker(operator)
    begin = command_in(operator, "foltr broker authority begin")
    report(
        json,
        {"hosts": done.hosts, "ends": done.ends, "old_ends": done.old_ends, "broker_to_reload": not told},
        f"The broker has a new key and a certificate for {', '.join(done.hosts)} until {done.ends:%Y-%m-%d}.",
        "The running broker shows it at every connection from now on." if told else RELOAD,
        ""
        if done.old_ends is None or done.old_ends < datetime.now(UTC)
        else f"Anybody with the old key can pose as the broker until {done.old_ends:%Y-%m-%d}. If it was stolen: "
        f"{begin}",
    )


def readmit(
    files: Annotated[list[Path], argument("Credentials of devices, helpers or the services", metavar="FILE.json...")],
    operator: OperatorFolder = DEFAULT_OPERATOR_FOLDER,
) -> None:
    """Write a new password or certificate for the broker into credentials files, which voids the old ones.

    The keys in the files stay. If a file is on another machine, run this on a copy and copy it back; until then its
    process cannot connect.
    """
    with open_authority(operator) as authority:
        found = [(path, _known(authority, path)) for path in files]
        for path, credentials in found:
            admitted = readmit_user(operator, _user_of(credentials), credentials.broker.certificate)
            write_credentials(path, credentials.model_copy(update={"broker": admitted}))
            say(f"{path}: {credentials.name} now connects only with the new password or certificate in it")
    # If the operator's own credentials are among them, opening the folder updates them.
    with open_authority(operator):
        pass
    say("The broker knows them already." if reload_broker(operator) else RELOAD)


def _known(authority: "Authority", path: Path) -> "Credentials":
    """Read a credentials file. Its key must be known to this folder."""
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
            f"credentials: {path} is of a user that {authority.folder} has not enrolled; enrol {name} again: "
            f"{command_in(authority.folder, f'foltr device enrol {name}')}"
        )
    return credentials


def _user_of(credentials: "Credentials") -> str:
    return helper_user(credentials.name) if credentials.role == "helper" else credentials.name


def worker(
    name: Annotated[str, argument("The worker's name, e.g. 1", metavar="NAME")],
    operator: OperatorFolder = DEFAULT_OPERATOR_FOLDER,
    out: Annotated[Path | None, option("Its credentials file; default: worker-NAME.json here")] = None,
    remove: Annotated[
        bool, option("Remove its access; stop the worker first, and delete its file", "--remove")
    ] = False,
    json: options.Json = False,
) -> None:
    """Give an ingest worker access to the broker, or remove it: the file is federator.json with the worker's own user.

    It holds the federator's key, because a worker signs answers to devices. Run this again when the federator gets
    another key or the broker another authority: the file is rewritten, and its former password is void.
    """
    if remove:
        if out is not None:
            raise SettingsError("out: --remove writes no file; leave out one of the two")
        _remove(name, operator, json=json)
    else:
        _admit(name, operator, out or Path(file_name_of(f"worker-{name}", ".json")), json=json)


def _admit(name: str, operator: Path, path: Path, *, json: bool) -> None:
    with open_authority(operator) as authority:
        if broker_record(operator) is None:
            raise SettingsError("worker: this broker has no list of users, so workers use federator.json itself")
        federator = operator / "federator.json"
        if not federator.exists():
            raise SettingsError(f"federator: copy federator.json into {operator}: a worker signs with its key")
        credentials = read_credentials(federator, "federator")
        access = provision_worker(operator, name)
        write_credentials(path, credentials.model_copy(update={"name": worker_user(name), "broker": access}))
        told = tell_broker(operator, lists_changed=True)
    report(
        json,
        {"federation": authority.federation, "worker": name, "file": str(path), "broker_to_reload": not told},
        f"wrote {path} for the worker {name} of {authority.federation}. Keep it as private as federator.json",
        f"Run it with: foltr federator run --role ingest --credentials {path.name}",
        "" if told else RELOAD,
    )


def _remove(name: str, operator: Path, *, json: bool) -> None:
    with open_authority(operator) as authority:
        is_out = withdraw_worker(operator, name)
        told = tell_broker(operator, lists_changed=True)
    who = f"the worker {name} of {authority.federation}"
    rotate = command_in(operator, "foltr federator rotate-key")
    report(
        json,
        {"federation": authority.federation, "worker": name, "is_out": is_out, "broker_to_reload": not told},
        f"{who} has no access any longer" if is_out else f"{who} is not in the access list; it may still connect",
        f"The file holds the federator's key. If it was exposed, run: {rotate}",
        "" if told else RELOAD,
    )
