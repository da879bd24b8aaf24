"""Runs unlearning jobs: one step after another over MQTT, beside the live rounds, until the model can be swapped.

The thin shell of `foltr.federator.job`: it asks the machine what is due, reads, announces and commits, and then moves
the machine. A step's model is committed before the next one is announced, so a federator that starts again repeats only
the step under way. The single writer drives it (`foltr.federator.actor`).
"""

from collections.abc import Awaitable, Callable, Collection, Sequence
from datetime import datetime

import structlog

from foltr.core.erasure.audit import AuditEntry
from foltr.core.erasure.states import ErasureState
from foltr.core.failpoints import Failpoint, failpoint
from foltr.core.protocol.fields import pack_vector
from foltr.core.protocol.states import JobState, Strategy
from foltr.core.protocol.topics import Topics
from foltr.core.unlearning.schedule import ReplayProgress
from foltr.federator.clock import Clock, to_datetime
from foltr.federator.closing.step_model import contributions_of, model_of_step
from foltr.federator.deciding.decisions import Decisions
from foltr.federator.deciding.state import FederationState
from foltr.federator.gathering import (
    find_held,
    is_ordered_reset,
    list_stored,
    needs_reset_order,
    next_job_start,
    next_number,
    starting_point,
    strategy_of_next,
    warn_if_late,
)
from foltr.federator.job import JobAction, MissedStepAction, Phase, Unlearning, UnlearningStep
from foltr.federator.plan import FederationPlan
from foltr.federator.publishing.audit_heads import AuditHeads
from foltr.federator.publishing.retained import RetainedTopics
from foltr.federator.publishing.unlearning import job_progress, step_announcement
from foltr.federator.store import FederationStore, stream_updates
from foltr.storage.erasure_records import ErasureRow, JobStep, NewJob, UnlearningJobRow
from foltr.storage.records import NewEvent

log = structlog.get_logger(__name__)


class Unlearner:
    """The unlearning jobs of one federation.

    Args:
        note: stores an event.
        suspects: returns the clients that are left out of rounds; steps leave them out too.
    """

    def __init__(
        self,
        plan: FederationPlan,
        store: FederationStore,
        clock: Clock,
        state: FederationState,
        retained: RetainedTopics,
        note: Callable[[NewEvent], Awaitable[None]],
        suspects: Callable[[], Collection[str]],
    ) -> None:
        self._plan = plan
        self._name = plan.federation
        self._policy = plan.unlearning
        self._store = store
        self._clock = clock
        self._state = state
        self._members = state.members
        self._retained = retained
        self._topics = Topics(plan.federation)
        self._heads = AuditHeads(plan.federation, store, retained)
        self._note = note
        self._suspects = suspects
        self._seed = b""
        self.machine = Unlearning(plan.unlearning)
        # The open job, as stored.
        self._row: UnlearningJobRow | None = None
        self._erased: Sequence[AuditEntry] = ()  # of its clients

    @property
    def caught_up(self) -> UnlearningJobRow | None:
        """The job whose model is ready to be put in service, if any."""
        return self._row if self.machine.phase is Phase.CAUGHT_UP else None

    async def start(self, aggregation_seed: bytes) -> None:
        """Continue the job of the last federator, or begin one for the waiting erasures."""
        self._seed = aggregation_seed
        self.machine = Unlearning(self._policy)
        self._row = await self._store.load_job()
        jobs = await self._store.list_jobs()
        for job in jobs:
            # Its state may never have been announced, and is newer than what an answer to a request says.
            if self._row is None or job.number != self._row.number:
                self._retained.put(self._topics.unlearning_job(job.number), None)
        if self._row is not None:
            await self._resume()
            return
        self._retained.put(self._topics.unlearning_round, None)
        # The order for it may come at any time, even if other settings now let it be gathered for again.
        self._state.held_reset = await find_held(self._store, next_number(jobs))
        await self.gather()

    async def erased(self, client_id: str, row: ErasureRow | None) -> None:
        """Note that a client was erased; None: it had no stored data."""
        if row is None:
            return
        self.machine.forget(client_id)
        if self._row is not None:
            await self._reload()  # its rule's memory was changed too
        if row.state is ErasureState.WAITING:
            await self.gather()

    async def handle_decisions(self, decisions: Decisions) -> None:
        """Take answers to the open step, exclude revoked or quarantined clients, and continue once a member is back."""
        for update in decisions.unlearned:
            self.machine.accept(update)
        for client_id in decisions.excluded:
            self.machine.leave_out(client_id)
        if decisions.returned:
            await self.member_returned()

    async def member_returned(self) -> None:
        """Note that a member is connected: a paused job continues."""
        if self.machine.phase is Phase.PAUSED:
            await self._resume()

    async def advance(self, now: float) -> None:
        """Do what is due."""
        if self.machine.phase is Phase.HELD and self._state.held_reset is None:
            self.machine.allow()  # the order has come, and is stored
            await self.gather()
        if self.machine.phase is Phase.GATHERING and self._state.round is None:
            await self.gather()
        due = self.machine.due(now)
        if due is JobAction.MISSED_STEP:
            await self._miss_step()
            return
        if due is JobAction.BEGIN:
            await self._begin()
        elif due is JobAction.END_STEP:
            await self._end_step()
        if self.machine.phase is Phase.BETWEEN_STEPS:
            await self._next_step()

    async def swapped(self, version: int) -> None:
        """Announce that the job's model is in service, and gather for the next job if an erasure waits for it."""
        self._announce_progress(version=version)
        self._retained.put(self._topics.unlearning_round, None)
        self.machine.replace_model()
        self._row = None
        await self.gather()

    async def taken_back(self) -> None:
        """Note that models were rolled back: an open job failed with them, and its erasures wait again.

        A job that was held for the operator begins: its cost is already lost, and it no longer goes so far back.
        """
        if self.machine.phase is Phase.HELD:
            self._state.held_reset = None
            self.machine.allow()
            await self.gather()
        if self._row is None:
            return
        await self._heads.publish()
        log.warning("unlearning_abandoned", job=self._row.number, cause="models were rolled back")
        self.machine, self._row = Unlearning(self._policy), None
        self._retained.put(self._topics.unlearning_round, None)
        await self.gather()

    # --- a job ----------------------------------------------------------------------------------------------

    async def gather(self) -> None:
        """Gather for the next job if an erasure waits for one; stored data decides when it begins."""
        begins_at = await next_job_start(self._store, self._policy, self._clock.now())
        if begins_at is not None:
            # After the last round a job disturbs no other, and the federator ends after it.
            self.machine.gather(0.0 if self._state.round is None else begins_at)

    async def _begin(self) -> None:
        """Create a job for all waiting erasures, and announce it."""
        waiting = await self._store.waiting_erasures()
        if not waiting:
            self.machine.call_off()
            return
        jobs = await self._store.list_jobs()
        strategy = strategy_of_next(self._plan, jobs)
        version, first_round = await starting_point(self._store, strategy, waiting)
        schedule = self._policy.schedule(strategy)
        course, ahead = schedule.begin(await self._list_stored(first_round))
        number = next_number(jobs)
        if await self._hold(number, resets=version == 0 and not ahead):
            return
        interactions = schedule.interactions_of(self._plan.training.max_interactions, course.interval)
        new = NewJob(number, strategy, course.interval, interactions, self._at(), version, first_round, len(ahead))
        self._row = await self._store.create_job(new)
        self._state.held_reset = None  # it may have begun by another setting: an order for it would be too late
        self._erased = await self._store.job_entries(new.number)
        await self._heads.publish()
        if number > 1:
            self._retained.put(self._topics.unlearning_job(number - 1), None)  # it is over, and no device waits for it
        self.machine.begin(course, ahead, len(waiting))
        detail = f"job {new.number}: {strategy} from model {version}, {new.n_steps} steps, {len(waiting)} clients"
        await self._note(NewEvent(new.created_at, "unlearning_started", detail))
        log.info("unlearning_started", job=new.number, strategy=strategy, n_steps=new.n_steps, n_clients=len(waiting))
        waited = new.created_at - min(row.requested_at for row in waiting)
        warn_if_late(self._policy, self._state, new.n_steps, waited.total_seconds())

    async def _hold(self, number: int, *, resets: bool) -> bool:
        """Whether the next job waits for the operator's order, because it would put the first model in service.

        Once that is stored it waits, even under the next federator's plan; only an order or the setting ends it.
        """
        if self._policy.may_reset:
            return False
        held = await find_held(self._store, number, self._at() if resets else None)
        if held is None:
            return False
        self._state.held_reset = held
        self.machine.hold()
        log.warning(
            "unlearning_approval_required", job=number, cost=held.cost, hint=f"foltr erasure allow-reset {number}"
        )
        return True

    async def _resume(self) -> None:
        job = self._job
        if job.state is JobState.PAUSED:
            await self._store.resume_job(job.number)
            await self._reload()
        leaving = await self._store.job_erasures(job.number)
        self._erased = await self._store.job_entries(job.number)
        stored = await self._list_stored(job.start_round)
        self.machine.resume(ReplayProgress.over(stored, job.interval, job.last_round), len(leaving))
        log.info("unlearning_resumed", job=job.number, step=job.step)

    async def _end_job(self) -> None:
        """Let the model wait for its swap; or begin again if too little was learned again, or nothing."""
        job = self._job
        if await is_ordered_reset(self._store, job):
            self._catch_up()
            return
        objection = self._policy.objection(job.strategy, job.coverage)
        if objection is not None:
            await self._give_up(f"{objection}; the job begins again as {Strategy.RELEARN}")
        elif await needs_reset_order(self._store, self._policy, job, self._at()):
            await self._give_up("no step has changed the first model, and only the operator may order to serve that")
        else:
            self._catch_up()
            return
        await self._begin()

    def _catch_up(self) -> None:
        self.machine.catch_up()
        self._announce_progress()

    async def _give_up(self, reason: str) -> None:
        """Fail the job: its erasures wait for the next one."""
        number = self._job.number
        await self._store.fail_job(number, reason, self._at())
        await self._heads.publish()
        log.warning("unlearning_abandoned", job=number, cause=reason)
        self.machine.give_up(self._clock.now())
        self._row = None
        self._retained.put(self._topics.unlearning_round, None)

    # --- a step ---------------------------------------------------------------------------------------------

    async def _next_step(self) -> None:
        """Announce the next step, or end the job if none is left."""
        course, ahead = await self._remaining_rounds(self.machine.course)
        if not ahead:
            await self._end_job()
            return
        self.machine.ask(course, ahead[1:], await self._step_of(ahead[0]))
        if self.machine.open_step.asked:
            self._announce()
        self._announce_progress()

    async def _remaining_rounds(self, course: ReplayProgress) -> tuple[ReplayProgress, Sequence[int]]:
        """Return the course from here on, and the stored rounds that it still has to replay.

        They are listed only if unknown, not at every step: there may be very many.
        """
        if self.machine.ahead:
            return course, self.machine.ahead
        first = self._job.start_round if course.last is None else course.last + 1
        return course.ahead(await self._list_stored(first))

    async def _step_of(self, number: int) -> UnlearningStep:
        """The job's next step, with the stored round, who is asked, and who is awaited."""
        sent = await contributions_of(
            # Skip updates whose key is missing: lost, or destroyed since a backup.
            stream_updates(self._store, number, readable_only=True),
            self._plan.n_values,
            self._suspects(),
        )
        asked = {client_id: one for client_id, one in sent.items() if self._members.takes_part(client_id)}
        now = self._clock.now()
        return UnlearningStep(
            self._job.number,
            self._job.step + 1,
            number,
            len(sent),
            asked,
            awaited=asked.keys() & set(self._members.present(now)) - self.machine.silent,
            least=self._plan.policy.min_clients,
            opened_at=now,
            closes_at=now + self._state.time_to_come_s(self._policy.step_s),
        )

    async def _end_step(self) -> None:
        """Commit the model of the answers, and the job's progress."""
        job, step = self._job, self.machine.open_step
        made = await model_of_step(self._plan, self._seed, job, step)
        course, ahead = await self._remaining_rounds(self.machine.course.past(step.round))
        committed = JobStep(
            step.number,
            step.round,
            n_steps=step.number + len(ahead),
            weights=job.made_weights() if made is None else pack_vector(made.weights),
            coverage=0.0 if made is None else step.coverage,
            optimizer_state=job.optimizer_state if made is None else made.memory.optimiser,
            defence_state=job.defence_state if made is None else made.memory.defence,
        )
        await self._commit(committed)
        self.machine.end_step(course, ahead)

    async def _commit(self, step: JobStep) -> None:
        await self._store.commit_step(self._job.number, step)
        failpoint(Failpoint.STEP_COMMITTED)
        await self._reload()

    async def _miss_step(self) -> None:
        """Ask again, a few times; or, while no member is online, wait until one is back."""
        now, step = self._clock.now(), self.machine.open_step
        detail = f"job {step.job}, step {step.number}: {len(step.answers)} of {len(step.asked)} answered"
        await self._note(NewEvent(to_datetime(now), "unlearning_step_missed", detail))
        match self.machine.miss(now, any_online=any(self._members.present(now))):
            case MissedStepAction.ASK_AGAIN:
                self._announce()
            case MissedStepAction.PASS_OVER:
                await self._end_step()
            case MissedStepAction.PAUSE:
                await self._pause(f"no device is online at step {step.number}", to_datetime(now))

    async def _pause(self, reason: str, at: datetime) -> None:
        number = self._job.number
        await self._store.pause_job(number, reason)
        await self._reload()
        self.machine.pause()
        self._announce_progress()
        await self._note(NewEvent(at, "unlearning_paused", f"job {number}: {reason}"))
        log.warning("unlearning_paused", job=number, cause=reason)

    # --- telling --------------------------------------------------------------------------------------------

    def _announce(self) -> None:
        announcement = step_announcement(self._plan, self._job, self.machine.open_step, self._erased)
        self._retained.put(self._topics.unlearning_round, announcement)

    def _announce_progress(self, *, version: int | None = None) -> None:
        """Announce the job's progress; with the version of its model it is done."""
        progress = job_progress(self._job, self.machine.n_clients, version)
        self._retained.put(self._topics.unlearning_job(progress.job), progress)

    # --- helpers --------------------------------------------------------------------------------------------

    @property
    def _job(self) -> UnlearningJobRow:
        """The open job; RuntimeError without one."""
        if self._row is None:
            raise RuntimeError("no unlearning job is open")
        return self._row

    async def _reload(self) -> None:
        number = self._job.number
        self._row = await self._store.load_job(number)
        if self._row is None:
            raise RuntimeError(f"unlearning job {number} is gone")

    async def _list_stored(self, first: int) -> list[int]:
        return await list_stored(self._store, self._plan, first)

    def _at(self) -> datetime:
        return to_datetime(self._clock.now())
