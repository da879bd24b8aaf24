"""An address says where a broker is and how to speak to it."""

from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from foltr.broker.tls import TlsMaterial
from foltr.core.errors import SettingsError
from foltr.core.operator.credentials import BrokerAccess

_EXPECTED = (
    "expected mqtt://[user:password@]host[:port], e.g. mqtt://127.0.0.1:1883, or mqtts://… for TLS, "
    "e.g. mqtts://broker.example:8883"
)
_DEFAULT_PORTS = {"mqtt": 1883, "mqtts": 8883}


@dataclass(frozen=True)
class BrokerAddress:
    """The address of an MQTT broker; passwords and keys are kept out of its text form.

    Attributes:
        tls: speak TLS, and check the broker's certificate.
        tls_material: the authorities to trust and our own certificate; None: the system's, and none.
    """

    host: str
    port: int = 1883
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    tls: bool = False
    tls_material: TlsMaterial | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        if not self.tls and self.tls_material not in (None, TlsMaterial()):
            raise SettingsError(
                "broker_url: certificates are given (broker_ca, broker_certificate, broker_key), but the address "
                "is without TLS; begin it with mqtts://, or leave them out"
            )

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'mqtts' if self.tls else 'mqtt'}://{host}:{self.port}"

    @classmethod
    def parse(cls, url: str) -> "BrokerAddress":
        """The address named by ``url``; SettingsError for anything but ``mqtt[s]://host[:port]``.

        No part of a refused address is in the error: it may hold a password.
        """
        try:
            parts = urlsplit(url)
            port = _DEFAULT_PORTS.get(parts.scheme, 0) if parts.port is None else parts.port
            (parts.hostname or "").encode("idna")  # as every connection asks for it; a UnicodeError is a ValueError
        except ValueError:
            raise SettingsError(f"broker_url: the host or the port is not one; {_EXPECTED}") from None
        if parts.scheme not in _DEFAULT_PORTS:
            raise SettingsError(f"broker_url: it does not begin with mqtt:// or mqtts://; {_EXPECTED}")
        beyond = f"{parts.path}?{parts.query}#{parts.fragment}"
        if "@" in beyond:
            raise SettingsError(
                f"broker_url: the characters / ? # in a user name or password are written %2F %3F %23; {_EXPECTED}"
            )
        if not parts.hostname or port == 0 or beyond not in ("?#", "/?#"):
            raise SettingsError(f"broker_url: a host and a port is all there can be in it; {_EXPECTED}")
        return cls(
            host=parts.hostname,
            port=port,
            username=unquote(parts.username) if parts.username else None,
            password=unquote(parts.password) if parts.password else None,
            tls=parts.scheme == "mqtts",
        )

    @classmethod
    def of(cls, access: BrokerAccess) -> "BrokerAddress":
        """Return the address in ``access``; its user and password take precedence over those in its URL.

        Raises:
            SettingsError: the URL is invalid, or certificates are given for an address without TLS.
        """
        parsed = cls.parse(access.broker_url)
        return cls(
            host=parsed.host,
            port=parsed.port,
            username=access.username or parsed.username,
            password=access.password or parsed.password,
            tls=parsed.tls,
            tls_material=TlsMaterial(access.ca, access.certificate, access.key),
        )
