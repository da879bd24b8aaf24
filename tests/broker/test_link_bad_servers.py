"""An MQTT session against servers that hang, hang up, refuse or speak something else: it lives on and can be left."""

import asyncio
import contextlib
import re
import socket
import time
from dataclasses import replace

import pytest
from support.broker_links import connected, link_to
from support.waiting import PATIENCE_S, until

from foltr.broker.address import BrokerAddress
from foltr.broker.failures import FailureKind
from foltr.broker.link import MqttLink
from foltr.core.errors import UnavailableError

pytestmark = pytest.mark.usefixtures("connects_again_fast")
CONNACK = b"\x20\x02\x00\x00"


def publish_packet(topic, payload):
    body = len(topic).to_bytes(2) + topic + payload
    return b"\x30" + bytes([len(body)]) + body


class FakeServer:
    """Answers each packet with what ``answers`` says for its type, or makes of it; None closes the connection."""

    def __init__(self, answers):
        self.answers = answers
        self.n_connections = self.n_open = 0

    async def __aenter__(self):
        self._writers = set()
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address = BrokerAddress("127.0.0.1", self._server.sockets[0].getsockname()[1])
        return self

    async def __aexit__(self, *_):
        self._server.close()
        for writer in self._writers:
            writer.close()
        # The end of a connection takes a few turns of the event loop; a test must not end in the middle of it.
        await until(lambda: self.n_open == 0, "a connection does not end")

    def hang_up(self):
        """End every connection now, and not after some turns of the event loop."""
        for writer in self._writers:
            writer.get_extra_info("socket").shutdown(socket.SHUT_RDWR)

    async def _serve(self, reader, writer):
        self.n_connections += 1
        self.n_open += 1
        self._writers.add(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            await self._answer_all(reader, writer)
        self.n_open -= 1
        self._writers.discard(writer)
        writer.close()

    async def _answer_all(self, reader, writer):
        while True:
            kind = (await reader.readexactly(1))[0] >> 4
            length, shift, more = 0, 0, True
            while more:
                byte = (await reader.readexactly(1))[0]
                length, shift, more = length | (byte & 127) << shift, shift + 7, byte & 128
            body = await reader.readexactly(length)
            answer = self.answers.get(kind, b"")
            if callable(answer):
                answer = answer(body)
            if answer is None:
                return
            if kind == 8:
                answer = answer.replace(b"MM", body[:2])
            writer.write(answer)
            await writer.drain()


SILENT = {}
CLOSING = {1: None}
REFUSING_CONNECTION = {1: b"\x20\x02\x00\x05"}
REFUSING_SUBSCRIPTION = {1: CONNACK, 8: b"\x90\x03MM\x80"}
FRIENDLY = {1: CONNACK, 8: b"\x90\x03MM\x01"}
BAD = {
    "silent": SILENT,
    "hangs up": CLOSING,
    "refuses the connection": REFUSING_CONNECTION,
    "does not answer the subscription": {1: CONNACK},
    "hangs up on the subscription": {1: CONNACK, 8: None},
    "refuses the subscription": REFUSING_SUBSCRIPTION,
    "speaks HTTP": {1: b"HTTP/1.1 400 Bad Request\r\n\r\n"},
    "sends zeros": {1: b"\x00" * 100},
    "sends ones": {1: b"\xff" * 100},
    "an empty answer to the subscription": {1: CONNACK, 8: b"\x90\x00"},
    "a message with a broken topic": {1: CONNACK, 8: b"\x30\x02\xff\xff"},
    "a message of impossible length": {1: CONNACK, 8: b"\x30\xff\xff\xff\xff\xff"},
}


async def test_a_bad_server_is_an_outage():
    """Whatever listens there, the link stays alive, tries again, gives up when told to and can be left."""

    async def is_an_outage(what, answers):
        options = {"topics": ["t"], "timeout_s": 0.1}  # clock: runs out
        async with FakeServer(answers) as server, asyncio.timeout(PATIENCE_S):
            async with link_to(server.address, **options) as link:
                await until(lambda: server.n_connections > 1, what)
                assert not link.connected, what
            async with link_to(server.address, **options, give_up_after_s=0.25) as link:
                with pytest.raises(UnavailableError, match="gave up"):
                    await link.wait_failed()

    await asyncio.gather(*(is_an_outage(what, answers) for what, answers in BAD.items()))


@pytest.mark.parametrize(
    ("answers", "tls", "next_step"),
    [(CLOSING, False, "mqtts://"), (SILENT, True, "no connection"), (CLOSING, True, "mqtt://")],
)
async def test_a_server_that_speaks_something_else_is_an_outage(answers, tls, next_step):
    """TLS where there is none, or none where there is: the wait ends in time, and the message asks about it."""
    async with FakeServer(answers) as server, asyncio.timeout(PATIENCE_S):
        address = replace(server.address, tls=tls)
        async with link_to(address) as link:
            await until(lambda: answers is SILENT or link.failure_kind is not None)
            with pytest.raises(UnavailableError, match=next_step):
                await link.wait_connected(0.05)


async def fail(link):
    async with link:
        await link.wait_failed()


async def test_a_refused_subscription_says_so():
    """An operator reads that it is the ACL, not the network."""
    async with FakeServer(REFUSING_SUBSCRIPTION) as server, asyncio.timeout(PATIENCE_S):
        link = link_to(server.address, topics=["t"], give_up_after_s=0.1)
        with pytest.raises(UnavailableError, match=r"refused a subscription of link \(see its access list\)"):
            await fail(link)


@pytest.mark.parametrize(
    ("answers", "timeout_s"),
    [pytest.param(FRIENDLY, 0.2, id="it hangs"), pytest.param({**FRIENDLY, 3: None}, PATIENCE_S, id="it hangs up")],
)
async def test_an_acknowledgement_that_never_comes_ends_the_wait(answers, timeout_s):
    """A broker that hangs is as good as none; nor does anybody wait once the connection is lost."""
    options = {"topics": ["t"], "timeout_s": timeout_s}  # clock: runs out
    async with FakeServer(answers) as server, connected(server.address, **options) as link:
        with pytest.raises(UnavailableError):
            async with asyncio.timeout(PATIENCE_S):
                await link.publish("t", b"x")


@pytest.mark.parametrize("hangs_up_on", [8, 3])
async def test_a_connection_lost_while_it_is_set_up_is_made_again_at_once(hangs_up_on):
    """Neither the subscription nor the first message is waited for: a second connection comes long before a timeout."""

    async def say_hello():
        await link.publish("t", b"hello")

    async with FakeServer({**FRIENDLY, hangs_up_on: None}) as server, asyncio.timeout(PATIENCE_S / 2):
        link = link_to(server.address, topics=["t"], timeout_s=PATIENCE_S, on_connected=say_hello)
        async with link:
            await until(lambda: server.n_connections > 1)
            assert link.connected or "connection ended" in str(link.outage)


@pytest.mark.parametrize("n_steps", range(5))
async def test_leaving_while_the_subscription_is_answered(n_steps):
    """Whenever it is left, it ends: in Python 3.11 ``asyncio.wait_for`` may swallow the cancellation."""
    arrived = asyncio.Event()
    answers = {1: CONNACK, 8: publish_packet(b"t", b"x") + b"\x90\x03MM\x01"}
    async with FakeServer(answers) as server:
        link = MqttLink(server.address, client_id="a", subscriptions=["t"], on_message=lambda _: arrived.set())
        others = asyncio.all_tasks()
        await link.__aenter__()
        (keeping_up,) = asyncio.all_tasks() - others
        await arrived.wait()
        for _ in range(n_steps):
            await asyncio.sleep(0)
        leaving = asyncio.create_task(link.__aexit__())
        done, _ = await asyncio.wait({leaving}, timeout=PATIENCE_S)
        if not done:
            # End it all the same, so that the other tests are not disturbed.
            keeping_up.cancel()
            await leaving
        assert done, "the link cannot be left"
        assert keeping_up.done()
        assert not link.connected


async def test_leaving_in_the_middle_of_a_connection_leaves_none_behind():
    """What was begun is ended: a forgotten session would answer pings and hand messages to a closed application."""
    async with FakeServer(SILENT) as server, asyncio.timeout(PATIENCE_S):
        async with link_to(server.address):
            await until(lambda: server.n_open > 0)
            await asyncio.sleep(0.05)
        await until(lambda: not server.n_open, "the connection is still open")


def stand_still(seconds):
    """Let time pass in which the event loop does nothing: it finds all at once what came meanwhile."""
    time.sleep(seconds)


@pytest.mark.parametrize("n_turns", range(6))
async def test_losing_the_connection_while_a_wait_times_out(n_turns):
    """In the same turn of the event loop, or a few turns apart: the caller is told, and the link lives on."""
    timeout_s = 0.3  # clock: runs out
    async with FakeServer(FRIENDLY) as server, connected(server.address, topics=["t"], timeout_s=timeout_s) as link:
        publishing = asyncio.create_task(link.publish("t", b"x"))
        await asyncio.sleep(0.05)
        server.hang_up()
        for _ in range(n_turns):
            await asyncio.sleep(0)
        stand_still(timeout_s)
        with pytest.raises(UnavailableError):
            await publishing
        assert link.failure is None
        await link.wait_connected(PATIENCE_S)


async def test_an_outage_is_told_by_its_own_reason():
    """The reason of the one before is forgotten."""
    async with FakeServer(REFUSING_CONNECTION) as server, link_to(server.address, topics=["t"]) as link:
        await until(lambda: link.failure_kind is not None)
        with pytest.raises(UnavailableError, match="refuses this user"):
            await link.wait_connected(0.0)
        server.answers = FRIENDLY
        await link.wait_connected(PATIENCE_S)
        server.answers = CLOSING
        server.hang_up()
        with pytest.raises(UnavailableError):
            await link.publish("t", b"x")
        with pytest.raises(UnavailableError) as caught:
            await link.wait_connected(0.2)
        assert "refuses this user" not in str(caught.value)


class ThrowingOut:
    """Lets a client in, and ends the connection with its first message; in MQTT 5, if it speaks that, it says why."""

    def __init__(self, *, speaks_5):
        self._speaks_5 = speaks_5
        self.versions = []

    def answers(self):
        return {1: self._let_in, 3: self._throw_out}

    def _let_in(self, connect):
        self.versions.append(connect[6])
        if self.versions[-1] == 5:
            return b"\x20\x03\x00\x00\x00" if self._speaks_5 else None
        return CONNACK

    def _throw_out(self, _publish):
        return b"\xe0\x02\x8e\x00" if self.versions[-1] == 5 else None


@contextlib.asynccontextmanager
async def thrown_out(speaks_5, monkeypatch, **options):
    """A link that says something at each connection, and the server that ends it."""
    monkeypatch.setattr("foltr.broker.backoff.FIRST_S", 0.01)
    throwing = ThrowingOut(speaks_5=speaks_5)
    async with FakeServer(throwing.answers()) as server:

        async def say():
            with contextlib.suppress(UnavailableError):
                await link.publish("t", b"here I am")

        async def begin_to_say():
            saying.append(asyncio.create_task(say()))

        saying, link = [], link_to(server.address, on_connected=begin_to_say, **options)
        async with link:
            yield link, throwing
        await asyncio.gather(*saying)


async def test_whoever_is_thrown_out_is_not_told_to_start_a_broker(monkeypatch):
    """From the first time on: there was one a moment ago. Before the broker has said why, both causes are open."""
    monkeypatch.setattr("foltr.broker.backoff.Backoff.pause_s", lambda _self: 60.0)
    async with thrown_out(True, monkeypatch) as (link, server):
        await until(lambda: link.outage is not None and server.versions and link.failure_kind is not None)
        assert (server.versions, link.failure_kind) == ([4], FailureKind.UNREACHABLE)
        said = str(link.outage)
        assert "It connects again by itself" in said
        assert "foltr device enrol NAME" in said
        assert said.count("It connects again") == 1
        assert "foltr broker run" not in said


async def test_it_asks_why_it_is_thrown_out_and_stays_away(monkeypatch, clock, caplog):
    """In MQTT 5, in which a broker says that it was taken over; no pause is longer than the patience."""
    monkeypatch.setattr("foltr.broker.backoff.TAKEN_OVER_FIRST_S", 1e6)
    async with thrown_out(True, monkeypatch, give_up_after_s=0.5) as (link, server):
        await until(lambda: link.failure_kind is FailureKind.TAKEN_OVER)
        assert re.search(r"lost for \d+ s: another process has connected as this user\. Processes", str(link.outage))
        with pytest.raises(UnavailableError, match=r"another process has connected.*foltr device enrol NAME"):
            await link.wait_connected(0.05)
        assert server.versions == [4, 5]  # and not again for long
        clock.now += 0.5
        async with asyncio.timeout(PATIENCE_S):
            with pytest.raises(UnavailableError, match=r"another process has connected.*gave up after 0\.5 s"):
                await link.wait_failed()
    assert "never retrieved" not in caplog.text


@pytest.mark.parametrize(
    ("speaks_5", "persistent", "versions"), [(False, False, [4, 5, *[4] * 7]), (True, True, [4] * 8)]
)
async def test_a_broker_that_says_nothing_is_seen_through(monkeypatch, speaks_5, persistent, versions):
    """It is asked once, without MQTT 5; never for a session that it keeps, which stays as it is."""
    async with thrown_out(speaks_5, monkeypatch, persistent=persistent) as (link, server):
        await until(lambda: link.failure_kind is FailureKind.TAKEN_OVER)
        assert server.versions == versions
        assert "as if another process connects as this user" in str(link.outage)
