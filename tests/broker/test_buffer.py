"""The buffer between the network and whoever commits: bounded, fair, in order, never waiting without end."""

import asyncio
import math
import tracemalloc

import pytest
from support.buffer_intakes import Clock, drain, make_intake, message, n_taken_in, offer_all, topics

from foltr.broker import buffer as intake_module
from foltr.broker.buffer import MAX_IDLE_SENDERS, MAX_REFUSED_SENDERS, Refusal, RefusalCause, RefusedSender


def test_of_slow_messages_a_few_are_taken_at_once():
    """What others sent is taken before them, and what their own senders sent after; nobody's order changes."""
    intake = make_intake(is_slow=lambda one: one.topic.endswith("slow"))
    offer_all(intake, "a/slow", "b/slow", "b/2", "c/1", "c/slow", "d/slow")
    assert topics(intake.take(9, most_slow=1)) == ["a/slow", "c/1"]
    assert topics(intake.take(9, most_slow=0)) == []
    assert topics(intake.take(9, most_slow=2)) == ["b/slow", "d/slow", "b/2"]
    assert intake.arrived.is_set()
    assert topics(intake.take(9, most_slow=5)) == ["c/slow"]
    assert not intake.arrived.is_set()


def test_slow_messages_are_as_others_to_who_does_not_mind():
    """And they keep their turn while they are passed over, also with those that came too late."""
    clock = Clock(100.0)
    intake = make_intake(clock, is_slow=lambda one: one.topic.endswith("slow"))
    offer_all(intake, "a/slow", "b/slow")
    clock.now = 107.5
    offer_all(intake, "a/2", "c/1")
    assert topics(intake.take(9, 103.0, 1)) == ["a/slow"]
    assert topics(intake.take(9, 103.0, 0)) == []
    assert topics(intake.take(9)) == ["b/slow", "c/1", "a/2"]


def test_a_flood_does_not_delay_the_others():
    """While one sender fills its place again and again, another's message is taken within one rotation."""
    clock = Clock()
    intake = make_intake(clock)
    for _ in range(50):
        while intake.offer(message("flood/x")) is None:
            pass
        assert intake.offer(message("b/1")) is None
        assert "b/1" in topics(intake.take(2))
        clock.now += 1.0


def test_the_summary_is_bounded():
    """The first 500 senders by name; all others still count in the total, and the next summary starts anew."""
    intake = make_intake(max_messages=1)
    offer_all(intake, "first")
    for i in range(2 * 600):
        intake.offer(message(f"dev-{i % 600}"))
    senders, n_messages = intake.refused()
    assert n_messages == 2 * 600
    assert [sender.sender for sender in senders] == [f"dev-{i}" for i in range(MAX_REFUSED_SENDERS)]
    assert {sender.n_messages for sender in senders} == {2}
    intake.offer(message("dev-599"))
    assert intake.refused() == ([RefusedSender("dev-599", 1, RefusalCause.FULL, 2.0)], 1)


@pytest.mark.parametrize("is_taken", [True, False], ids=["taken", "never taken"])
def test_names_without_end_do_not_fill_the_memory(monkeypatch, is_taken):
    """5,000 senders with a message each leave no more than those waiting or idle by the bounds."""
    monkeypatch.setattr(intake_module, "MAX_IDLE_SENDERS", 100)
    intake = make_intake(max_messages=100)
    tracemalloc.start()
    try:
        for i in range(5_000):
            intake.offer(message(f"dev-{i}"))
            if is_taken:
                intake.take(1)
        n_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert n_bytes < 2_000 * (100 + 100)


def test_so_many_idle_senders_are_remembered_and_no_more():
    """Of 20,000 whose buckets are empty, the last 10,000: all others come back with full ones."""
    intake = make_intake(max_messages=1, rate_per_s=0.001, burst=1)
    names = [f"dev-{i}" for i in range(2 * MAX_IDLE_SENDERS)]
    assert [n_taken_in(intake, name, 1) for name in names] == [1] * len(names)
    refusals = [intake.offer(message(name)) for name in reversed(names)]
    assert [refusal is not None and refusal.cause for refusal in refusals[: MAX_IDLE_SENDERS + 1]] == [
        *[RefusalCause.RATE] * MAX_IDLE_SENDERS,
        False,
    ]


def test_the_longest_idle_sender_is_forgotten(monkeypatch):
    """It comes back with a full bucket; who was idle for less is remembered, however early it was first seen."""
    monkeypatch.setattr(intake_module, "MAX_IDLE_SENDERS", 2)
    intake = make_intake(rate_per_s=0.001, burst=2)
    assert [n_taken_in(intake, name, 1) for name in "abac"] == [1, 1, 1, 1]
    assert [n_taken_in(intake, name, 9) for name in "acb"] == [0, 1, 2]


@pytest.mark.parametrize("timeout_s", [60.0, math.inf, 1e300, 1e12])
async def test_waiting_ends_with_a_message(timeout_s):
    """The one who waits is woken by an arrival, long before a deadline that the loop's timers can hold or cannot."""
    intake = make_intake()
    asyncio.get_running_loop().call_later(0.01, intake.offer, message("a"))
    async with asyncio.timeout(30):
        await intake.wait(timeout_s)
    assert topics(intake.take(1)) == ["a"]


@pytest.mark.parametrize("timeout_s", [0.02, 0.0, -5.0, -math.inf, math.nan])
async def test_waiting_ends_with_its_deadline(timeout_s):
    """A deadline in the past is no wait at all."""
    intake = make_intake()
    async with asyncio.timeout(30):
        await intake.wait(timeout_s)
    assert len(intake) == 0


async def still_waits(intake):
    """Wait in vain for a moment."""
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):  # clock: runs out
            await intake.wait(60)


async def test_it_waits_for_what_is_not_there_yet():
    """Not while some are left, or left as too new; again once all are taken, and for none that was refused."""
    clock = Clock(5.0)
    intake = make_intake(clock, burst=1, rate_per_s=0.001)
    offer_all(intake, "a", "b")
    intake.take(1)
    assert intake.take(9, before=4.0) == []
    async with asyncio.timeout(30):
        await intake.wait(60)
    assert topics(intake.take(9)) == ["b"]
    assert offer_all(intake, "a") == [False]
    await still_waits(intake)


async def test_it_can_be_woken_without_a_message():
    """To stop, or to look at something else; after the next take it waits again."""
    intake = make_intake()
    asyncio.get_running_loop().call_later(0.01, intake.wake)
    async with asyncio.timeout(30):
        await intake.wait(60)
    assert intake.take(10) == []
    await still_waits(intake)


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
