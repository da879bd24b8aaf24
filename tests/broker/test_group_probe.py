"""Messages to the workers' group, which workers send back: what somebody else takes is counted, on a real broker."""

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from support.broker_links import WITHIN_S, link_to

from foltr.broker.group_probe import GroupProbe, ProbeAnswers
from foltr.core.protocol.topics import Topics

TOPICS = Topics("fed")
GROUP = f"$share/a-group/{TOPICS.client('+', 'updates')}"


@asynccontextmanager
async def worker(url, name):
    """A member of the group that answers; its link."""
    answers = None

    class Taking:
        def take(self, message):
            assert answers.take(message)

    async with link_to(url, name, Taking()) as link:
        answers = ProbeAnswers(TOPICS, link)
        await link.wait_connected(WITHIN_S)
        answering = asyncio.create_task(answers.run())
        await link.subscribe([GROUP])
        yield link
        answering.cancel()


@asynccontextmanager
async def probing(url):
    """A probe with its link, as the leader has it."""
    probe = GroupProbe(TOPICS, "@federator")

    class Receiving:
        def take(self, message):
            probe.receive(message.payload)

    async with link_to(url, "prober", Receiving(), [probe.answers_on]) as link:
        await link.wait_connected(WITHIN_S)
        yield probe, link


@pytest.mark.parametrize("n_workers", [1, 3])
async def test_workers_answer_every_message(mosquitto_server, n_workers):
    """Of one or several; and it takes no longer than they need."""
    async with AsyncExitStack() as stack, probing(mosquitto_server.url) as (probe, link):
        for i in range(n_workers):
            await stack.enter_async_context(worker(mosquitto_server.url, f"worker-{i}"))
        async with asyncio.timeout(WITHIN_S):
            assert await probe.count_unanswered(link, 24, 60.0) == 0


async def test_what_somebody_else_takes_is_not_answered(mosquitto_server):
    """Its turn comes as often as a worker's; once it is gone all are answered again."""
    url = mosquitto_server.url
    async with worker(url, "worker"), probing(url) as (probe, link):
        async with link_to(url, "thief") as thief:
            await thief.wait_connected(WITHIN_S)
            await thief.subscribe([GROUP])
            assert await probe.count_unanswered(link, 24, 0.5) == 12
        assert await probe.count_unanswered(link, 24, WITHIN_S) == 0


async def test_nobody_answers_where_there_is_no_worker(mosquitto_server):
    """And who probes waits no longer than it was to."""
    async with probing(mosquitto_server.url) as (probe, link):
        assert await probe.count_unanswered(link, 24, 0.1) == 24


def test_a_client_is_no_prober():
    """Names that devices may have, other topics, and none that is endless."""
    probers = {topic: TOPICS.prober_of(topic) for topic in (TOPICS.probe("@federator"), TOPICS.probe("@ingest.1"))}
    assert list(probers.values()) == ["@federator", "@ingest.1"]
    for topic in (
        TOPICS.client("device-1", "updates"),
        TOPICS.probe_answer("@federator"),
        TOPICS.client("@a/b", "updates"),
        TOPICS.client("@" + 200 * "x", "updates"),
        Topics("other").probe("@federator"),
        TOPICS.model,
    ):
        assert TOPICS.prober_of(topic) is None, topic
