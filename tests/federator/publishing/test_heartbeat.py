"""The heartbeat: what is said when, under which number, and what is not said."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from support.broker_links import NotedLink
from support.waiting import until

from foltr.core.errors import UnavailableError
from foltr.core.protocol.codec import open_envelope
from foltr.core.protocol.heartbeat import FederatorStatus
from foltr.core.protocol.signing import SigningKey, epoch_and_number
from foltr.core.protocol.topics import Topics
from foltr.federator.publishing.heartbeat import Heartbeat
from foltr.storage.errors import WriterFencedError

TOPICS = Topics("mail")
KEY = SigningKey.generate()
EPOCH = 7


class Clock:
    def now(self):
        return 1000.0


class Writer:
    """Says whether this federator still writes."""

    error = None

    async def require(self):
        if self.error is not None:
            raise self.error


@pytest.fixture
def writer():
    return Writer()


@pytest.fixture
def link():
    return NotedLink()


def heartbeat_of(link, writer, interval_s=60.0):
    heartbeat = Heartbeat(link, TOPICS, KEY, Clock(), writer.require, interval_s)
    heartbeat.begin(EPOCH)
    return heartbeat


def said(link):
    """(online, sequence) of each status that was published."""
    found = []
    for topic, payload, retain in link.taken():
        assert (topic, retain) == (TOPICS.federator_status, True)
        found.append(heard(payload))
    return found


def heard(payload):
    envelope = open_envelope(payload)
    assert envelope.is_signed_by(KEY.public, TOPICS.federator_status)
    assert epoch_and_number(envelope.sequence)[0] == EPOCH
    return envelope.read(FederatorStatus).online, envelope.sequence


@asynccontextmanager
async def beating(heartbeat):
    """Beat meanwhile."""
    running = asyncio.create_task(heartbeat.run())
    yield
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


def test_there_is_no_last_will_before_there_is_a_claim(link, writer):
    """It could not be told from that of another federator."""
    heartbeat = Heartbeat(link, TOPICS, KEY, Clock(), writer.require)
    assert heartbeat.last_will() is None


async def test_it_beats_at_once_over_a_new_connection(link, writer):
    """Whoever waits for it does not wait for the next beat."""
    heartbeat = heartbeat_of(link, writer)
    heartbeat.last_will()
    async with beating(heartbeat):
        await until(lambda: len(link.published) == 1)
        heartbeat.beat_now()
        await until(lambda: len(link.published) == 2)
    assert len(said(link)) == 2


async def test_it_is_silent_while_it_cannot_store_anything(link, writer):
    """Devices hear that nobody serves them; and it goes on once the database is back."""
    heartbeat = heartbeat_of(link, writer, interval_s=0.001)
    heartbeat.last_will()
    writer.error = UnavailableError("the database is away")
    async with beating(heartbeat):
        await asyncio.sleep(0.05)
        assert said(link) == []
        link.connected, writer.error = False, None
        await asyncio.sleep(0.05)
        link.connected = True
        await until(lambda: bool(link.published))


async def test_whoever_was_replaced_says_nothing_more(link, writer):
    """No beat, and no goodbye, which would stay with the broker in place of the living one's beat."""
    heartbeat = heartbeat_of(link, writer)
    heartbeat.last_will()
    writer.error = WriterFencedError("another federator has taken over")
    with pytest.raises(ExceptionGroup):
        async with heartbeat, asyncio.TaskGroup() as group:
            group.create_task(heartbeat.run())
    assert said(link) == []


@pytest.mark.parametrize("error", [None, UnavailableError("the database is away")])
async def test_it_says_goodbye(link, writer, error):
    """In order or not, below its last will, which is below the next one; where the broker is away, nothing waits."""
    heartbeat = heartbeat_of(link, writer)
    will = heartbeat.last_will()

    async def serve():
        async with heartbeat, asyncio.TaskGroup() as group:
            beating = group.create_task(heartbeat.run())
            await asyncio.sleep(0.01)
            if error is not None:
                raise error
            beating.cancel()

    if error is None:
        await serve()
    else:
        with pytest.raises(ExceptionGroup):
            await serve()
    (first, beat), (last, goodbye) = said(link)
    assert (first, last) == (True, False)
    assert beat < goodbye < heard(will.payload)[1] < heard(heartbeat.last_will().payload)[1]
    link.connected = False
    async with heartbeat:
        pass


async def test_a_beat_is_noted_once_the_broker_has_taken_it(link, writer):
    """Not while another federator may have taken over, or the database does not answer."""
    noted = []
    heartbeat = Heartbeat(link, TOPICS, KEY, Clock(), writer.require, on_beat=lambda: noted.append(len(link.taken())))
    heartbeat.begin(EPOCH)
    await heartbeat.beat()
    assert noted == [1]
    writer.error = UnavailableError("no database")
    await heartbeat.beat()
    assert noted == [1]
