"""What a buffer holds at most, of all senders and of each, and how fast it takes what one of them sends."""

import itertools

import pytest
from support.buffer_intakes import FULL, SENDER_FULL, Clock, drain, make_intake, message, n_taken_in, offer_all, topics

from foltr.broker.buffer import Refusal, RefusalCause
from foltr.broker.link import InboundMessage

# --- bounds -----------------------------------------------------------------------------------------------


def test_it_is_bounded_in_count():
    """What does not fit is refused and changes nothing; taking makes room."""
    intake = make_intake(max_messages=2)
    assert [intake.offer(message(topic)) for topic in "abc"] == [None, None, FULL]
    assert topics(intake.take(1)) == ["a"]
    assert [intake.offer(message(topic)) for topic in "de"] == [None, FULL]
    assert topics(intake.take(9)) == ["b", "d"]


def test_it_is_bounded_in_bytes():
    """Up to exactly the bound; a small message still fits where a large one did not."""
    intake = make_intake(max_bytes=100)
    assert intake.offer(message("a", 60)) is None
    assert intake.offer(message("b", 41)) == FULL
    assert intake.offer(message("c", 40)) is None
    assert intake.offer(message("d", 1)) == FULL
    assert topics(intake.take(1)) == ["a"]
    assert intake.offer(message("f", 60)) is None


def test_a_topic_counts_with_its_bytes():
    """Empty payloads under long topics fill it as well."""
    intake = make_intake(max_bytes=100)
    assert intake.offer(InboundMessage("a" * 101, b"", retained=False)) == FULL
    assert intake.offer(InboundMessage("a" * 100, b"", retained=False)) is None


def test_a_sender_is_bounded_in_count():
    """One sender's bound is nobody else's; it counts what waits, not what was taken."""
    intake = make_intake(max_waiting_per_sender=2)
    assert [intake.offer(message(topic)) for topic in ("a/1", "a/2", "a/3", "b/1")] == [None, None, SENDER_FULL, None]
    assert topics(intake.take(1)) == ["a/1"]
    assert [intake.offer(message(topic)) for topic in ("a/4", "a/5")] == [None, SENDER_FULL]


def test_a_sender_is_bounded_in_bytes():
    """Up to exactly the bound; alone above it, a message never fits."""
    intake = make_intake(max_bytes_per_sender=100)
    assert intake.offer(message("z", 101)) == SENDER_FULL
    assert intake.offer(message("a", 60)) is None
    assert intake.offer(message("a", 41)) == SENDER_FULL
    assert intake.offer(message("b", 41)) is None
    assert intake.offer(message("a", 40)) is None
    intake.take(1)
    assert intake.offer(message("a", 60)) is None


def test_a_sender_holds_no_more_than_is_free():
    """Half of all there is for one alone, half of the rest for the next: each of them leaves something."""
    intake = make_intake(max_messages=16)
    assert offer_all(intake, *["a"] * 9).count(True) == 16 / 2
    assert offer_all(intake, *["b"] * 9).count(True) == 16 / 4
    assert offer_all(intake, *["c"] * 9).count(True) == 16 / 8
    assert [intake.offer(message(topic)) for topic in "abc"] == [SENDER_FULL] * 3
    assert [intake.offer(message(topic)) for topic in "def"] == [None, None, FULL]


def test_those_who_flood_at_once_leave_as_much_as_each_holds():
    """Three with room for 40: 10 each, and 10 for whoever comes."""
    intake = make_intake(max_messages=40)
    offer_all(intake, *["a", "b", "c"] * 40)
    assert topics(intake.take(99)) == ["a", "b", "c"] * 10


def test_a_sender_holds_no_more_bytes_than_are_free():
    """The same for bytes, where a few large messages would do."""
    intake = make_intake(max_bytes=120)
    assert [intake.offer(message("a", 20)) for _ in range(4)] == [None, None, None, SENDER_FULL]
    assert intake.offer(message("b", 60)) is None


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


def test_an_emptied_intake_has_all_its_room_again():
    """A message refused for whatever cause holds nothing."""
    intake = make_intake(max_messages=9, max_bytes=200, max_waiting_per_sender=2, burst=3)
    for topic, n_bytes in itertools.product("abcdefg", (99, 40, 20, 1)):
        intake.offer(message(topic, n_bytes))
    intake.take(2)
    for topic, n_bytes in itertools.product("abcdefg", (99, 40, 20, 1)):
        intake.offer(message(topic, n_bytes))
    assert len(intake) > 2
    intake.take(9)
    assert len(intake) == 0
    assert intake.offer(message("fresh", 200)) is None


# --- rate -------------------------------------------------------------------------------------------------


def test_a_burst_and_then_the_rate():
    """A full bucket at once, then as much as flows in, never more than a bucket."""
    clock = Clock(1_000.0)
    intake = make_intake(clock, rate_per_s=4, burst=10)
    assert n_taken_in(intake, "a", 20) == 10
    clock.now += 0.25
    assert n_taken_in(intake, "a", 20) == 0.25 * 4
    clock.now += 1.5
    assert n_taken_in(intake, "a", 20) == 1.5 * 4
    clock.now += 3_600
    assert n_taken_in(intake, "a", 20) == 10


def test_the_bucket_fills_in_fractions():
    """Time counts although a refused message came in the middle of it."""
    clock = Clock()
    intake = make_intake(clock, rate_per_s=1, burst=1)
    assert n_taken_in(intake, "a", 1) == 1
    for _ in range(3):
        clock.now += 0.25
        assert n_taken_in(intake, "a", 5) == 0
    clock.now += 0.25
    assert n_taken_in(intake, "a", 5) == 1


def test_buckets_are_the_senders_own():
    """One who sends too fast takes nothing from the others."""
    intake = make_intake(rate_per_s=1, burst=3)
    assert n_taken_in(intake, "a", 9) == 3
    assert n_taken_in(intake, "b", 9) == 3


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


def test_a_refused_message_costs_no_token():
    """Who tried again and again while there was no room is taken in as soon as there is."""
    intake = make_intake(max_messages=6, max_waiting_per_sender=1, rate_per_s=0.001, burst=2)
    assert intake.offer(message("a")) is None
    assert [intake.offer(message("a")) for _ in range(9)] == [SENDER_FULL] * 9
    drain(intake)
    offer_all(intake, *"bcdefg")
    assert [intake.offer(message("a")) for _ in range(9)] == [FULL] * 9
    drain(intake)
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
