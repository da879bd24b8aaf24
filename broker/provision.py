"""A broker with everything it needs, and the operator's folder from which users are let in.

Two folders, because two people may have them. The broker's holds what Mosquitto reads: configuration, access list,
password file and certificates. The operator's holds the authority's key, which makes users and never goes near the
broker, the services' credentials, and ``broker.json``, which says where all this belongs.
"""

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

from foltr.broker import passwords
from foltr.broker.access import access_list
from foltr.broker.address import BrokerAddress
from foltr.broker.authorities import CA_KEY_NAME, issuing_authority, trusted_ca_certificates, trusted_ca_files
from foltr.broker.broker_records import (
    ACL_NAME,
    CA_NAME,
    CONFIG_NAME,
    PASSWORDS_NAME,
    PID_NAME,
    PLUGIN_NAME,
    RECORD_NAME,
    SERVER_CERTIFICATE_NAME,
    SERVER_KEY_NAME,
    BrokerRecord,
    Mode,
    read_record,
    to_json,
)
from foltr.broker.certificates import KeyPair, create_authority, is_key_pair, is_still_valid, issue_server
from foltr.broker.files import Owner, replace_file
from foltr.broker.mosquitto import MosquittoSettings, make_folders, mosquitto_config, refuse_to_replace, write_config
from foltr.broker.revocations import write_revocations
from foltr.broker.subscription_plugin import put_plugin
from foltr.broker.users import SERVICES, provision_service
from foltr.core.errors import SettingsError, UnavailableError
from foltr.core.protocol.topics import check_name
from foltr.core.user_files import FileKind, read_text_file, resolve

START_TIMEOUT_S = 5.0


def provision_broker(
    operator_dir: Path,
    settings: MosquittoSettings,
    *,
    hosts: Sequence[str],
    plugin: Path | None = None,
    force: bool = False,
) -> BrokerRecord:
    """Write the broker's folder, which ``settings`` names, and the operator's.

    Repeating it is safe: the authority, its users and their passwords stay. The broker's certificate is reissued for
    other hosts or near its end. ``force`` replaces only a different configuration or access list.

    Args:
        hosts: what devices connect to; the first one is in the address that devices get.
        plugin: the compiled plugin that judges subscriptions; None: build it here if it is missing.

    Raises:
        SettingsError: as `write_config`; or the operator's folder belongs to another federation or broker; or the
            access list differs and ``force`` is not given; or the authority is incomplete, or not the broker's; or
            others can enter the operator's folder; or the plugin is missing and cannot be built.
        UnavailableError: a folder or a file cannot be written.
    """
    folder, operator_dir, mode = settings.folder, resolve(operator_dir), settings.mode
    if mode is None:
        raise ValueError("a broker that lets everybody in has no users: `write_config` writes all of it")
    if folder == operator_dir or folder in operator_dir.parents:
        raise SettingsError(
            f"operator: {operator_dir} is the broker's folder or inside it, where the authority's key must not be. "
            "Name another folder with --operator."
        )
    if not hosts:
        raise SettingsError("host: give the name that devices will connect to with --host")
    federation = check_name("federation", settings.federation)
    url = str(BrokerAddress(hosts[0], settings.port, tls=True))
    data_dir = None if settings.data_dir == folder / "data" else str(settings.data_dir)
    record = BrokerRecord(federation, url, mode, str(folder), data_dir=data_dir, **_listed_users(operator_dir))
    _refuse_another(operator_dir, record)
    acl, owner = access_list(federation, record.helpers, record.workers), settings.owner()
    try:
        refuse_to_replace(folder / CONFIG_NAME, mosquitto_config(settings), force=force)
        refuse_to_replace(folder / ACL_NAME, acl, force=force)
        make_folders(settings)
        _own_folder(operator_dir)
        authority = _authority(folder, operator_dir, federation)
        _write_server_certificate(folder, authority, hosts, owner)
        put_plugin(folder / PLUGIN_NAME, plugin, owner)
        replace_file(folder / ACL_NAME, acl, owner=owner)
        if mode is Mode.MTLS:
            write_revocations(operator_dir, folder)
        else:
            passwords.prepare_file(folder / PASSWORDS_NAME, owner)
        # The configuration after the files it names: nobody can start a broker with half of them.
        write_config(settings, force=True)
        replace_file(operator_dir / RECORD_NAME, to_json(record))
        for service in SERVICES:
            provision_service(operator_dir, service)
    except OSError as error:
        raise UnavailableError(
            f"{error.filename or folder}: {error.strerror or error}. Choose directories you can write to with "
            "--out and --operator."
        ) from error
    return record


def _refuse_another(operator_dir: Path, record: BrokerRecord) -> None:
    """Refuse an operator's folder of another federation or broker: taking it over would lock its users out."""
    if not (operator_dir / RECORD_NAME).exists():
        return
    before = read_record(operator_dir)
    moved = before.broker_dir != record.broker_dir and (Path(before.broker_dir) / CONFIG_NAME).exists()
    if before.federation != record.federation or moved:
        raise SettingsError(
            f"operator: {operator_dir} belongs to the federation {before.federation!r} and its broker in "
            f"{before.broker_dir}; name another folder with --operator, or give --federation {before.federation} "
            f"--out {before.broker_dir}"
        )


def reload_broker(operator_dir: Path) -> bool:
    """Have this machine's broker read its files again; False if it does not run here, or is another's.

    After that Mosquitto 2.0.11 queues nothing for absent persistent sessions until they return: with client
    certificates always, with passwords only for sessions from before its last start. Devices resend what they have no
    receipt for, so it costs only time. Do not reload without a change.
    """
    record = read_record(operator_dir)
    broker_dir = Path(record.broker_dir)
    data_dir = broker_dir / "data" if record.data_dir is None else Path(record.data_dir)
    try:
        pid = int(read_text_file(data_dir / PID_NAME, FileKind.KEY))
        if pid <= 1 or not _runs_with(pid, broker_dir / CONFIG_NAME) or not _handles_hangup(pid):
            return False
        os.kill(pid, signal.SIGHUP)
    except (OSError, ValueError):
        return False
    return True


def _runs_with(pid: int, config: Path) -> bool:
    """Whether ``pid`` is a Mosquitto with this configuration: the file may name a process long gone."""
    process = Path("/proc", str(pid))
    if (process / "comm").read_text(encoding="utf-8").strip() != "mosquitto":
        return False
    arguments = (process / "cmdline").read_bytes().decode(errors="replace").split("\0")
    folder = (process / "cwd").readlink()
    return any((folder / argument).resolve() == config for argument in arguments[1:] if argument)


def _handles_hangup(pid: int) -> bool:
    """Whether the process has begun to handle SIGHUP: Mosquitto listens before it handles signals."""
    give_up_at = time.monotonic() + START_TIMEOUT_S
    while True:
        status = Path("/proc", str(pid), "status").read_text(encoding="utf-8")
        handled = int(status.partition("SigCgt:")[2].split()[0], 16)
        if handled >> (signal.SIGHUP - 1) & 1:
            return True
        if time.monotonic() > give_up_at:
            return False
        time.sleep(0.01)


def _listed_users(operator_dir: Path) -> dict[str, tuple[str, ...]]:
    """The helpers and workers let in so far."""
    if not (operator_dir / RECORD_NAME).exists():
        return {}
    record = read_record(operator_dir)
    return {"helpers": record.helpers, "workers": record.workers}


def _own_folder(folder: Path) -> None:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.stat().st_mode & 0o077:
        # Not made private unasked: the folder may be /etc.
        if any(folder.iterdir()):
            raise SettingsError(
                f"operator: others can enter {folder}, where the authority's key is kept. Name a new folder with "
                f"--operator, or, if nothing else is in it: chmod 700 {folder}"
            )
        folder.chmod(0o700)


def _authority(out_dir: Path, operator_dir: Path, federation: str) -> KeyPair:
    """Return the operator's authority, made if it is missing; the broker gets its certificate."""
    certificate, key, published = operator_dir / CA_NAME, operator_dir / CA_KEY_NAME, out_dir / CA_NAME
    if certificate.exists() != key.exists():
        missing = key if certificate.exists() else certificate
        raise SettingsError(
            f"operator: {missing} is missing and a new authority would lock every user out. Put it back, or start "
            "over with another --operator and --out."
        )
    known = read_text_file(published, FileKind.CERTIFICATES) if published.exists() else ""
    if not certificate.exists():
        if known:
            raise _other_authority(published, operator_dir)
        authority = create_authority(f"foltr {federation}")
        replace_file(key, authority.key_pem)
        replace_file(certificate, authority.certificate_pem, mode=0o644)
    authority = issuing_authority(operator_dir)
    ours = [read_text_file(files.certificate, FileKind.CERTIFICATES) for files in trusted_ca_files(operator_dir)]
    if known and not any(each in known for each in ours):
        raise _other_authority(published, operator_dir)
    replace_file(published, trusted_ca_certificates(operator_dir), mode=0o644)
    return authority


def _other_authority(published: Path, operator_dir: Path) -> SettingsError:
    return SettingsError(
        f"operator: {published} is not of the authority in {operator_dir}; a broker of another authority would "
        "lock every user out. Name the folder with its key with --operator, or start over with another --out."
    )


def _write_server_certificate(out_dir: Path, authority: KeyPair, hosts: Sequence[str], owner: Owner | None) -> None:
    certificate, key = out_dir / SERVER_CERTIFICATE_NAME, out_dir / SERVER_KEY_NAME
    pair = None
    if certificate.exists() and key.exists():
        pair = KeyPair(read_text_file(certificate, FileKind.CERTIFICATES), read_text_file(key, FileKind.CERTIFICATES))
    if (
        pair is None
        or not is_key_pair(pair)
        or not is_still_valid(pair.certificate_pem, authority.certificate_pem, hosts)
    ):
        pair = issue_server(authority, hosts)
    # Also for a kept key: the broker may run as another user now.
    replace_file(key, pair.key_pem, owner=owner)
    replace_file(certificate, pair.certificate_pem, mode=0o644, owner=owner)
