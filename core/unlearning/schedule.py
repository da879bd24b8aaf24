"""Which stored rounds an unlearning job replays, and how much a client learns in each; for service and simulator.

A job has one step for each round that it replays (thesis, Section 6.1.2). A number of steps brings a ranker about as
far as that many ordinary rounds, hence `LEAST_STEPS`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from foltr.core.errors import SettingsError
from foltr.core.protocol.states import Strategy

LEAST_STEPS = 100
FEWEST_INTERACTIONS = 3
"""A step asks for no fewer unless a setting says so, and devices answer no such step: an answer from one or two clicks
would reveal nearly everything.
"""
STEPS_A_DAY = 200
"""How many steps a device answers on one day (UTC) unless a setting says so."""
MOST_LONG_STEPS, MOST_OF_A_LONG_STEP = 150, 150
"""So a device can answer any whole job of `relearn` within its limits: 200 steps a day, and each of the 500
interactions that it keeps in 50 of them."""


@dataclass(frozen=True)
class ReplayProgress:
    """A job's position in the stored rounds, and how it continues.

    Live rounds go on meanwhile, perhaps faster than steps. So the interval doubles for those that came during the job,
    and again for those that came during these: the job ends at any speed of live rounds.

    Attributes:
        interval: a round is replayed if its number is at least so far above that of the one before.
        horizon: the newest round that is replayed at this interval.
        last: the round of the last step; None before the first.
    """

    interval: int
    horizon: int
    last: int | None = None

    @classmethod
    def over(cls, stored: Sequence[int], interval: int, last: int | None = None) -> "ReplayProgress":
        """Return the course through all stored rounds, in rising order; ``last`` was its last step's round."""
        return cls(interval, stored[-1] if stored else 0, last)

    def past(self, number: int) -> "ReplayProgress":
        """Return the course once the step of a round is done."""
        return replace(self, last=number)

    def ahead(self, stored: Sequence[int]) -> "tuple[ReplayProgress, list[int]]":
        """Return the course from here on, and its rounds up to the horizon, one step each; empty once it has caught up.

        Rounds are counted by number, not by place, so nothing more of an already thinned history is skipped.
        """
        course = self
        while left := [number for number in stored if course.last is None or number >= course.last + course.interval]:
            if left[0] <= course.horizon:
                return course, course.rounds_of(left)
            course = replace(course, horizon=left[-1], interval=2 * course.interval)
        return course, []

    def rounds_of(self, stored: Sequence[int]) -> list[int]:
        """Return the stored rounds, up to the horizon, that are replayed, in order."""
        found: list[int] = []
        last = self.last
        for number in stored:
            if number <= self.horizon and (last is None or number >= last + self.interval):
                found.append(number)
                last = number
        return found


@dataclass(frozen=True)
class Schedule:
    """How a job replays stored rounds.

    Args:
        interval: every so many-th stored round is replayed (the thesis' delta t), or more of them if a job would have
            fewer than ``least_steps``; `relearn` replays at most `MOST_LONG_STEPS`.
        local_interactions: from how many a retained client learns in a step (the thesis' n'); None: three fifths of
            what an update may hold (3 of 5 in the thesis). `relearn` takes as many as those of the interval's rounds,
            up to `MOST_OF_A_LONG_STEP`. If an update may hold very few, all take `FEWEST_INTERACTIONS`.
        least_steps: 1 keeps the interval unchanged, like the thesis.

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

    def begin(self, stored: Sequence[int]) -> tuple[ReplayProgress, list[int]]:
        """Return the course of a job through these stored rounds, by number and rising; and those that it replays."""
        interval = self.interval_over(len(stored))
        course, ahead = ReplayProgress.over(stored, interval).ahead(stored)
        while self.strategy is Strategy.RELEARN and len(ahead) > MOST_LONG_STEPS:
            # A thinned history: its rounds are further apart by number than by place.
            interval *= 2
            course, ahead = ReplayProgress.over(stored, interval).ahead(stored)
        return course, ahead

    def interval_over(self, n_stored: int) -> int:
        """Return the interval of a job with so many stored rounds ahead."""
        interval = max(1, min(self.interval, n_stored // self.least_steps))
        return max(interval, -(-n_stored // MOST_LONG_STEPS)) if self.strategy is Strategy.RELEARN else interval

    def interactions_of(self, max_interactions: int, interval: int) -> int:
        """Return from how many interactions a client learns in a step, given the most in an update of each round."""
        if self.strategy is Strategy.RELEARN and self.local_interactions is None:
            return max(FEWEST_INTERACTIONS, min(interval * max_interactions, MOST_OF_A_LONG_STEP))
        return self.local_interactions or max(FEWEST_INTERACTIONS, 3 * max_interactions // 5)
