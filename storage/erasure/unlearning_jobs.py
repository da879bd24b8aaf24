"""Unlearning jobs: rebuild models without the erased clients, then swap the result into service.

A job is one row, changed step by step, so that it survives a crash. Live rounds go on beside it until the swap.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import datetime
from typing import Any

from sqlalchemy import func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from foltr.core.erasure.audit import AuditEntry
from foltr.core.erasure.states import ErasureEvent, ErasureState
from foltr.core.errors import ProtocolViolationError
from foltr.core.failpoints import Failpoint, failpoint
from foltr.core.protocol.announcements import MOST_NAMED
from foltr.core.protocol.fields import model_hash
from foltr.core.protocol.states import OPEN_JOB, AbandonReason, JobState
from foltr.storage.database import Database, fetch_all, fetch_one
from foltr.storage.defence import (
    ROUNDS,
    begin_defence,
    delete_defence,
    forget_defence,
    keep_defence,
    store_defence,
    with_defence,
)
from foltr.storage.erasure.audit_log import CLIENT_ERASED, append_audit, read_entry
from foltr.storage.erasure.erasures import count_deletion, finish_erasure, move_erasures, select_erasures
from foltr.storage.erasure_records import (
    ErasureOutcome,
    ErasureRow,
    JobCompletion,
    JobStep,
    NewJob,
    Sign,
    UnlearningJobRow,
)
from foltr.storage.erasure_tables import audit_log, erasures, stored_rounds, unlearning_jobs
from foltr.storage.events import store_events
from foltr.storage.federations import fenced_transaction
from foltr.storage.model_tables import models
from foltr.storage.models import is_taken_back, model_row, with_memory
from foltr.storage.records import ModelRow, NewEvent
from foltr.storage.rounds import close_without_model, open_next
from foltr.storage.schema import DETAIL_MAX
from foltr.storage.tables import rounds

# Erasures that may affect a model that a job makes without others.
_NOT_IN_A_JOB = ErasureState.ERASING, ErasureState.ERASED, ErasureState.WAITING


async def create_job(db: Database, name: str, epoch: int, new: NewJob) -> UnlearningJobRow:
    """Start a job from a stored model with all waiting erasures; repeating it changes nothing.

    Raises:
        ProtocolViolationError: another job is open, no erasure waits, or the model is tainted or missing.
    """
    async with fenced_transaction(db, name, epoch) as connection:
        known = await _find(connection, name, new.number)
        if known is not None:
            if any(getattr(known, field) != value for field, value in asdict(new).items() if field != "n_steps"):
                raise ProtocolViolationError(f"unlearning job {new.number} of {name!r} was created before, differently")
            return await with_defence(connection, known, new.number)
        start = (
            await connection.execute(
                select(models).where(models.c.federation == name, models.c.version == new.start_version)
            )
        ).one_or_none()
        if start is None or start.tainted_at is not None:
            what = "not there" if start is None else "tainted"
            raise ProtocolViolationError(
                f"model {new.start_version} of {name!r} is {what}: unlearning cannot start from it"
            )
        job = UnlearningJobRow(
            federation=name,
            state=JobState.RUNNING,
            **asdict(new),
            step=0,
            last_round=None,
            weights=start.weights,
            coverage_sum=0.0,
            optimizer_state=start.optimizer_state,
            defence_state=await begin_defence(connection, name, new.number),
            reason=None,
            closed_at=None,
            model_version=None,
            figures="{}",
        )
        await connection.execute(insert(unlearning_jobs).values(asdict(job)))
        n_joined = await move_erasures(connection, name, ErasureEvent.JOB_BEGUN, job=new.number)
        if n_joined == 0:
            raise ProtocolViolationError(f"no erasure of {name!r} waits for unlearning job {new.number}")
        body = {
            "job": new.number,
            "strategy": new.strategy,
            "start_version": new.start_version,
            "start_round": new.start_round,
            "n_erasures": n_joined,
        }
        await append_audit(connection, name, new.created_at, "job_started", body)
        return await with_defence(connection, job, new.number)


async def load_job(db: Database, name: str, number: int | None = None) -> UnlearningJobRow | None:
    """Find a job by number, or the open one; None if it does not exist."""
    which = unlearning_jobs.c.state.in_(OPEN_JOB) if number is None else unlearning_jobs.c.number == number
    async with db.reading() as connection:
        named = select(unlearning_jobs).where(unlearning_jobs.c.federation == name, which)
        job = await fetch_one(connection, UnlearningJobRow, named)
        return None if job is None else await with_defence(connection, job, job.number)


async def list_jobs(db: Database, name: str, limit: int = 100) -> list[UnlearningJobRow]:
    """List the newest jobs, newest last."""
    async with db.reading() as connection:
        newest_first = (
            select(unlearning_jobs)
            .where(unlearning_jobs.c.federation == name)
            .order_by(unlearning_jobs.c.number.desc())
            .limit(limit)
        )
        jobs = await fetch_all(connection, UnlearningJobRow, newest_first)
        return [await with_defence(connection, job, job.number) for job in jobs[::-1]]


async def job_erasures(db: Database, name: str, number: int) -> list[ErasureRow]:
    """List the erasures that are or were last in a job, oldest first."""
    async with db.reading() as connection:
        return await select_erasures(connection, name, erasures.c.job == number)


async def job_entries(db: Database, name: str, number: int, limit: int = MOST_NAMED) -> list[AuditEntry]:
    """List the audit entries that record the erasure of a job's clients, newest first."""
    of_client = (erasures.c.federation == audit_log.c.federation) & (erasures.c.erased_at == audit_log.c.at)
    # Two clients may have been erased at the same moment; the body names one of them.
    of_client &= audit_log.c.body.contains(erasures.c.pseudonym)
    statement = (
        select(audit_log)
        .join(erasures, of_client)
        .where(audit_log.c.federation == name, audit_log.c.kind == CLIENT_ERASED, erasures.c.job == number)
        .order_by(audit_log.c.seq.desc())
        .limit(limit)
    )
    async with db.reading() as connection:
        return [read_entry(row) for row in await connection.execute(statement)]


async def commit_step(db: Database, name: str, epoch: int, number: int, step: JobStep) -> None:
    """Store a finished step, or a slice of steps; repeating it changes nothing.

    Raises:
        ProtocolViolationError: the job is not running, or this is not its next step.
    """
    async with fenced_transaction(db, name, epoch) as connection:
        job = await _require(connection, name, number)
        if (job.step, job.weights) == (step.step, step.weights):
            return
        _require_state(job, JobState.RUNNING)
        if step.step != job.step + 1:
            raise ProtocolViolationError(f"step {step.step} of unlearning job {number} of {name!r}; {job.step} is done")
        defence_state = step.defence_state
        if defence_state is not None or job.defence_state is not None:
            defence_state = await store_defence(connection, name, number, defence_state)
        await _change(
            connection,
            job,
            step=step.step,
            n_steps=step.n_steps,
            last_round=step.round,
            weights=step.weights,
            coverage_sum=job.coverage_sum + step.coverage,
            optimizer_state=step.optimizer_state,
            defence_state=defence_state,
        )


async def pause_job(db: Database, name: str, epoch: int, number: int, reason: str) -> None:
    """Pause a job, with the reason; it later continues from its last step."""
    async with fenced_transaction(db, name, epoch) as connection:
        job = await _require(connection, name, number)
        _require_state(job, *OPEN_JOB)
        await _change(connection, job, state=JobState.PAUSED, reason=reason[:DETAIL_MAX])


async def resume_job(db: Database, name: str, epoch: int, number: int) -> None:
    """Let a paused job go on."""
    async with fenced_transaction(db, name, epoch) as connection:
        job = await _require(connection, name, number)
        _require_state(job, *OPEN_JOB)
        await _change(connection, job, state=JobState.RUNNING, reason=None)


async def fail_job(
    db: Database,
    name: str,
    epoch: int,
    number: int,
    reason: str,
    closed_at: datetime,
    noted: Sequence[NewEvent] = (),
) -> None:
    """Fail a job, with the reason; its erasures wait for another one."""
    async with fenced_transaction(db, name, epoch) as connection:
        job = await _require(connection, name, number)
        if job.state is JobState.FAILED:
            return
        _require_state(job, *OPEN_JOB)
        await _fail(connection, job, reason, closed_at)
        await store_events(connection, name, noted)


async def fail_open_job(connection: AsyncConnection, name: str, reason: str, closed_at: datetime) -> None:
    """Fail the open job, if any, within a transaction."""
    is_open = unlearning_jobs.c.federation == name, unlearning_jobs.c.state.in_(OPEN_JOB)
    job = await fetch_one(connection, UnlearningJobRow, select(unlearning_jobs).where(*is_open))
    if job is not None:
        await _fail(connection, job, reason, closed_at)


async def _fail(connection: AsyncConnection, job: UnlearningJobRow, reason: str, closed_at: datetime) -> None:
    name, number = job.federation, job.number
    await _close(connection, job, closed_at, state=JobState.FAILED, reason=reason[:DETAIL_MAX])
    await move_erasures(connection, name, ErasureEvent.JOB_FAILED, erasures.c.job == number)
    body = {"job": number, "strategy": job.strategy, "step": job.step, "reason": reason[:DETAIL_MAX]}
    await append_audit(connection, name, closed_at, "job_failed", body)


async def complete_job(
    db: Database, name: str, epoch: int, number: int, completion: JobCompletion, sign: Sign
) -> list[ErasureRow]:
    """Swap: the job's model becomes the newest, tainted ones lose their weights, erasures complete with receipts.

    The open round trains from a model that is withdrawn, so it is abandoned and the next one opened. If other erasures
    wait, the new model is tainted from the beginning, since they may be in its steps, and no client uses it as an
    anchor. Repeating it returns the job's erasures.

    Raises:
        ProtocolViolationError: the job is not running, or the version is not the next one.
    """
    at = completion.completed_at
    async with fenced_transaction(db, name, epoch) as connection:
        job = await _require(connection, name, number)
        if job.state is JobState.DONE and job.model_version == completion.version:
            return await select_erasures(connection, name, erasures.c.job == number)
        _require_state(job, JobState.RUNNING)
        newest = await connection.scalar(select(func.max(models.c.version)).where(models.c.federation == name))
        if completion.version != newest + 1:
            raise ProtocolViolationError(
                f"model {completion.version} of {name!r} from unlearning; {newest} is the newest"
            )
        # The former newest model and the anchor end their roles; a tainted model loses everything below.
        of_rounds = select(rounds.c.anchor_version).where(rounds.c.federation == name).order_by(rounds.c.number.desc())
        await forget_defence(connection, name, {newest, await connection.scalar(of_rounds.limit(1))}, keep=None)
        is_tainted = await _insert_model(connection, job, completion)
        if completion.abandons is not None:
            await close_without_model(connection, name, completion.abandons, AbandonReason.UNLEARNED, at)
        if (opening := completion.next_opening) is not None:
            await open_next(connection, name, replace(opening, anchor_version=None) if is_tainted else opening)
        withdrawn = await connection.execute(
            update(models)
            .where(models.c.federation == name, models.c.version < completion.version)
            .where(models.c.tainted_at.is_not(None), models.c.withdrawn_at.is_(None))
            .values(withdrawn_at=at, weights=None, optimizer_state=None, defence_state=None)
        )
        figures = dict(completion.figures)
        made = {"model_version": completion.version, "figures": json.dumps(figures)}
        await _close(connection, job, at, state=JobState.DONE, **made)
        await keep_defence(connection, name, number)
        body = {
            "job": number,
            "strategy": job.strategy,
            "model": completion.version,
            "models_withdrawn": withdrawn.rowcount,
        }
        await append_audit(connection, name, at, "job_completed", body)
        outcome = ErasureOutcome(
            job.strategy,
            at,
            rounds_replayed=job.step,
            model_before=newest,
            model_after=completion.version,
            models_withdrawn=withdrawn.rowcount,
            coverage=job.coverage,
            figures=figures,
        )
        finished = [
            await finish_erasure(connection, row, outcome, sign)
            for row in await select_erasures(connection, name, erasures.c.job == number)
            if row.state is ErasureState.UNLEARNING
        ]
        await store_events(connection, name, completion.events)
        await count_deletion(connection, name)
        failpoint(Failpoint.IN_SWAP_TRANSACTION)
    return finished


async def last_clean_model(db: Database, name: str, before_round: int) -> ModelRow | None:
    """Find an untainted model on which later ones build, the start of a rollback for a client that joined in a round.

    That is the newest, if models with the client's updates were taken back; else the newest made before that round.
    """
    # Of the first one, which has the lowest version: do not read all rounds since.
    made_since = (
        select(rounds.c.model_version)
        .where(rounds.c.federation == name, rounds.c.number >= before_round, rounds.c.model_version.is_not(None))
        .order_by(rounds.c.number)
        .limit(1)
    )
    async with db.reading() as connection:
        newest = await connection.scalar(select(func.max(models.c.version)).where(models.c.federation == name))
        first = await connection.scalar(made_since)
        clean = select(models).where(models.c.federation == name, models.c.tainted_at.is_(None))
        row = await fetch_one(connection, model_row, clean.where(models.c.version == newest))
        if row is None:
            made_before = clean.where(~is_taken_back(name, models.c.version))
            if first is not None:
                made_before = made_before.where(models.c.version < first)
            row = await fetch_one(connection, model_row, made_before.order_by(models.c.version.desc()).limit(1))
        return None if row is None else await with_memory(connection, row)


async def list_stored_rounds(db: Database, name: str, first: int, limit: int) -> list[int]:
    """List the completed rounds from ``first`` on that unlearning can replay: their updates are stored.

    Returns at most ``limit`` rounds; fewer mean that it reached the last.
    """
    async with db.reading() as connection:
        numbers = await connection.scalars(
            select(stored_rounds.c.round)
            .where(stored_rounds.c.federation == name, stored_rounds.c.round >= first)
            .order_by(stored_rounds.c.round)
            .limit(limit)
        )
        return list(numbers)


async def _insert_model(connection: AsyncConnection, job: UnlearningJobRow, completion: JobCompletion) -> bool:
    """Store the job's model; return whether it is tainted."""
    name = job.federation
    others = await connection.scalar(
        select(func.count())
        .select_from(erasures)
        .where(erasures.c.federation == name, erasures.c.state.in_(_NOT_IN_A_JOB))
        .where(erasures.c.first_round.is_not(None))
    )
    weights = job.weights or b""
    await connection.execute(
        insert(models).values(
            federation=name,
            version=completion.version,
            base_version=job.start_version,
            unlearning_job=job.number,
            n_values=len(weights) // 4,
            weights=weights,
            created_at=completion.completed_at,
            weights_hash=model_hash(weights),
            optimizer_state=completion.optimizer_state,
            defence_state=await store_defence(connection, name, ROUNDS, completion.defence_state),
            tainted_at=completion.completed_at if others else None,
        )
    )
    return bool(others)


async def _find(connection: AsyncConnection, name: str, number: int) -> UnlearningJobRow | None:
    return await fetch_one(
        connection,
        UnlearningJobRow,
        select(unlearning_jobs).where(unlearning_jobs.c.federation == name, unlearning_jobs.c.number == number),
    )


async def _require(connection: AsyncConnection, name: str, number: int) -> UnlearningJobRow:
    job = await _find(connection, name, number)
    if job is None:
        raise ProtocolViolationError(f"federation {name!r} has no unlearning job {number}")
    return job


def _require_state(job: UnlearningJobRow, *states: JobState) -> None:
    if job.state not in states:
        raise ProtocolViolationError(
            f"unlearning job {job.number} of {job.federation!r} is {job.state}, not {' or '.join(states)}"
        )


async def _change(connection: AsyncConnection, job: UnlearningJobRow, **values: Any) -> None:
    await connection.execute(
        update(unlearning_jobs)
        .where(unlearning_jobs.c.federation == job.federation, unlearning_jobs.c.number == job.number)
        .values(**values)
    )


async def _close(connection: AsyncConnection, job: UnlearningJobRow, at: datetime, **outcome: Any) -> None:
    # Delete its models so far: they may contain updates of a client that is erased later.
    gone = {"weights": None, "optimizer_state": None, "defence_state": None}
    await delete_defence(connection, job.federation, job.number)
    await _change(connection, job, closed_at=at, **({"reason": None} | gone | outcome))
