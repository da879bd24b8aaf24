"""What a seed stands for: a federation, and the list of what happens to it."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Self

from foltr.broker.buffer import DEFAULT_LIMITS, IntakeLimits
from foltr.core.protocol.states import Pacing, Strategy
from foltr.federator.job import UnlearningPolicy
from foltr.federator.round import RoundPolicy


class Operation(StrEnum):
    """One thing that happens, and how often beside the others.

    ``who`` of a step is a device where it happens to one, ``amount`` is from 0 to 1.
    """

    weight: float

    def __new__(cls, name: str, weight: float) -> Self:
        operation = str.__new__(cls, name)
        operation._value_, operation.weight = name, weight
        return operation

    TICK = "tick", 28
    INTERACT = "interact", 22
    DROP = "drop", 3
    DUPLICATE = "duplicate", 4
    REORDER = "reorder", 3
    DELAY = "delay", 3
    PARTITION = "partition", 2
    HEAL = "heal", 4
    DEVICE_CRASH = "device_crash", 3
    DEVICE_START = "device_start", 5
    DEVICE_LEAVE = "device_leave", 1
    DEVICE_CLOCK_SET = "device_clock_set", 1
    DEVICE_DISK_FULL = "device_disk_full", 1
    DEVICE_LOSES_STORE = "device_loses_store", 0.5
    BROKER_CRASH = "broker_crash", 0.7
    FEDERATOR_PARTITION = "federator_partition", 1
    FEDERATOR_HEAL = "federator_heal", 2
    DATABASE_AWAY = "database_away", 1
    CRASH_IDLE = "crash_idle", 1.5
    CRASH_BEFORE_COMMIT = "crash_before_commit", 2
    CRASH_AFTER_COMMIT = "crash_after_commit", 2
    CRASH_IN_ROUND = "crash_in_round", 2
    RESTART = "restart", 7
    STOP = "stop", 1
    CLOCK_SKEW = "clock_skew", 1
    SECOND_FEDERATOR = "second_federator", 1
    REVOKE = "revoke", 1.5
    ENROL_ANEW = "enrol_anew", 2
    SET_DEADLINE = "set_deadline", 1.5
    QUARANTINE = "quarantine", 2
    LET_OUT = "let_out", 3
    OLD_COPY = "old_copy", 4
    OTHER_SETTINGS = "other_settings", 2
    RESTORE_DATABASE = "restore_database", 0.7
    FORGET_ME = "forget_me", 2.5
    ORDER_TO_FORGET = "order_to_forget", 1.5
    COME_BACK = "come_back", 1.5
    EVERYBODY_AWAY = "everybody_away", 1.5
    KEEP_NOTHING = "keep_nothing", 1
    CRASH_IN_ERASURE = "crash_in_erasure", 4


class Trust(StrEnum):
    """Who is believed: anyone; who is enrolled, with cheap stand-ins for signatures; or with real ones."""

    ANYONE = "anyone"
    STAND_IN = "stand_in"
    SIGNED = "signed"


@dataclass(frozen=True)
class Step:
    operation: Operation
    who: int = 0
    amount: float = 0.5

    def __repr__(self) -> str:
        return f"{self.operation} {self.who} {self.amount}"


@dataclass(frozen=True)
class Scenario:
    """Everything a run depends on; ``seed`` draws what no step says, such as latencies."""

    seed: int
    n_devices: int
    policy: RoundPolicy
    steps: tuple[Step, ...]
    trust: Trust = Trust.ANYONE
    limits: IntakeLimits = DEFAULT_LIMITS
    busy_s: float = 0.01
    batch_limit: int = 500
    stop_after_round: int | None = None
    unlearning: UnlearningPolicy = field(default_factory=UnlearningPolicy)
    device_backlog: int = 10_000
    device_keeps: int = 500

    @property
    def forgets(self) -> bool:
        """Whether somebody is to be forgotten in it."""
        return any(step.operation in _OF_ERASURES for step in self.steps)


@dataclass(frozen=True)
class Reproduction:
    """One bug that was found.

    Attributes:
        name: what should be.
        promise: the one that was broken.
        unmended: the mutant that brings it back, if there is one.
    """

    name: str
    promise: str
    scenario: Scenario
    unmended: str = ""


def reproduction(
    name: str,
    promise: str,
    seed: int,
    n_devices: int,
    policy: RoundPolicy,
    steps: str,
    *,
    unmended: str = "",
    **more: Any,
) -> Reproduction:
    """Make one of a scenario whose steps are as a failing test prints them: ``tick 1 0.87, interact 0 0.01``."""
    words = (step.split() for step in steps.split(","))
    taken = tuple(Step(Operation(operation), int(who), float(amount)) for operation, who, amount in words)
    return Reproduction(name, promise, Scenario(seed, n_devices, policy, taken, **more), unmended)


def draw(seed: int) -> Scenario:
    """The scenario of a seed."""
    rng = random.Random(f"scenario {seed}")  # noqa: S311
    n_devices = rng.randint(3, 8)
    max_clients = rng.randint(1, n_devices)
    max_time_s = rng.choice((5.0, 15.0, 40.0))
    buffered = rng.random() < 0.4
    policy = RoundPolicy(
        min_clients=max_clients if buffered and rng.random() < 0.5 else rng.randint(1, max_clients),
        max_clients=max_clients,
        min_time_s=rng.choice((0.0, 0.0, max_time_s / 3)),
        max_time_s=max_time_s,
        pacing=Pacing.BUFFERED if buffered else Pacing.DEADLINE,
        over_selection=None if buffered or rng.random() < 0.5 else rng.choice((0.0, 0.3, 1.0)),
        staleness_limit=rng.randint(0, 3) if buffered else 0,
    )
    trust = rng.choices((Trust.ANYONE, Trust.STAND_IN, Trust.SIGNED), (50, 45, 5))[0]
    forgets = rng.random() < 0.33
    left_out = _SELDOM_WITH_ERASURES if seed % 3 else ()
    if trust is Trust.ANYONE:
        # Nobody could order to forget again.
        left_out += (Operation.RESTORE_DATABASE,)
    operations = [
        op
        for op in Operation
        if (trust is not Trust.ANYONE or op not in _OPERATORS)
        and (forgets or op not in _OF_ERASURES)
        and not (forgets and op in left_out)
    ]
    steps = tuple(
        Step(operation, rng.randrange(n_devices), round(rng.random(), 3))
        for operation in rng.choices(operations, [op.weight for op in operations], k=rng.randint(20, 80))
    )
    unlearning = draw_unlearning(rng) if forgets else UnlearningPolicy()
    device_keeps = rng.choice((0, 3, 500))
    if forgets and rng.random() < _OFTEN:
        steps = _with_a_job(rng, n_devices, unlearning.every_s, steps)
        # All have taught what is gone through then, and can again; a few answers are enough.
        device_keeps = 500
        policy = replace(
            policy, min_clients=1, max_clients=n_devices, min_time_s=2.0, max_time_s=5.0, over_selection=None
        )
    return Scenario(
        seed,
        n_devices,
        policy,
        steps,
        trust=trust,
        limits=IntakeLimits(max_messages=12, burst=8, rate_per_s=5.0) if rng.random() < 0.1 else DEFAULT_LIMITS,
        busy_s=rng.choice((0.0, 0.01, 2.0)),
        batch_limit=rng.choice((2, 500)),
        stop_after_round=rng.randint(2, 8) if rng.random() < 0.1 else None,
        unlearning=unlearning,
        device_backlog=rng.choice((2, 10_000, 10_000)),
        device_keeps=device_keeps,
    )


def _in_a_job(rng: random.Random, n_devices: int, every_s: float) -> list[Step]:
    """Draw the beginning of a job for somebody whom all others have learned with."""
    taught = [Step(operation, 0, amount) for operation, amount in ((Operation.INTERACT, 0.1), (Operation.TICK, 0.7))]
    pauses = [Step(Operation.TICK, 0, 0.72)] * (every_s > 0.0)  # five seconds
    pauses.append(Step(Operation.TICK, 0, rng.choice((0.3, 0.45, 0.6))))
    return [*taught, *taught, Step(Operation.FORGET_ME, rng.randrange(n_devices), 0.9), *pauses]


def _with_a_job(rng: random.Random, n_devices: int, every_s: float, steps: tuple[Step, ...]) -> tuple[Step, ...]:
    """Add what chance seldom brings: another one leaves during a step, or all are away in the midst of a job."""
    job = _in_a_job(rng, n_devices, every_s)
    if rng.random() < 0.5:
        long = Step(Operation.TICK, 0, 0.99)  # until the broker has seen that they are gone, and patience ends
        return (*steps, *job, Step(Operation.EVERYBODY_AWAY, 0, 0.9), long, long)
    first, at = job[4].who, rng.randrange(3)
    job.insert(4, Step(Operation.PARTITION, (first + 1) % n_devices, 0.7))
    return (*steps[:at], *job, Step(Operation.FORGET_ME, (first + 2) % n_devices, 0.9), *steps[at:])


def draw_unlearning(rng: random.Random) -> UnlearningPolicy:
    """Draw how a federation unlearns."""
    strategy, interval = rng.choice(tuple(Strategy)), rng.choice((1, 3, 10))
    return UnlearningPolicy(
        strategy=strategy,
        interval=interval,
        min_coverage=rng.choice((0.0, 0.5, 0.9)),
        every_s=rng.choice((0.0, 5.0)),
        after=2 if interval == 10 else None,
        may_reset=True,
        swap_every_s=20.0 if interval == 3 else 0.0,
        step_s=rng.choice((1.0, 5.0)),
        patience_s=rng.choice((0.0, 20.0)),
    )


_OPERATORS = (
    Operation.REVOKE,
    Operation.ENROL_ANEW,
    Operation.SET_DEADLINE,
    Operation.ORDER_TO_FORGET,
    Operation.QUARANTINE,
    Operation.LET_OUT,
)
_OFTEN = 0.4
# With a third of those who forget: they get in the way of jobs, which are rare enough.
_SELDOM_WITH_ERASURES = (Operation.QUARANTINE, Operation.LET_OUT, Operation.OLD_COPY)
_OF_ERASURES = (
    Operation.FORGET_ME,
    Operation.ORDER_TO_FORGET,
    Operation.COME_BACK,
    Operation.EVERYBODY_AWAY,
    Operation.KEEP_NOTHING,
    Operation.CRASH_IN_ERASURE,
)


def shrunk(scenario: Scenario, is_shown: Callable[[Scenario], bool], n_tries: int = 300) -> Scenario:
    """The scenario with as few steps as still show it: steps are left out, many at once and then one by one."""
    size = max(1, len(scenario.steps) // 2)
    while n_tries > 0:
        at, before = 0, scenario
        while at < len(scenario.steps) and n_tries > 0:
            shorter = replace(scenario, steps=scenario.steps[:at] + scenario.steps[at + size :])
            n_tries -= 1
            if is_shown(shorter):
                scenario = shorter
            else:
                at += size
        if size == 1 and scenario is before:
            break
        size = max(1, size // 2)
    return scenario
