"""The state machine of unlearning: from the request to be forgotten to a model in service that never learned from it.

Theory of operation. A federation is ``idle`` while nobody waits to be unlearned. The first request begins a time of
``gathering``, a day as a rule: each job costs all others work, and puts a model in service that knows less, so a crowd
of names that ask to be forgotten must not have one job each. It ends earlier once enough wait, and later where a model
was swapped only just now (`UnlearningPolicy.begins_at`). Who comes during a job waits for the next one. A job makes a
model anew, in steps, while live rounds go on: each step stands for a stored round (`foltr.core.unlearning.schedule`),
and ``between_steps`` it is chosen which round comes next. While it is ``asking``, the members that contributed to the
round learn from interactions they have kept. The step is over

* once all have answered who are online, and who have not kept silent in an earlier step,
* at its deadline if there are enough answers for a model, or at once if nobody is left to be asked.

With too few answers at its deadline it is asked again, a few times while members are online, and then passed over: its
round counts as not covered. While nobody at all is online it is asked again until patience ends; then the job is
``paused`` until a member returns. A job that would put the first model in service, as nothing can be learned anew or
nobody did, is ``held`` until the operator orders it: what all others have taught is lost by it. Once the job has gone
through all stored rounds it has ``caught_up`` with the live ones: its model waits for a moment between two of them. But
if that is not fit for service (`UnlearningPolicy.objection`) the job is given up, and one that learns anew begins at
once for those who wait.

Nothing here reads a clock, awaits or stores. The shell (`foltr.federator.job_driver`) announces steps, hands over what
arrives, and commits what was decided before it moves the machine. What a step was answered is in memory only: a
federator that starts again resumes the job between two steps, asks the step again, and devices answer once more with
what they made then. What is stored of a job is coarser: `foltr.core.protocol.states.JobState`. An event that a phase
does not allow raises ProtocolViolationError and changes nothing.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from foltr.core.errors import ProtocolViolationError
from foltr.core.protocol.states import Strategy
from foltr.core.protocol.updates import UnlearningUpdate
from foltr.core.unlearning.schedule import Course, Schedule

# So often a step's deadline passes while members are online; then the step is passed over.
MOST_MISSES = 3
_AT_ONCE = 0.0
NO_COURSE = Course(interval=1, horizon=0)


class Phase(StrEnum):
    IDLE = "idle"
    GATHERING = "gathering"
    HELD = "held"
    BETWEEN_STEPS = "between_steps"
    ASKING = "asking"
    PAUSED = "paused"
    CAUGHT_UP = "caught_up"


class JobEvent(StrEnum):
    ERASURE_WAITS = "erasure_waits"
    NOBODY_WAITS = "nobody_waits"
    RESET_HELD = "reset_held"
    RESET_ALLOWED = "reset_allowed"
    JOB_BEGUN = "job_begun"
    JOB_RESUMED = "job_resumed"
    STEP_ANNOUNCED = "step_announced"
    STEP_MISSED = "step_missed"
    STEP_COMMITTED = "step_committed"
    PATIENCE_ENDED = "patience_ended"
    ROUNDS_EXHAUSTED = "rounds_exhausted"
    COVERAGE_TOO_LOW = "coverage_too_low"
    MODEL_REPLACED = "model_replaced"


TRANSITIONS: dict[tuple[Phase, JobEvent], Phase] = {
    (Phase.IDLE, JobEvent.ERASURE_WAITS): Phase.GATHERING,
    (Phase.IDLE, JobEvent.JOB_RESUMED): Phase.BETWEEN_STEPS,
    (Phase.GATHERING, JobEvent.NOBODY_WAITS): Phase.IDLE,
    (Phase.GATHERING, JobEvent.RESET_HELD): Phase.HELD,
    (Phase.HELD, JobEvent.RESET_ALLOWED): Phase.GATHERING,
    (Phase.GATHERING, JobEvent.JOB_BEGUN): Phase.BETWEEN_STEPS,
    (Phase.BETWEEN_STEPS, JobEvent.STEP_ANNOUNCED): Phase.ASKING,
    (Phase.BETWEEN_STEPS, JobEvent.ROUNDS_EXHAUSTED): Phase.CAUGHT_UP,
    (Phase.BETWEEN_STEPS, JobEvent.COVERAGE_TOO_LOW): Phase.GATHERING,
    (Phase.ASKING, JobEvent.STEP_MISSED): Phase.ASKING,
    (Phase.ASKING, JobEvent.STEP_COMMITTED): Phase.BETWEEN_STEPS,
    (Phase.ASKING, JobEvent.PATIENCE_ENDED): Phase.PAUSED,
    (Phase.PAUSED, JobEvent.JOB_RESUMED): Phase.BETWEEN_STEPS,
    (Phase.CAUGHT_UP, JobEvent.MODEL_REPLACED): Phase.IDLE,
}


@dataclass(frozen=True)
class UnlearningPolicy:
    """How clients are unlearned (thesis, Section 6.1.2).

    Args:
        interval: see `foltr.core.unlearning.schedule.Schedule`.
        min_coverage: below it, on average over the steps, a job begins again as `relearn`, whose model always is fit
            for service: a model that the minority made is not what all had taught.
        every_s: a job begins when the oldest request has waited so long,
        after: or when so many wait; None leaves it to time.
        deadline_s: an erasure that is not done so long after it was asked for is an alarm.
        swap_every_s: it does not begin sooner than so long after the last job's model was put in service. An hour
            leaves live rounds the time to teach the model again what the job could not.
        may_reset: a job may put the first model in service, and lose what all have taught, without an order.
        step_s: a step without all answers ends after so long, if there is any answer. Devices that are connected
            answer within seconds; a minute lets one reconnect.
        patience_s: after so long without any answer a job pauses until a member is back: no step is announced to
            nobody for a whole night.
    """

    strategy: Strategy = Strategy.RELEARN
    interval: int = 10
    min_coverage: float = 0.5
    every_s: float = 86_400.0
    after: int | None = None
    swap_every_s: float = 3600.0
    deadline_s: float = 30 * 86_400.0
    may_reset: bool = False
    step_s: float = 60.0
    patience_s: float = 3600.0

    def __post_init__(self) -> None:
        # A script may give it as text, and what decides compares members. ValueError if there is no such strategy.
        object.__setattr__(self, "strategy", Strategy(self.strategy))

    def begins_at(self, now: float, n_waiting: int, oldest_at: float, swapped_at: float | None) -> float:
        """When the next job begins. Times are epoch seconds.

        A stored time that is still to come is of a clock that ran ahead: nobody waits for it.

        Args:
            n_waiting: how many clients wait to be unlearned.
            oldest_at: when the first of them asked.
            swapped_at: when a job's model was last put in service; None if none was.
        """
        not_before = now if swapped_at is None or swapped_at > now else swapped_at + self.swap_every_s
        is_enough = self.after is not None and n_waiting >= self.after
        return not_before if is_enough or oldest_at > now else max(not_before, oldest_at + self.every_s)

    def schedule(self, strategy: Strategy) -> Schedule:
        """How a job goes through stored rounds, by this strategy or by the one that took its place."""
        return Schedule(strategy, self.interval)

    def objection(self, strategy: Strategy, coverage: float | None) -> str | None:
        """Return why a job's model is not fit for service; None if it is. That of `relearn` always is.

        Args:
            coverage: on average over its steps; None without any.
        """
        if strategy is Strategy.RELEARN or coverage is None or coverage >= self.min_coverage:
            return None
        return f"coverage {coverage:.2f} is below {self.min_coverage:g}"


@dataclass(frozen=True)
class Contribution:
    """A retained client's stored update of the round that a step stands for: its Euclidean length and its weight."""

    length: float
    n_interactions: int


@dataclass
class UnlearningStep:
    """One step. Times are epoch seconds.

    Attributes:
        round: the stored round that it stands for.
        n_stored: how many updates the round has, of members and of those who have left, but of nobody who is suspected.
        asked: the members among them, by client.
        awaited: those of them without whom the step is not over before its deadline: who is away need not be.
        least: fewer answers make no model, as in a live round.
        answers: by client, the first of each.
        n_missed: how often its deadline has passed without enough of them.
        lasts_s: how long it asks before it is missed, each time: `step_s`, or by when all have come who come by.
    """

    job: int
    number: int
    round: int
    n_stored: int
    asked: dict[str, Contribution]
    awaited: set[str]
    least: int
    opened_at: float
    closes_at: float
    answers: dict[str, UnlearningUpdate] = field(default_factory=dict)
    n_missed: int = 0
    lasts_s: float = field(init=False)

    def __post_init__(self) -> None:
        self.lasts_s = self.closes_at - self.opened_at

    def take(self, update: UnlearningUpdate) -> bool:
        """Whether this answer counts. A late one does, as long as the step is not over: it may be the only one."""
        fits = (update.job, update.step) == (self.job, self.number) and update.client_id in self.asked
        if not fits or update.client_id in self.answers:
            return False
        self.answers[update.client_id] = update
        return True

    def leave_out(self, client_id: str) -> None:
        """A client takes part no more: it is not asked, and what it has answered does not count."""
        for known in (self.answers, self.asked):
            known.pop(client_id, None)
        self.awaited.discard(client_id)

    @property
    def has_enough(self) -> bool:
        return len(self.answers) >= min(self.least, len(self.asked))

    @property
    def silent(self) -> set[str]:
        """Those who were online when they were asked, and have not answered."""
        return self.awaited - self.answers.keys()

    def is_over(self, now: float) -> bool:
        if not self.asked:
            return True
        return self.has_enough and (not self.silent or now >= self.closes_at)

    def is_missed(self, now: float) -> bool:
        """Whether too few have answered in time: it is to be asked again."""
        return not self.is_over(now) and now >= self.closes_at

    def wake_at(self) -> float:
        return self.opened_at if self.is_over(self.opened_at) else self.closes_at

    @property
    def coverage(self) -> float:
        """The part of the round's updates that were learned anew."""
        return len(self.answers) / self.n_stored if self.n_stored else 1.0


class Due(StrEnum):
    """What the shell has to do now."""

    BEGIN = "begin"
    NEXT_STEP = "next_step"
    END_STEP = "end_step"
    MISSED_STEP = "missed_step"


class Missed(StrEnum):
    """What becomes of a step whose deadline has passed with too few answers."""

    ASK_AGAIN = "ask_again"
    PASS_OVER = "pass_over"  # noqa: S105
    PAUSE = "pause"


@dataclass
class Unlearning:
    """The unlearning of one federation, one job after the other. Times are epoch seconds.

    Attributes:
        begins_at: while gathering, when the job begins.
        course: where in the stored rounds the job is, once it has begun.
        ahead: those that it still goes through, after the one that is asked about; empty: they are to be listed again.
        n_clients: how many clients it is for.
        step: the one that is asked.
        alone_since: since when it has been asked with no member online; infinity while one is.
        silent: members that were online and let a step's deadline pass: they have nothing to learn from, and no step
            waits for them any more.
    """

    policy: UnlearningPolicy
    phase: Phase = Phase.IDLE
    begins_at: float = math.inf
    course: Course = NO_COURSE
    ahead: Sequence[int] = ()
    n_clients: int = 0
    step: UnlearningStep | None = None
    alone_since: float = math.inf
    silent: set[str] = field(default_factory=set)

    @property
    def is_busy(self) -> bool:
        """Whether a job runs, or is about to; a paused one waits for devices, and nobody for it."""
        return self.phase not in (Phase.IDLE, Phase.PAUSED)

    @property
    def has_job(self) -> bool:
        """Whether there is a job, perhaps a paused one; requests may be gathered for one where there is none."""
        return self.phase not in (Phase.IDLE, Phase.GATHERING, Phase.HELD)

    def due(self, now: float) -> Due | None:
        """What is due at ``now``; None while the machine waits for messages, a deadline, or a moment for the swap."""
        if self.phase is Phase.BETWEEN_STEPS:
            return Due.NEXT_STEP
        if self.phase is Phase.GATHERING and now >= self.begins_at:
            return Due.BEGIN
        if self.step is not None and self.step.is_over(now):
            return Due.END_STEP
        if self.step is not None and self.step.is_missed(now):
            return Due.MISSED_STEP
        return None

    def wake_at(self) -> float:
        """When `due` may change its answer although no message arrived."""
        if self.phase is Phase.BETWEEN_STEPS:
            return _AT_ONCE
        if self.phase is Phase.GATHERING:
            return self.begins_at
        return math.inf if self.step is None else self.step.wake_at()

    def gather(self, begins_at: float) -> None:
        """Gather for a job that begins then; who waits while one is under way is gathered once it is over."""
        if self.phase is Phase.IDLE:
            self._move(JobEvent.ERASURE_WAITS)
        if self.phase is Phase.GATHERING:
            self.begins_at = begins_at

    def call_off(self) -> None:
        """Begin nothing: nobody waits any more."""
        self._move(JobEvent.NOBODY_WAITS)

    def hold(self) -> None:
        """Begin nothing until the operator has ordered it."""
        self._move(JobEvent.RESET_HELD)

    def allow(self) -> None:
        """Gather again, for the job that was held and may begin now."""
        self._move(JobEvent.RESET_ALLOWED)

    def begin(self, course: Course, ahead: Sequence[int], n_clients: int) -> None:
        self._move(JobEvent.JOB_BEGUN)
        self.course, self.ahead, self.n_clients = course, ahead, n_clients

    def resume(self, course: Course, n_clients: int) -> None:
        """Go on with a stored job: that of the last federator, or one that was paused."""
        self._move(JobEvent.JOB_RESUMED)
        self.course, self.ahead, self.n_clients = course, (), n_clients

    def ask(self, course: Course, ahead: Sequence[int], step: UnlearningStep) -> None:
        """Open a step, of the next round of the course; ``ahead`` are those after it."""
        self._move(JobEvent.STEP_ANNOUNCED)
        self.course, self.ahead, self.step, self.alone_since = course, ahead, step, math.inf

    def take(self, update: UnlearningUpdate) -> bool:
        """Whether an answer counts; one that fits no open step is nobody's loss: the step is made without it."""
        return self.step is not None and self.step.take(update)

    def forget(self, client_id: str) -> None:
        """A client was erased: nothing here is asked of it, or has its name."""
        self.silent.discard(client_id)
        self.ahead = ()  # a round that nobody else was in is gone with it
        self.leave_out(client_id)

    def leave_out(self, client_id: str) -> None:
        """A client was erased, revoked or quarantined: the open step is made without it."""
        if self.step is not None:
            self.step.leave_out(client_id)

    def miss(self, now: float, *, any_online: bool) -> Missed:
        """Note that the step's deadline has passed with too few answers; what becomes of it."""
        self._move(JobEvent.STEP_MISSED)
        step = self.open_step
        self.silent |= step.silent
        step.n_missed += 1
        if any_online:
            self.alone_since = math.inf
            if step.n_missed >= MOST_MISSES:
                return Missed.PASS_OVER  # others have more to say to other rounds
        else:
            self.alone_since = min(self.alone_since, now - step.lasts_s)
            if now - self.alone_since >= self.policy.patience_s:
                return Missed.PAUSE
        step.closes_at = now + step.lasts_s
        return Missed.ASK_AGAIN

    def end_step(self, course: Course, ahead: Sequence[int]) -> None:
        """Close the step, now that it is stored; ``course`` is past its round."""
        step = self.open_step
        self._move(JobEvent.STEP_COMMITTED)
        self.silent = (self.silent | step.awaited) - step.answers.keys()
        self.course, self.ahead, self.step = course, ahead, None

    def pause(self) -> None:
        self._move(JobEvent.PATIENCE_ENDED)
        self.step = None

    def catch_up(self) -> None:
        self._move(JobEvent.ROUNDS_EXHAUSTED)

    def give_up(self, now: float) -> None:
        """Give the job up for one that begins at once."""
        self._move(JobEvent.COVERAGE_TOO_LOW)
        self.begins_at = now

    def replace_model(self) -> None:
        """Be done: the job's model is in service."""
        self._move(JobEvent.MODEL_REPLACED)

    @property
    def open_step(self) -> UnlearningStep:
        """The step that is asked; ProtocolViolationError if there is none."""
        if self.step is None:
            raise ProtocolViolationError(f"unlearning is {self.phase}: no step is open")
        return self.step

    def _move(self, event: JobEvent) -> None:
        following = TRANSITIONS.get((self.phase, event))
        if following is None:
            raise ProtocolViolationError(f"unlearning is {self.phase}: {event} is not allowed")
        self.phase = following
