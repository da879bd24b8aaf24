"""Counts what a process does, for Prometheus, whether or not a port shows it (`foltr.cli.metrics_port`).

The values of a label are a closed set, so a client's name can never be one: scraped data outlives a forgotten client.
All values exist from the beginning, at zero, which Prometheus' conventions ask for; so another thread may read while
one counts.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TypeVar

OTHER = "other"
"""The label value that stands for all values outside its set."""
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper bounds of durations that are usually milliseconds."""
MINUTES = (1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0, 3600.0)
"""Upper bounds of durations that are usually seconds or minutes."""


@dataclass(frozen=True)
class Label:
    """A label with its possible values; others are counted under `OTHER`."""

    name: str
    values: tuple[str, ...]


@dataclass
class Measure:
    """A measure, by its Prometheus name.

    Attributes:
        name: ends with the unit, and that of a counter with ``_total``.
        meaning: one sentence.
    """

    name: str
    meaning: str
    label: Label | None = None

    @property
    def values(self) -> tuple[str, ...]:
        """The values that the label has, ("",) without one."""
        return ("",) if self.label is None else self.label.values

    def key(self, value: str) -> str:
        return value if value in self.values else OTHER


@dataclass
class Counter(Measure):
    """A number that only grows while the process lives."""

    counts: dict[str, float] = field(init=False)

    def __post_init__(self) -> None:
        if self.label is not None and OTHER not in self.label.values:
            self.label = Label(self.label.name, (*self.label.values, OTHER))
        self.counts = dict.fromkeys(self.values, 0.0)

    def add(self, n: float = 1, of: str = "") -> None:
        self.counts[self.key(of)] += n


@dataclass
class Gauge(Measure):
    """A present number. A label value that was never set is not shown."""

    now: dict[str, float | None] = field(init=False)

    def __post_init__(self) -> None:
        self.now = dict.fromkeys(self.values)

    def set(self, value: float | None, of: str = "") -> None:
        """Set it; None: no value. Raises KeyError for an unknown label value."""
        if of not in self.now:
            raise KeyError(f"{self.name} has no {of!r}")
        self.now[of] = value


@dataclass
class Histogram(Measure):
    """How long something took, in seconds.

    Attributes:
        bounds: upper bounds of its buckets; above the last one there is one more.
    """

    bounds: Sequence[float] = SECONDS
    _counts: dict[str, list[int]] = field(init=False)
    _sums: dict[str, float] = field(init=False)

    def __post_init__(self) -> None:
        self._counts = {value: [0] * (len(self.bounds) + 1) for value in self.values}
        self._sums = dict.fromkeys(self.values, 0.0)

    def observe(self, seconds: float, of: str = "") -> None:
        key = self.key(of)
        self._counts[key][bisect_left(self.bounds, seconds)] += 1
        self._sums[key] += seconds

    def buckets(self, of: str = "") -> list[tuple[str, float]]:
        """Return how many were at most as long as each bound, the last one being infinite."""
        bounds = [*map(str, self.bounds), "+Inf"]
        return list(zip(bounds, map(float, accumulate(self._counts[of])), strict=True))

    def sum(self, of: str = "") -> float:
        """Return the sum of all observations, in seconds."""
        return self._sums[of]


M = TypeVar("M", Counter, Gauge, Histogram)


class Measures:
    """The measures of one process.

    Args:
        about: labels that each of them has, such as the federation's name. Never a client's.
    """

    def __init__(self, **about: str) -> None:
        self.about = about
        self.all: list[Counter | Gauge | Histogram] = []

    def counter(self, name: str, meaning: str, label: Label | None = None) -> Counter:
        return self._keep(Counter(name, meaning, label))

    def gauge(self, name: str, meaning: str, label: Label | None = None) -> Gauge:
        return self._keep(Gauge(name, meaning, label))

    def histogram(
        self, name: str, meaning: str, label: Label | None = None, bounds: Sequence[float] = SECONDS
    ) -> Histogram:
        return self._keep(Histogram(name, meaning, label, bounds))

    def _keep(self, measure: M) -> M:
        self.all.append(measure)
        return measure


def label(name: str, values: Iterable[str]) -> Label:
    """Make a label of the members of an enum, or of any texts."""
    return Label(name, tuple(map(str, values)))
