"""Which stored rounds an unlearning job goes through, and how much a client learns in each: of the service, and of the
simulator that foretells it.

A job has one step for each round that it goes through (thesis, Section 6.1.2). So many steps bring a ranker about as
far as so many ordinary rounds, whence `LEAST_STEPS`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from foltr.core.errors import SettingsError
from foltr.core.protocol.states import Strategy

LEAST_STEPS = 100
FEWEST_INTERACTIONS = 3
"""A step asks for no fewer unless a setting says so, and devices answer no such step: of one or two clicks an answer
would show nearly everything."""
MOST_LONG_STEPS, MOST_OF_A_LONG_STEP = 150, 150
"""However long the history is, a device can answer a whole job of `relearn` within its limits: 200 steps a day, and
each of the 500 interactions that it keeps in 50 of them."""


@dataclass(frozen=True)
class Course:
    """Where in the stored rounds a job is, and how it goes on.

    Live rounds go on meanwhile, perhaps faster than steps. So the interval doubles for those that came during the job,
    and once more for those that came during these: it ends however fast they come.

    Attributes:
        interval: a round is gone through if its number is at least so far above that of the one before.
        horizon: the newest round that is gone through at this interval.
        last: the round of the last step; None before the first.
    """

    interval: int
    horizon: int
    last: int | None = None

    @classmethod
    def over(cls, stored: Sequence[int], interval: int, last: int | None = None) -> "Course":
        """The course through all that is stored now, by number and rising; ``last`` was its last round so far."""
        return cls(interval, stored[-1] if stored else 0, last)

    def past(self, number: int) -> "Course":
        """The course once the step of a round is done."""
        return replace(self, last=number)

    def ahead(self, stored: Sequence[int]) -> "tuple[Course, list[int]]":
        """The course from here on, and its rounds up to the horizon, one step each; none once it has caught up.

        Rounds are counted by number and not by place: of history that was thinned already nothing more is passed over.
        """
        course = self
        while left := [number for number in stored if course.last is None or number >= course.last + course.interval]:
            if left[0] <= course.horizon:
                return course, course.rounds_of(left)
            course = replace(course, horizon=left[-1], interval=2 * course.interval)
        return course, []

    def rounds_of(self, stored: Sequence[int]) -> list[int]:
        """Those of the stored rounds, up to the horizon, that are gone through one after the other."""
        found: list[int] = []
        last = self.last
        for number in stored:
            if number <= self.horizon and (last is None or number >= last + self.interval):
                found.append(number)
                last = number
        return found


@dataclass(frozen=True)
class Schedule:
    """How a job is to go through stored rounds.

    Args:
        interval: every so many-th stored round is gone through (the thesis' delta t), or more of them where a job would
            have fewer than ``least_steps``; `relearn` goes through no more than `MOST_LONG_STEPS`.
        local_interactions: how many a client that stays learns from in a step (the thesis' n'); None: three fifths of
            what an update may hold, as the thesis' 3 of 5. `relearn` takes as many as those of the interval's rounds,
            up to `MOST_OF_A_LONG_STEP`. Where an update may hold very few, all take `FEWEST_INTERACTIONS`.
        least_steps: 1 keeps the interval as it is, as the thesis does.

    Raises:
        SettingsError: a number is below 1.
    """

    strategy: Strategy
    interval: int = 10
    local_interactions: int | None = None
    least_steps: int = LEAST_STEPS

    def __post_init__(self) -> None:
        for name in ("interval", "local_interactions", "least_steps"):
            number = getattr(self, name)
            if number is not None and number < 1:
                raise SettingsError(f"{name}: {number} is below 1")

    def begin(self, stored: Sequence[int]) -> tuple[Course, list[int]]:
        """The course of a job through these stored rounds, by number and rising; and those that it goes through."""
        interval = self.interval_over(len(stored))
        course, ahead = Course.over(stored, interval).ahead(stored)
        while self.strategy is Strategy.RELEARN and len(ahead) > MOST_LONG_STEPS:
            # History was thinned: its rounds are further apart by number than by place.
            interval *= 2
            course, ahead = Course.over(stored, interval).ahead(stored)
        return course, ahead

    def interval_over(self, n_stored: int) -> int:
        """The interval of a job with so many stored rounds ahead."""
        interval = max(1, min(self.interval, n_stored // self.least_steps))
        return max(interval, -(-n_stored // MOST_LONG_STEPS)) if self.strategy is Strategy.RELEARN else interval

    def interactions_of(self, max_interactions: int, interval: int) -> int:
        """How many interactions a client learns from in a step, of at most so many in an update of each round."""
        if self.strategy is Strategy.RELEARN and self.local_interactions is None:
            return max(FEWEST_INTERACTIONS, min(interval * max_interactions, MOST_OF_A_LONG_STEP))
        return self.local_interactions or max(FEWEST_INTERACTIONS, 3 * max_interactions // 5)
