"""An intake of messages and a clock that a test moves, for the tests of `foltr.broker.buffer`."""

from foltr.broker.buffer import BoundedIntake, IntakeLimits, Refusal, RefusalCause
from foltr.broker.link import InboundMessage

FULL = Refusal(RefusalCause.FULL, 2.0)
SENDER_FULL = Refusal(RefusalCause.SENDER_FULL, 2.0)


class Clock:
    def __init__(self, now=0.0):
        self.now = now

    def __call__(self):
        return self.now


def sender_of(message):
    """The topics of these tests are a sender, a slash and anything."""
    return message.topic.partition("/")[0]


def message(topic="a", n_bytes=10):
    return InboundMessage(topic, bytes(n_bytes - len(topic)), retained=False)


def make_intake(clock=None, *, is_slow=lambda _: False, **limits):
    return BoundedIntake(clock or Clock(), sender_of, IntakeLimits(**limits), is_slow)


def offer_all(intake, *topics):
    return [intake.offer(message(topic)) is None for topic in topics]


def topics(arrivals):
    return [arrival.message.topic for arrival in arrivals]


def drain(intake):
    return len(intake.take(10_000))


def n_taken_in(intake, sender, n_offers):
    """How many of so many messages are taken in, where none is left waiting."""
    n_taken = 0
    for _ in range(n_offers):
        n_taken += intake.offer(message(sender)) is None
        drain(intake)
    return n_taken
