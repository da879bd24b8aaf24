"""Why a connection failed: details that aiomqtt and paho-mqtt know and do not expose."""

import logging
from dataclasses import dataclass
from enum import StrEnum

import aiomqtt

from foltr.broker.tls import DO_CERTIFICATES, explain_failure
from foltr.core.errors import UnavailableError

# Bad user name or password, not authorised: 4 and 5 on the wire, which paho-mqtt turns into the codes of MQTT 5.
_REFUSED = (134, 135)
_UNSUPPORTED_VERSION = 132
_DO_CREDENTIALS = (
    "Check the user name and password: `foltr device enrol` makes new ones for a device, `foltr broker readmit` for "
    "others, and the broker must then reload its files."
)
_DO_PLAIN = "If that port is one without TLS, begin the address with mqtt:// or give the port of the TLS listener."
_DO_TLS = "If that port is one for TLS, begin the address with mqtts://."
ONE_IDENTITY_EACH = (
    "Processes with the same credentials disconnect each other: stop one of them, or enrol another identity with "
    "`foltr device enrol NAME`."
)


class FailureKind(StrEnum):
    """What keeps a link down; also the name of its log event."""

    UNREACHABLE = "broker_unreachable"
    LOGIN_REFUSED = "login_refused"
    TAKEN_OVER = "session_taken_over"


@dataclass(frozen=True)
class FailureCause:
    """Why a connection failed.

    Attributes:
        next_step: what to do; None without specific advice.
    """

    failure_kind: FailureKind
    in_words: str
    next_step: str | None = None


CONNECTS_AGAIN = f"It connects again by itself. If connections go on ending: {ONE_IDENTITY_EACH}"


def how_to_start(port: int | None) -> str:
    """Say how to start a broker.

    Args:
        port: of one without TLS; None: with TLS.
    """
    command = "`mosquitto -c` and what `foltr broker config --tls` wrote"
    if port is not None:
        command = f"`foltr broker run --port {port}`"
    return f"Start one with {command}, or give the address of a running one (broker)."


class LinkError(UnavailableError):
    """A link is down, or a call over it got no answer.

    Attributes:
        cause: why, without the broker's address or advice.
    """

    def __init__(self, message: str, cause: str) -> None:
        super().__init__(message)
        self.cause = cause


class NoAnswerError(aiomqtt.MqttError):
    """The connection ended before the broker answered."""


class DisconnectCapture(logging.Handler):
    """Keeps how a connection ended, which the libraries do not report.

    Attributes:
        error: the newest socket error, which paho-mqtt logs: e.g. why TLS ended.
        taken_over: the broker said that it ended the session for another process; only in MQTT 5.
    """

    error: OSError | None = None
    taken_over = False

    def emit(self, record: logging.LogRecord) -> None:
        for argument in record.args if isinstance(record.args, tuple) else ():
            if isinstance(argument, OSError):
                self.error = argument


def lacks_version_5(error: Exception) -> bool:
    """Whether a broker answered an attempt in MQTT 5 as one that does not speak it."""
    is_refused = isinstance(error, aiomqtt.MqttCodeError) and getattr(error.rc, "value", None) == _UNSUPPORTED_VERSION
    return is_refused or isinstance(error, NoAnswerError | ConnectionResetError)


def explain(error: Exception, ending: DisconnectCapture, *, tls: bool, answered: bool) -> FailureCause:
    """Say what happened, with specific advice if there is any.

    Args:
        answered: whether the connection was up before.
    """
    if ending.taken_over:
        return FailureCause(FailureKind.TAKEN_OVER, "another process has connected as this user", ONE_IDENTITY_EACH)
    # Mosquitto says "not authorised" to a wrong password too. A plain number is an error code of paho-mqtt.
    code = getattr(error.rc, "value", None) if isinstance(error, aiomqtt.MqttCodeError) else None
    if isinstance(error, aiomqtt.MqttCodeError) and code in _REFUSED:
        said = f"it refuses this user or this password ({error.rc}, code {code})"
        return FailureCause(FailureKind.LOGIN_REFUSED, said, _DO_CREDENTIALS)
    causes = (error, error.__context__)  # aiomqtt replaces a socket error by its text
    for cause in causes:
        if explained := explain_failure(cause):
            refuses = explained[1] in DO_CERTIFICATES
            return FailureCause(FailureKind.LOGIN_REFUSED if refuses else FailureKind.UNREACHABLE, *explained)
    if not answered and any(isinstance(cause, NoAnswerError | ConnectionResetError) for cause in causes):
        next_step = _DO_PLAIN if tls else _DO_TLS
        return FailureCause(FailureKind.UNREACHABLE, "it closed the connection without an answer", next_step)
    said = error.cause if isinstance(error, LinkError) else str(error)
    return FailureCause(FailureKind.UNREACHABLE, said or type(error).__name__)
