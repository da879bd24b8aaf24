"""What the leading federator finds wrong, or one that waits to lead: each finding a row, replaced as a whole.

A client at fault stands there by its key, never by its name: an erasure need not look here.
"""

from collections.abc import Sequence

from sqlalchemy import String, and_, cast, delete, func, insert, literal, or_, select

from foltr.core.protocol.verdicts import Finding
from foltr.storage.clients import find_keys
from foltr.storage.database import Database
from foltr.storage.erasure.erasures import unreadable_clients
from foltr.storage.events import clean
from foltr.storage.keys import KeyStore
from foltr.storage.lease_tables import HOLDER_MAX, leader_findings, leases
from foltr.storage.leases import nobody_leads
from foltr.storage.schema import DETAIL_MAX
from foltr.storage.tables import clients

_BY_KEY = "client "


async def store_findings(db: Database, name: str, holder: str, findings: Sequence[Finding]) -> None:
    """Replace the findings; does nothing if a process other than ``holder`` leads."""
    rows = [
        {
            "federation": name,
            "reason": each.reason,
            "culprit": clean(each.culprit, HOLDER_MAX),
            "detail": clean(each.detail, DETAIL_MAX),
            "since": each.since,
        }
        for each in findings
    ]
    allowed = or_(leases.c.holder == holder, nobody_leads())
    lease = select(leases.c.federation).where(leases.c.federation == name, allowed)
    async with db.transaction() as connection:
        if (await connection.execute(lease)).one_or_none() is None:
            return
        await connection.execute(delete(leader_findings).where(leader_findings.c.federation == name))
        if rows:
            await connection.execute(insert(leader_findings), rows)


async def load_findings(db: Database, name: str) -> list[Finding]:
    """Load them, with the names of clients; void once the leader's lease has expired (`foltr.storage.leases.Lease`)."""
    found = leader_findings.c
    is_culprit = and_(
        clients.c.federation == found.federation,
        found.culprit == literal(_BY_KEY) + cast(clients.c.id, String),
    )
    statement = (
        select(
            found.reason, found.detail, func.coalesce(clients.c.client_id, found.culprit).label("culprit"), found.since
        )
        .select_from(leader_findings.outerjoin(clients, is_culprit))
        .where(found.federation == name)
        .order_by(found.reason, found.culprit)
    )
    return await db.fetch_all(Finding, statement)


async def clients_without_key(db: Database, name: str) -> list[str]:
    """List the culprits of `Reason.KEY_MISSING`: clients that have sealed updates and no data key, by key."""
    if db.keys is None:
        return []
    async with db.separate_pool() as database:
        # Its own view of the folder: what is read here must not be in the cache that seals updates.
        database.keys = KeyStore(db.keys.folder)
        names = await unreadable_clients(database, name)
        async with database.reading() as connection:
            return [f"{_BY_KEY}{key}" for key in sorted((await find_keys(connection, name, names)).values())]
