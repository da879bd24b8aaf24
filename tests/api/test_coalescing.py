"""Readings that many ask for at once are made once, and no answer is older than its question."""

import asyncio
import gc
import warnings

import pytest
from support.waiting import PATIENCE_S, until

from foltr.api.coalescing import CoalescedReads


class Reading:
    """A reading that goes on until it is let; it returns how many there were before it."""

    def __init__(self):
        self.n = 0
        self.goes_on = asyncio.Event()

    async def __call__(self):
        self.n += 1
        mine = self.n
        await self.goes_on.wait()
        return mine


async def begun(reading, n):
    """Wait until so many readings have begun."""
    await until(lambda: reading.n >= n, "nothing is read")


async def test_who_asks_while_one_is_read_gets_the_next_one():
    """It began before the question was there: one more is read, for all who came meanwhile."""
    together, reading = CoalescedReads(), Reading()
    first = asyncio.create_task(together.read("rounds", reading))
    await begun(reading, 1)
    later = [asyncio.create_task(together.read("rounds", reading)) for _ in range(50)]
    other = asyncio.create_task(together.read("status", reading))
    await begun(reading, 2)
    reading.goes_on.set()
    assert (await first, await other) == (1, 2)
    assert await asyncio.gather(*later) == [3] * 50
    assert await together.read("rounds", reading) == 4


async def test_who_goes_away_leaves_the_answer_to_the_others_and_who_ends_waits_for_it():
    """It has a connection of the database, which is closed next; who waits too long for it goes on without."""
    together, reading = CoalescedReads(), Reading()
    gone, stays = (asyncio.create_task(together.read("rounds", reading)) for _ in range(2))
    await begun(reading, 1)
    gone.cancel()
    await asyncio.wait([gone])
    await together.finish(0.01)
    ending = asyncio.create_task(together.finish(PATIENCE_S))
    await asyncio.sleep(0)
    assert not ending.done()
    reading.goes_on.set()
    assert await stays == 1
    await ending
    await together.finish(PATIENCE_S)  # nothing goes on any more


async def test_all_who_ask_are_told_what_went_wrong_and_the_next_one_is_read():
    """A database that was away for one reading is asked again."""
    together, is_away = CoalescedReads(), True

    async def read():
        if is_away:
            raise OSError("away")
        return "there"

    asked = [asyncio.create_task(together.read("rounds", read)) for _ in range(3)]
    assert [type(each) for each in await asyncio.gather(*asked, return_exceptions=True)] == [OSError] * 3
    is_away = False
    assert await together.read("rounds", read) == "there"


async def test_an_error_after_which_nobody_asks_any_more_is_no_complaint(caplog):
    """asyncio complains of an error that nobody has looked at."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what other tests have left is not this one's
        gc.collect()
    together, reading = CoalescedReads(), Reading()

    async def read():
        await reading()
        raise OSError("away")

    gone = asyncio.create_task(together.read("rounds", read))
    await begun(reading, 1)
    gone.cancel()
    with pytest.raises(asyncio.CancelledError):
        await gone
    reading.goes_on.set()
    await asyncio.sleep(0.01)
    gc.collect()
    assert caplog.records == []
