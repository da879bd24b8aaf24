"""The state machine of unlearning: from the request to be forgotten to a model in service that never learned from it.

Theory of operation. A federation is ``idle`` while no erasure waits to be unlearned. The first request begins the
``gathering``, usually a day: each job costs all devices work, and puts a less trained model in service, so many
requests share one job. It ends earlier once enough requests wait, and later if a model was swapped only just now
(`UnlearningPolicy.begins_at`). Requests during a job wait for the next one. A job rebuilds a model in steps, while live
rounds go on. Each step stands for a stored round (`foltr.core.unlearning.schedule`), and ``between_steps`` the next
round is chosen. While it is ``asking``, the members that contributed to the round learn from kept interactions. The
step is over

* once all members have answered who are online, and were not silent in an earlier step,
* at its deadline if it has enough answers for a model, or at once if no member is left to ask.

With too few answers at its deadline it is asked again, a few times while members are online, and then skipped: its
round counts as not covered. While no member is online it is asked again until patience ends; then the job is ``paused``
until a member returns. If a job would put the first model in service, because nothing can be learned again or no device
did, everything other clients have taught is lost. So it is ``held`` until the operator orders it. Once the job has
replayed all stored rounds it has ``caught_up`` with the live ones: its model waits for a moment between two of them.
But if the model is not fit for service (`UnlearningPolicy.objection`) the job fails, and one that relearns begins.

Nothing here reads a clock, awaits or stores. The shell (`foltr.federator.job_driver`) announces steps, passes on
arrivals, and commits decisions before it moves the machine. Answers to a step are in memory only: a federator that
starts again resumes the job between two steps and repeats the step, and devices repeat their answers. The stored states
of a job are coarser: `foltr.core.protocol.states.JobState`. An event that a phase does not allow raises
ProtocolViolationError and changes nothing.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from foltr.core.errors import ProtocolViolationError
from foltr.core.protocol.states import Strategy
from foltr.core.protocol.updates import UnlearningUpdate
from foltr.core.unlearning.schedule import ReplayProgress, Schedule

# How often a step's deadline passes while members are online before the step is skipped.
MOST_MISSES = 3
_AT_ONCE = 0.0
NO_COURSE = ReplayProgress(interval=1, horizon=0)


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
        min_coverage: below it, on average over the steps, a job begins again as `relearn`, whose model is always fit
            for service: a model made by a minority does not represent what all clients taught.
        every_s: a job begins when the oldest request has waited so long,
        after: or when so many wait; None relies on time.
        deadline_s: an erasure that takes longer raises an alarm.
        swap_every_s: the least time after the last job's model was put in service. An hour gives live rounds time to
            teach the model again what the job could not.
        may_reset: a job may put the first model in service, and lose what all clients have taught, without an order.
        step_s: a step without all answers ends after so long, if it has any answer. Connected devices answer within
            seconds; a minute lets one reconnect.
        patience_s: after so long without any answer a job pauses until a member is back, instead of announcing a step
            to an empty federation all night.
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
        # A script may give it as text, and decisions compare members. ValueError if the strategy does not exist.
        object.__setattr__(self, "strategy", Strategy(self.strategy))

    def begins_at(self, now: float, n_waiting: int, oldest_at: float, swapped_at: float | None) -> float:
        """When the next job begins. Times are epoch seconds.

        A stored time in the future comes from a clock that ran ahead, and is not waited for.

        Args:
            n_waiting: how many clients wait to be unlearned.
            oldest_at: when the first of them asked.
            swapped_at: when a job's model was last put in service; None if none was.
        """
        not_before = now if swapped_at is None or swapped_at > now else swapped_at + self.swap_every_s
        is_enough = self.after is not None and n_waiting >= self.after
        return not_before if is_enough or oldest_at > now else max(not_before, oldest_at + self.every_s)

    def schedule(self, strategy: Strategy) -> Schedule:
        """How a job replays stored rounds, by this strategy or its replacement."""
        return Schedule(strategy, self.interval)

    def objection(self, strategy: Strategy, coverage: float | None) -> str | None:
        """Return why a job's model is not fit for service; None if it is. The model of `relearn` always is.

        Args:
            coverage: on average over its steps; None without any.
        """
        if strategy is Strategy.RELEARN or coverage is None or coverage >= self.min_coverage:
            return None
        return f"coverage {coverage:.2f} is below {self.min_coverage:g}"


@dataclass(frozen=True)
class Contribution:
    """A retained client's stored update of the step's round: its Euclidean length and its weight."""

    length: float
    n_interactions: int


@dataclass
class UnlearningStep:
    """One step. Times are epoch seconds.

    Attributes:
        round: the stored round that it replays.
        n_stored: how many updates the round has, of members and former members, without suspects.
        asked: the members among them, by client.
        awaited: those for whom the step waits until its deadline; absent ones are not awaited.
        least: the fewest answers for a model, as in a live round.
        answers: by client, the first of each.
        n_missed: how often its deadline has passed with too few answers.
        lasts_s: the time for answers in each try: `step_s`, or until all visiting devices have connected.
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

    def accept(self, update: UnlearningUpdate) -> bool:
        """Whether this answer counts. A late one does while the step is open: it may be the only one."""
        fits = (update.job, update.step) == (self.job, self.number) and update.client_id in self.asked
        if not fits or update.client_id in self.answers:
            return False
        self.answers[update.client_id] = update
        return True

    def leave_out(self, client_id: str) -> None:
        """Exclude a client: it is no longer asked, and its answer does not count."""
        for known in (self.answers, self.asked):
            known.pop(client_id, None)
        self.awaited.discard(client_id)

    @property
    def has_enough(self) -> bool:
        return len(self.answers) >= min(self.least, len(self.asked))

    @property
    def silent(self) -> set[str]:
        """Members that were online when they were asked, and have not answered."""
        return self.awaited - self.answers.keys()

    def is_over(self, now: float) -> bool:
        if not self.asked:
            return True
        return self.has_enough and (not self.silent or now >= self.closes_at)

    def is_missed(self, now: float) -> bool:
        """Whether too few have answered in time, so that the step is asked again."""
        return not self.is_over(now) and now >= self.closes_at

    def wake_at(self) -> float:
        return self.opened_at if self.is_over(self.opened_at) else self.closes_at

    @property
    def coverage(self) -> float:
        """The share of the round's updates that were learned again."""
        return len(self.answers) / self.n_stored if self.n_stored else 1.0


class JobAction(StrEnum):
    """What the shell has to do now."""

    BEGIN = "begin"
    NEXT_STEP = "next_step"
    END_STEP = "end_step"
    MISSED_STEP = "missed_step"


class MissedStepAction(StrEnum):
    """What happens to a step whose deadline has passed with too few answers."""

    ASK_AGAIN = "ask_again"
    PASS_OVER = "pass_over"  # noqa: S105
    PAUSE = "pause"


@dataclass
class Unlearning:
    """The unlearning of one federation, one job after another. Times are epoch seconds.

    Attributes:
        begins_at: while gathering, when the job begins.
        course: the job's position in the stored rounds, once it has begun.
        ahead: the rounds it still has to replay after the open step's; empty: list them again.
        n_clients: how many clients it is for.
        step: the open one.
        alone_since: since when it has been asked with no member online; infinity while one is.
        silent: members that were online and let a step's deadline pass: they have nothing to learn from, and no step
            waits for them again.
    """

    policy: UnlearningPolicy
    phase: Phase = Phase.IDLE
    begins_at: float = math.inf
    course: ReplayProgress = NO_COURSE
    ahead: Sequence[int] = ()
    n_clients: int = 0
    step: UnlearningStep | None = None
    alone_since: float = math.inf
    silent: set[str] = field(default_factory=set)

    @property
    def is_busy(self) -> bool:
        """Whether a job runs, or is about to; a paused one waits for devices, so nothing waits for it."""
        return self.phase not in (Phase.IDLE, Phase.PAUSED)

    @property
    def has_job(self) -> bool:
        """Whether a job exists, perhaps a paused one; gathering alone does not count."""
        return self.phase not in (Phase.IDLE, Phase.GATHERING, Phase.HELD)

    def due(self, now: float) -> JobAction | None:
        """What is due at ``now``; None while the machine waits for messages, a deadline, or a moment for the swap."""
        if self.phase is Phase.BETWEEN_STEPS:
            return JobAction.NEXT_STEP
        if self.phase is Phase.GATHERING and now >= self.begins_at:
            return JobAction.BEGIN
        if self.step is not None and self.step.is_over(now):
            return JobAction.END_STEP
        if self.step is not None and self.step.is_missed(now):
            return JobAction.MISSED_STEP
        return None

    def wake_at(self) -> float:
        """When `due` may change without a message."""
        if self.phase is Phase.BETWEEN_STEPS:
            return _AT_ONCE
        if self.phase is Phase.GATHERING:
            return self.begins_at
        return math.inf if self.step is None else self.step.wake_at()

    def gather(self, begins_at: float) -> None:
        """Gather for a job that begins then; requests during a job are gathered afterwards."""
        if self.phase is Phase.IDLE:
            self._move(JobEvent.ERASURE_WAITS)
        if self.phase is Phase.GATHERING:
            self.begins_at = begins_at

    def call_off(self) -> None:
        """Begin nothing: no erasure waits any longer."""
        self._move(JobEvent.NOBODY_WAITS)

    def hold(self) -> None:
        """Begin nothing until the operator has ordered it."""
        self._move(JobEvent.RESET_HELD)

    def allow(self) -> None:
        """Gather again: the held job may begin now."""
        self._move(JobEvent.RESET_ALLOWED)

    def begin(self, course: ReplayProgress, ahead: Sequence[int], n_clients: int) -> None:
        self._move(JobEvent.JOB_BEGUN)
        self.course, self.ahead, self.n_clients = course, ahead, n_clients

    def resume(self, course: ReplayProgress, n_clients: int) -> None:
        """Continue a stored job: that of the last federator, or a paused one."""
        self._move(JobEvent.JOB_RESUMED)
        self.course, self.ahead, self.n_clients = course, (), n_clients

    def ask(self, course: ReplayProgress, ahead: Sequence[int], step: UnlearningStep) -> None:
        """Open a step for the next round of the course; ``ahead`` are the rounds after it."""
        self._move(JobEvent.STEP_ANNOUNCED)
        self.course, self.ahead, self.step, self.alone_since = course, ahead, step, math.inf

    def accept(self, update: UnlearningUpdate) -> bool:
        """Whether an answer counts; one that fits no open step is ignored."""
        return self.step is not None and self.step.accept(update)

    def forget(self, client_id: str) -> None:
        """Forget an erased client: nothing here asks it, or has its name."""
        self.silent.discard(client_id)
        self.ahead = ()  # a round with only this client is gone
        self.leave_out(client_id)

    def leave_out(self, client_id: str) -> None:
        """Exclude an erased, revoked or quarantined client from the open step."""
        if self.step is not None:
            self.step.leave_out(client_id)

    def miss(self, now: float, *, any_online: bool) -> MissedStepAction:
        """Note that the step's deadline has passed with too few answers; return what happens to it."""
        self._move(JobEvent.STEP_MISSED)
        step = self.open_step
        self.silent |= step.silent
        step.n_missed += 1
        if any_online:
            self.alone_since = math.inf
            if step.n_missed >= MOST_MISSES:
                return MissedStepAction.PASS_OVER  # the members have better answers to other rounds
        else:
            self.alone_since = min(self.alone_since, now - step.lasts_s)
            if now - self.alone_since >= self.policy.patience_s:
                return MissedStepAction.PAUSE
        step.closes_at = now + step.lasts_s
        return MissedStepAction.ASK_AGAIN

    def end_step(self, course: ReplayProgress, ahead: Sequence[int]) -> None:
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
        """Finish: the job's model is in service."""
        self._move(JobEvent.MODEL_REPLACED)

    @property
    def open_step(self) -> UnlearningStep:
        """The open step; ProtocolViolationError without one."""
        if self.step is None:
            raise ProtocolViolationError(f"unlearning is {self.phase}: no step is open")
        return self.step

    def _move(self, event: JobEvent) -> None:
        following = TRANSITIONS.get((self.phase, event))
        if following is None:
            raise ProtocolViolationError(f"unlearning is {self.phase}: {event} is not allowed")
        self.phase = following
