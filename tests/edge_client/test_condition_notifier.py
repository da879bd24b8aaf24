"""What is waited for of a device is looked at after each turn, and whoever waits is woken once it is true."""

import asyncio

import pytest
from support.waiting import PATIENCE_S

from foltr.edge_client.condition_notifier import ConditionNotifier


async def test_whoever_waits_is_woken_when_it_is_true_and_not_before():
    """However often others look, and whatever else has become true."""
    news, said = ConditionNotifier(), []
    waiters = {limit: asyncio.create_task(news.wait_until(lambda limit=limit: len(said) >= limit)) for limit in (1, 3)}
    for n_said, n_done in ((0, 0), (1, 1), (2, 1), (3, 2)):
        said[:] = range(n_said)
        news.notify()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert sum(task.done() for task in waiters.values()) == n_done


async def test_what_was_true_for_a_moment_is_waited_for_again():
    """Whoever is woken finds it true."""
    news, is_true = ConditionNotifier(), []
    waiter = asyncio.create_task(news.wait_until(lambda: bool(is_true)))
    await asyncio.sleep(0)
    is_true.append(1)
    news.notify()
    is_true.clear()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not waiter.done()
    is_true.append(1)
    news.notify()
    await asyncio.wait_for(waiter, PATIENCE_S)
    await asyncio.wait_for(news.wait_until(lambda: True), PATIENCE_S)  # nobody looks again before the next turn
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(news.wait_until(lambda: False), 0.01)  # clock: runs out
    news.notify()  # the one that was cancelled waits no longer


async def test_a_question_that_raises_raises_where_it_was_asked():
    """And nowhere else: the turn that looked goes on, and others are woken."""
    news, is_bad = ConditionNotifier(), []

    def ask() -> bool:
        if is_bad:
            raise ValueError("gone")
        return False

    bad, good = asyncio.create_task(news.wait_until(ask)), asyncio.create_task(news.wait_until(lambda: bool(is_bad)))
    await asyncio.sleep(0)
    is_bad.append(1)
    news.notify()
    with pytest.raises(ValueError, match="gone"):
        await bad
    await good
