"""``foltr doctor``: what is missing, and what to do about it."""

import asyncio
import importlib.util
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from foltr.cli import options
from foltr.cli.doctor import checks
from foltr.cli.doctor.checks import Finding, State
from foltr.cli.operator.identities import broker_of
from foltr.cli.output import console, errors, print_json
from foltr.cli.settings import Settings, load_settings
from foltr.errors import FoltrError, SettingsError
from foltr.operator.credentials import Credentials

# Of the broker's and of the database's checks, which go on side by side.
_LIMIT_S = 12.0
_PATIENCE_S = 2.0
_COLOURS = {State.OK: "green", State.PROBLEM: "red", State.WARNING: "yellow", State.ABSENT: "bright_black"}


@dataclass(frozen=True)
class SharingAsked:
    """Whether updates are shared out among workers is to be tried; as these, and at these servers, too."""

    workers: Sequence[Path]
    servers: Sequence[str]


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
    if (worker or server) and not sharing and settings.role == "all":
        raise SettingsError("worker, server: they belong to --sharing; add it, or leave them out")
    asked = SharingAsked(worker or (), server or ()) if sharing or settings.role != "all" else None
    findings = asyncio.run(_look(settings, asked, stands_by=standby or settings.standby))
    if json:
        print_json(findings)
    else:
        for finding in findings:
            console.print(f"[{_COLOURS[finding.state]}]{finding.state:8}[/] {finding.what}: ", end="", highlight=False)
            console.print(finding.detail, markup=False, highlight=False, soft_wrap=True)
    if any(finding.state is State.PROBLEM for finding in findings):
        raise typer.Exit(1)


async def _look(settings: Settings, sharing: SharingAsked | None, *, stands_by: bool) -> list[Finding]:
    of_file, credentials = checks.credentials(settings)
    findings = [*checks.installation(), *of_file]
    if settings.credentials is not None and credentials is None:
        return findings  # as whom to look is not known
    looking = {
        "broker": asyncio.create_task(_bounded("broker", lambda: _broker(settings, credentials, sharing))),
        "database": asyncio.create_task(_bounded("database", lambda: _database(settings, credentials, stands_by))),
    }
    started = time.monotonic()
    await asyncio.wait(looking.values(), timeout=_PATIENCE_S)
    if any(not task.done() for task in looking.values()):
        with errors.status("") as status:
            while waiting := [what for what, task in looking.items() if not task.done()]:
                status.update(f"waiting for the {' and the '.join(waiting)}, {time.monotonic() - started:.0f} s")
                await asyncio.wait(looking.values(), timeout=0.5, return_when=asyncio.FIRST_EXCEPTION)
    return findings + [finding for task in looking.values() for finding in task.result()]


async def _bounded(what: str, look: Callable[[], Awaitable[list[Finding]]]) -> list[Finding]:
    try:
        async with asyncio.timeout(_LIMIT_S):
            return await look()
    except FoltrError as error:
        return [Finding(what, State.PROBLEM, str(error))]
    except TimeoutError:
        detail = f"no answer within {_LIMIT_S:g} s: check the host, the port and what is between"
        return [Finding(what, State.PROBLEM, detail)]


async def _broker(settings: Settings, credentials: Credentials | None, sharing: SharingAsked | None) -> list[Finding]:
    from broker.address import BrokerAddress
    from foltr.cli.doctor.checks_access import list_findings
    from foltr.cli.doctor.checks_broker import Visit, look
    from foltr.cli.doctor.checks_sharing import sharing_findings

    if credentials is None:
        found = await look(Visit(BrokerAddress.parse(settings.broker_url), settings.federation, None))
    else:
        found = await look(Visit(broker_of(settings, credentials), credentials.federation, credentials))
        if credentials.role == "operator" and settings.credentials is not None:
            found += list_findings(Path(settings.credentials).parent)
    if sharing is not None and not any(finding.state is State.PROBLEM for finding in found):
        found += await sharing_findings(settings, credentials, sharing.workers, sharing.servers)
    return found


async def _database(settings: Settings, credentials: Credentials | None, stands_by: bool) -> list[Finding]:
    from foltr.cli.doctor.checks_database import look

    if importlib.util.find_spec("sqlalchemy") is None:
        return [Finding("database", State.ABSENT, "not checked: a device has none (extra federator)")]
    if credentials is not None and credentials.role != "federator" and "db_url" not in settings.model_fields_set:
        return [Finding("database", State.ABSENT, "not checked: a federator has one, or name it with --db")]
    federation = settings.federation if credentials is None else credentials.federation
    return await look(settings.db_url, settings.keys, federation if stands_by else None)
