"""Gives a user of the broker another password or certificate, in place of one that somebody else may have.

The user's keys, and what it is in the federation, stay as they are: only how it gets in at the broker changes.
"""

from pathlib import Path

from foltr.broker.broker_records import BrokerCredentials, Mode, read_record, to_json
from foltr.broker.certificates import serial_of
from foltr.broker.files import replace_file
from foltr.broker.provision import SERVICES, admit
from foltr.broker.renewal import cannot_write
from foltr.broker.revocations import write_revocations
from foltr.core.errors import SettingsError, UnavailableError


def readmit_user(operator_dir: Path, user: str, former_certificate: str | None) -> BrokerCredentials:
    """Let a user in by another password or certificate, and by the former one no more once the broker is reloaded.

    Interrupted, it is done again: what counts then is what was returned last.

    Args:
        user: as the broker calls it.
        former_certificate: PEM text of what it had, with client certificates.

    Raises:
        SettingsError: the broker lets everybody in.
        UnavailableError: the broker's folder is not on this machine, or cannot be written.
    """
    record = read_record(operator_dir)
    folder = Path(record.broker_dir)
    if record.mode is Mode.ANONYMOUS:
        raise SettingsError("broker: it lets everybody in; `foltr broker config --tls` or --mtls asks who comes")
    if not folder.is_dir():
        raise UnavailableError(f"{folder} is not on this machine. Run this on the broker's, with the operator's folder")
    admitted = admit(operator_dir, record, [user])[user]
    try:
        if record.mode is Mode.MTLS and former_certificate is not None:
            write_revocations(operator_dir, folder, [serial_of(former_certificate)])
        for service, name in SERVICES.items():
            if name == user:
                replace_file(operator_dir / f"{service}.broker.json", to_json(admitted))
    except OSError as error:
        raise cannot_write(folder, error) from error
    return admitted
