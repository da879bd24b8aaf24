"""Helpers and ingest workers are users in the broker's access list: each has topics that no device has."""

from dataclasses import replace
from pathlib import Path

from foltr.broker.access import access_list, helper_user
from foltr.broker.broker_records import ACL_NAME, RECORD_NAME, BrokerRecord, read_record, to_json, writing
from foltr.broker.files import owner_of, replace_file
from foltr.broker.users import admit, withdraw
from foltr.core.errors import SettingsError
from foltr.core.operator.credentials import BrokerAccess, worker_user
from foltr.core.protocol.topics import check_name
from foltr.core.user_files import FileKind, read_text_file, resolve


def provision_helper(operator_dir: Path, name: str) -> BrokerAccess:
    """Let a helper in as a separate user: only it receives its requests and may answer them.

    A running broker needs `reload_broker`.

    Raises:
        SettingsError: no broker record or authority in ``operator_dir``, or ``name`` is invalid, or somebody changed
            the access list.
        UnavailableError: a file cannot be written.
    """
    check_name("helper", name)
    operator_dir, record = resolve(operator_dir), read_record(operator_dir)
    known = replace(record, helpers=_with(record.helpers, name))
    return _admit(operator_dir, record, known, helper_user(name))


def provision_worker(operator_dir: Path, name: str) -> BrokerAccess:
    """Let an ingest worker in, as `provision_helper`: some brokers allow one session per user, so it needs its own."""
    check_name("worker", name)
    operator_dir, record = resolve(operator_dir), read_record(operator_dir)
    known = replace(record, workers=_with(record.workers, name))
    return _admit(operator_dir, record, known, worker_user(name))


def withdraw_worker(operator_dir: Path, name: str) -> bool:
    """Revoke an ingest worker's access, and remove its lines from the access list; return as `withdraw`.

    A running broker needs `reload_broker`. Stop the worker first: Mosquitto ends a connection with a password, but one
    with a certificate stays, and its share of the updates is dropped.

    Raises:
        SettingsError: as `provision_helper`, or no worker of that name was let in.
        UnavailableError: a file cannot be written.
    """
    check_name("worker", name)
    operator_dir, record = resolve(operator_dir), read_record(operator_dir)
    if name not in record.workers:
        known = ", ".join(record.workers) or "none"
        raise SettingsError(f"worker: {name} has no access to this broker; workers with access: {known}")
    left = replace(record, workers=tuple(each for each in record.workers if each != name))
    _require_own_list(record, left)
    # Credentials first: while the record still names it, an interrupted command repeats all of this.
    effect = withdraw(operator_dir, record, worker_user(name))
    _list(operator_dir, record, left)
    return effect


def _with(names: tuple[str, ...], name: str) -> tuple[str, ...]:
    return tuple(sorted({*names, name}))


def _admit(operator_dir: Path, record: BrokerRecord, known: BrokerRecord, user: str) -> BrokerAccess:
    _list(operator_dir, record, known)
    return admit(operator_dir, record, [user])[user]


def _list(operator_dir: Path, record: BrokerRecord, known: BrokerRecord) -> None:
    """Write the access list and the record with one user more or less; leave a list that somebody has changed."""
    if known == record:
        return
    _require_own_list(record, known)
    acl = Path(record.broker_dir, ACL_NAME)
    with writing(acl):
        replace_file(acl, _access_list(known), mode=acl.stat().st_mode & 0o777, owner=owner_of(acl))
    replace_file(operator_dir / RECORD_NAME, to_json(known))


def _require_own_list(record: BrokerRecord, known: BrokerRecord) -> None:
    """SettingsError unless the access list is as it was written, or as an interrupted call was about to write it."""
    acl = Path(record.broker_dir, ACL_NAME)
    with writing(acl):
        is_own = read_text_file(acl, FileKind.REGISTER) in (_access_list(record), _access_list(known))
    if not is_own:
        raise SettingsError(
            f"broker: {acl} is not as `foltr broker config` writes it; rewrite it with that and --force, then run "
            "this again"
        )


def _access_list(record: BrokerRecord) -> str:
    return access_list(record.federation, record.helpers, record.workers)
