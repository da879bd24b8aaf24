"""The audit log in SQL: written within the transactions that it records, read as a chain."""

import json
from collections.abc import AsyncIterator
from datetime import datetime
from typing import Any

from sqlalchemy import Row, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from foltr.core.erasure.audit import AuditEntry, next_entry
from foltr.storage.database import Database
from foltr.storage.erasure_tables import audit_log

CLIENT_ERASED = "client_erased"
"""The kind of entry that records that a client was erased; its body has the pseudonym."""


async def append_audit(
    connection: AsyncConnection, name: str, at: datetime, kind: str, body: dict[str, Any]
) -> AuditEntry:
    """Add an entry within a writer's transaction. ``body`` holds nothing personal: it is never erased."""
    entry = next_entry(await _find(connection, name), at, kind, body)
    await connection.execute(
        insert(audit_log).values(
            federation=name,
            seq=entry.seq,
            at=entry.at,
            kind=entry.kind,
            body=json.dumps(entry.body, sort_keys=True, separators=(",", ":")),
            previous_hash=entry.previous_hash,
            hash=entry.hash,
        )
    )
    return entry


async def find_audit_entry(db: Database, name: str, seq: int | None = None) -> AuditEntry | None:
    """Find an entry by its number, or the newest one; None if it does not exist."""
    async with db.reading() as connection:
        return await _find(connection, name, seq)


async def stream_audit(db: Database, name: str, batch: int = 500) -> AsyncIterator[AuditEntry]:
    """Read the entries in their order, ``batch`` at a time; `foltr.core.erasure.audit` checks that they are a chain."""
    statement = select(audit_log).where(audit_log.c.federation == name).order_by(audit_log.c.seq).limit(batch)
    last = 0
    while True:
        async with db.reading() as connection:
            page = (await connection.execute(statement.where(audit_log.c.seq > last))).all()
        for row in page:
            yield read_entry(row)
        if len(page) < batch:
            return
        last = page[-1].seq


async def _find(connection: AsyncConnection, name: str, seq: int | None = None) -> AuditEntry | None:
    newest_first = select(audit_log).where(audit_log.c.federation == name).order_by(audit_log.c.seq.desc()).limit(1)
    answer = await connection.execute(newest_first if seq is None else newest_first.where(audit_log.c.seq == seq))
    row = answer.one_or_none()
    return None if row is None else read_entry(row)


def read_entry(row: Row[*tuple[Any, ...]]) -> AuditEntry:
    """Return the entry that a row of the table holds."""
    return AuditEntry(row.seq, row.at, row.kind, json.loads(row.body), row.previous_hash, row.hash)
