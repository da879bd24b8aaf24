"""The framework of ``foltr doctor``'s checks, and the checks of this machine: version and credentials.

Each check has a name, a function, and the next step if something is wrong.
"""

import inspect
import platform
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from cryptography.x509 import load_pem_x509_certificate

from foltr.cli.operator.identities import read_any_credentials, require_same_federation
from foltr.cli.settings import Settings
from foltr.core.errors import FoltrError, MessageError
from foltr.core.operator.credentials import Credentials
from foltr.core.protocol.enrolment import read_enrolment
from foltr.core.protocol.fields import SCHEMA_VERSION
from foltr.core.version import __version__

_WARNING_DAYS: Final = 30
_NEW_AUTHORITY: Final = "Make another with `foltr broker config` in new folders, and enrol everybody again"


class State(StrEnum):
    """Severity: ``problem`` must be fixed, ``warning`` should be, ``absent`` is an optional part."""

    OK = "ok"
    PROBLEM = "problem"
    WARNING = "warning"
    ABSENT = "absent"


class CheckResult(NamedTuple):
    """A check's finding, and its next step if that differs from the check's own."""

    state: State
    detail: str
    next_step: str | None = None


class Check(NamedTuple):
    """One line of the table of checks.

    Attributes:
        look: takes the subject of its part; returns one finding, several, or None if the check does not apply. May be
            asynchronous. A FoltrError counts as a problem.
        next_step: what to do about a problem or a warning.
        is_gate: after a problem, the rest of the part is skipped.
    """

    what: str
    look: Callable[[Any], Any]
    next_step: str = ""
    is_gate: bool = False


class Finding(NamedTuple):
    """A finding as it is printed. The detail of a problem says what to do."""

    what: str
    state: State
    detail: str


ok = partial(CheckResult, State.OK)
absent = partial(CheckResult, State.ABSENT)
warning = partial(CheckResult, State.WARNING)
problem = partial(CheckResult, State.PROBLEM)


async def run(checks: Iterable[Check], subject: object) -> list[Finding]:
    """Run the checks of one part in order. Each may store results that later ones need."""
    findings: list[Finding] = []
    for check in checks:
        try:
            found = check.look(subject)
            if inspect.isawaitable(found):
                found = await found
        except FoltrError as error:
            found = problem(str(error), "")  # the error says what to do
        several = found if isinstance(found, list) else [] if found is None else [found]
        for one in several:
            step = check.next_step if one.next_step is None else one.next_step
            is_wrong = one.state in (State.PROBLEM, State.WARNING)
            findings.append(
                Finding(check.what, one.state, f"{one.detail}. {step}" if step and is_wrong else one.detail)
            )
        if check.is_gate and any(one.state is State.PROBLEM for one in several):
            break
    return findings


@dataclass
class Machine:
    """This machine and its user. The credentials check fills them in."""

    settings: Settings
    credentials: Credentials | None = None


def _version(_: Machine) -> CheckResult:
    return ok(f"{__version__} on Python {platform.python_version()}, speaks schema version {SCHEMA_VERSION}")


def _credentials(machine: Machine) -> CheckResult:
    settings = machine.settings
    if settings.credentials is None:
        return absent("none given, so checks run without a user; `foltr device enrol` writes a credentials file")
    found = read_any_credentials(Path(settings.credentials))
    require_same_federation(settings, found)
    machine.credentials = found
    return ok(
        f"{settings.credentials}: {found.role} {found.name} of the federation {found.federation}; not readable by "
        "others"
    )


def _enrolment(machine: Machine) -> CheckResult | None:
    device = machine.credentials
    if device is None or device.role != "device":
        return None
    payload = device.enrolment_bytes
    if payload is None:
        return problem("the credentials file holds none")
    try:
        enrolment = read_enrolment(payload, device.enrolment_public_key, device.federation, device.name)
    except MessageError as error:
        return problem(error.detail)
    if enrolment.public_key != device.key.public:
        return problem("it is for another key than the one in the credentials file")
    issued = datetime.fromtimestamp(enrolment.issued_at, UTC)
    return ok(f"signed by the operator on {issued:%Y-%m-%d}, serial {enrolment.serial}; it does not expire")


def _lasting(machine: Machine, name: str) -> CheckResult | None:
    """Judge a certificate in the credentials: the client's or the authority's."""
    pem = None if machine.credentials is None else getattr(machine.credentials.broker, name)
    if pem is None:
        return None
    try:
        certificate = load_pem_x509_certificate(pem.encode())
    except ValueError:
        return problem("it is not a certificate in PEM format")
    return days_left(certificate.subject.rfc4514_string(), certificate.not_valid_after_utc.timestamp())


def days_left(who: str, not_after: float) -> CheckResult:
    """Judge a certificate that expires at ``not_after`` (epoch seconds)."""
    days = (not_after - time.time()) / 86_400
    if days < 0:
        return problem(f"{who}; it ended {-days:.0f} days ago")
    if days < _WARNING_DAYS:
        return warning(f"{who}; it ends in {days:.0f} days")
    return ok(f"{who}, valid for {days:.0f} days more")


MACHINE: Final = (
    Check("foltr", _version),
    Check("credentials", _credentials, is_gate=True),
    Check("enrolment", _enrolment, "Ask the operator for a new file: foltr device enrol NAME --replace"),
    Check(
        "client certificate", partial(_lasting, name="certificate"), "Enrol it again: foltr device enrol NAME --replace"
    ),
    Check("authority", partial(_lasting, name="ca"), _NEW_AUTHORITY),
)
