"""Steers how often devices come by, from how many do and how many updates a round is to have. No I/O.

How many still come is counted, not guessed: who was told a period at its last visit comes again within one and a half
of it (`foltr.core.protocol.paces`), so a client counts until that is over. A fleet that grows is seen at once, one that
shrinks within one and a half periods. The other number is how many updates a visit brings, of the last rounds: some
come without enough clicks, or to a round that they are in already, and some never disconnect.

Rounds are to fill in half of ``max_time_s``. So a fleet may halve from one moment to the next and rounds are still
filled by their deadline, until fewer devices are told to come more often.
"""

import heapq
import math
from collections import defaultdict
from dataclasses import dataclass

from foltr.core.errors import SettingsError
from foltr.core.protocol.paces import LONGEST_PERIOD_S, latest_pause_s

# At most twice as many visits as updates are asked for: devices without clicks have none if they come more often.
_YIELD_RANGE = (0.5, 4.0)
# The visits and updates of so many rounds decide how many updates a visit brings.
_REMEMBERED_ROUNDS = 8
# What differs by less is not worth another announcement.
_WORTH_TELLING = 0.1


@dataclass(frozen=True)
class PacePolicy:
    """A target of updates in a round, and the bounds of the period by which it is reached.

    Args:
        updates_per_round: a round ends at once with so many.
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
    """Return the period, in seconds, by which ``n_coming`` devices bring a round's updates in ``round_s`` seconds.

    One device visits 1 / period times a second, so n of them bring n · updates_per_visit · round_s / period updates.
    """
    least, most = _YIELD_RANGE
    period_s = n_coming * min(max(updates_per_visit, least), most) * round_s / policy.updates_per_round
    return min(max(period_s, policy.shortest_s), policy.longest_s)


def deadline_for(
    policy: PacePolicy, n_coming: int, updates_per_visit: float, period_s: float, max_time_s: float
) -> float:
    """Return how long a round may take, in seconds: ``max_time_s``, or longer where devices cannot come often enough.

    That is twice the time in which its updates come, and never above two periods: by then all have been there.
    """
    if period_s > policy.shortest_s:
        return max_time_s
    rate = n_coming * updates_per_visit / period_s
    filled_s = math.inf if rate <= 0.0 else policy.updates_per_round / rate
    return min(max(max_time_s, 2.0 * min(filled_s, period_s)), LONGEST_PERIOD_S)


class VisitForecast:
    """Counts the clients whose next visit is not overdue. Times are epoch seconds, told apart by the second.

    It knows no names: the caller says by when a client was expected before, and is now.
    """

    def __init__(self) -> None:
        self._expected: defaultdict[int, int] = defaultdict(int)
        self._seconds: list[int] = []  # a heap of the keys
        self._n = 0
        self._now = 0

    def expect(self, before: float, by: float) -> None:
        """Expect a client by another moment than before; 0 where it was not expected."""
        second = int(before)
        # What is over is counted no more.
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
        """Return how many are expected still."""
        self._now = max(self._now, int(now))
        while self._seconds and self._seconds[0] < self._now:
            self._n -= self._expected.pop(heapq.heappop(self._seconds))
        return self._n


class PaceSteering:
    """The pace of one federation.

    Args:
        max_time_s: the deadline of a round in a fleet that is large enough.
        period_s: what was announced before a restart; None begins with the shortest.

    Attributes:
        period_s: what devices are to be told.
        n_coming: how many come by, as far as was counted last.
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
        """Take note that a client was heard of; return by when it is expected again.

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
        """Return by when a client is expected that was last seen then by a federator that was away for a while."""
        by = last_seen + paused_s + latest_pause_s(self.period_s)
        self._coming.expect(0.0, by)
        return by

    def steer(self, n_updates: int, now: float) -> None:
        """Take note of what a round brought, and work out the period anew."""
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
        """Whether more have come since it was worked out than a round is to have: a fleet that is new, say.

        The round may last long, if they bring no updates, and all would be told to come again at once.
        """
        return self._n_since > self.policy.updates_per_round / _YIELD_RANGE[0]

    @property
    def updates_per_visit(self) -> float:
        """How many updates a visit has brought, in the last rounds."""
        return self._n_updates / max(self._n_visits, 1.0)

    @property
    def deadline_s(self) -> float:
        """How long a round that opens now may take."""
        return deadline_for(self.policy, self.n_coming, self.updates_per_visit, self.period_s, self._max_time_s)
