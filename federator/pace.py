"""Steers how often devices visit, by how many do and the target of updates per round. No I/O.

Active devices are counted, not guessed. A device that was given a period at its last visit comes again within one and a
half periods (`foltr.core.protocol.paces`), so it counts until then. A growing fleet is noticed at once, a shrinking one
within one and a half periods. The other number is updates per visit, over the last rounds: some devices come without
enough clicks, or are in the round already, and some never disconnect.

Rounds should fill in half of ``max_time_s``. So if a fleet suddenly halves, rounds still fill by their deadline.
"""

import heapq
import math
from collections import defaultdict
from dataclasses import dataclass

from foltr.core.errors import SettingsError
from foltr.core.protocol.paces import LONGEST_PERIOD_S, latest_pause_s

# At most twice as many visits as updates are wanted: devices without clicks have none if they come more often.
_YIELD_RANGE = (0.5, 4.0)
# How many rounds' visits and updates decide the updates per visit.
_REMEMBERED_ROUNDS = 8
# Smaller changes are not worth another announcement.
_WORTH_TELLING = 0.1


@dataclass(frozen=True)
class PacePolicy:
    """A target of updates per round, and the bounds of the period to reach it.

    Args:
        updates_per_round: a round ends with so many.
        shortest_s, longest_s: of a period.
    """

    updates_per_round: int
    shortest_s: float = 60.0
    longest_s: float = 86_400.0

    def __post_init__(self) -> None:
        if not self.shortest_s <= self.longest_s:
            raise SettingsError(
                f"longest_period_s: {self.longest_s:g} is below shortest_period_s ({self.shortest_s:g}); raise it"
            )


def period_for(policy: PacePolicy, n_coming: int, updates_per_visit: float, round_s: float) -> float:
    """Return the period, in seconds, at which ``n_coming`` devices bring a round's updates in ``round_s`` seconds.

    One device visits 1 / period times a second, so n devices bring n · updates_per_visit · round_s / period updates.
    """
    least, most = _YIELD_RANGE
    period_s = n_coming * min(max(updates_per_visit, least), most) * round_s / policy.updates_per_round
    return min(max(period_s, policy.shortest_s), policy.longest_s)


def deadline_for(
    policy: PacePolicy, n_coming: int, updates_per_visit: float, period_s: float, max_time_s: float
) -> float:
    """Return how long a round may take, in seconds: ``max_time_s``, or longer if devices cannot come often enough.

    That is twice the time in which its updates come, and at most two periods: by then all devices have visited.
    """
    if period_s > policy.shortest_s:
        return max_time_s
    rate = n_coming * updates_per_visit / period_s
    filled_s = math.inf if rate <= 0.0 else policy.updates_per_round / rate
    return min(max(max_time_s, 2.0 * min(filled_s, period_s)), LONGEST_PERIOD_S)


class VisitForecast:
    """Counts the clients whose next visit is not overdue. Times are epoch seconds, rounded down to the second.

    It knows no names: the caller gives a client's former and present expected time.
    """

    def __init__(self) -> None:
        self._expected: defaultdict[int, int] = defaultdict(int)
        self._seconds: list[int] = []  # a heap of the keys
        self._n = 0
        self._now = 0

    def expect(self, before: float, by: float) -> None:
        """Change a client's expected time; ``before`` is 0 if it had none."""
        second = int(before)
        # Past seconds are no longer counted.
        if second >= self._now and self._expected.get(second, 0):
            self._expected[second] -= 1
            self._n -= 1
        second = int(by)
        if second >= self._now:
            if second not in self._expected:
                heapq.heappush(self._seconds, second)
            self._expected[second] += 1
            self._n += 1

    def count(self, now: float) -> int:
        """Return how many are still expected."""
        self._now = max(self._now, int(now))
        while self._seconds and self._seconds[0] < self._now:
            self._n -= self._expected.pop(heapq.heappop(self._seconds))
        return self._n


class PaceSteering:
    """The pace of one federation.

    Args:
        max_time_s: the deadline of a round in a fleet that is large enough.
        period_s: the last announced one before a restart; None begins with the shortest.

    Attributes:
        period_s: to be announced to devices.
        n_coming: how many devices visit, by the last count.
    """

    def __init__(self, policy: PacePolicy, max_time_s: float, period_s: float | None = None) -> None:
        self.policy = policy
        self._max_time_s = max_time_s
        self._coming = VisitForecast()
        self._n_visits = self._n_updates = float(policy.updates_per_round)
        self._n_since = 0
        self.n_coming = 0
        self.period_s = min(max(period_s or policy.shortest_s, policy.shortest_s), policy.longest_s)

    def expect_again(self, before: float, now: float, *, is_visit: bool) -> float:
        """Note that a client was seen; return by when it is expected again.

        Args:
            before: by when it was expected, epoch seconds; 0 if it was not.
            is_visit: it has connected; else it has contributed, perhaps without ever disconnecting.
        """
        self._n_visits += is_visit
        self._n_since += is_visit
        by = now + latest_pause_s(self.period_s)
        self._coming.expect(before, by)
        return by

    def restore(self, last_seen: float, paused_s: float) -> float:
        """Return by when a client is expected that was last seen then, after a time without a federator."""
        by = last_seen + paused_s + latest_pause_s(self.period_s)
        self._coming.expect(0.0, by)
        return by

    def steer(self, n_updates: int, now: float) -> None:
        """Note the number of a round's updates, and recompute the period."""
        self._n_updates += n_updates
        self._n_since = 0
        if self._n_visits + self._n_updates > 2 * _REMEMBERED_ROUNDS * self.policy.updates_per_round:
            self._n_visits, self._n_updates = self._n_visits / 2, self._n_updates / 2
        self.n_coming = self._coming.count(now)
        period_s = period_for(self.policy, self.n_coming, self.updates_per_visit, self._max_time_s / 2)
        is_bound = period_s in (self.policy.shortest_s, self.policy.longest_s)
        if is_bound or abs(period_s - self.period_s) > _WORTH_TELLING * self.period_s:
            self.period_s = round(period_s, 3)

    @property
    def is_crowded(self) -> bool:
        """Whether more clients have come since the last computation than a round should have, e.g. a new fleet.

        Without updates the round may last long; until its end all would get the old period, and come too often.
        """
        return self._n_since > self.policy.updates_per_round / _YIELD_RANGE[0]

    @property
    def updates_per_visit(self) -> float:
        """Updates per visit, over the last rounds."""
        return self._n_updates / max(self._n_visits, 1.0)

    @property
    def deadline_s(self) -> float:
        """How long a round that opens now may take, in seconds."""
        return deadline_for(self.policy, self.n_coming, self.updates_per_visit, self.period_s, self._max_time_s)
