"""``foltr doctor``: what is missing, and what to do about it."""

import asyncio
import importlib.util
from collections.abc import Coroutine
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from foltr.cli import options
from foltr.cli.doctor.checks import Finding, State, run
from foltr.cli.doctor.checks_machine import MACHINE, Machine
from foltr.cli.operator.identities import broker_of
from foltr.cli.output import console, errors, print_json
from foltr.cli.settings import load_settings
from foltr.core.errors import FoltrError, SettingsError

# Of the broker's and of the database's checks, which go on side by side.
_LIMIT_S: Final = 12.0
_COLOURS: Final = {State.OK: "green", State.PROBLEM: "red", State.WARNING: "yellow", State.ABSENT: "bright_black"}


def doctor(
    credentials: options.Credentials = None,
    broker: options.Broker = None,
    db: options.Db = None,
    federation: options.Federation = None,
    sharing: Annotated[
        bool,
        typer.Option("--sharing", help="Also, by messages, whether the broker shares updates out among ingest workers"),
    ] = False,
    worker: Annotated[
        list[Path] | None,
        typer.Option("--worker", metavar="FILE", help="With --sharing: credentials of a worker that does not run"),
    ] = None,
    server: Annotated[
        list[str] | None,
        typer.Option("--server", metavar="URL", help="With --sharing: another server of the broker, tried as well"),
    ] = None,
    standby: Annotated[
        bool, typer.Option("--standby", help="Also whether a federator that stands by here could take over")
    ] = False,
    json: options.Json = False,
) -> None:
    """Check the installation, the credentials, the broker and the database. Exits with 1 if something is wrong.

    With credentials it connects as that user; where a process of the user is running, that one connects again.
    """
    settings = load_settings(credentials=credentials, broker_url=broker, db_url=db, federation=federation)
    is_shared = sharing or settings.role != "all"
    if (worker or server) and not is_shared:
        raise SettingsError("worker, server: they belong to --sharing; add it, or leave them out")
    machine = Machine(settings)
    findings = asyncio.run(
        _look(machine, (worker or [], server or []) if is_shared else None, stands_by=standby or settings.standby)
    )
    if json:
        print_json(findings)
    else:
        for finding in findings:
            console.print(f"[{_COLOURS[finding.state]}]{finding.state:8}[/] {finding.what}: ", end="", highlight=False)
            console.print(finding.detail, markup=False, highlight=False, soft_wrap=True)
    if any(finding.state is State.PROBLEM for finding in findings):
        raise typer.Exit(1)


async def _look(machine: Machine, shared: tuple[list[Path], list[str]] | None, *, stands_by: bool) -> list[Finding]:
    findings = await run(MACHINE, machine)
    if machine.settings.credentials is not None and machine.credentials is None:
        return findings  # as whom to look is not known
    with errors.status("looking at the broker and at the database"):
        parts = await asyncio.gather(
            _bounded("broker", _broker(machine, shared)), _bounded("database", _database(machine, stands_by))
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


async def _broker(machine: Machine, shared: tuple[list[Path], list[str]] | None) -> list[Finding]:
    from foltr.broker.address import BrokerAddress
    from foltr.cli.doctor.checks_announced import ANNOUNCED
    from foltr.cli.doctor.checks_broker import BROKER, Visit
    from foltr.cli.doctor.checks_sharing import SHARING, SharingAsked

    settings, credentials = machine.settings, machine.credentials
    if credentials is None:
        visit = Visit(BrokerAddress.parse(settings.broker_url), settings.federation, None)
    else:
        visit = Visit(broker_of(settings, credentials), credentials.federation, credentials)
        if credentials.role == "operator" and settings.credentials is not None:
            visit.operator_dir = Path(settings.credentials).parent
    found = await run(BROKER, visit)
    if any(finding.what == "broker" and finding.state is not State.PROBLEM for finding in found):
        found += await run(ANNOUNCED, visit)
    if shared is not None and not any(finding.state is State.PROBLEM for finding in found):
        found += await run(SHARING, SharingAsked(settings, credentials, *shared))
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
