"""``foltr doctor``: what is missing, and what to do about it; and the checks of this machine.

Each check has a name, a function that looks, and the next step if something is wrong.
"""

import asyncio
import importlib.util
import inspect
import platform
import time
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import typer
from cryptography.x509 import load_pem_x509_certificate

from foltr.broker.address import BrokerAddress
from foltr.cli import options
from foltr.cli.fields import option
from foltr.cli.operator.identities import broker_of, read_any_credentials, require_same_federation
from foltr.cli.output import console, errors, print_json
from foltr.cli.settings import Settings, load_settings
from foltr.core.errors import FoltrError, MessageError
from foltr.core.operator.credentials import Credentials
from foltr.core.protocol.enrolment import read_enrolment
from foltr.core.protocol.fields import SCHEMA_VERSION
from foltr.core.version import __version__

_WARNING_DAYS: Final = 30
_NEW_AUTHORITY: Final = "Make another with `foltr broker config` in new folders, and enrol everybody again"
# Of the broker's and of the database's checks, which go on side by side.
_LIMIT_S: Final = 12.0


class State(StrEnum):
    """How something is: ``problem`` must be mended, ``warning`` should be, ``absent`` is an optional part."""

    OK = "ok"
    PROBLEM = "problem"
    WARNING = "warning"
    ABSENT = "absent"


class Found(NamedTuple):
    """What a check has found, and the next step if it is another one than the check's own."""

    state: State
    detail: str
    next_step: str | None = None


class Check(NamedTuple):
    """One line of the table of checks.

    Attributes:
        look: takes what its part of the table is about; returns what it has found: one, several, or None if there is
            nothing to look at. It may be asynchronous. FoltrError is a problem, too.
        next_step: what to do about a problem or a warning.
        is_gate: after a problem the rest of the part is left out.
    """

    what: str
    look: Callable[[Any], Any]
    next_step: str = ""
    is_gate: bool = False


class Finding(NamedTuple):
    """One thing looked at, as it is printed. The detail of a problem says what to do."""

    what: str
    state: State
    detail: str


ok = partial(Found, State.OK)
absent = partial(Found, State.ABSENT)
warning = partial(Found, State.WARNING)
problem = partial(Found, State.PROBLEM)


async def run(checks: Iterable[Check], subject: object) -> list[Finding]:
    """Make the checks of one part of the table, in order, each of which may fill in what later ones need."""
    findings: list[Finding] = []
    for check in checks:
        try:
            found = check.look(subject)
            if inspect.isawaitable(found):
                found = await found
        except FoltrError as error:
            found = problem(str(error), "")  # which says what to do
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
    """Who looks: the check of the credentials fills them in."""

    settings: Settings
    credentials: Credentials | None = None


def _version(_: Machine) -> Found:
    return ok(f"{__version__} on Python {platform.python_version()}, speaks schema version {SCHEMA_VERSION}")


def _credentials(machine: Machine) -> Found:
    settings = machine.settings
    if settings.credentials is None:
        return absent("none given: looked at as nobody in particular; a process has a file from `foltr device enrol`")
    found = read_any_credentials(Path(settings.credentials))
    require_same_federation(settings, found)
    machine.credentials = found
    return ok(
        f"{settings.credentials}: {found.role} {found.name} of the federation {found.federation}; closed to others"
    )


def _enrolment(machine: Machine) -> Found | None:
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


def _lasting(machine: Machine, name: str) -> Found | None:
    """Judge a certificate of the credentials: the client's own, or the authority's."""
    pem = None if machine.credentials is None else getattr(machine.credentials.broker, name)
    if pem is None:
        return None
    try:
        certificate = load_pem_x509_certificate(pem.encode())
    except ValueError:
        return problem("it is no certificate in PEM form")
    return days_left(certificate.subject.rfc4514_string(), certificate.not_valid_after_utc.timestamp())


def days_left(who: str, not_after: float) -> Found:
    """Judge a certificate that ends at ``not_after`` (epoch seconds)."""
    days = (not_after - time.time()) / 86_400
    if days < 0:
        return problem(f"{who}; it ended {-days:.0f} days ago")
    if days < _WARNING_DAYS:
        return warning(f"{who}; it ends in {days:.0f} days")
    return ok(f"{who}, valid for {days:.0f} days more")


MACHINE: Final = (
    Check("foltr", _version),
    Check("credentials", _credentials, is_gate=True),
    Check("enrolment", _enrolment, "Ask the operator for a new file: foltr device enrol --replace"),
    Check("client certificate", partial(_lasting, name="certificate"), "Enrol it again: foltr device enrol --replace"),
    Check("authority", partial(_lasting, name="ca"), _NEW_AUTHORITY),
)


_COLOURS: Final = {State.OK: "green", State.PROBLEM: "red", State.WARNING: "yellow", State.ABSENT: "bright_black"}


def doctor(
    credentials: options.Credentials = None,
    broker: options.Broker = None,
    db: options.Db = None,
    federation: options.Federation = None,
    standby: Annotated[
        bool, option("Also whether a federator that stands by here could take over", "--standby")
    ] = False,
    json: options.Json = False,
) -> None:
    """Check the installation, the credentials, the broker and the database. Exits with 1 if something is wrong.

    With credentials it connects as that user; where a process of the user is running, that one connects again.
    """
    settings = load_settings(credentials=credentials, broker_url=broker, db_url=db, federation=federation)
    findings = asyncio.run(_look(Machine(settings), stands_by=standby or settings.standby))
    if json:
        print_json(findings)
    else:
        for finding in findings:
            console.print(f"[{_COLOURS[finding.state]}]{finding.state:8}[/] {finding.what}: ", end="", highlight=False)
            console.print(finding.detail, markup=False, highlight=False, soft_wrap=True)
    if any(finding.state is State.PROBLEM for finding in findings):
        raise typer.Exit(1)


async def _look(machine: Machine, *, stands_by: bool) -> list[Finding]:
    findings = await run(MACHINE, machine)
    if machine.settings.credentials is not None and machine.credentials is None:
        return findings  # as whom to look is not known
    with errors.status("looking at the broker and at the database"):
        parts = await asyncio.gather(
            _bounded("broker", _broker(machine)), _bounded("database", _database(machine, stands_by))
        )
    return [*findings, *(finding for part in parts for finding in part)]


async def _bounded(what: str, looking: Coroutine[Any, Any, list[Finding]]) -> list[Finding]:
    try:
        async with asyncio.timeout(_LIMIT_S):
            return await looking
    except FoltrError as error:
        return [Finding(what, State.PROBLEM, str(error))]
    except TimeoutError:
        detail = f"no answer within {_LIMIT_S:g} s: check the host, the port and what is between"
        return [Finding(what, State.PROBLEM, detail)]


async def _broker(machine: Machine) -> list[Finding]:
    from foltr.cli.doctor.checks_broker import ANNOUNCED, BROKER, Visit

    settings, credentials = machine.settings, machine.credentials
    if credentials is None:
        visit = Visit(BrokerAddress.parse(settings.broker_url), settings.federation, None)
    else:
        visit = Visit(broker_of(settings, credentials), credentials.federation, credentials)
    found = await run(BROKER, visit)
    if any(finding.what == "broker" and finding.state is not State.PROBLEM for finding in found):
        found += await run(ANNOUNCED, visit)
    return found


async def _database(machine: Machine, stands_by: bool) -> list[Finding]:
    settings, credentials = machine.settings, machine.credentials
    if importlib.util.find_spec("sqlalchemy") is None:
        return [Finding("database", State.ABSENT, "not checked: a device has none (extra federator)")]
    if credentials is not None and credentials.role != "federator" and "db_url" not in settings.model_fields_set:
        return [Finding("database", State.ABSENT, "not checked: a federator has one, or name it with --db")]

    from foltr.cli.doctor.checks_database import look

    federation = settings.federation if credentials is None else credentials.federation
    return await look(settings.db_url, settings.keys, federation if stands_by else None)
