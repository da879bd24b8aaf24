"""History page by page for the HTTP API: no answer has more rows than requested. Read-only.

Pages continue from keys, so a page is the same at any table size, even if rows are added meanwhile.
"""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import func, select

from foltr.core.erasure.audit import AuditEntry
from foltr.core.erasure.pseudonyms import pseudonym
from foltr.core.protocol.states import JobState, RoundState, Strategy
from foltr.storage.database import Database
from foltr.storage.erasure.audit_log import read_entry
from foltr.storage.erasure.erasures import find_erasure
from foltr.storage.erasure_records import ErasureRow
from foltr.storage.erasure_tables import audit_log, unlearning_jobs
from foltr.storage.federations import get_federation
from foltr.storage.model_tables import models
from foltr.storage.tables import rounds


@dataclass(frozen=True, slots=True)
class ModelLine:
    """A stored model without its weights; see `foltr.storage.records.ModelRow`."""

    version: int
    base_version: int | None
    round: int | None
    n_values: int
    weights_hash: bytes
    created_at: datetime
    published_at: datetime | None
    tainted_at: datetime | None
    withdrawn_at: datetime | None
    unlearning_job: int | None
    restored_version: int | None


@dataclass(frozen=True, slots=True)
class JobLine:
    """An unlearning job without its weights; see `foltr.storage.erasure_records.UnlearningJobRow`."""

    number: int
    state: JobState
    strategy: Strategy
    created_at: datetime
    start_version: int
    start_round: int
    step: int
    n_steps: int
    last_round: int | None
    reason: str | None
    closed_at: datetime | None
    model_version: int | None
    figures: str


@dataclass(frozen=True, slots=True)
class RoundTotals:
    """How many rounds ended how, and the updates that completed ones closed with, up to a round's number."""

    through: int = 0
    n_completed: int = 0
    n_abandoned: int = 0
    n_updates: int = 0


_MODEL_LINE = [models.c[name] for name in ModelLine.__slots__]
_JOB_LINE = [unlearning_jobs.c[name] for name in JobLine.__slots__]


async def page_models(db: Database, name: str, *, before: int | None, limit: int) -> list[ModelLine]:
    """List the newest models below a version, newest first."""
    found = select(*_MODEL_LINE).where(models.c.federation == name)
    if before is not None:
        found = found.where(models.c.version < before)
    return await db.fetch_all(ModelLine, found.order_by(models.c.version.desc()).limit(limit))


async def page_audit(db: Database, name: str, *, after: int, limit: int) -> list[AuditEntry]:
    """List the audit entries after a number, oldest first."""
    found = select(audit_log).where(audit_log.c.federation == name, audit_log.c.seq > after)
    async with db.reading() as connection:
        answer = await connection.execute(found.order_by(audit_log.c.seq).limit(limit))
        return [read_entry(row) for row in answer]


async def page_jobs(db: Database, name: str, *, before: int | None, limit: int) -> list[JobLine]:
    """List the newest unlearning jobs below a number, newest first."""
    found = select(*_JOB_LINE).where(unlearning_jobs.c.federation == name)
    if before is not None:
        found = found.where(unlearning_jobs.c.number < before)
    return await db.fetch_all(JobLine, found.order_by(unlearning_jobs.c.number.desc()).limit(limit))


async def add_rounds(db: Database, name: str, known: RoundTotals) -> RoundTotals:
    """Add the rounds that ended since the totals were counted; the cost does not grow with history.

    If the last counted round is open again, an older copy of the database was restored: everything is counted again.
    """
    has_ended = rounds.c.federation == name, rounds.c.closed_at.is_not(None)
    last = select(rounds.c.number).where(*has_ended, rounds.c.number == known.through)
    by_state = select(rounds.c.state, func.count(), func.max(rounds.c.number), func.sum(rounds.c.n_updates))
    async with db.reading() as connection:
        if known.through and await connection.scalar(last) is None:
            known = RoundTotals()
        since = *has_ended, rounds.c.number > known.through
        answer = await connection.execute(by_state.where(*since).group_by(rounds.c.state))
        found = {state: (int(n), int(last), int(n_updates)) for state, n, last, n_updates in answer}
    none = (0, 0, 0)
    completed, abandoned = found.get(RoundState.COMPLETED, none), found.get(RoundState.ABANDONED, none)
    return RoundTotals(
        max(known.through, completed[1], abandoned[1]),
        known.n_completed + completed[0],
        known.n_abandoned + abandoned[0],
        known.n_updates + completed[2],
    )


async def erasure_of(db: Database, name: str, client_id: str) -> ErasureRow | None:
    """Find the erasure of a client by its name; None if no client of that name was forgotten."""
    row = await get_federation(db, name)
    if row is None or row.pseudonym_key is None:  # no federator that could forget a client has run
        return None
    return await find_erasure(db, name, pseudonym(row.pseudonym_key, client_id))
