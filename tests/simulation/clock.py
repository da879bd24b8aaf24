"""Simulated time: a queue of things to come, and clocks that are wrong, each in its own way."""

import heapq
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from simulation.promises import BrokenPromiseError

_EPOCH = 1_800_000_000.0
# Whoever looks again and again without doing anything would keep the world from going on.
_MOST_AT_ONCE = 10_000


@dataclass
class Clock:
    """The clock of one machine: ``offset`` seconds wrong, and ``rate`` times as fast as the world's."""

    offset: float = 0.0
    rate: float = 1.0

    def monotonic(self, world_now: float) -> float:
        return world_now * self.rate

    def wall(self, world_now: float) -> float:
        return _EPOCH + self.offset + world_now * self.rate

    def delay(self, seconds: float) -> float:
        """What the world calls ``seconds`` of this clock."""
        return seconds / self.rate


class Schedule:
    """The world's time, which passes only from one thing that happens to the next."""

    def __init__(self) -> None:
        self.now = 0.0
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._n = 0

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        self._n += 1
        heapq.heappush(self._queue, (self.now + max(0.0, seconds), self._n, action))

    def run_until(self, until: float) -> None:
        n_at_once = 0
        while self._queue and self._queue[0][0] <= until:
            at, _, action = heapq.heappop(self._queue)
            n_at_once = 0 if at > self.now else n_at_once + 1
            if n_at_once > _MOST_AT_ONCE:
                raise BrokenPromiseError("time goes on", f"{n_at_once} things have happened at {at:.1f}")
            self.now = at
            action()
        self.now = max(self.now, until)


class WorldTime:
    """Stands for the module ``time``: it tells what the clock of whoever is acting shows.

    Attributes:
        clock: of whoever is acting.
    """

    def __init__(self, schedule: Schedule) -> None:
        self._schedule = schedule
        self.clock = Clock()
        self._before: list[Clock] = []

    def of(self, clock: Clock) -> "WorldTime":
        """While this lasts, ``clock`` is the one looked at."""
        self._before.append(self.clock)
        self.clock = clock
        return self

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self.clock = self._before.pop()

    def monotonic(self) -> float:
        return self.clock.monotonic(self._schedule.now)

    def time(self) -> float:
        return self.clock.wall(self._schedule.now)

    def time_ns(self) -> int:
        return int(self.time() * 1e9)


def run_at_once(coroutine: Coroutine[Any, Any, Any]) -> None:
    """Run what never really waits."""
    try:
        coroutine.send(None)
    except StopIteration:
        return
    coroutine.close()
    raise AssertionError(f"{coroutine} waited for something that is not simulated")
