"""``foltr doctor``: run the checks and print findings with next steps."""

import asyncio
import importlib.util
from collections.abc import Coroutine
from typing import Annotated, Any, Final

import typer

from foltr.broker.address import BrokerAddress
from foltr.cli import options
from foltr.cli.doctor.checks import MACHINE, Finding, Machine, State, run
from foltr.cli.fields import option
from foltr.cli.operator.identities import broker_of
from foltr.cli.output import console, errors, print_json
from foltr.cli.settings import load_settings
from foltr.core.errors import FoltrError

# For the checks of broker and database, which run concurrently.
_LIMIT_S: Final = 12.0
_COLOURS: Final = {State.OK: "green", State.PROBLEM: "red", State.WARNING: "yellow", State.ABSENT: "bright_black"}


def doctor(
    credentials: options.Credentials = None,
    broker: options.Broker = None,
    db: options.Db = None,
    federation: options.Federation = None,
    standby: Annotated[bool, option("Also check whether a standby here could take over", "--standby")] = False,
    json: options.Json = False,
) -> None:
    """Check the installation, the credentials, the broker and the database. Exits with 1 if something is wrong.

    With credentials it connects as that user; a running process of the same user loses its connection and connects
    again.
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
        return findings  # without credentials no user to check as
    with errors.status("checking the broker and the database"):
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
    from foltr.cli.doctor.checks_broker import ANNOUNCED, BROKER, BrokerUnderCheck

    settings, credentials = machine.settings, machine.credentials
    if credentials is None:
        visit = BrokerUnderCheck(BrokerAddress.parse(settings.broker_url), settings.federation, None)
    else:
        visit = BrokerUnderCheck(broker_of(settings, credentials), credentials.federation, credentials)
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

    from foltr.cli.doctor.checks_database import check_database

    federation = settings.federation if credentials is None else credentials.federation
    return await check_database(settings.db_url, settings.keys, federation if stands_by else None)
