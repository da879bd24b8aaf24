"""The lease of a federation: which process may lead it for a few seconds at a time, by the database's clock.

It decides which process claims the federation, and when a standby may. It does not fence: every write proves the epoch
for that (`foltr.storage.federations`). So a lease taken too early costs only a change of leader. It is renewed in
separate transactions, never within one that locks the federation's row.
"""

import time
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from sqlalchemy import ColumnElement, delete, func, or_, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from foltr.core.protocol.verdicts import Ending
from foltr.storage.database import Database, insert_into
from foltr.storage.database_clock import DatabaseNow
from foltr.storage.engines import application_name
from foltr.storage.errors import WriterFencedError
from foltr.storage.events import clean
from foltr.storage.lease_tables import leases, standbys
from foltr.storage.schema import DETAIL_MAX

LEASE_S: Final = 3.0
"""How long a lease lasts without renewal."""
LEADER_IDLE_S: Final = LEASE_S
"""PostgreSQL ends a leader's transaction that is idle for so long; a paused leader would lock out the next one."""
STANDBY_S: Final = 15.0
"""How long until a standby that was not seen is considered gone."""
_NOT_ENDED: Final = {"ended": None, "ended_detail": None}
# A process that holds SQLite's write lock for longer may be the leader, whose renewal then waits too.
_LONGEST_WAIT_S: Final = 1.0


@dataclass(frozen=True)
class Claimant:
    """A process that claims a federation, and on what ground.

    Attributes:
        holder: the process, by a unique name.
        takes_over: from any leader; else it claims by the lease that it took before.
    """

    holder: str
    takes_over: bool


@dataclass(frozen=True)
class Lease:
    """A lease.

    Attributes:
        holder: the process that leads; None once it has given the lease up.
        taken_at: since when.
        left_s: seconds until it expires without renewal; negative once expired, 0 if it was given up.
        read_at: when this was read, by the database's clock.
        taken_from: the former leader, if it did not give the lease up: it died, or was replaced.
        ended, ended_detail: why a federator ended by itself, or could not start, since somebody led.
    """

    holder: str | None
    taken_at: datetime
    left_s: float
    read_at: datetime
    taken_from: str | None = None
    ended: Ending | None = None
    ended_detail: str | None = None

    @property
    def is_held(self) -> bool:
        """Whether a process leads. A lease longer than possible was taken before the clock was set back."""
        return self.holder is not None and 0 < self.left_s <= 2 * LEASE_S

    @property
    def is_in_future(self) -> bool:
        """Whether it lasts longer than a lease can: it was taken, or is read, by a wrong clock."""
        return self.holder is not None and self.left_s > 2 * LEASE_S


async def find_lease(db: Database, name: str) -> Lease | None:
    """Find the federation's lease; None if nobody ever had it."""
    statement = select(leases, DatabaseNow().label("now")).where(leases.c.federation == name)
    async with db.reading() as connection:
        row = (await connection.execute(statement)).one_or_none()
    if row is None:
        return None
    left_s = 0.0 if row.expires_at is None else (row.expires_at - row.now).total_seconds()
    return Lease(row.holder, row.taken_at, left_s, row.now, row.taken_from, row.ended, row.ended_detail)


async def take_lease(db: Database, name: str, holder: str) -> bool:
    """Take the lease if it was given up or has expired; return whether this process got it.

    Not after waiting for SQLite's lock: the leader waited as well, and should renew first.
    """
    began = time.monotonic()
    async with db.transaction() as connection:
        if db.dialect == "sqlite" and time.monotonic() - began > _LONGEST_WAIT_S:
            return False
        return await _hold(connection, name, _held_by(holder), nobody_leads())


def nobody_leads() -> ColumnElement[bool]:
    """Return the condition that a lease was given up or has expired, in SQL."""
    expires_at = leases.c.expires_at
    # Longer than a lease can last: the clock has been set back.
    is_impossible = expires_at > DatabaseNow(2 * LEASE_S)
    return or_(leases.c.holder.is_(None), expires_at <= DatabaseNow(), is_impossible)


async def claim_lease(connection: AsyncConnection, name: str, claimant: Claimant) -> None:
    """Take the lease in the transaction that claims the federation.

    Raises:
        WriterFencedError: another process now has the claimant's lease.
    """
    held = _held_by(claimant.holder)
    if claimant.takes_over:
        await _hold(connection, name, held, None)
        return
    own = update(leases).where(leases.c.federation == name, leases.c.holder == claimant.holder)
    if not (await connection.execute(own.values(held))).rowcount:
        raise WriterFencedError(
            f"federation {name!r}: another federator took over before this one could lead. Start it again with "
            "--standby: it waits"
        )


async def renew_lease(db: Database, name: str, holder: str) -> datetime | None:
    """Extend the lease to its full length, even if it has expired.

    Returns:
        The database's present moment; None if another process has taken the lease.
    """
    statement = update(leases).where(leases.c.federation == name, leases.c.holder == holder)
    extended = statement.values(expires_at=DatabaseNow(LEASE_S), **_NOT_ENDED).returning(leases.c.expires_at)
    async with db.transaction() as connection:
        expires_at = (await connection.execute(extended)).scalar_one_or_none()
    return None if expires_at is None else expires_at - timedelta(seconds=LEASE_S)


async def give_up_lease(db: Database, name: str, holder: str) -> None:
    """Let the next federator lead at once, if this one does."""
    statement = update(leases).where(leases.c.federation == name, leases.c.holder == holder)
    async with db.transaction() as connection:
        await connection.execute(statement.values(holder=None, expires_at=None, **_NOT_ENDED))


async def note_ended(db: Database, name: str, ending: Ending, detail: str) -> None:
    """Note why a federator ended by itself, or could not start. One that leads voids it as it renews its lease."""
    noted = {"ended": ending, "ended_detail": clean(detail, DETAIL_MAX)}
    async with db.transaction() as connection:
        await connection.execute(update(leases).where(leases.c.federation == name).values(noted))


async def end_sessions(db: Database, holder: str) -> int:
    """End a former leader's transactions in PostgreSQL; return how many sessions it had.

    PostgreSQL does not count a process as idle that was paused, or lost its network, within a statement of many rows;
    it would hold the federation's row for ever. Its uncommitted work is lost as if it had been killed.
    """
    if db.dialect == "sqlite":
        return 0
    statement = text("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name = :name")
    async with db.transaction() as connection:
        return int((await connection.execute(statement, {"name": application_name(holder)})).scalar_one())


async def roles_beyond(db: Database, holder: str) -> list[str]:
    """List the roles of this process's PostgreSQL connections whose sessions this one may not end."""
    statement = text(
        "SELECT DISTINCT other.rolname FROM pg_stat_activity "
        "JOIN pg_roles AS other ON other.oid = usesysid JOIN pg_roles AS own ON own.rolname = current_user "
        "WHERE application_name = :name AND NOT own.rolsuper AND (other.rolsuper OR NOT "
        "(pg_has_role(other.oid, 'USAGE') OR pg_has_role('pg_signal_backend', 'USAGE'))) ORDER BY other.rolname"
    )
    async with db.reading() as connection:
        return list((await connection.scalars(statement, {"name": application_name(holder)})).all())


async def end_stale_sessions(db: Database, name: str) -> None:
    """End the sessions of the last leader if its lease has expired: it hangs, or is gone."""
    lease = await find_lease(db, name)
    if lease is not None and lease.holder is not None and not lease.is_held:
        await end_sessions(db, lease.holder)


async def note_standby(db: Database, name: str, holder: str) -> None:
    """Note that a process waits to lead; delete standbys that no longer do."""
    seen = {"seen_at": DatabaseNow()}
    async with db.transaction() as connection:
        statement = insert_into(connection, standbys).values(federation=name, holder=holder, **seen)
        await connection.execute(statement.on_conflict_do_update(index_elements=["federation", "holder"], set_=seen))
        gone = standbys.c.seen_at < DatabaseNow(-STANDBY_S)
        await connection.execute(delete(standbys).where(standbys.c.federation == name, gone))


async def forget_standby(db: Database, name: str, holder: str) -> None:
    """Note that a process no longer waits."""
    async with db.transaction() as connection:
        await connection.execute(delete(standbys).where(standbys.c.federation == name, standbys.c.holder == holder))


async def list_standbys(db: Database, name: str) -> list[str]:
    """List the waiting processes by name."""
    there = standbys.c.seen_at >= DatabaseNow(-STANDBY_S)
    statement = select(standbys.c.holder).where(standbys.c.federation == name, there).order_by(standbys.c.holder)
    async with db.reading() as connection:
        return list((await connection.scalars(statement)).all())


def _held_by(holder: str) -> dict[str, Any]:
    times = {"taken_at": DatabaseNow(), "expires_at": DatabaseNow(LEASE_S)}
    return {"holder": holder, **times, **_NOT_ENDED}


async def _hold(
    connection: AsyncConnection, name: str, held: dict[str, Any], condition: ColumnElement[bool] | None
) -> bool:
    """Write the lease if none exists or the condition holds for the existing one; return whether it was written."""
    statement = (
        insert_into(connection, leases)
        .values(federation=name, **held)
        .on_conflict_do_update(
            index_elements=["federation"],
            set_=held | {"taken_from": func.nullif(leases.c.holder, held["holder"])},
            where=condition,
        )
        .returning(leases.c.federation)
    )
    return (await connection.execute(statement)).scalar_one_or_none() is not None
