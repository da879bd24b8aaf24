"""Why there is no connection: what aiomqtt and paho-mqtt know of it and keep to themselves."""

import asyncio
import logging
from typing import Any

import aiomqtt

from broker.tls import explain_failure

# Bad user name or password, not authorised: 4 and 5 on the wire, which paho-mqtt turns into the codes of MQTT 5.
_REFUSED = (134, 135)
_DO_CREDENTIALS = (
    "Check the user name and password: `foltr enrol` gives new ones, and a broker learns of them when it is told to "
    "read its files again."
)
_DO_PLAIN = "If that port is one without TLS, begin the address with mqtt:// or give the port of the TLS listener."
_DO_TLS = "If that port is one for TLS, begin the address with mqtts://."


class NoAnswerError(aiomqtt.MqttError):
    """The connection ended before the broker answered."""


class SocketErrors(logging.Handler):
    """Keeps the newest error of a socket, which paho-mqtt logs and tells nobody: e.g. why TLS ended."""

    error: OSError | None = None

    def emit(self, record: logging.LogRecord) -> None:
        for argument in record.args if isinstance(record.args, tuple) else ():
            if isinstance(argument, OSError):
                self.error = argument


def fail_early(client: aiomqtt.Client) -> None:
    """Have ``client`` notice that a connection ends before the broker's answer.

    aiomqtt overlooks that, and waits for the answer until its time is over. With TLS 1.3 it is how a broker
    refuses a client certificate.
    """
    loop = asyncio.get_running_loop()
    answered = client._connected  # noqa: SLF001 (there is no public way to see this)
    and_then = client._client.on_disconnect  # noqa: SLF001

    def fail() -> None:
        if not answered.done():
            answered.set_exception(NoAnswerError("it closed the connection without an answer"))

    def on_disconnect(*arguments: Any) -> None:
        loop.call_soon_threadsafe(fail)  # paho-mqtt may call this from the thread that connects
        if and_then is not None:
            and_then(*arguments)

    client._client.on_disconnect = on_disconnect  # noqa: SLF001


def explain(error: Exception, *, tls: bool, answered: bool) -> tuple[str, str | None]:
    """Say what happened, and what to do about it where that is special.

    Args:
        answered: whether the connection stood before.
    """
    # Mosquitto says "not authorised" to a wrong password too. A plain number is an error code of paho-mqtt's own.
    if isinstance(error, aiomqtt.MqttCodeError) and getattr(error.rc, "value", None) in _REFUSED:
        return "it does not let this user in, or not with this password", _DO_CREDENTIALS
    causes = (error, error.__context__)  # aiomqtt replaces an error of the socket by its text
    for cause in causes:
        if explained := explain_failure(cause):
            return explained
    if not answered and any(isinstance(cause, NoAnswerError | ConnectionResetError) for cause in causes):
        return "it closed the connection without an answer", _DO_PLAIN if tls else _DO_TLS
    return str(error) or type(error).__name__, None
