"""The buffer between the network and whoever commits, held to a model of it and to its promises by any history."""

import itertools
import math
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st
from support.buffer_intakes import FULL, SENDER_FULL, Clock, make_intake, message, n_taken_in, sender_of

from foltr.broker.buffer import Arrival, BoundedIntake, IntakeLimits, Refusal, RefusalCause, RefusedSender

often = settings(derandomize=True)


@dataclass
class Model:
    """The same promises with lists and loops: no accounts are kept, everything is counted anew."""

    limits: IntakeLimits
    waiting: list[Arrival] = field(default_factory=list)  # in order of arrival
    turns: list[str] = field(default_factory=list)
    came: dict[str, list[float]] = field(default_factory=dict)  # when a sender's messages were taken in

    def offer(self, item, now):
        name, limits = sender_of(item), self.limits
        own = [arrival.message for arrival in self.waiting if arrival.sender == name]
        free = limits.max_messages - len(self.waiting)
        free_bytes = limits.max_bytes - sum(n_bytes_of(arrival.message) for arrival in self.waiting)
        if free == 0 or n_bytes_of(item) > free_bytes:
            return FULL
        own.append(item)
        if len(own) > limits.max_waiting_per_sender or len(own) > free:
            return SENDER_FULL
        if sum(map(n_bytes_of, own)) > min(limits.max_bytes_per_sender, free_bytes):
            return SENDER_FULL
        tokens = self.tokens(name, now)
        if tokens < 1:
            return Refusal(RefusalCause.RATE, max(1.0, (1 - tokens) / limits.rate_per_s))
        self.came.setdefault(name, []).append(now)
        self.waiting.append(Arrival(item, now, name))
        if name not in self.turns:
            self.turns.append(name)
        return None

    def tokens(self, name, now):
        tokens, last = self.limits.burst, -math.inf
        for at in self.came.get(name, []):
            tokens = min(self.limits.burst, tokens + (at - last) * self.limits.rate_per_s) - 1
            last = at
        return min(self.limits.burst, tokens + (now - last) * self.limits.rate_per_s)

    def take(self, limit, before):
        taken = []
        while len(taken) < limit:
            firsts = [next(item for item in self.waiting if item.sender == name) for name in self.turns]
            due = [item for item in firsts if before is None or item.at <= before]
            if not due:
                break
            taken.append(due[0])
            self.waiting.remove(due[0])
            self.turns.remove(due[0].sender)
            if any(item.sender == due[0].sender for item in self.waiting):
                self.turns.append(due[0].sender)
        return taken


def n_bytes_of(item):
    return len(item.topic) + len(item.payload)


# Halves and quarters, and rates that are powers of two: the arithmetic of both sides is exact.
limits_of_all_sizes = st.builds(
    IntakeLimits,
    max_messages=st.integers(1, 20),
    max_bytes=st.integers(1, 400),
    max_waiting_per_sender=st.integers(1, 8),
    max_bytes_per_sender=st.integers(1, 200),
    rate_per_s=st.sampled_from([0.25, 1.0, 4.0]),
    burst=st.integers(1, 8),
)
offers = st.tuples(st.just("offer"), st.sampled_from("aaaabcd"), st.integers(10, 60))
takes = st.tuples(st.just("take"), st.integers(0, 6), st.none() | st.integers(0, 16).map(lambda n: n / 4))
pauses = st.tuples(st.just("pause"), st.integers(0, 8).map(lambda n: n / 4), st.none())
operations = st.lists(st.one_of(offers, offers, offers, takes, pauses), max_size=60)


@often
@given(limits=limits_of_all_sizes, ops=operations)
def test_it_does_what_the_model_does(limits, ops):
    """Nothing is lost or doubled, a sender's own stay in order, never more waits than may, after any history."""
    clock = Clock(64.0)
    intake, model = BoundedIntake(clock, sender_of, limits), Model(limits)
    refusals = []
    for number, (kind, first, second) in enumerate(ops):
        if kind == "offer":
            item = message(f"{first}/{number}", second)
            refusal = intake.offer(item)
            assert refusal == model.offer(item, clock.now)
            if refusal is not None:
                refusals.append((first, refusal))
        elif kind == "take":
            before = None if second is None else clock.now - second
            assert intake.take(first, before) == model.take(first, before)
        else:
            clock.now += first
        assert len(intake) == len(model.waiting)
        assert intake.oldest() == (model.waiting[0].at if model.waiting else None)
    senders, n_refused = intake.refused()
    assert n_refused == len(refusals)
    assert {told.sender: told for told in senders} == {
        name: RefusedSender(name, len(own), own[-1].cause, max(refusal.retry_after_s for refusal in own))
        for name in {name for name, _ in refusals}
        for own in [[refusal for sender, refusal in refusals if sender == name]]
    }


@often
@given(
    rate_per_s=st.sampled_from([0.25, 1.0, 4.0, 64.0]),
    burst=st.integers(1, 20),
    pauses=st.lists(st.integers(0, 40).map(lambda n: n / 8), min_size=1, max_size=60),
)
def test_no_stretch_of_time_has_more_than_a_burst_and_its_rate(rate_per_s, burst, pauses):
    """The promise of a token bucket: between any two messages taken in, ``burst + rate * time`` at most."""
    clock = Clock()
    intake = make_intake(clock, rate_per_s=rate_per_s, burst=burst)
    came = []
    for pause in pauses:
        clock.now += pause
        came += [clock.now] * n_taken_in(intake, "a", 3)
    for i, j in itertools.combinations(range(len(came)), 2):
        assert j - i + 1 <= burst + rate_per_s * (came[j] - came[i])
