"""Runs unlearning jobs: one step after the other over MQTT, beside the live rounds, until the model can be swapped.

The single writer drives it (`federator.actor`). A step's model is committed before the next one is announced, so a
federator that starts again goes on with the step that was under way.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Any, Literal

import numpy as np
import structlog
from numpy.typing import NDArray

from federator.clock import Clock, to_datetime
from federator.closing.stored_rules import round_rng
from federator.deciding.members import Members
from federator.job import (
    Contribution,
    UnlearningStep,
    n_rounds_ahead,
)
from federator.plan import FederationPlan
from federator.publishing.retained import RetainedTopics
from foltr.erasure.states import ErasureState
from foltr.errors import DataError
from foltr.failpoints import Failpoint, failpoint
from foltr.methods.base import Memory
from foltr.methods.bodies import unpack_body
from foltr.methods.registry import learns_from_kept_lists, make_aggregation, n_auxiliary
from foltr.protocol.announcements import UnlearningProgress, UnlearningRound
from foltr.protocol.fields import pack_vector, unpack_vector
from foltr.protocol.states import JobState, Strategy
from foltr.protocol.topics import Topics
from foltr.protocol.updates import DenseDelta, PartDelta, UnlearningUpdate, UpdateBody
from foltr.unlearning.calibration import calibrated
from foltr.unlearning.measures import cosine, relative_distance
from storage.database import Database
from storage.erasure.erasures import waiting_erasures
from storage.erasure.records import ErasureRow, JobStep, NewJob, UnlearningJobRow
from storage.erasure.unlearning_jobs import (
    commit_step,
    create_job,
    fail_job,
    job_erasures,
    last_clean_model,
    list_jobs,
    load_job,
    pause_job,
    resume_job,
    stored_rounds,
)
from storage.records import NewEvent
from storage.rounds import first_round_on, stream_updates

log = structlog.get_logger(__name__)

# So often a step is asked again while members are online; then it is passed over.
_MOST_MISSES = 3


class Unlearner:
    """The unlearning jobs of one federation.

    Args:
        aggregation_seed: as of the rounds; a step draws as the stored round that it stands for.
        persist: runs a transaction, again while the database is away.
        note: stores an event.
    """

    def __init__(
        self,
        plan: FederationPlan,
        db: Database,
        clock: Clock,
        members: Members,
        retained: RetainedTopics,
        persist: Callable[[Callable[[], Awaitable[Any]]], Awaitable[Any]],
        note: Callable[[NewEvent], Awaitable[None]],
    ) -> None:
        self._plan = plan
        self._policy = plan.unlearning
        self._db = db
        self._clock = clock
        self._members = members
        self._retained = retained
        self._topics = Topics(plan.federation)
        self._persist = persist
        self._note = note
        self._epoch = 0
        self._seed = b""
        self._job: UnlearningJobRow | None = None
        self._step: UnlearningStep | None = None
        self._begin_at = math.inf
        # The stored round of the last step, the newest to go through before the interval grows, and the interval.
        self._after: int | None = None
        self._horizon, self._interval = 0, 1
        # The job has gone through all stored rounds, and waits for a moment between two live ones.
        self._caught_up = False
        # Since when a step has been asked with no member online.
        self._alone_since = math.inf
        # Clients that the job is for.
        self._n_leaving = 0
        # Members that were online and let a step's deadline pass: they have nothing to learn from.
        self._silent: set[str] = set()

    @property
    def job(self) -> UnlearningJobRow | None:
        """The open one."""
        return self._job

    @property
    def busy(self) -> bool:
        """Whether a job runs, or is about to; a paused one waits for devices, and nobody for it."""
        running = self._job is not None and self._job.state is JobState.RUNNING
        return running or math.isfinite(self._begin_at)

    @property
    def idle(self) -> bool:
        """Whether there is no job, not even a paused one, and none is about to begin."""
        return self._job is None and not math.isfinite(self._begin_at)

    async def start(self, epoch: int, aggregation_seed: bytes) -> None:
        """Go on with the job of the last federator, or begin one for the erasures that wait."""
        self._epoch, self._seed = epoch, aggregation_seed
        self._job, self._step = await load_job(self._db, self._plan.federation), None
        self._caught_up = False
        for job in await list_jobs(self._db, self._plan.federation):
            # How far it was, or that it is done, perhaps never told: whoever asks is told more than that.
            if self._job is None or job.number != self._job.number:
                self._retained.put(self._topics.unlearning_job(job.number), None)
        if self._job is not None:
            await self._resume()
            return
        self._retained.put(self._topics.unlearning_round, None)
        if await waiting_erasures(self._db, self._plan.federation):
            self._begin_at = self._clock.now()

    async def erased(self, client_id: str, row: ErasureRow | None) -> None:
        """A client was erased; None: there was nothing of it.

        Those who come together share one job, and who comes during one waits for the next.
        """
        if row is None:
            return
        self._silent.discard(client_id)
        if self._step is not None:
            self._step.forget(client_id)
        if self._job is not None:
            self._job = await self._reloaded(self._job)  # what its rule remembers was changed, too
        if row.state is ErasureState.WAITING and self._job is None and not math.isfinite(self._begin_at):
            self._begin_at = self._clock.now() + self._policy.delay_s

    def take(self, update: UnlearningUpdate) -> None:
        """Take an answer; one that fits no step that is open is nobody's loss: the step is made without it."""
        if self._step is not None:
            self._step.take(update)

    def wake_at(self) -> float:
        """When `advance` may have something to do although no message arrived; epoch seconds."""
        if self._job is None:
            return self._begin_at
        if self._job.state is not JobState.RUNNING or self._caught_up:
            return math.inf
        return self._clock.now() if self._step is None else self._step.wake_at()

    async def back_online(self) -> None:
        """A member is connected: a paused job goes on."""
        if self._job is not None and self._job.state is JobState.PAUSED:
            await self._resume()

    async def advance(self, now: float) -> UnlearningJobRow | None:
        """Do what is due; the job once it has caught up with the live rounds, and its model is to be swapped in."""
        if self._job is None:
            if now < self._begin_at:
                return None
            self._begin_at = math.inf
            await self._begin(self._policy.strategy)
        job = self._job
        if job is None or job.state is not JobState.RUNNING or self._caught_up:
            return None
        if self._step is None:
            return await self._next_step()
        if self._step.is_over(now):
            await self._end_step(self._step)
            return await self._next_step()
        if self._step.is_missed(now):
            await self._missed(self._step)
        return None

    async def swapped(self, job: UnlearningJobRow, version: int) -> None:
        """The model is in service: tell, and begin the next job if somebody waits for it."""
        self._tell(job, version=version)
        self._retained.put(self._topics.unlearning_round, None)
        self._job, self._step, self._caught_up = None, None, False
        if await self._persist(lambda: waiting_erasures(self._db, self._plan.federation)):
            self._begin_at = self._clock.now() + self._policy.delay_s

    # --- a job ----------------------------------------------------------------------------------------------

    async def _begin(self, strategy: Strategy) -> None:
        name = self._plan.federation
        waiting = await self._persist(lambda: waiting_erasures(self._db, name))
        if not waiting:
            return
        by_steps = learns_from_kept_lists(self._plan.training, self._plan.ranker)
        strategy = strategy if by_steps else Strategy.RETRAIN
        version, first = 0, 1
        if strategy is Strategy.ROLLBACK:
            left_at = min(row.first_round for row in waiting if row.first_round is not None)
            model = await self._persist(lambda: last_clean_model(self._db, name, left_at))
            if model is not None and model.version > 0:
                version = model.version
                since = await self._persist(lambda: first_round_on(self._db, name, version))
                first = left_at if since is None else since
        stored = await self._stored(first) if by_steps else []
        interval = self._policy.interval_of(strategy, len(stored))
        newest = max((job.number for job in await self._persist(lambda: list_jobs(self._db, name))), default=0)
        new = NewJob(
            newest + 1,
            strategy,
            interval,
            self._policy.n_asked(strategy, self._plan.training.max_interactions),
            to_datetime(self._clock.now()),
            version,
            first,
            n_rounds_ahead(stored, None, interval),
        )
        self._job = await self._persist(lambda: create_job(self._db, name, self._epoch, new))
        if newest:
            self._retained.put(self._topics.unlearning_job(newest), None)  # it is over, and nobody waits for it
        self._after, self._step, self._n_leaving = None, None, len(waiting)
        self._horizon, self._interval = stored[-1] if stored else 0, interval
        detail = f"job {new.number}: {strategy} from model {version}, {new.n_steps} steps, {len(waiting)} clients"
        await self._note(NewEvent(new.created_at, "unlearning_started", detail))
        log.info("unlearning_started", job=new.number, strategy=strategy, n_steps=new.n_steps, n_clients=len(waiting))

    async def _resume(self) -> None:
        job = self._job
        if job is None:
            return
        if job.state is JobState.PAUSED:
            await self._persist(lambda: resume_job(self._db, self._plan.federation, self._epoch, job.number))
            self._job = await self._reloaded(job)
        self._after, self._step = job.last_round, None
        self._n_leaving = len(await self._persist(lambda: job_erasures(self._db, self._plan.federation, job.number)))
        stored = await self._stored(job.start_round)
        self._horizon, self._interval = stored[-1] if stored else 0, job.interval
        log.info("unlearning_resumed", job=job.number, step=job.step)

    async def _reloaded(self, job: UnlearningJobRow) -> UnlearningJobRow:
        found: UnlearningJobRow | None = await self._persist(
            lambda: load_job(self._db, self._plan.federation, job.number)
        )
        if found is None:
            raise RuntimeError(f"unlearning job {job.number} is gone")
        return found

    async def _next_step(self) -> UnlearningJobRow | None:
        """Announce the next step; the job if there is none."""
        job = self._job
        if job is None:
            return None
        ahead = await self._ahead(job)
        if not ahead:
            self._step = None
            return await self._finished(job)
        number = ahead[0]
        stored = await self._persist(lambda: self._contributions(number))
        asked = {name: sent for name, sent in stored.items() if self._members.takes_part(name)}
        now, online = self._clock.now(), set(self._members.online())
        self._step = UnlearningStep(
            job.number,
            job.step + 1,
            number,
            len(stored),
            asked,
            asked.keys() & online - self._silent,
            self._plan.policy.min_clients,
            now,
            now + self._policy.step_s,
        )
        self._alone_since = math.inf
        if asked:
            self._announce(job, self._step)
        self._tell(job)
        return None

    async def _ahead(self, job: UnlearningJobRow) -> list[int]:
        """The stored rounds that are still to be gone through, one step each; none once it has caught up.

        Live rounds go on meanwhile, perhaps faster than steps. So the interval doubles for those that came during the
        job, and once more for those that came during these: it ends however fast they come.
        """
        while learns_from_kept_lists(self._plan.training, self._plan.ranker):
            first = job.start_round if self._after is None else self._after + self._interval
            stored = await self._stored(first)
            if not stored:
                return []
            if stored[0] <= self._horizon:
                return [number for number in stored if number <= self._horizon]
            self._horizon, self._interval = stored[-1], 2 * self._interval
        return []

    async def _stored(self, first: int) -> list[int]:
        found: list[int] = await self._persist(lambda: stored_rounds(self._db, self._plan.federation, first))
        return found

    async def _finished(self, job: UnlearningJobRow) -> UnlearningJobRow | None:
        coverage = job.coverage_sum / job.step if job.step else 1.0
        if job.strategy is Strategy.RETRAIN or coverage >= self._policy.min_coverage:
            if not self._caught_up:
                self._tell(job)
            self._caught_up = True
            return job
        reason = f"coverage {coverage:.2f} is below {self._policy.min_coverage:g}; the job begins again as retrain"
        at = to_datetime(self._clock.now())
        await self._persist(lambda: fail_job(self._db, self._plan.federation, self._epoch, job.number, reason, at))
        log.warning("unlearning_fell_back", job=job.number, cause=reason)
        self._job = self._step = None
        self._retained.put(self._topics.unlearning_round, None)
        await self._begin(Strategy.RETRAIN)
        return None

    # --- a step ---------------------------------------------------------------------------------------------

    async def _contributions(self, number: int) -> dict[str, Contribution]:
        """What was sent in a round, but for what cannot be read: a key was lost, or destroyed since a backup."""
        found = {}
        async for row in stream_updates(self._db, self._plan.federation, number, readable_only=True):
            values = _values(unpack_body(row.encoding, row.body, self._plan.n_values))
            found[row.client_id] = Contribution(float(np.linalg.norm(values.astype(np.float64))), row.n_interactions)
        return found

    def _announce(self, job: UnlearningJobRow, step: UnlearningStep) -> None:
        self._retained.put(
            self._topics.unlearning_round,
            UnlearningRound(
                federation=self._plan.federation,
                job=job.number,
                step=step.number,
                open=True,
                ranker=self._plan.ranker,
                n_auxiliary=n_auxiliary(self._plan.training, self._plan.ranker),
                weights=_weights(job),
                n_local=job.n_local,
                closes_at=step.closes_at,
                training=self._plan.training,
            ),
        )

    def _tell(self, job: UnlearningJobRow, *, version: int | None = None) -> None:
        """How far a job is; with the version of its model it is done."""
        state: Literal[JobState.RUNNING, JobState.PAUSED]
        state = JobState.PAUSED if job.state is JobState.PAUSED else JobState.RUNNING
        self._retained.put(
            self._topics.unlearning_job(job.number),
            UnlearningProgress(
                federation=self._plan.federation,
                job=job.number,
                state=JobState.DONE if version is not None else state,
                strategy=job.strategy,
                step=job.step,
                n_steps=max(job.n_steps, job.step),
                n_clients=self._n_leaving,
                coverage=job.coverage_sum / job.step if job.step else None,
                model_version=version,
                detail=job.reason or "",
            ),
        )

    async def _end_step(self, step: UnlearningStep) -> None:
        """Aggregate the answers by the federation's rule, and commit what they make."""
        job, plan = self._job, self._plan
        if job is None:
            return
        self._silent = (self._silent | step.awaited) - step.answers.keys()
        weights, memory = unpack_vector(_weights(job)), Memory(job.optimizer_state, job.defence_state)
        made_weights = weights
        learned = False
        if step.answers and step.has_enough:
            aggregation = make_aggregation(
                plan.training,
                plan.ranker,
                plan.policy.rule,
                n_expected=len(step.answers),
                rng=round_rng(self._seed, step.round),
            )
            for client_id in sorted(step.answers):
                update, before = step.answers[client_id], step.asked[client_id]
                body = update.body if job.strategy is Strategy.RETRAIN else _calibrated(update.body, before.length)
                # Never more than it was asked for: that is its weight.
                now = min(update.n_interactions, job.n_local)
                aggregation.add(
                    body, now if job.strategy is Strategy.RETRAIN else before.n_interactions, 1.0, client_id
                )
            try:
                made = await asyncio.to_thread(aggregation.finish, weights, memory)
            except DataError as error:
                # As in a live round no model comes of it; the step is passed over.
                log.warning("unlearning_step_without_model", job=job.number, step=step.number, cause=str(error))
            else:
                made_weights, memory, learned = made.weights, made.memory, True
        self._after = step.round
        ahead = await self._ahead(job)
        committed = JobStep(
            step.number,
            step.round,
            step.number + n_rounds_ahead(ahead, step.round, self._interval),
            pack_vector(made_weights),
            step.coverage if learned else 0.0,
            memory.optimiser,
            memory.defence,
        )
        await self._persist(lambda: commit_step(self._db, plan.federation, self._epoch, job.number, committed))
        failpoint(Failpoint.STEP_COMMITTED)
        self._job, self._step = await self._reloaded(job), None

    async def _missed(self, step: UnlearningStep) -> None:
        """Ask again, a few times; or, while nobody at all is online, wait until somebody is back."""
        now, job = self._clock.now(), self._job
        if job is None:
            return
        self._silent |= step.awaited - step.answers.keys()
        step.n_missed += 1
        detail = f"job {job.number}, step {step.number}: {len(step.answers)} of {len(step.asked)} answered"
        await self._note(NewEvent(to_datetime(now), "unlearning_step_missed", detail))
        if any(self._members.online()):
            self._alone_since = math.inf
            if step.n_missed >= _MOST_MISSES:
                # Others have more to say to other rounds; this one counts as not covered.
                await self._end_step(step)
                return
        else:
            self._alone_since = min(self._alone_since, now - self._policy.step_s)
            if now - self._alone_since >= self._policy.patience_s:
                await self._pause(job, f"no device is online at step {step.number}", now)
                return
        step.closes_at = now + self._policy.step_s
        self._announce(job, step)

    async def _pause(self, job: UnlearningJobRow, reason: str, now: float) -> None:
        await self._persist(lambda: pause_job(self._db, self._plan.federation, self._epoch, job.number, reason))
        self._job, self._step = await self._reloaded(job), None
        self._tell(self._job)
        await self._note(NewEvent(to_datetime(now), "unlearning_paused", f"job {job.number}: {reason}"))
        log.warning("unlearning_paused", job=job.number, cause=reason)


def figures_of_swap(before: NDArray[np.float32], after: NDArray[np.float32]) -> dict[str, float]:
    """How far the unlearned weights are from those they replace; nothing where one of them is all zeros."""
    if not before.any() or not after.any():
        return {}
    return {"relative_distance": relative_distance(after, before), "cosine": cosine(after, before)}


def _weights(job: UnlearningJobRow) -> bytes:
    if job.weights is None:
        raise RuntimeError(f"unlearning job {job.number} is closed")
    return job.weights


def _values(body: UpdateBody) -> NDArray[np.float32]:
    if not isinstance(body, DenseDelta | PartDelta):
        raise DataError(f"an update of kind {body.kind} has no length")
    return unpack_vector(body.values)


def _calibrated(body: UpdateBody, length: float) -> UpdateBody:
    """The new direction with the old length (thesis, Eq. 6.2)."""
    values = pack_vector(calibrated(length, _values(body)))
    return body.model_copy(update={"values": values})
