"""``foltr enrol``, ``foltr revoke``, ``foltr roster``: who may take part, as the operator signs it."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.progress import track

from foltr.cli import options
from foltr.cli.listed import print_some
from foltr.cli.operator.access import (
    OperatorFolder,
    access_to,
    broker_record,
    open_authority,
    service_access,
)
from foltr.cli.operator.admission import RELOAD, admit, tell_broker
from foltr.cli.operator.sending import ask_newest, publish_retained, send_order, send_unanswered
from foltr.cli.operator.tokens import TOKEN_ENDING, issue_tokens, read_duration, say_issued, withdraw_useless
from foltr.cli.output import errors, print_json, say
from foltr.cli.settings import load_settings
from foltr.errors import FoltrError, SettingsError, UnavailableError
from foltr.operator.credentials import public_key_from, write_secret
from foltr.operator.next_commands import DEFAULT_OPERATOR_FOLDER, command_in
from foltr.protocol.states import Privacy
from foltr.protocol.topics import check_name
from foltr.user_files import file_name_of

if TYPE_CHECKING:
    from foltr.operator.authority import Authority
    from foltr.protocol.signed_orders import SignedOrder

roster_app = typer.Typer(
    help="Look at the roster of enrolled and revoked devices, and publish it.", no_args_is_help=True
)

_LISTED = (
    "Its certificate still connects to the broker; what it sends is refused by its signature. To cut it off copy "
    "{}/ca.crl into the broker's folder, on its machine, and send the broker SIGHUP."
)
_MADE = "made {}: keep it private and backed up; federator.json in it is for the federator"


@dataclass(frozen=True)
class RosterRow:
    """One client as ``foltr roster show`` prints it; serials below ``void_below`` are revoked."""

    client_id: str
    state: str
    serial: int | None
    issued_at: datetime | None
    void_below: int | None


def enrol(
    clients: Annotated[list[str] | None, typer.Argument(metavar="CLIENT...", help="Names of devices")] = None,
    count: Annotated[
        int, typer.Option(min=1, max=10_000, help="So many devices, named CLIENT-0001 and on as in foltr client run")
    ] = 1,
    out: Annotated[Path | None, typer.Option("--out", help="The credentials file of a single device")] = None,
    out_dir: Annotated[
        Path | None, typer.Option("--out-dir", help="The folder for CLIENT.json; default: the working directory")
    ] = None,
    operator: OperatorFolder = DEFAULT_OPERATOR_FOLDER,
    federation: options.Federation = None,
    broker: options.Broker = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Give devices enrolled before a new key, which voids the old one")
    ] = False,
    helper: Annotated[
        str | None,
        typer.Option("--helper", metavar="NAME", help="In place of devices: a helper of secure sums, run by others"),
    ] = None,
    public_key: Annotated[
        str | None,
        typer.Option(
            "--public-key",
            metavar="FILE|HEX",
            help="Of one device that made its key itself, such as a browser: its credentials hold no private key",
        ),
    ] = None,
    token: Annotated[
        bool,
        typer.Option(
            "--token",
            help="In place of credentials: one-time tokens, with which devices enrol themselves while foltr desk runs",
        ),
    ] = False,
    expires: Annotated[
        str, typer.Option("--expires", metavar="TIME", help="With --token: so long it is good, e.g. 30m, 1h or 7d")
    ] = "1h",
    privacy: Annotated[
        Privacy | None,
        typer.Option(
            "--privacy",
            help="Of a new operator's folder, and fixed: secure, whose devices send nothing but under a policy, as the "
            "operator signs of each; or trusted, the default but with --helper",
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Make devices known to a federation: one credentials file each, to be copied to the device."""
    if token and (helper is not None or public_key is not None):
        raise SettingsError("token: whoever has one makes its key itself; leave --helper and --public-key out")
    if helper is not None:
        if clients or count > 1 or public_key is not None:
            raise SettingsError("helper: it is enrolled by itself; enrol devices with another command")
        path = _files([helper], out, out_dir, replace=replace)[helper]
        # Only a secure federation has use for helpers.
        with _open_or_create(operator, federation, broker, privacy, usual=Privacy.SECURE) as authority:
            _enrol_helper(authority, helper, path, broker, replace=replace, json=json)
        return
    if not clients:
        raise SettingsError("client: name the devices to enrol, or a helper with --helper NAME")
    names = _names(clients, count)
    if token:
        files = _files(names, out, out_dir, replace=replace, ending=TOKEN_ENDING)
        lasts_s = read_duration(expires)
        with _open_or_create(operator, federation, broker, privacy) as authority:
            made, told = issue_tokens(authority, files, lasts_s, broker, replace=replace)
        say_issued(operator, authority.federation, made, told=told, json=json)
        return
    files = _files(names, out, out_dir, replace=replace)
    kept = _kept_keys(names, public_key)
    is_new = not (operator / "register.json").exists()
    with _open_or_create(operator, federation, broker, privacy) as authority:
        authority.register.check_enrollable(names, replace=replace)
        replaced = [name for name in names if name in authority.register.enrolled]
        credentials = authority.enrol_all(admit(authority, names, broker), replace=replace, kept=kept)
        for device in track(credentials, "writing", console=errors, transient=True, disable=not errors.is_terminal):
            write_secret(files[device.name], device.model_dump_json(indent=1) + "\n", replace=replace)
        told = tell_broker(operator)
        serials = {name: authority.register.enrolled[name].serial for name in names}
    if json:
        rows = [{"client_id": name, "serial": serials[name], "file": str(files[name])} for name in names]
        print_json(
            {
                "federation": authority.federation,
                "clients": rows,
                "roster_to_publish": bool(replaced),
                "broker_to_reload": not told,
            }
        )
        return
    if is_new:
        say(_MADE.format(operator))
    if len(names) == 1:
        say(f"enrolled {names[0]} in {authority.federation}, serial {serials[names[0]]}: {files[names[0]]}")
    else:
        say(f"enrolled {len(names)} devices in {authority.federation}: {files[names[0]]} to {files[names[-1]]}")
    if replaced:
        publish = command_in(operator, "foltr roster publish")
        say(f"The old keys are void once the devices join with the new ones; at once with: {publish}")
    if not told:
        say(RELOAD)


def _enrol_helper(
    authority: "Authority", name: str, path: Path, broker: str | None, *, replace: bool, json: bool
) -> None:
    is_new = authority.register.is_new
    authority.register.check_helper(name, replace=replace)
    access = admit(authority, [name], broker, are_helpers=True)[name]
    credentials = authority.enrol_helper(name, access, replace=replace)
    write_secret(path, credentials.model_dump_json(indent=1) + "\n", replace=replace)
    told = tell_broker(authority.folder, lists_changed=True)
    if json:
        helper = {"name": name, "signing_key": authority.register.helpers[name], "file": str(path)}
        print_json({"federation": authority.federation, "helper": helper, "broker_to_reload": not told})
        return
    if is_new:
        say(_MADE.format(authority.folder))
    say(f"enrolled the helper {name} in {authority.federation}: {path}, which is for whoever runs it")
    say(f"They make its keys for the next policy with: foltr helper keys --credentials {path.name}")
    if not told:
        say(RELOAD)


def revoke(
    client: Annotated[str, typer.Argument(help="The device's name")],
    operator: OperatorFolder = DEFAULT_OPERATOR_FOLDER,
    broker: options.Broker = None,
    offline: Annotated[
        bool, typer.Option("--offline", help="Only record it; the order goes with the next, or foltr orders send")
    ] = False,
) -> None:
    """Void a device's key: the federator refuses it from the moment it has the order."""
    with open_authority(operator) as authority:
        order = authority.revoke(client)
        recorded = f"{client} is revoked in {operator}"
        # One failing must not keep the other from being done; what the federator refuses matters more.
        failures: list[FoltrError] = []
        if not offline:
            try:
                _send(authority, order, broker)
            except FoltrError as error:
                failures.append(error)
        try:
            note = _withdraw(operator, client)
        except (SettingsError, UnavailableError) as error:
            failures.append(type(error)(f"still a user of the broker: {error} Then run this again"))
        if failures:
            raise type(failures[0])(f"{recorded}, but " + "; and ".join(str(failure) for failure in failures))
    send = command_in(operator, "foltr orders send")
    say(f"{recorded}; send it with: {send}" if offline else f"{recorded}, and the federator knows it")
    if note:
        say(note)


@roster_app.command("show")
def roster_show(
    operator: OperatorFolder = DEFAULT_OPERATOR_FOLDER, show_all: options.All = False, json: options.Json = False
) -> None:
    """The devices enrolled and revoked in an operator's folder."""
    from foltr.operator.folder import open_authority

    with open_authority(operator) as authority:
        register = authority.register
    rows = []
    for name in sorted(register.enrolled.keys() | register.revoked.keys()):
        device, void = register.enrolled.get(name), register.revoked.get(name)
        if device is None:
            rows.append(RosterRow(name, "revoked", None, None, void))
        else:
            rows.append(RosterRow(name, "enrolled", device.serial, datetime.fromtimestamp(device.issued_at, UTC), void))
    if json:
        print_json({"federation": register.federation, "version": register.roster_version, "clients": rows})
        return
    title = (
        f"Roster {register.roster_version} of {register.federation}: {len(register.enrolled)} enrolled, "
        f"{len(register.revoked)} with void keys"
    )
    columns = ("client_id", "state", "serial", "issued_at", "void_below")
    print_some(rows, columns, title=title, option=command_in(operator, "foltr roster show --all"), show_all=show_all)


@roster_app.command("publish")
def roster_publish(operator: OperatorFolder = DEFAULT_OPERATOR_FOLDER, broker: options.Broker = None) -> None:
    """Retain the signed roster at the broker, and the federator's newest key, should the broker have lost them."""
    with open_authority(operator) as authority:
        where = publish_retained(authority, broker)
        register = authority.register
    say(
        f"published roster {register.roster_version} of {register.federation} at {where}: "
        f"{len(register.enrolled)} enrolled, {len(register.revoked)} with void keys"
    )


@roster_app.command("rotate-key")
def rotate_key(
    operator: OperatorFolder = DEFAULT_OPERATOR_FOLDER,
    broker: options.Broker = None,
    lose_newer: Annotated[
        bool,
        typer.Option("--lose-newer", help="Also with an older copy of the folder: who was enrolled since is refused"),
    ] = False,
) -> None:
    """Give the operator another enrolment key, in place: nobody is enrolled anew, and the former key counts no more.

    Devices and helpers follow when they hear of it. The federator ends, and is started with the new federator.json.
    """
    from foltr.operator.enrolment_rotation import begin_rotation

    with open_authority(operator) as authority:
        if authority.orders.unanswered():
            send_unanswered(authority, broker)
        above = _catch_up(authority, broker, lose_newer=lose_newer)
        # Whoever has one would not believe the answer.
        authority.tokens.revoke(authority.tokens.records())
        if withdraw_useless(authority, time.time()):
            tell_broker(operator, lists_changed=True)
        begin_rotation(operator, authority.register, authority.orders, authority.operator, above)
    # What follows is drawn when the folder is opened, also where this ends here.
    with open_authority(operator) as authority:
        key = authority.operator.enrolment_key
        say(f"the enrolment key of {operator} is another one now: {key}. Make a backup of the folder")
        publish_retained(authority, broker)
        send_unanswered(authority, broker)
    say(f"The federator has ended. Start it with {operator / 'federator.json'}; devices and helpers need no new file")


def _catch_up(authority: "Authority", broker: str | None, *, lose_newer: bool) -> int:
    """The newest order that the federator knows, 0 if it is away; SettingsError where this folder is an older copy.

    The next key keeps those who are in the register, and a federator that is told below a number it knows never hears.
    """
    answer, register = ask_newest(authority, broker), authority.register
    if answer is None or (answer.newest <= authority.orders.newest and answer.newest_serial < register.next_serial):
        return 0
    if not lose_newer:
        raise SettingsError(
            f"operator: {authority.folder} is an older copy: the federator knows order {answer.newest} and serial "
            f"{answer.newest_serial}, which it does not have. Restore a newer copy; or add --lose-newer, which refuses "
            "the devices that were enrolled since, until they are enrolled anew"
        )
    authority.go_above(answer.newest + 1, answer)
    return answer.newest


@contextmanager
def _open_or_create(
    folder: Path,
    federation: str | None,
    broker: str | None,
    privacy: Privacy | None,
    *,
    usual: Privacy = Privacy.TRUSTED,
) -> Iterator["Authority"]:
    """The operator's folder; made, where there is none, for the broker that was configured with it or named.

    Args:
        privacy: what the federation is to be; None: as the folder says, and the usual one where it is made.
    """
    from foltr.operator.folder import create_authority, is_authority

    record = broker_record(folder)
    if record is not None and federation not in (None, record.federation):
        raise SettingsError(f"federation: the broker of {folder} was configured for {record.federation!r}")
    if is_authority(folder):
        with open_authority(folder, federation) as authority:
            if privacy is not None:
                authority.register.check_privacy(folder, privacy)
            yield authority
        return
    chosen = privacy or usual
    settings = load_settings(federation=federation, broker_url=broker)
    if record is None:
        access = access_to(settings.broker_url)
        made = create_authority(folder, settings.federation, federator=access, operator=access, privacy=chosen)
    else:
        for_federator, for_operator = service_access(folder)
        made = create_authority(
            folder, record.federation, federator=for_federator, operator=for_operator, privacy=chosen
        )
    with made as authority:
        if privacy is not None:
            authority.register.check_privacy(folder, privacy)  # another command may have made it meanwhile
        yield authority


def _withdraw(folder: Path, client: str) -> str:
    """Take a device out of the broker's users; what is left to say about it."""
    from broker.broker_records import Mode
    from broker.provision import Withdrawal, reload_broker, withdraw_user

    record = broker_record(folder)
    if record is None or record.mode is Mode.ANONYMOUS:
        return ""
    if withdraw_user(folder, client) is Withdrawal.STILL_ADMITTED:
        return _LISTED.format(folder)
    return "" if reload_broker(folder) else RELOAD


def _send(authority: "Authority", order: "SignedOrder | None", broker: str | None) -> None:
    """Send the order; where it was given before, what of it is not answered, and the roster."""
    if order is not None:
        send_order(authority, order, broker)
    elif authority.orders.unanswered():
        send_unanswered(authority, broker)
    else:
        publish_retained(authority, broker)


def _names(clients: list[str], count: int) -> list[str]:
    if count > 1:
        if len(clients) > 1:
            raise SettingsError(f"count: it goes with one name, which the devices' begin with, not {len(clients)}")
        clients = [f"{clients[0]}-{i:04d}" for i in range(1, count + 1)]
    for i, name in enumerate(clients):
        check_name("client", name)
        if name in clients[:i]:
            raise SettingsError(f"client: {name} is named twice")
    return clients


def _kept_keys(names: list[str], public_key: str | None) -> dict[str, bytes]:
    """Return the public key that was named, by the one device it is of."""
    if public_key is None:
        return {}
    if len(names) > 1:
        raise SettingsError(f"public_key: it is one device's, and {len(names)} are named")
    return {names[0]: public_key_from(public_key)}


def _files(
    names: list[str], out: Path | None, out_dir: Path | None, *, replace: bool, ending: str = ".json"
) -> dict[str, Path]:
    if out is not None and (len(names) > 1 or out_dir is not None):
        raise SettingsError("out: it names the file of a single device; for several, name a folder with --out-dir")
    folder = out_dir or Path()
    files = {name: out or folder / file_name_of(name, ending) for name in names}
    for path in files.values():
        # Before anything is signed: an enrolment whose file cannot be written would have to be made again.
        if path.exists() and not replace:
            raise SettingsError(f"out: {path} exists; name another place with --out or --out-dir, or add --replace")
    return files
