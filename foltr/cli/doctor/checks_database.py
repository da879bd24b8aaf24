"""What ``foltr doctor`` looks at in the database: reachable, up to date, writable, room, clock."""

import shutil
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from foltr.cli.doctor.checks import Finding, State
from foltr.cli.output import require_existing
from foltr.errors import FoltrError

if TYPE_CHECKING:
    from storage.database import Database

_MIN_FREE_BYTES, _MIN_FREE_SHARE = 1024**3, 0.05
_CLOCK_TOLERANCE_S = 2.0
_N_NAMED = 5
_BODIES_LIMIT_S = 5.0
_BODIES_PAGE = "docs/postgresql.md, Bodies of no update"


async def look(db_url: str, keys: str | None = None, standby_of: str | None = None) -> list[Finding]:
    """Everything about one database, and the data keys that belong to it.

    Args:
        standby_of: the federation whose federator is to stand by here.
    """
    from foltr.cli.doctor import checks_standby
    from storage.database import Database
    from storage.keys import keys_folder
    from storage.migrate import require_head

    try:
        require_existing(db_url)
        async with await Database.connect(db_url) as database:
            await require_head(database)
            findings = [Finding("database", State.OK, f"{database.location} is up to date")]
            findings += [await _writable(database), *await _leaders(database)]
            folder = keys_folder(db_url, keys)
            if keys is not None or folder.exists():  # else this may be another machine than the federator's
                findings.append(await _keys(database, folder))
            if standby_of is not None:
                findings += await checks_standby.look(database, standby_of, folder)
            is_sqlite = database.dialect == "sqlite"
            return findings + (await _sqlite(database) if is_sqlite else await _postgresql(database))
    except FoltrError as error:
        return [Finding("database", State.PROBLEM, str(error))]


async def _writable(database: "Database") -> Finding:
    from storage.queries import try_to_write

    what = "database writes"
    try:
        await try_to_write(database)
    except FoltrError as error:
        return Finding(what, State.PROBLEM, str(error))
    except Exception as error:
        if not type(error).__module__.startswith("sqlalchemy."):
            raise
        cause = str(getattr(error, "orig", None) or error).splitlines()[0]
        detail = f"{cause}. Give this user the right to write to every table of foltr, and to the folder of a file"
        return Finding(what, State.PROBLEM, detail)
    return Finding(what, State.OK, "a transaction was begun, written in and rolled back")


async def _leaders(database: "Database") -> list[Finding]:
    """Say of each federation that ever had a leader who that is."""
    from storage.federations import list_federations
    from storage.leases import find_lease, list_standbys

    findings = []
    for federation in await list_federations(database):
        lease, n = await find_lease(database, federation.name), len(await list_standbys(database, federation.name))
        if lease is None:
            continue
        standbys = "no other federator stands by" if n == 0 else f"{n} {'stands' if n == 1 else 'stand'} by"
        if lease.is_held:
            findings.append(Finding("leader", State.OK, f"{federation.name}: {lease.holder} leads, {standbys}"))
        elif lease.holder is None:
            findings.append(Finding("leader", State.OK, f"{federation.name}: nobody leads since the last one stopped"))
        else:
            detail = f"{federation.name}: {lease.holder} leads no more, and did not stop in order. Start a federator"
            findings.append(Finding("leader", State.WARNING, detail))
    return findings


async def _keys(database: "Database", folder: Path) -> Finding:
    from storage.erasure.erasures import unreadable_clients
    from storage.federations import list_federations
    from storage.keys import KeyStore

    what = "data keys"
    try:
        database.keys = KeyStore(folder)
        without = [
            client_id
            for federation in await list_federations(database)
            for client_id in await unreadable_clients(database, federation.name)
        ]
    except FoltrError as error:
        return Finding(what, State.PROBLEM, str(error))
    if not without:
        return Finding(what, State.OK, f"{folder} has the key of every client with sealed updates")
    named = ", ".join(without[:_N_NAMED]) + (", ..." if len(without) > _N_NAMED else "")
    detail = (
        f"{len(without)} clients have sealed updates and no key in {folder}: {named}. If the database was restored, "
        "they were forgotten since: run `foltr erasure request` for each. Else name the right folder with FOLTR_KEYS"
    )
    return Finding(what, State.WARNING, detail)


async def _sqlite(database: "Database") -> list[Finding]:
    from storage.queries import database_size, journal_mode

    folder = Path(database.engine.url.database or "").parent
    mode = await journal_mode(database)
    detail = "journal mode WAL"
    findings = [Finding("journal", State.OK, detail)]
    if mode != "wal":
        detail = f"journal mode {mode}: readers would stop the federator. Put the file on a local disk"
        findings = [Finding("journal", State.PROBLEM, detail)]
    usage = shutil.disk_usage(folder)
    size = f"the database has {_in_words(await database_size(database))}, free are {_in_words(usage.free)}"
    if usage.free < _MIN_FREE_BYTES or usage.free < _MIN_FREE_SHARE * usage.total:
        detail = f"{size}, {usage.free / usage.total:.0%} of the disk: make room, or the federator stops"
        return [*findings, Finding("disk", State.WARNING, detail)]
    return [*findings, Finding("disk", State.OK, size)]


async def _postgresql(database: "Database") -> list[Finding]:
    from storage.queries import database_size, server_time, server_version

    size = _in_words(await database_size(database))
    version = f"PostgreSQL {await server_version(database)}; the database has {size}"
    before = time.time()
    there = await server_time(database)
    here = (before + time.time()) / 2
    skew = there.timestamp() - here
    findings = [Finding("server", State.OK, version), await _bodies(database)]
    if abs(skew) > _CLOCK_TOLERANCE_S:
        other = "ahead of" if skew > 0 else "behind"
        detail = (
            f"the database server's clock is {abs(skew):.0f} s {other} this machine's "
            f"({datetime.fromtimestamp(here, UTC):%H:%M:%S} UTC): set both by NTP. The federator uses its own alone"
        )
        return [*findings, Finding("database clock", State.WARNING, detail)]
    return [*findings, Finding("database clock", State.OK, f"within {max(abs(skew), 0.1):.1f} s of this machine's")]


async def _bodies(database: "Database") -> Finding:
    """Say whether each body belongs to an update: of somebody who was forgotten none may be left."""
    from storage.bodies import count_orphans

    n_orphans = await count_orphans(database, _BODIES_LIMIT_S)
    if n_orphans == 0:
        return Finding("bodies", State.OK, "each one is an update's")
    if n_orphans is None:
        detail = f"not looked at, as it takes longer than {_BODIES_LIMIT_S:g} s; how to: {_BODIES_PAGE}"
        return Finding("bodies", State.ABSENT, detail)
    detail = (
        f"{n_orphans} in update_bodies belong to no update: rows were deleted by other means than foltr, or a restore "
        f"was not complete. Nobody reads them, and some may be of a forgotten client: delete them ({_BODIES_PAGE})"
    )
    return Finding("bodies", State.WARNING, detail)


def _in_words(n_bytes: float) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if n_bytes < 1024 or unit == "GiB":
            break
        n_bytes /= 1024
    return f"{n_bytes:.0f} {unit}" if unit == "bytes" else f"{n_bytes:.1f} {unit}"
