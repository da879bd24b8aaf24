"""Where a broker is and how to speak to it."""

from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit

from foltr.errors import SettingsError

_EXPECTED = "expected mqtt://[user:password@]host[:port], e.g. mqtt://127.0.0.1:1883"


@dataclass(frozen=True)
class BrokerAddress:
    """The address of an MQTT broker; the password is kept out of its text form."""

    host: str
    port: int = 1883
    username: str | None = None
    password: str | None = field(default=None, repr=False)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"mqtt://{host}:{self.port}"

    @classmethod
    def parse(cls, url: str) -> "BrokerAddress":
        """The address named by ``url``; SettingsError for anything but ``mqtt://host[:port]``.

        No part of a refused address is in the error: it may hold a password.
        """
        try:
            parts = urlsplit(url)
            port = 1883 if parts.port is None else parts.port
        except ValueError:
            raise SettingsError(f"broker_url: the host or the port is not one; {_EXPECTED}") from None
        if parts.scheme != "mqtt":
            raise SettingsError(f"broker_url: it does not begin with mqtt://; {_EXPECTED}")
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
        )
