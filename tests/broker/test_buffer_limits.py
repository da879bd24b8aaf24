"""What a buffer holds at most, of all senders and of each, and how fast it takes what one of them sends."""

import pytest
from support.buffer_intakes import FULL, Clock, drain, make_intake, message, n_taken_in, offer_all, topics

from foltr.broker.buffer import Refusal, RefusalCause
from foltr.broker.link import InboundMessage


def test_a_topic_counts_with_its_bytes():
    """Empty payloads under long topics fill it as well."""
    intake = make_intake(max_bytes=100)
    assert intake.offer(InboundMessage("a" * 101, b"", retained=False)) == FULL
    assert intake.offer(InboundMessage("a" * 100, b"", retained=False)) is None


def test_those_who_flood_at_once_leave_as_much_as_each_holds():
    """Three with room for 40: 10 each, and 10 for whoever comes."""
    intake = make_intake(max_messages=40)
    offer_all(intake, *["a", "b", "c"] * 40)
    assert topics(intake.take(99)) == ["a", "b", "c"] * 10


def test_once_a_flood_has_settled_a_newcomer_always_finds_room():
    """30 senders fill it one after the other; a while later they leave room although they never stop."""
    intake = make_intake(max_messages=200, burst=100_000)

    def flood():
        for name in range(30):
            while intake.offer(message(f"flood-{name}")) is None:
                pass

    flood()
    assert intake.offer(message("newcomer")) == FULL
    for _ in range(400):
        intake.take(10)
        flood()
    for i in range(200):
        assert intake.offer(message(f"new-{i}")) is None
        intake.take(10)
        flood()


def test_of_large_messages_fewer_are_taken_at_once():
    """What is made of those that are taken together has a bound; one is taken however large, and turns are kept."""
    intake = make_intake(max_bytes_at_once=100)
    for topic, n_bytes in (("a/1", 60), ("b/1", 40), ("c/1", 10), ("a/2", 150), ("b/2", 10)):
        assert intake.offer(message(topic, n_bytes)) is None
    assert topics(intake.take(9)) == ["a/1", "b/1"]
    assert topics(intake.take(9)) == ["c/1"]
    assert topics(intake.take(9)) == ["a/2"]
    assert intake.arrived.is_set()
    assert topics(intake.take(9)) == ["b/2"]
    assert not intake.arrived.is_set()


def test_what_is_left_for_later_counts_for_nothing_yet():
    """A slow message that is passed over leaves its bytes to the others."""
    intake = make_intake(is_slow=lambda one: one.topic.endswith("slow"), max_bytes_at_once=100)
    for topic, n_bytes in (("a/slow", 90), ("b/1", 50), ("c/1", 50)):
        assert intake.offer(message(topic, n_bytes)) is None
    assert topics(intake.take(9, most_slow=0)) == ["b/1", "c/1"]


@pytest.mark.parametrize(
    ("rate_per_s", "elapsed_s", "retry_after_s"),
    [
        (0.125, 0, 8.0),  # a whole token away: 1 / 0.125
        (0.125, 6, 2.0),  # three quarters are there: (1 - 0.75) / 0.125
        (0.125, 7.5, 1.0),  # half a second is not worth a message
        (50, 0, 1.0),
    ],
)
def test_retry_when_a_token_is_there(rate_per_s, elapsed_s, retry_after_s):
    """Told exactly, at least a second; at that time it is taken."""
    clock = Clock()
    intake = make_intake(clock, rate_per_s=rate_per_s, burst=1)
    n_taken_in(intake, "a", 1)
    clock.now += elapsed_s
    assert intake.offer(message("a")) == Refusal(RefusalCause.RATE, retry_after_s)
    clock.now += retry_after_s
    assert intake.offer(message("a")) is None


def test_a_device_back_after_long_is_within_the_defaults():
    """Everything it may keep waiting at once, and all of it once more as QoS 1 allows; again the next minute."""
    clock = Clock()
    intake = make_intake(clock)
    for _ in range(3):
        for _ in range(2):
            assert all(offer_all(intake, *["a"] * 200))
            assert drain(intake) == 200
        clock.now += 60
