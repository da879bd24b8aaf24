"""The operator's folder keeps records of a broker: where it is, and the credentials of those who use it."""

import json
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path

from foltr.broker.address import BrokerAddress
from foltr.broker.tls import TlsMaterial
from foltr.core.errors import SettingsError
from foltr.core.user_files import FileKind, read_json_file

RECORD_NAME = "broker.json"


class Mode(StrEnum):
    """Users of a broker prove who they are in one of these ways."""

    ANONYMOUS = "anonymous"
    PASSWORDS = "passwords"
    MTLS = "mtls"


@dataclass(frozen=True)
class BrokerRecord:
    """A record, ``broker.json``, tells enrolment what it has to know of a broker.

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


@dataclass(frozen=True)
class BrokerCredentials:
    """Credentials let one user reach the broker and get in. ``ca``, ``certificate`` and ``key`` are PEM text."""

    broker_url: str
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    ca: str | None = None
    certificate: str | None = None
    key: str | None = field(default=None, repr=False)

    @property
    def address(self) -> BrokerAddress:
        parsed = BrokerAddress.parse(self.broker_url)
        material = TlsMaterial(self.ca, self.certificate, self.key) if parsed.tls else None
        return BrokerAddress(parsed.host, parsed.port, self.username, self.password, parsed.tls, material)


def read_record(operator_dir: Path) -> BrokerRecord:
    """Read ``broker.json`` in the operator's folder. SettingsError if there is none."""
    path = operator_dir / RECORD_NAME
    try:
        fields = read_json_file(path, FileKind.REGISTER)
        listed = {"helpers": tuple(fields["helpers"]), "workers": tuple(fields["workers"])}
        return BrokerRecord(**{**fields, "mode": Mode(fields["mode"]), **listed})
    except (OSError, ValueError, TypeError, KeyError) as error:
        cause = getattr(error, "strerror", None) or "it is not what `foltr broker config` writes"
        raise SettingsError(f"operator: {path}: {cause}; `foltr broker config --tls` writes it") from error


def read_credentials(path: Path) -> BrokerCredentials:
    """The credentials in a file such as ``federator.broker.json``. SettingsError if there are none."""
    try:
        return BrokerCredentials(**read_json_file(path, FileKind.REGISTER))
    except (OSError, ValueError, TypeError) as error:
        cause = getattr(error, "strerror", None) or "it is not what `foltr broker config` writes"
        raise SettingsError(f"operator: {path}: {cause}") from error


def to_json(value: BrokerRecord | BrokerCredentials) -> str:
    """The text of a file that holds ``value``."""
    return json.dumps(asdict(value), indent=2) + "\n"
