"""Unlearning jobs in the simulated database, with what else only they need, and the store with all of it."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from simulation.changes import add_model, close_without_model, note_events, open_next
from simulation.database import NAME, Tables, is_made_of, require, row_of
from simulation.store import transaction
from simulation.store_erasure import ErasureStore, append_audit, count_deletion, finish_erasure, put_erasure, those

from foltr.core.aggregation.client_records import with_progress_of
from foltr.core.erasure.audit import AuditEntry
from foltr.core.erasure.states import ErasureState
from foltr.core.failpoints import Failpoint
from foltr.core.protocol.announcements import MOST_NAMED
from foltr.core.protocol.states import OPEN_JOB, AbandonReason, JobState, RoundState
from foltr.storage.erasure_records import (
    ErasureOutcome,
    ErasureRow,
    JobCompletion,
    JobStep,
    NewJob,
    Sign,
    UnlearningJobRow,
)
from foltr.storage.records import ModelRow, NewEvent
from foltr.storage.restored_records import RestoredVersion


def _swap(tables: Tables, job: UnlearningJobRow, completion: JobCompletion, sign: Sign) -> list[ErasureRow]:
    at, version, newest = completion.completed_at, completion.version, max(tables.models)
    _require_state(job, JobState.RUNNING)
    require(version == newest + 1, f"model {version} from unlearning; {newest} is the newest")
    others = those(
        tables, lambda row: row.state in (ErasureState.ERASED, ErasureState.WAITING) and row.first_round is not None
    )
    add_model(
        tables,
        version,
        job.weights or b"",
        at,
        base_version=job.start_version,
        optimizer_state=completion.optimizer_state,
        defence_state=completion.defence_state,
        tainted_at=at if others else None,
        unlearning_job=job.number,
    )
    if completion.abandons is not None:
        close_without_model(tables, completion.abandons, "unlearned", at)
    if completion.next_opening is not None:
        open_next(tables, completion.next_opening)
    n_withdrawn = withdraw(tables, version, at)
    figures = dict(completion.figures)
    _close_job(tables, job, at, state=JobState.DONE, model_version=version, figures=json.dumps(figures))
    body = {"job": job.number, "strategy": job.strategy, "model": version, "models_withdrawn": n_withdrawn}
    append_audit(tables, at, "job_completed", body)
    outcome = ErasureOutcome(job.strategy, at, job.step, newest, version, n_withdrawn, job.coverage, figures)
    unlearned = those(tables, lambda row: row.job == job.number and row.state is ErasureState.UNLEARNING)
    finished = [finish_erasure(tables, row, outcome, sign) for row in unlearned]
    note_events(tables, completion.events)
    return finished


def withdraw(tables: Tables, before: int, at: datetime) -> int:
    """Delete the weights of tainted models below a version; of how many."""
    tainted = [model for model in tables.models.values() if model.version < before and model.tainted_at is not None]
    withdrawn = [model for model in tainted if model.withdrawn_at is None]
    for model in withdrawn:
        tables.models[model.version] = replace(
            model, withdrawn_at=at, weights=b"", optimizer_state=None, defence_state=None
        )
    return len(withdrawn)


def _put_job(tables: Tables, job: UnlearningJobRow) -> None:
    is_open = job.state in OPEN_JOB
    require(
        job.number >= 1 and job.interval >= 1 and job.local_interactions >= 1 and job.start_round >= 1, "ck_jobs_plan"
    )
    require(job.n_steps >= job.step >= 0, "ck_unlearning_jobs_steps")
    require(0 <= job.coverage_sum <= job.step, "ck_unlearning_jobs_coverage_sum")
    require(is_open == (job.weights is not None), "ck_unlearning_jobs_weights_iff_open")
    require(is_open == (job.closed_at is None), "ck_unlearning_jobs_closed_at_iff_closed")
    require(
        (job.state in (JobState.PAUSED, JobState.FAILED)) == (job.reason is not None),
        "ck_unlearning_jobs_reason_iff_not_well",
    )
    require(
        (job.state is JobState.DONE) == (job.model_version is not None), "ck_unlearning_jobs_model_version_iff_done"
    )
    tables.jobs[job.number] = job


def _require_state(job: UnlearningJobRow, *states: str) -> None:
    require(job.state in states, f"unlearning job {job.number} is {job.state}, not {' or '.join(states)}")


def _change_state(tables: Tables, number: int, state: str, reason: str | None) -> None:
    _require_state(tables.jobs[number], *OPEN_JOB)
    _put_job(tables, replace(tables.jobs[number], state=state, reason=reason))


def _close_job(tables: Tables, job: UnlearningJobRow, at: datetime, **outcome: Any) -> None:
    gone: dict[str, Any] = {"weights": None, "optimizer_state": None, "defence_state": None}
    _put_job(tables, replace(job, closed_at=at, **({"reason": None} | gone | outcome)))


class SimulatedFederationStore(ErasureStore):
    """All of `foltr.federator.store.FederationStore`, on the simulated database; its federators have no anchor."""

    async def restored_versions(self) -> list[RestoredVersion]:
        return []

    async def count_suspects_alone(self, number: int) -> int:
        rounds = [row for row in (await self.look()).rounds.values() if row.number < number]
        last = max((row.number for row in rounds if row.state is RoundState.COMPLETED), default=0)
        alone = [row for row in rounds if row.number > last and row.reason == AbandonReason.ONLY_SUSPECTS]
        return sum((row.n_updates or 0) < row.max_clients for row in alone)

    @transaction
    def create_job(self, tables: Tables, new: NewJob) -> UnlearningJobRow:
        known = tables.jobs.get(new.number)
        if known is not None:
            is_same = is_made_of(known, new, "n_steps")
            require(is_same, f"unlearning job {new.number} was created before, differently")
            return known
        start = tables.models.get(new.start_version)
        require(start is not None and start.tainted_at is None, f"model {new.start_version} is tainted or not there")
        require(all(job.state not in OPEN_JOB for job in tables.jobs.values()), "uq_unlearning_jobs_one_open")
        evidence = tables.models[max(tables.models)].defence_state
        job = row_of(
            UnlearningJobRow,
            new,
            federation=NAME,
            state=JobState.RUNNING,
            step=0,
            weights=start.weights,
            coverage_sum=0.0,
            optimizer_state=start.optimizer_state,
            defence_state=None if evidence is None else with_progress_of(evidence, None),
            figures="{}",
        )
        _put_job(tables, job)
        joined = those(tables, lambda row: row.state is ErasureState.WAITING)
        require(bool(joined), f"no erasure waits for unlearning job {new.number}")
        for row in joined:
            put_erasure(tables, replace(row, state=ErasureState.UNLEARNING, job=new.number))
        begun = {name: getattr(new, name) for name in ("strategy", "start_version", "start_round")}
        append_audit(tables, new.created_at, "job_started", {"job": new.number, **begun, "n_erasures": len(joined)})
        return job

    async def load_job(self, number: int | None = None) -> UnlearningJobRow | None:
        jobs = (await self.look()).jobs
        if number is not None:
            return jobs.get(number)
        return next((job for job in jobs.values() if job.state in OPEN_JOB), None)

    async def list_jobs(self, limit: int = 100) -> list[UnlearningJobRow]:
        jobs = (await self.look()).jobs
        return [jobs[number] for number in sorted(jobs)][-limit:]

    async def job_erasures(self, number: int) -> list[ErasureRow]:
        return those(await self.look(), lambda row: row.job == number)

    async def job_entries(self, number: int, limit: int = MOST_NAMED) -> list[AuditEntry]:
        tables = await self.look()
        of_job = {row.pseudonym for row in those(tables, lambda row: row.job == number)}
        newest_first = [entry for entry in reversed(tables.audit) if entry.kind == "client_erased"]
        return [entry for entry in newest_first if entry.body["pseudonym"] in of_job][:limit]

    @transaction
    def commit_step(self, tables: Tables, number: int, step: JobStep) -> None:
        job = tables.jobs[number]
        if (job.step, job.weights) == (step.step, step.weights):
            return
        _require_state(job, JobState.RUNNING)
        require(step.step == job.step + 1, f"step {step.step} of unlearning job {number}; {job.step} is done")
        made = ("step", "n_steps", "weights", "optimizer_state", "defence_state")
        done = {name: getattr(step, name) for name in made}
        _put_job(tables, replace(job, last_round=step.round, coverage_sum=job.coverage_sum + step.coverage, **done))

    @transaction
    def pause_job(self, tables: Tables, number: int, reason: str) -> None:
        _change_state(tables, number, JobState.PAUSED, reason)

    @transaction
    def resume_job(self, tables: Tables, number: int) -> None:
        _change_state(tables, number, JobState.RUNNING, None)

    @transaction
    def fail_job(
        self, tables: Tables, number: int, reason: str, closed_at: datetime, noted: Sequence[NewEvent] = ()
    ) -> None:
        job = tables.jobs[number]
        if job.state is JobState.FAILED:
            return
        _require_state(job, *OPEN_JOB)
        _close_job(tables, job, closed_at, state=JobState.FAILED, reason=reason)
        for row in those(tables, lambda row: row.job == number and row.state is ErasureState.UNLEARNING):
            put_erasure(tables, replace(row, state=ErasureState.WAITING))
        body = {"job": number, "strategy": job.strategy, "step": job.step, "reason": reason}
        append_audit(tables, closed_at, "job_failed", body)
        note_events(tables, noted)

    @transaction
    def complete_job(self, tables: Tables, number: int, completion: JobCompletion, sign: Sign) -> list[ErasureRow]:
        job = tables.jobs[number]
        if job.state is JobState.DONE and job.model_version == completion.version:
            return those(tables, lambda row: row.job == number)
        finished = _swap(tables, job, completion, sign)
        count_deletion(tables)
        self.session.pass_failpoint(Failpoint.IN_SWAP_TRANSACTION)
        return finished

    async def load_trainings(self) -> dict[int, str]:
        return (await self.look()).trainings

    async def newest_unlearned(self) -> int:
        models = (await self.look()).models.values()
        return max((model.version for model in models if model.unlearning_job is not None), default=0)

    async def last_clean_model(self, before_round: int) -> ModelRow | None:
        tables = await self.look()
        since = [
            row.model_version
            for row in tables.rounds.values()
            if row.number >= before_round and row.model_version is not None
        ]
        first, newest = min(since, default=None), tables.models[max(tables.models)]
        if newest.tainted_at is None:
            return newest
        clean = [
            version
            for version, model in tables.models.items()
            if model.tainted_at is None and (first is None or version < first)
        ]
        return tables.models[max(clean)] if clean else None

    async def first_round_on(self, version: int) -> int | None:
        rounds = (await self.look()).rounds.values()
        return min((row.number for row in rounds if row.base_version >= version), default=None)

    async def list_stored_rounds(self, first: int, limit: int) -> list[int]:
        tables = await self.look()
        held = {number for number, _ in tables.updates}
        held -= {number for (number, _), row in tables.updates.items() if row.body is None}
        found = (number for number in sorted(held) if tables.rounds[number].state is RoundState.COMPLETED)
        return [number for number in found if number >= first][:limit]
