"""A leader finds that updates do not reach its workers, and says so once, on a real broker."""

import asyncio
import itertools
import re
from contextlib import asynccontextmanager
from types import SimpleNamespace

from structlog.testing import capture_logs
from support.broker_links import link_to
from support.waiting import PATIENCE_S, until

from foltr.broker.group_probe import ProbeAnswers
from foltr.core.protocol.topics import Topics
from foltr.federator.group_watch import GroupWatch

TOPICS = Topics("fed")
GROUP = f"$share/a-group/{TOPICS.client('+', 'updates')}"


@asynccontextmanager
async def watching(url, sharing, told):
    """A watch that looks all the time, and one worker that is there and answers."""
    parts = {}

    def inbox(part):
        return SimpleNamespace(take=lambda message: parts[part](message))  # noqa: PLW0108 (it is there later)

    async with link_to(url, "leader", inbox("leader")) as leader, link_to(url, "worker", inbox("worker")) as worker:
        watch = GroupWatch(TOPICS, leader, sharing, told.append, every_s=0.02)
        answers = ProbeAnswers(TOPICS, worker)
        parts |= {"leader": watch.receive, "worker": answers.accept_probe}
        await leader.wait_connected(PATIENCE_S)
        await worker.wait_connected(PATIENCE_S)
        await leader.subscribe([watch.answers_on])
        await worker.subscribe([GROUP])
        tasks = [asyncio.create_task(each) for each in (watch.run(), answers.run())]
        yield watch
        for task in tasks:
            task.cancel()


async def test_a_thief_in_the_group_is_said_once_and_that_it_is_gone(mosquitto_server, monkeypatch):
    """With the share that it takes; and the measure says so as long as it is there."""

    def answered_within(seconds):
        monkeypatch.setattr("foltr.federator.group_watch._WITHIN_S", seconds)

    answered_within(PATIENCE_S)
    url, told = mosquitto_server.url, []
    with capture_logs() as logs:
        async with watching(url, SimpleNamespace(n_workers=1, is_shared=True), told) as watch:
            await until(lambda: watch.unanswered == 0.0)
            async with link_to(url, "thief") as thief:
                await thief.wait_connected(PATIENCE_S)
                answered_within(1.0)
                # The trial under way would wait for the thief's share of the answers as long as it meant to.
                watch.unanswered = None
                await until(lambda: watch.unanswered is not None)
                await thief.subscribe([GROUP])
                await until(lambda: any(each["event"] == "updates_undelivered" for each in logs))
                assert watch.unanswered >= 0.5
            answered_within(PATIENCE_S)
            await until(lambda: any(each["event"] == "update_delivery_restored" for each in logs))
    assert [each["event"] for each in logs].count("updates_undelivered") == 1
    assert [re.sub(r"^\d+", "n", each) for each in told] == ["n of 24 messages to the group of 1 workers"]


async def test_without_workers_there_is_nothing_to_say(mosquitto_server):
    """That none is there the leader says in another line."""
    asked = itertools.count()

    class Sharing:
        @property
        def n_workers(self):
            next(asked)

    with capture_logs() as logs:
        async with watching(mosquitto_server.url, Sharing(), []) as watch:
            await until(lambda: next(asked) > 10)
            assert watch.unanswered is None
    assert {each["event"] for each in logs} <= {"broker_connected"}
