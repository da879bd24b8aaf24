"""Makes the announcements of an unlearning job: the question of a step, and the job's progress."""

from collections.abc import Sequence
from typing import Literal

from foltr.core.erasure.audit import AuditEntry
from foltr.core.methods.registry import n_auxiliary
from foltr.core.protocol.announcements import NamedErasure, UnlearningProgress, UnlearningRound
from foltr.core.protocol.states import JobState
from foltr.federator.job import UnlearningStep
from foltr.federator.plan import FederationPlan
from foltr.storage.erasure_records import UnlearningJobRow


def step_announcement(
    plan: FederationPlan, job: UnlearningJobRow, step: UnlearningStep, erased: Sequence[AuditEntry]
) -> UnlearningRound:
    """Make the announcement of an open step; it names the audit entries of the erased clients."""
    return UnlearningRound(
        federation=plan.federation,
        job=job.number,
        step=step.number,
        open=True,
        ranker=plan.ranker,
        n_auxiliary=n_auxiliary(plan.training, plan.ranker),
        weights=job.made_weights(),
        local_interactions=job.local_interactions,
        erasures=[NamedErasure(audit_seq=one.seq, audit_hash=bytes.fromhex(one.hash)) for one in erased],
        closes_at=step.closes_at,
        training=plan.training,
        schema_hash=plan.schema_hash,
    )


def job_progress(job: UnlearningJobRow, n_clients: int, version: int | None) -> UnlearningProgress:
    """Make the progress of a job for so many clients; with the version of its model it is done."""
    state: Literal[JobState.RUNNING, JobState.PAUSED, JobState.DONE]
    state = JobState.PAUSED if job.state is JobState.PAUSED else JobState.RUNNING
    return UnlearningProgress(
        federation=job.federation,
        job=job.number,
        state=state if version is None else JobState.DONE,
        strategy=job.strategy,
        step=job.step,
        n_steps=max(job.n_steps, job.step),
        n_clients=n_clients,
        coverage=job.coverage,
        model_version=version,
        detail=job.reason or "",
    )
