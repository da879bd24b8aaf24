"""The operator's folder keeps records of a broker: its location and the credentials of its users."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from foltr.core.errors import SettingsError, UnavailableError
from foltr.core.operator.credentials import BrokerAccess
from foltr.core.user_files import FileKind, read_json_file, read_text_file

RECORD_NAME = "broker.json"
# In the broker's folder.
CONFIG_NAME = "mosquitto.conf"
ACL_NAME = "acl"
PASSWORDS_NAME = "passwords"
CA_NAME = "ca.crt"
REVOKED_NAME = "ca.crl"
SERVER_CERTIFICATE_NAME = "server.crt"
SERVER_KEY_NAME = "server.key"
PID_NAME = "mosquitto.pid"
PLUGIN_NAME = "foltr_subscriptions.so"


class Mode(StrEnum):
    """How users of a broker prove who they are; both ways use TLS."""

    PASSWORDS = "passwords"
    MTLS = "mtls"


@dataclass(frozen=True)
class BrokerRecord:
    """The record ``broker.json``: what enrolment needs to know of a broker.

    Attributes:
        helpers, workers: the names of those in its access list.
        data_dir: where the broker keeps sessions and its pid; None: in ``data`` of its folder.
    """

    federation: str
    broker_url: str
    mode: Mode
    broker_dir: str
    helpers: tuple[str, ...] = ()
    data_dir: str | None = None
    workers: tuple[str, ...] = ()


def read_record(operator_dir: Path) -> BrokerRecord:
    """Read ``broker.json`` in the operator's folder. SettingsError if it is missing."""
    path = operator_dir / RECORD_NAME
    try:
        fields = read_json_file(path, FileKind.REGISTER)
        listed = {"helpers": tuple(fields["helpers"]), "workers": tuple(fields["workers"])}
        return BrokerRecord(**{**fields, "mode": Mode(fields["mode"]), **listed})
    except (OSError, ValueError, TypeError, KeyError) as error:
        cause = getattr(error, "strerror", None) or "it is not what `foltr broker config` writes"
        raise SettingsError(f"operator: {path}: {cause}; `foltr broker config --tls` writes it") from error


def read_access(path: Path) -> BrokerAccess:
    """Read a file such as ``federator.broker.json``. SettingsError if it does not hold the access of a user."""
    try:
        return BrokerAccess.model_validate_json(read_text_file(path, FileKind.REGISTER))
    except (OSError, ValueError) as error:
        cause = getattr(error, "strerror", None) or "it is not what `foltr broker config` writes"
        raise SettingsError(f"operator: {path}: {cause}") from None


def to_json(value: BrokerRecord | BrokerAccess) -> str:
    """Return the text of a file that holds ``value``."""
    return json.dumps(value.model_dump() if isinstance(value, BrokerAccess) else asdict(value), indent=2) + "\n"


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Write the broker's files in the body; UnavailableError says what to do if one cannot be written."""
    try:
        yield
    except OSError as error:
        raise UnavailableError(
            f"{error.filename or path}: {error.strerror or error}. Run this on the broker's machine, as a user "
            "with write permission there."
        ) from error
