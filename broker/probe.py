"""A probe asks a broker what it lets a user do: MQTT 5 says why it refuses; 3.1.1 acknowledges and drops.

Used for diagnosis only: everything else speaks 3.1.1, through `foltr.broker.link`.
"""

import socket
import ssl
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self

from paho.mqtt.client import Client, ConnectFlags, DisconnectFlags
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from foltr.broker.address import BrokerAddress
from foltr.broker.tls import client_context, explain_failure
from foltr.core.errors import UnavailableError
from foltr.core.protocol.verdicts import Finding, Reason

_REFUSED = 128
# Bad user name or password, not authorised, banned, bad authentication method.
_LOGIN_REFUSED = (134, 135, 138, 140)
_KEPT_FOR_EVER = 2**32 - 1


class LoginRefusedError(UnavailableError):
    """The broker does not let this user in."""


class TakenOverError(UnavailableError):
    """The broker ended the connection, probably for another process of the same name."""


@dataclass
class _BrokerAnswers:
    """The answers of the broker; written by paho-mqtt's thread."""

    connected: ReasonCode | None = None
    resumed: bool = False
    ended: ReasonCode | None = None
    answered: dict[int, ReasonCode] = field(default_factory=dict)
    changed: threading.Condition = field(default_factory=threading.Condition)


class Probe:
    """A short MQTT 5 session that publishes, subscribes and reads the broker's answers. Blocking, every wait bounded.

    Some brokers name the session after the user, so it may be that of an absent federator, with updates waiting in it.
    So it is resumed and left as it was, and no waiting message is acknowledged.

    Args:
        name: of the session, unless the broker chooses it.
    """

    def __init__(self, address: BrokerAddress, name: str, timeout_s: float = 3.0) -> None:
        self._address = address
        self._timeout_s = timeout_s
        self._heard = _BrokerAnswers()
        self._client = Client(CallbackAPIVersion.VERSION2, name, protocol=MQTTProtocolVersion.MQTTv5, manual_ack=True)
        self._client.connect_timeout = timeout_s
        if address.username is not None:
            self._client.username_pw_set(address.username, address.password)
        if address.tls:
            self._client.tls_set_context(client_context(address.tls_material))
        self._client.on_connect = self._on_connect
        self._client.on_disconnect = self._on_disconnect
        self._client.on_publish = self._on_publish
        self._client.on_subscribe = self._on_codes
        self._client.on_unsubscribe = self._on_codes

    def __enter__(self) -> Self:
        """Connect. UnavailableError if that fails, e.g. if the broker speaks only MQTT 3.1.1."""
        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        properties.SessionExpiryInterval = _KEPT_FOR_EVER
        properties.ReceiveMaximum = 1
        try:
            self._client.connect(self._address.host, self._address.port, clean_start=False, properties=properties)
        except (OSError, ValueError) as error:
            raise UnavailableError(f"MQTT broker {self._address}: {error}") from error
        self._client.loop_start()
        try:
            self._wait_for(lambda heard: heard.connected is not None)
            self._require_welcome()
        except UnavailableError:
            self._client.loop_stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        properties = Properties(PacketTypes.DISCONNECT)  # type: ignore[no-untyped-call]
        # Leave a session that existed before; remove one that this probe created.
        properties.SessionExpiryInterval = _KEPT_FOR_EVER if self.resumed else 0
        self._client.disconnect(properties=properties)
        self._client.loop_stop()

    @property
    def resumed(self) -> bool:
        """Whether the session was there before, left by somebody of this name."""
        return self._heard.resumed

    def may_publish(self, topic: str) -> bool:
        """Publish an empty message, unless the broker refuses it.

        Raises:
            TakenOverError: another process has connected under this name.
            UnavailableError: no answer.
        """
        number = self._client.publish(topic, b"", qos=1).mid
        return self._is_granted(number)

    def may_subscribe(self, topic_filter: str) -> bool:
        """Subscribe, unless the broker refuses it, then unsubscribe. Raises as `may_publish`."""
        number = self._client.subscribe(topic_filter, qos=1)[1]
        if number is None or not self._is_granted(number):
            return False
        if (number := self._client.unsubscribe(topic_filter)[1]) is not None:
            self._is_granted(number)
        return True

    def _is_granted(self, number: int) -> bool:
        self._wait_for(lambda heard: number in heard.answered)
        return bool(self._heard.answered[number].value < _REFUSED)

    def _require_welcome(self) -> None:
        code = self._heard.connected
        if code is not None and code.value in _LOGIN_REFUSED:
            raise LoginRefusedError(
                f"MQTT broker {self._address}: it refuses this user or this password ({code}). Was the user "
                "enrolled at this broker, and has the broker reloaded its files?"
            )
        if code is None or code.value >= _REFUSED:
            raise UnavailableError(f"MQTT broker {self._address}: {code}")

    def _wait_for(self, condition: Any) -> None:
        heard = self._heard
        with heard.changed:
            heard.changed.wait_for(lambda: condition(heard) or heard.ended is not None, self._timeout_s)
        if condition(heard):
            return
        if heard.ended is not None and heard.connected is not None and heard.connected.value < _REFUSED:
            # Not every broker says so when it ends a session for another of its name.
            raise TakenOverError(
                f"MQTT broker {self._address}: it ended the connection, because another process connected as this user"
            )
        raise UnavailableError(f"MQTT broker {self._address}: {heard.ended or 'no answer in MQTT 5'}")

    def _on_connect(
        self, _client: Client, _data: Any, flags: ConnectFlags, code: ReasonCode, _properties: Properties | None
    ) -> None:
        with self._heard.changed:
            self._heard.connected, self._heard.resumed = code, flags.session_present
            self._heard.changed.notify_all()

    def _on_disconnect(
        self, client: Client, _data: Any, _flags: DisconnectFlags, code: ReasonCode, _properties: Properties | None
    ) -> None:
        with self._heard.changed:
            self._heard.ended = code
            self._heard.changed.notify_all()
        # Otherwise paho-mqtt would reconnect by itself.
        client.disconnect()

    def _on_publish(self, _client: Client, _data: Any, number: int, code: ReasonCode, _properties: Properties) -> None:
        self._note_answer(number, code)

    def _on_codes(
        self, _client: Client, _data: Any, number: int, codes: list[ReasonCode], _properties: Properties | None
    ) -> None:
        self._note_answer(number, codes[0])

    def _note_answer(self, number: int, code: ReasonCode) -> None:
        with self._heard.changed:
            self._heard.answered[number] = code
            self._heard.changed.notify_all()


@dataclass(frozen=True)
class PresentedCertificate:
    """The certificate that a broker shows in the TLS handshake; ``not_after`` in epoch seconds."""

    protocol: str
    subject: str
    issuer: str
    not_after: float


def inspect_tls(
    address: BrokerAddress, timeout_s: float = 3.0, context: ssl.SSLContext | None = None
) -> PresentedCertificate:
    """Make a TLS handshake as every connection does, and return the peer.

    Args:
        context: of the address, if it was made before: making one writes our key to a file for a moment.

    Raises:
        OSError: the handshake failed; ssl.SSLCertVerificationError if the certificate is refused.
    """
    context = context or client_context(address.tls_material)
    with (
        socket.create_connection((address.host, address.port), timeout=timeout_s) as plain,
        context.wrap_socket(plain, server_hostname=address.host) as secure,
    ):
        shown: Any = secure.getpeercert() or {}
        version = secure.version() or "TLS"
        with suppress(OSError):  # the answer to this goodbye; without a goodbye the broker logs an error
            secure.unwrap()
        return PresentedCertificate(
            version,
            _common_name(shown.get("subject", ())),
            _common_name(shown.get("issuer", ())),
            ssl.cert_time_to_seconds(shown["notAfter"]),
        )


def look_at_certificate(
    address: BrokerAddress, context: ssl.SSLContext | None = None
) -> PresentedCertificate | Finding | None:
    """Return the certificate that the broker shows to a new connection, or that it is refused. Blocking.

    Returns:
        None without TLS, and if the broker is away.
    """
    if not address.tls:
        return None
    try:
        return inspect_tls(address, context=context)
    except ssl.SSLCertVerificationError as error:
        why = "" if (explained := explain_failure(error)) is None else explained[0]
        return Finding(Reason.CERTIFICATE_REFUSED, f"{why[:1].upper()}{why[1:]}.", f"broker {address}")
    except OSError:
        return None


def _common_name(names: Any) -> str:
    parts = dict(part for group in names for part in group)
    return str(parts.get("commonName") or parts.get("organizationName") or "nobody in particular")
