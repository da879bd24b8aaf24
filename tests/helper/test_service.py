"""A helper's process: what waits for its desk, and that the connection does not wait for it."""

import asyncio
import contextlib
import threading

import pytest
from support.broker_links import Inbox, connected
from support.secure_cohorts import FEDERATION, HelperPair, SecureFederation
from support.waiting import PATIENCE_S, until

from foltr.broker.address import BrokerAddress
from foltr.core.errors import DataError, UnavailableError
from foltr.core.protocol.codec import open_envelope
from foltr.core.protocol.fields import MAX_MESSAGE_BYTES
from foltr.core.protocol.helper_messages import HelperStatus
from foltr.core.protocol.topics import Topics
from foltr.helper.noise_pool import NoisePool
from foltr.helper.service import MAX_WAITING, HelperService, RequestQueue

TOPICS = Topics(FEDERATION)
REQUESTS, ANSWERS = TOPICS.helper_requests("north"), TOPICS.helper_answers("north")


async def test_messages_are_taken_in_the_order_in_which_they_came_and_wait_once():
    """Also by one who waited before they did; what a federator repeats may come again once it is taken."""
    waiting = RequestQueue()
    first = asyncio.create_task(waiting.get())
    await asyncio.sleep(0)
    for topic, payload in (("t", b"a"), ("t", b"b"), ("t", b"b"), ("other", b"b")):
        assert waiting.put(topic, payload)
    async with asyncio.timeout(PATIENCE_S):
        assert [await first, await waiting.get(), await waiting.get()] == [("t", b"a"), ("t", b"b"), ("other", b"b")]
    assert waiting.put("t", b"b")
    assert await waiting.get() == ("t", b"b")


async def test_only_so_many_wait():
    """Beyond that they are dropped, as is what is too long to be a message: memory is bounded."""
    waiting = RequestQueue()
    assert all(waiting.put("t", b"%d" % i) for i in range(MAX_WAITING))
    assert not waiting.put("t", b"one more")
    assert waiting.put("t", b"0")
    await waiting.get()
    assert waiting.put("t", b"one more")
    await waiting.get()
    assert not waiting.put("t", bytes(MAX_MESSAGE_BYTES + 1))


class BusyDesk:
    """A desk that is at work until it is let go."""

    operator, authorities, restored, commitment = None, None, None, None

    def __init__(self):
        self.noise = NoisePool()
        self.let_go = threading.Event()
        self.taken = []

    def handle(self, topic, payload):
        self.taken.append((topic, payload))
        assert self.let_go.wait(PATIENCE_S)
        return [b"answer to " + payload]


@contextlib.asynccontextmanager
async def serving(url, desk):
    credentials = SecureFederation().credentials(HelperPair("north"))
    service = HelperService(credentials, desk, BrokerAddress.parse(url), give_up_after_s=PATIENCE_S)
    running = asyncio.create_task(service.run())
    try:
        yield service, running
    finally:
        service.stop()
        async with asyncio.timeout(PATIENCE_S):
            await asyncio.gather(running, return_exceptions=True)


async def test_the_connection_does_not_wait_for_the_desk(mqtt_broker):
    """While the desk is at work other messages arrive, and are answered afterwards; the measures say what waits."""
    desk, inbox = BusyDesk(), Inbox()
    async with (
        serving(mqtt_broker, desk) as (service, _),
        connected(mqtt_broker, "federator", inbox, [ANSWERS]) as federator,
    ):
        async with asyncio.timeout(PATIENCE_S):
            while not desk.taken:
                await federator.publish(REQUESTS, b"first")
                await asyncio.sleep(0.05)
            await federator.publish(REQUESTS, b"second")
        # On a slow machine the first is sent more than once, and each time but one waits as well.
        await until(lambda: service.read_measures().waiting.now[""] >= 1, "nothing waits")
        measures = service.read_measures()
        assert measures.working.now[""] > 0
        assert measures.broker_up.now[""] == 1
        desk.let_go.set()
        answers: set[bytes] = set()
        async with asyncio.timeout(PATIENCE_S):
            while b"answer to second" not in answers:
                answers.add((await inbox.next()).payload)
        assert answers == {b"answer to first", b"answer to second"}
        assert measures.messages.counts["request"] >= 2
        assert measures.answer_took.buckets()[-1][1] >= 1


async def test_it_says_whether_it_is_there(mqtt_broker):
    """Signed and retained: online once it is connected, offline when it has ended."""
    inbox, status_on = Inbox(), TOPICS.helper_status("north")
    async with connected(mqtt_broker, "federator", inbox, [status_on]):
        async with serving(mqtt_broker, BusyDesk()):
            online = open_envelope((await inbox.next()).payload)
        offline = open_envelope((await inbox.next()).payload)
    assert [each.read(HelperStatus).online for each in (online, offline)] == [True, False]
    assert offline.sequence > online.sequence
    later = Inbox()
    async with connected(mqtt_broker, "later", later, [status_on]):
        assert not open_envelope((await later.next()).payload).read(HelperStatus).online


async def test_a_store_that_cannot_be_used_ends_the_process(mqtt_broker):
    """Whoever runs it starts it again; a helper that went on would answer what it cannot remember."""

    class Failing:
        operator, authorities, restored, commitment, noise = None, None, None, None, NoisePool()

        def handle(self, *_):
            raise DataError("helper store: disk full")

    async with serving(mqtt_broker, Failing()) as (_, running), connected(mqtt_broker, "federator") as federator:
        async with asyncio.timeout(PATIENCE_S):
            while not running.done():
                await federator.publish(REQUESTS, b"anything")
                await asyncio.sleep(0.05)
        with pytest.raises(DataError, match="disk full"):
            running.result()


async def test_a_helper_gives_up_where_it_was_told_to():
    """With what it waited for in words."""
    credentials = SecureFederation().credentials(HelperPair("north"))
    address = BrokerAddress.parse("mqtt://127.0.0.1:1")
    with pytest.raises(UnavailableError, match=r"gave up after 0\.1 s"):
        await HelperService(credentials, BusyDesk(), address, give_up_after_s=0.1).run()
