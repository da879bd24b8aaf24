"""``foltr device enrol`` and ``foltr helper enrol``: enrol devices and helpers, signed by the operator."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

from rich.progress import track

from foltr.cli import options
from foltr.cli.fields import argument, option
from foltr.cli.operator.tokens import say_issued
from foltr.cli.options import OperatorFolder
from foltr.cli.output import errors, report
from foltr.cli.settings import load_settings
from foltr.core.errors import SettingsError
from foltr.core.operator.authority import Authority
from foltr.core.operator.credentials import public_key_from, write_secret
from foltr.core.operator.folder import create_authority, is_authority
from foltr.core.operator.next_commands import DEFAULT_OPERATOR_FOLDER, command_in
from foltr.core.protocol.states import Privacy
from foltr.core.protocol.topics import check_name
from foltr.core.user_files import file_name_of
from foltr.operations.issued_tokens import TOKEN_ENDING, issue_tokens, read_duration
from foltr.operations.operator_access import (
    RELOAD,
    access_to,
    admit,
    broker_record,
    open_authority,
    service_access,
    tell_broker,
)

_MADE = "made {}: keep it private and backed up; federator.json in it is for the federator"

OutDir = Annotated[Path | None, option("The folder for NAME.json; default: the working directory", "--out-dir")]
PrivacyOption = Annotated[
    Privacy | None,
    option(
        "For a new folder, and fixed. secure: devices send only under a policy that the operator signs. trusted: "
        "the default, except with foltr helper enrol",
        "--privacy",
    ),
]


def enrol_devices(
    clients: Annotated[list[str], argument("Names of devices", metavar="CLIENT...")],
    count: Annotated[
        int, option("Number of devices, named CLIENT-0001 and so on, as in foltr client run", min=1, max=10_000)
    ] = 1,
    out: Annotated[Path | None, option("The credentials file of a single device")] = None,
    out_dir: OutDir = None,
    operator: OperatorFolder = DEFAULT_OPERATOR_FOLDER,
    federation: options.Federation = None,
    broker: options.Broker = None,
    replace: Annotated[bool, option("Give enrolled devices a new key, which voids the old one", "--replace")] = False,
    public_key: Annotated[
        str | None,
        option(
            "Public key of one device that made its key itself, such as a browser; its credentials hold no private key",
            metavar="FILE|HEX",
        ),
    ] = None,
    token: Annotated[
        bool,
        option(
            "Make one-time tokens instead, with which devices enrol themselves while the desk runs",
            "--token",
        ),
    ] = False,
    expires: Annotated[str, option("With --token: how long it is valid, e.g. 30m, 1h or 7d", metavar="TIME")] = "1h",
    privacy: PrivacyOption = None,
    json: options.Json = False,
) -> None:
    """Enrol devices in a federation: write one credentials file each, to copy to the device."""
    names = _names(clients, count)
    if token:
        if public_key is not None:
            raise SettingsError("token: --token cannot be combined with --public-key; the device makes its key itself")
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
    if len(names) == 1:
        done = f"enrolled {names[0]} in {authority.federation}, serial {serials[names[0]]}: {files[names[0]]}"
    else:
        done = f"enrolled {len(names)} devices in {authority.federation}: {files[names[0]]} to {files[names[-1]]}"
    publish = command_in(operator, "foltr operator publish")
    report(
        json,
        {
            "federation": authority.federation,
            "clients": [{"client_id": name, "serial": serials[name], "file": str(files[name])} for name in names],
            "roster_to_publish": bool(replaced),
            "broker_to_reload": not told,
        },
        _MADE.format(operator) if is_new else "",
        done,
        f"The old keys are valid until the devices join with the new ones. To void them now: {publish}"
        if replaced
        else "",
        "" if told else RELOAD,
    )


def enrol_helper(
    name: Annotated[str, argument("The helper's name", metavar="NAME")],
    out: Annotated[Path | None, option("Its credentials file; default: NAME.json here")] = None,
    operator: OperatorFolder = DEFAULT_OPERATOR_FOLDER,
    federation: options.Federation = None,
    broker: options.Broker = None,
    replace: Annotated[bool, option("Give an enrolled helper a new key, which voids the old one", "--replace")] = False,
    privacy: PrivacyOption = None,
    json: options.Json = False,
) -> None:
    """Enrol a helper of secure sums in a federation: write a credentials file for the person who runs it."""
    path = _files([name], out, None, replace=replace)[name]
    # Only a federation with secure sums needs helpers.
    with _open_or_create(operator, federation, broker, privacy, usual=Privacy.SECURE) as authority:
        is_new = authority.register.is_new
        authority.register.check_helper(name, replace=replace)
        access = admit(authority, [name], broker, are_helpers=True)[name]
        credentials = authority.enrol_helper(name, access, replace=replace)
        write_secret(path, credentials.model_dump_json(indent=1) + "\n", replace=replace)
        told = tell_broker(authority.folder, lists_changed=True)
    helper = {"name": name, "signing_key": authority.register.helpers[name], "file": str(path)}
    report(
        json,
        {"federation": authority.federation, "helper": helper, "broker_to_reload": not told},
        _MADE.format(operator) if is_new else "",
        f"enrolled the helper {name} in {authority.federation}: {path}; give it to the person who runs it",
        f"They make its keys for the next policy with: foltr helper keys --credentials {path.name}",
        "" if told else RELOAD,
    )


@contextmanager
def _open_or_create(
    folder: Path,
    federation: str | None,
    broker: str | None,
    privacy: Privacy | None,
    *,
    usual: Privacy = Privacy.TRUSTED,
) -> Iterator["Authority"]:
    """Open the operator's folder. If it is missing, create it for the broker that is configured or named.

    Args:
        privacy: the required kind. None accepts an existing folder's kind, and gives a new folder the usual one.
    """
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
            authority.register.check_privacy(folder, privacy)  # another command may have created it meanwhile
        yield authority


def _names(clients: list[str], count: int) -> list[str]:
    if count > 1:
        if len(clients) > 1:
            raise SettingsError(
                f"count: it needs exactly one name, with which the devices' names begin, not {len(clients)}"
            )
        clients = [f"{clients[0]}-{i:04d}" for i in range(1, count + 1)]
    for i, name in enumerate(clients):
        check_name("client", name)
        if name in clients[:i]:
            raise SettingsError(f"client: {name} is named twice")
    return clients


def _kept_keys(names: list[str], public_key: str | None) -> dict[str, bytes]:
    """Return the given public key under the name of its device. Only one device may have one."""
    if public_key is None:
        return {}
    if len(names) > 1:
        raise SettingsError(f"public_key: it belongs to one device, but {len(names)} are named")
    return {names[0]: public_key_from(public_key)}


def _files(
    names: list[str], out: Path | None, out_dir: Path | None, *, replace: bool, ending: str = ".json"
) -> dict[str, Path]:
    if out is not None and (len(names) > 1 or out_dir is not None):
        raise SettingsError("out: it names the file of a single device; for several, name a folder with --out-dir")
    folder = out_dir or Path()
    files = {name: out or folder / file_name_of(name, ending) for name in names}
    for path in files.values():
        # Checked before signing: an enrolment whose file cannot be written would have to be repeated.
        if path.exists() and not replace:
            raise SettingsError(f"out: {path} exists; name another place with --out or --out-dir, or add --replace")
    return files
