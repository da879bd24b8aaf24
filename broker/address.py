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
        return f"mqtt://{self.host}:{self.port}"

    @classmethod
    def parse(cls, url: str) -> "BrokerAddress":
        """The address named by ``url``; SettingsError for anything but ``mqtt://host[:port]``."""
        try:
            parts = urlsplit(url)
            port = parts.port if parts.port is not None else 1883
        except ValueError as error:
            raise SettingsError(f"broker_url: {error}; {_EXPECTED}") from error
        if parts.scheme != "mqtt" or not parts.hostname or parts.path not in ("", "/") or parts.query:
            shown = f"{parts.scheme}://{parts.hostname or ''}" if parts.scheme else "a text without mqtt://"
            raise SettingsError(f"broker_url: cannot use {shown}; {_EXPECTED}")
        return cls(
            host=parts.hostname,
            port=port,
            username=unquote(parts.username) if parts.username else None,
            password=unquote(parts.password) if parts.password else None,
        )
