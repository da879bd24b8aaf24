"""``foltr doctor``'s checks of the database: reachable, current, writable, disk space, data keys, standby."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from sqlalchemy.exc import SQLAlchemyError

from foltr.cli.doctor.checks import Check, CheckResult, Finding, State, absent, ok, problem, run, warning
from foltr.cli.output import require_existing
from foltr.storage.bodies import count_orphans
from foltr.storage.cipher import require_keys
from foltr.storage.database import Database
from foltr.storage.erasure.erasures import unreadable_clients
from foltr.storage.federations import list_federations
from foltr.storage.keys import KeyStore, keys_folder
from foltr.storage.leases import find_lease, roles_beyond
from foltr.storage.migrate import require_head
from foltr.storage.queries import database_size, journal_mode, try_to_write

_MIN_FREE_BYTES: Final = 1024**3
_MIN_FREE_SHARE: Final = 0.05
_N_NAMED: Final = 5
_BODIES_LIMIT_S: Final = 5.0
_BODIES_PAGE: Final = "docs/servers.md, Bodies of no update"


@dataclass(frozen=True)
class DatabaseUnderCheck:
    """One database with the current schema.

    Attributes:
        folder: of its data keys.
        has_keys: whether that folder is on this machine; else it may be on the federator's.
        standby_of: the federation whose federator is to stand by here.
    """

    database: Database
    folder: Path
    has_keys: bool
    standby_of: str | None


async def check_database(db_url: str, keys: str | None = None, standby_of: str | None = None) -> list[Finding]:
    """Run all checks of one database and its data keys. Raises FoltrError if it cannot be used."""
    require_existing(db_url)
    async with await Database.connect(db_url) as database:
        await require_head(database)
        folder = keys_folder(db_url, keys)
        # A SQLite file and its keys are on the machine of the federator.
        has_keys = keys is not None or folder.exists() or database.dialect == "sqlite"
        looked = DatabaseUnderCheck(database, folder, has_keys, standby_of)
        reached = Finding("database", State.OK, f"{database.location} is up to date")
        return [reached, *await run(DATABASE, looked)]


async def _writes(looked: DatabaseUnderCheck) -> CheckResult:
    try:
        await try_to_write(looked.database)
    except SQLAlchemyError as error:
        return problem(str(getattr(error, "orig", None) or error).splitlines()[0])
    return ok("a test transaction was written and rolled back")


async def _data_keys(looked: DatabaseUnderCheck) -> CheckResult | None:
    database, folder = looked.database, looked.folder
    if not looked.has_keys:
        return None
    database.keys = KeyStore(folder)
    without = [
        client_id
        for federation in await list_federations(database)
        for client_id in await unreadable_clients(database, federation.name)
    ]
    if not without:
        return ok(f"{folder} has the key of every client with sealed updates")
    named = ", ".join(without[:_N_NAMED]) + (", ..." if len(without) > _N_NAMED else "")
    return warning(f"{len(without)} clients have sealed updates and no key in {folder}: {named}")


async def _standby_keys(looked: DatabaseUnderCheck) -> CheckResult | None:
    if looked.standby_of is None:
        return None
    looked.database.keys = KeyStore(looked.folder)
    await require_keys(looked.database, looked.standby_of)
    return ok(f"{looked.standby_of}: the newest updates open with the data keys in {looked.folder}")


async def _standby(looked: DatabaseUnderCheck) -> CheckResult | None:
    """Check that a standby may end the transactions of a leader that hangs."""
    federation = looked.standby_of
    if federation is None:
        return None
    if looked.database.dialect == "sqlite":
        return warning(
            "with SQLite a standby helps if a process dies, not if this machine does",
            "To survive the loss of this machine, use PostgreSQL",
        )
    lease = await find_lease(looked.database, federation)
    if lease is None or lease.holder is None:
        return absent(f"{federation}: no federator leads; check again while one does")
    if roles := await roles_beyond(looked.database, lease.holder):
        cannot = "whose sessions this role may not end: a hanging leader would delay the next one"
        return problem(f"{federation}: {lease.holder} leads as {', '.join(roles)}, {cannot}")
    return ok(f"{federation}: this role may end the sessions of {lease.holder} if it hangs")


async def _disk(looked: DatabaseUnderCheck) -> CheckResult | None:
    if looked.database.dialect != "sqlite":
        return None
    if (mode := await journal_mode(looked.database)) != "wal":
        return problem(f"journal mode {mode}: readers would stop the federator", "Put the file on a local disk")
    usage = shutil.disk_usage(Path(looked.database.engine.url.database or "").parent)
    size = f"the database has {await database_size(looked.database) / 2**20:,.1f} MiB"
    found = f"{size}; {usage.free / 2**20:,.0f} MiB are free, {usage.free / usage.total:.0%} of the disk"
    return warning(found) if usage.free < max(_MIN_FREE_BYTES, _MIN_FREE_SHARE * usage.total) else ok(found)


async def _bodies(looked: DatabaseUnderCheck) -> CheckResult | None:
    """Check that each body belongs to an update: none may remain of a forgotten client."""
    if looked.database.dialect == "sqlite":
        return None
    n_orphans = await count_orphans(looked.database, _BODIES_LIMIT_S)
    if n_orphans is None:
        return absent(f"not checked, because it takes longer than {_BODIES_LIMIT_S:g} s; how to: {_BODIES_PAGE}")
    if n_orphans == 0:
        return ok("each one is an update's")
    return warning(f"{n_orphans} in update_bodies belong to no update; some may be of a forgotten client")


DATABASE: Final = (
    Check("database writes", _writes, "Give this user the right to write to every table, and to a file's folder"),
    Check(
        "data keys",
        _data_keys,
        "Name their folder if it is another one: FOLTR_KEYS. After a restore: `foltr erasure request` for each",
    ),
    Check("standby keys", _standby_keys),
    Check("standby", _standby, "Connect as the same role, or GRANT pg_signal_backend to this one"),
    Check("disk", _disk, "Free space, or the federator stops"),
    Check("bodies", _bodies, f"Delete them: {_BODIES_PAGE}"),
)
