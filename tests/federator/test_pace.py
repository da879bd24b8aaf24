"""Pace steering keeps rounds near their target of updates while a fleet halves, doubles, falls silent and is back."""

import heapq
import random
from dataclasses import dataclass, field

import pytest

from foltr.core.errors import SettingsError
from foltr.core.protocol.paces import first_pause_s, latest_pause_s, next_pause_s, overdue_pause_s, retry_pause_s
from foltr.federator.pace import PacePolicy, PaceSteering, VisitForecast, deadline_for, period_for

M, MAX_TIME_S = 100, 600.0
POLICY = PacePolicy(M, shortest_s=10.0, longest_s=86_400.0)


@dataclass
class Fleet:
    """Drawn devices that come by in turns, and rounds that end when they are full or due."""

    seed: int
    yields: float = 1.0  # the share of visits with clicks to bring
    now: float = 0.0
    rounds: list[tuple[float, int]] = field(default_factory=list)  # seconds, updates
    periods: list[float] = field(default_factory=list)
    n_visits: int = 0

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)  # noqa: S311
        self.steering = PaceSteering(POLICY, MAX_TIME_S)
        self.expected: dict[int, float] = {}
        self.due: list[tuple[float, int]] = []
        self.alive: set[int] = set()
        self.in_round: set[int] = set()
        self.opened_at = 0.0
        self.closes_at = self.steering.deadline_s

    def add(self, n: int, within_s: float = 60.0) -> None:
        for device in range(len(self.expected) + len(self.due), len(self.expected) + len(self.due) + n):
            self.alive.add(device)
            heapq.heappush(self.due, (self.now + self.rng.uniform(0.0, within_s), device))

    def run(self, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until:
            at, device = self.due[0] if self.due else (until, -1)
            if min(at, until) >= self.closes_at:
                self.now = self.closes_at
                self._end()
            elif at >= until:
                self.now = until
            else:
                heapq.heappop(self.due)
                self.now = max(self.now, at)
                self._visit(device)

    def _visit(self, device: int) -> None:
        if device not in self.alive:
            return
        self.n_visits += 1
        is_new = device not in self.expected
        self.expected[device] = self.steering.expect_again(self.expected.get(device, 0.0), self.now, is_visit=True)
        if self.steering.is_crowded:
            self.steering.steer(0, self.now)
        if device not in self.in_round and self.rng.random() < self.yields:
            self.in_round.add(device)
            if len(self.in_round) == M:
                self._end()
        draw = first_pause_s if is_new else next_pause_s
        heapq.heappush(self.due, (self.now + draw(self.steering.period_s, self.rng), device))

    def _end(self) -> None:
        self.rounds.append((self.now - self.opened_at, len(self.in_round)))
        self.steering.steer(len(self.in_round), self.now)
        self.periods.append(self.steering.period_s)
        self.in_round, self.opened_at = set(), self.now
        self.closes_at = self.now + self.steering.deadline_s


def _settled(fleet: Fleet, seconds: float) -> tuple[float, float]:
    """The mean length of the rounds in so many seconds, and the share of them that are full."""
    n = len(fleet.rounds)
    fleet.run(seconds)
    new = fleet.rounds[n:]
    return sum(length for length, _ in new) / len(new), sum(size == M for _, size in new) / len(new)


@pytest.mark.parametrize("n_devices", [1_000, 5_000])
@pytest.mark.parametrize("yields", [1.0, 0.6])
def test_rounds_fill_in_half_their_deadline(n_devices: int, yields: float) -> None:
    """A fleet of any size that is large enough fills each round in about half of max_time_s, whatever visits bring."""
    fleet = Fleet(1, yields=yields)
    fleet.add(n_devices)
    fleet.run(4 * n_devices * MAX_TIME_S / 2 / M)
    length_s, full = _settled(fleet, 40 * MAX_TIME_S)
    assert length_s == pytest.approx(MAX_TIME_S / 2, rel=0.2)
    assert full >= 0.98
    assert fleet.steering.n_coming == pytest.approx(n_devices, rel=0.02)
    assert fleet.steering.updates_per_visit == pytest.approx(yields, rel=0.2)


def test_a_fleet_that_halves_still_fills_its_rounds() -> None:
    """After half of the devices are gone rounds last to their deadline and are full but for chance, then as before."""
    fleet = Fleet(2)
    fleet.add(4_000)
    fleet.run(60_000)
    period_s = fleet.steering.period_s
    fleet.alive = set(fleet.rng.sample(sorted(fleet.alive), 2_000))
    n_before = len(fleet.rounds)
    fleet.run(period_s)
    assert min(size for _, size in fleet.rounds[n_before:]) >= 0.7 * M
    assert max(length for length, _ in fleet.rounds[n_before:]) <= MAX_TIME_S
    fleet.run(2 * period_s)
    length_s, full = _settled(fleet, 20 * MAX_TIME_S)
    assert length_s == pytest.approx(MAX_TIME_S / 2, rel=0.2)
    assert full >= 0.98
    assert fleet.steering.n_coming == pytest.approx(2_000, rel=0.02)


def test_a_fleet_that_doubles_is_slowed_down_at_once() -> None:
    """Newcomers are counted at their first visit: rounds never get shorter than half, but for the rush itself."""
    fleet = Fleet(3)
    fleet.add(2_000)
    fleet.run(40_000)
    period_s = fleet.steering.period_s
    fleet.add(2_000, within_s=period_s)
    fleet.run(period_s)
    assert fleet.steering.n_coming == pytest.approx(4_000, rel=0.02)
    length_s, _ = _settled(fleet, period_s)
    assert length_s > 0.4 * MAX_TIME_S / 2
    fleet.run(3 * period_s)
    length_s, full = _settled(fleet, 20 * MAX_TIME_S)
    assert length_s == pytest.approx(MAX_TIME_S / 2, rel=0.2)
    assert full >= 0.98


def test_a_rush_of_devices_without_clicks_is_slowed_down_before_its_round_ends() -> None:
    """Twenty thousand devices that all come in a minute and bring nothing are not told to be back at once."""
    fleet = Fleet(4, yields=0.0)
    fleet.add(20_000)
    fleet.run(MAX_TIME_S)
    assert fleet.n_visits < 1.5 * 20_000
    assert fleet.steering.period_s > 10 * MAX_TIME_S


def test_a_night_without_devices_is_over_with_the_first_morning_round() -> None:
    """Who comes back after a night is counted again, and nobody is told for long to come as seldom as the day's."""
    fleet = Fleet(5)
    fleet.add(3_000)
    fleet.run(60_000)
    asleep, fleet.alive = fleet.alive, set()
    fleet.run(30_000)
    assert fleet.steering.n_coming == 0
    assert fleet.steering.period_s == POLICY.shortest_s
    fleet.alive = asleep
    fleet.due = []
    for device in sorted(asleep):
        heapq.heappush(fleet.due, (fleet.now + overdue_pause_s(30_000.0, fleet.rng), device))
    fleet.run(30_000)
    length_s, full = _settled(fleet, 20 * MAX_TIME_S)
    assert length_s == pytest.approx(MAX_TIME_S / 2, rel=0.2)
    assert full >= 0.98


def test_devices_come_once_a_period_and_are_never_away_for_longer_than_one_and_a_half() -> None:
    """The draws have the means and the bounds that the federator counts on, and fleets do not stay in step."""
    rng = random.Random(7)  # noqa: S311
    pauses = [next_pause_s(100.0, rng) for _ in range(20_000)]
    assert sum(pauses) / len(pauses) == pytest.approx(100.0, rel=0.01)
    assert 50.0 <= min(pauses) <= max(pauses) <= latest_pause_s(100.0) == 150.0
    assert max(first_pause_s(100.0, rng) for _ in range(1000)) <= 100.0
    assert max(retry_pause_s(100.0, rng) for _ in range(1000)) <= 25.0
    assert max(overdue_pause_s(2.0, rng) for _ in range(1000)) <= 2.0
    assert max(overdue_pause_s(1e6, rng) for _ in range(1000)) <= 60.0
    assert overdue_pause_s(-1.0, rng) == 0.0


def test_a_period_follows_from_devices_target_and_time() -> None:
    """1,000 devices that bring 100 updates in 300 s come each 3,000 s; within bounds, and few clicks are not chased."""
    assert period_for(POLICY, 1_000, 1.0, 300.0) == 1_000 * 300 / 100
    assert period_for(POLICY, 1_000, 0.1, 300.0) == 1_000 * 0.5 * 300 / 100
    assert period_for(POLICY, 0, 1.0, 300.0) == POLICY.shortest_s
    assert period_for(POLICY, 10**9, 1.0, 300.0) == POLICY.longest_s


def test_rounds_last_longer_where_devices_may_not_come_often_enough() -> None:
    """With an hour as the shortest period 200 devices bring 100 updates in half an hour: twice that is the deadline."""
    hourly = PacePolicy(100, shortest_s=3600.0)
    assert deadline_for(hourly, 200, 1.0, 3600.0, 600.0) == 3600.0
    assert deadline_for(hourly, 20, 1.0, 3600.0, 600.0) == 7200.0
    assert deadline_for(hourly, 0, 1.0, 3600.0, 600.0) == 7200.0
    assert deadline_for(hourly, 100_000, 1.0, 3600.0, 600.0) == 600.0


def test_a_client_is_counted_once_until_its_visit_is_overdue() -> None:
    """However often it comes it counts once; and what is over is counted no more, nor taken back."""
    coming = VisitForecast()
    coming.expect(0.0, 10.0)
    coming.expect(10.0, 20.0)
    coming.expect(0.0, 15.0)
    assert coming.count(10.0) == 2
    assert coming.count(16.0) == 1
    coming.expect(15.0, 40.0)
    assert coming.count(16.0) == 2
    assert coming.count(41.0) == 0


def test_after_a_restart_the_period_and_the_clients_are_as_before() -> None:
    """A federator that was away for a day expects each client by as much later, and tells the period that it told."""
    steering = PaceSteering(POLICY, MAX_TIME_S, period_s=3000.0)
    for _ in range(1000):
        steering.restore(last_seen=1_000.0, paused_s=86_400.0)
    steering.steer(0, 1_000.0 + 86_400.0)
    assert steering.n_coming == 1000
    assert steering.period_s == 3000.0


def test_periods_that_do_not_rise_are_refused() -> None:
    """What each may be by itself is for the settings to say."""
    with pytest.raises(SettingsError, match="longest_period_s: 4 is below shortest_period_s"):
        PacePolicy(1, 5.0, 4.0)
