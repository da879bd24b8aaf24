"""What ``foltr doctor --standby`` finds: whether a federator on this machine could lead once the leader is gone."""

from pathlib import Path
from typing import TYPE_CHECKING

from foltr.cli.doctor.checks import Finding, State
from foltr.errors import FoltrError

if TYPE_CHECKING:
    from storage.database import Database

_WHAT = "standby"


async def look(database: "Database", federation: str, folder: Path) -> list[Finding]:
    """See that it has the leader's data keys, and may end what a leader that hangs leaves of transactions."""
    return [await _keys(database, federation, folder), await _takes_over(database, federation)]


async def _keys(database: "Database", federation: str, folder: Path) -> Finding:
    from storage.cipher import require_keys
    from storage.keys import KeyStore

    try:
        database.keys = KeyStore(folder)
        await require_keys(database, federation)
    except FoltrError as error:
        return Finding(f"{_WHAT} keys", State.PROBLEM, str(error))
    return Finding(f"{_WHAT} keys", State.OK, f"{federation}: the newest updates open with the data keys in {folder}")


async def _takes_over(database: "Database", federation: str) -> Finding:
    from storage.leases import find_lease, roles_beyond

    if database.dialect == "sqlite":
        detail = "a standby of SQLite is for a process that dies, on the same machine; for a machine, take PostgreSQL"
        return Finding(_WHAT, State.WARNING, detail)
    lease = await find_lease(database, federation)
    if lease is None or lease.holder is None:
        detail = f"{federation}: nobody leads; look again while somebody does: may it end the leader's sessions?"
        return Finding(_WHAT, State.ABSENT, detail)
    if roles := await roles_beyond(database, lease.holder):
        detail = (
            f"{federation}: {lease.holder} leads as {', '.join(roles)}, whose sessions this role may not end: one "
            "that is paused within a transaction would hold up whoever leads next. Connect as the same role, or GRANT "
            "pg_signal_backend to this one"
        )
        return Finding(_WHAT, State.PROBLEM, detail)
    return Finding(_WHAT, State.OK, f"{federation}: it may end the sessions of {lease.holder}, should that one hang")
