"""The buffer between the network and whoever commits: bounded, in order, never waiting without end."""

import asyncio
import random

import pytest

from broker.intake import BoundedIntake
from broker.link import InboundMessage


def message(name="x", n_bytes=10):
    return InboundMessage(name, bytes(n_bytes), retained=False)


def names(messages):
    return [item.topic for item in messages]


def test_first_in_first_out():
    """Messages are taken in the order they came."""
    intake = BoundedIntake()
    assert all(intake.offer(message(name)) for name in "abcde")
    assert names(intake.take(2)) == ["a", "b"]
    assert intake.offer(message("f"))
    assert names(intake.take(100)) == ["c", "d", "e", "f"]
    assert intake.take(100) == []


def test_it_is_bounded_in_count():
    """What does not fit is refused and changes nothing; taking makes room."""
    intake = BoundedIntake(max_messages=2)
    assert [intake.offer(message(name)) for name in "abc"] == [True, True, False]
    assert names(intake.take(1)) == ["a"]
    assert [intake.offer(message(name)) for name in "de"] == [True, False]
    assert names(intake.take(9)) == ["b", "d"]


def test_it_is_bounded_in_bytes():
    """Up to exactly the bound; a small message still fits where a large one did not."""
    intake = BoundedIntake(max_bytes=100)
    assert intake.offer(message("a", 60))
    assert not intake.offer(message("b", 41))
    assert intake.offer(message("c", 40))
    assert not intake.offer(message("d", 1))
    assert intake.offer(message("e", 0))
    assert names(intake.take(1)) == ["a"]
    assert intake.offer(message("f", 60))


def test_the_bytes_are_counted_right_for_ever():
    """After any mixture of offers and takes, an emptied intake has all its room again."""
    rng = random.Random(3)  # noqa: S311 (repeatable, no secret)
    intake = BoundedIntake(max_messages=50, max_bytes=1_000)
    for _ in range(2_000):
        if rng.random() < 0.6:
            intake.offer(message(n_bytes=rng.randrange(200)))
        else:
            intake.take(rng.randrange(5))
        assert len(intake) <= 50
    intake.take(10_000)
    assert len(intake) == 0
    assert intake.offer(message(n_bytes=1_000))


@pytest.mark.parametrize("limit", [0, -1])
def test_taking_nothing_takes_nothing(limit):
    """A limit of none is none."""
    intake = BoundedIntake()
    intake.offer(message())
    assert intake.take(limit) == []
    assert len(intake) == 1


async def test_waiting_ends_with_a_message():
    """The one who waits is woken by an arrival, long before the deadline."""
    intake = BoundedIntake()
    asyncio.get_running_loop().call_later(0.01, intake.offer, message("a"))
    async with asyncio.timeout(2):
        await intake.wait(60)
    assert names(intake.take(1)) == ["a"]


async def test_waiting_does_not_wait_while_there_is_something():
    """Also not after some were taken and some were left."""
    intake = BoundedIntake()
    intake.offer(message("a"))
    intake.offer(message("b"))
    intake.take(1)
    async with asyncio.timeout(1):
        await intake.wait(60)


@pytest.mark.parametrize("timeout_s", [0.02, 0.0, -5.0, float("-inf")])
async def test_waiting_ends_with_its_deadline(timeout_s):
    """A deadline in the past is no wait at all."""
    intake = BoundedIntake()
    async with asyncio.timeout(1):
        await intake.wait(timeout_s)
    assert len(intake) == 0


async def test_an_emptied_intake_waits_again():
    """A message that was taken does not end the next wait."""
    intake = BoundedIntake()
    intake.offer(message())
    intake.take(1)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await intake.wait(60)


async def test_it_can_be_woken_without_a_message():
    """To stop, or to look at something else; after the next take it waits again."""
    intake = BoundedIntake()
    asyncio.get_running_loop().call_later(0.01, intake.wake)
    async with asyncio.timeout(2):
        await intake.wait(60)
    assert intake.take(10) == []
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await intake.wait(60)
