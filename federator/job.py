"""An unlearning job, decided without I/O: which stored rounds are gone through, who is asked, when a step is over.

The shell (`federator.job_driver`) announces a step, hands over what arrives, and commits the step once it is over. What
a step has been answered is kept in memory only: a federator that starts again announces the step again, and the devices
answer once more with what they made then.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from foltr.errors import SettingsError
from foltr.protocol.states import Strategy
from foltr.protocol.updates import UnlearningUpdate

# So many steps bring a ranker about as far as so many ordinary rounds.
LEAST_STEPS = 100


@dataclass(frozen=True)
class UnlearningPolicy:
    """How clients are unlearned (thesis, Section 6.1.2).

    Args:
        interval: every so many-th stored round is gone through (the thesis' delta t), or more of them where a job would
            have fewer than `LEAST_STEPS`; `retrain` goes through all.
        local_interactions: how many a retained client learns from in a step (n'; on the wire ``n_local``); None: three
            fifths of what an update may hold, as the thesis' 3 of 5. `retrain` asks for as many as an update may hold.
        min_coverage: below it, on average over the steps, a job that calibrates begins again as `retrain`.
        delay_s: how long a job waits for more requests before it begins.
        step_s: a step without all answers ends after so long, if there is any answer.
        patience_s: after so long without any answer a job pauses until a member is back.
    """

    strategy: Strategy = Strategy.ROLLBACK
    interval: int = 10
    local_interactions: int | None = None
    min_coverage: float = 0.5
    delay_s: float = 5.0
    step_s: float = 60.0
    patience_s: float = 3600.0

    def __post_init__(self) -> None:
        if self.strategy not in list(Strategy):
            raise SettingsError(f"unlearning_strategy: {self.strategy!r} is none of {', '.join(Strategy)}")
        if self.interval < 1:
            raise SettingsError(f"unlearning_interval: {self.interval} is below 1")
        if self.local_interactions is not None and not 1 <= self.local_interactions <= 100_000:
            raise SettingsError(f"unlearning_interactions: {self.local_interactions} is not between 1 and 100000")
        if not self.step_s > 0:
            raise SettingsError(f"unlearning_step_s: {self.step_s:g} is not above 0")
        if not 0 <= self.min_coverage <= 1:
            raise SettingsError(f"unlearning_min_coverage: {self.min_coverage:g} is not between 0 and 1")
        for name in ("delay_s", "step_s", "patience_s"):
            seconds = getattr(self, name)
            if not 0 <= seconds <= 30 * 86_400:
                raise SettingsError(f"unlearning_{name}: {seconds:g} is not between 0 and 30 days")

    def interval_of(self, strategy: Strategy, n_stored: int) -> int:
        """The interval of a job with so many stored rounds ahead."""
        return 1 if strategy is Strategy.RETRAIN else max(1, min(self.interval, n_stored // LEAST_STEPS))

    def n_asked(self, strategy: Strategy, max_interactions: int) -> int:
        """Interactions that a device learns from in a step."""
        if strategy is Strategy.RETRAIN:
            return max_interactions
        return self.local_interactions or max(1, 3 * max_interactions // 5)


def next_round(stored: Sequence[int], after: int | None, interval: int) -> int | None:
    """The next stored round to go through, ``interval`` or more after the last one; None where there is none.

    By number and not by place: of history that was thinned already nothing more is passed over.
    """
    return next((number for number in stored if after is None or number >= after + interval), None)


def n_rounds_ahead(stored: Sequence[int], after: int | None, interval: int) -> int:
    """How many rounds `next_round` will give, one after the other."""
    n = 0
    while (number := next_round(stored, after, interval)) is not None:
        after, n = number, n + 1
    return n


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
        n_stored: how many updates the round has, of members and of those who have left.
        asked: the members among them, by client.
        awaited: those of them without whom the step is not over before its deadline: who is away need not be.
        least: fewer answers make no model, as in a live round.
        answers: by client, the first of each.
        n_missed: how often its deadline has passed without enough of them.
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

    def take(self, update: UnlearningUpdate) -> bool:
        """Whether this answer counts. A late one does, as long as the step is not over: it may be the only one."""
        fits = (update.job, update.step) == (self.job, self.number) and update.client_id in self.asked
        if not fits or update.client_id in self.answers:
            return False
        self.answers[update.client_id] = update
        return True

    def forget(self, client_id: str) -> None:
        """It was erased: it is asked no more, and what it has answered is nobody's."""
        for known in (self.answers, self.asked):
            known.pop(client_id, None)
        self.awaited.discard(client_id)

    @property
    def has_enough(self) -> bool:
        return len(self.answers) >= min(self.least, len(self.asked))

    def is_over(self, now: float) -> bool:
        if not self.asked:
            return True
        return self.has_enough and (self.awaited <= self.answers.keys() or now >= self.closes_at)

    def is_missed(self, now: float) -> bool:
        """Too few have answered in time: it is to be asked again."""
        return not self.is_over(now) and now >= self.closes_at

    def wake_at(self) -> float:
        return self.opened_at if self.is_over(self.opened_at) else self.closes_at

    @property
    def coverage(self) -> float:
        """The part of the round's updates that were learned anew."""
        return len(self.answers) / self.n_stored if self.n_stored else 1.0
