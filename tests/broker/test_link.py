"""One MQTT session that keeps itself up: against real brokers, and against servers that behave badly."""

import asyncio
import contextlib
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from servers import MissingError, ProvisionedMosquitto, free_port

from broker.address import BrokerAddress
from broker.link import InboundMessage, LastWill, MqttLink
from foltr.errors import UnavailableError
from foltr.messages import MAX_MESSAGE_BYTES

REPOSITORY = Path(__file__).parents[2]
WITHIN_S = 5.0


class Inbox:
    """Where a link's messages go; ``next`` waits for one, but not for ever."""

    def __init__(self):
        self._queue = asyncio.Queue()
        self.take = self._queue.put_nowait

    async def next(self, within_s=WITHIN_S):
        async with asyncio.timeout(within_s):
            return await self._queue.get()

    async def payloads(self, n):
        return [(await self.next()).payload for _ in range(n)]

    @property
    def empty(self):
        return self._queue.empty()


def link_to(url, client_id="link", inbox=None, topics=(), **options):
    options.setdefault("persistent", False)
    address = url if isinstance(url, BrokerAddress) else BrokerAddress.parse(url)
    on_message = inbox.take if inbox is not None else lambda _: None
    return MqttLink(address, client_id=client_id, subscriptions=topics, on_message=on_message, **options)


@contextlib.asynccontextmanager
async def connected(url, client_id="link", inbox=None, topics=(), **options):
    async with link_to(url, client_id, inbox, topics, **options) as link:
        await link.wait_connected(WITHIN_S)
        yield link


# --- with a real broker ---------------------------------------------------------------------------------------


async def test_messages_arrive_in_order(mqtt_broker):
    """Everything published at QoS 1 comes out, as it was and in order, also many at once."""
    inbox = Inbox()
    sent = [f"message {i}".encode() for i in range(300)]
    async with connected(mqtt_broker, "a", inbox, ["t/+"]), connected(mqtt_broker, "b") as sender:
        await asyncio.gather(*(sender.publish("t/x", payload) for payload in sent))
        assert await inbox.payloads(300) == sent


async def test_a_retained_message_says_so(mqtt_broker):
    """Who subscribes later gets the newest, marked; an empty payload clears it."""
    before, after = Inbox(), Inbox()
    async with connected(mqtt_broker, "a", before, ["t"]) as link:
        await link.publish("t", b"old", retain=True)
        await link.publish("t", b"new", retain=True)
        assert await before.next() == InboundMessage("t", b"old", retained=False)
        async with connected(mqtt_broker, "b", after, ["t"]):
            assert await after.next() == InboundMessage("t", b"new", retained=True)
        await link.publish("t", b"", retain=True)
        nothing = Inbox()
        async with connected(mqtt_broker, "c", nothing, ["t", "u"]):
            await link.publish("u", b"last")
            assert (await nothing.next()).payload == b"last"


async def test_a_persistent_session_gets_what_it_missed(mqtt_broker):
    """While it was away the broker held its messages."""
    inbox = Inbox()
    async with connected(mqtt_broker, "federator", inbox, ["t"], persistent=True):
        pass
    async with connected(mqtt_broker, "device") as sender:
        for i in range(20):
            await sender.publish("t", str(i).encode())
    async with connected(mqtt_broker, "federator", inbox, ["t"], persistent=True):
        assert await inbox.payloads(20) == [str(i).encode() for i in range(20)]


async def test_a_session_that_is_not_persistent_misses_them(mqtt_broker):
    """A broker keeps nothing for a device that is switched off."""
    inbox = Inbox()
    async with connected(mqtt_broker, "device", inbox, ["t"]):
        pass
    async with connected(mqtt_broker, "sender") as sender:
        await sender.publish("t", b"missed")
        async with connected(mqtt_broker, "device", inbox, ["t"]):
            await sender.publish("t", b"seen")
            assert (await inbox.next()).payload == b"seen"


async def test_nagle_is_off(mqtt_broker):
    """Without TCP_NODELAY a small exchange at QoS 1 takes 40 ms, fifty times as long."""
    async with connected(mqtt_broker) as link:
        connection = link._client._client.socket()
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0


async def test_a_handler_that_raises_does_not_end_the_connection(mqtt_broker):
    """The message is lost to it, the next one is not, and nobody reconnects."""
    inbox, n_connections = Inbox(), 0

    def handler(message):
        if message.payload == b"bad":
            raise ValueError("a bug in the handler")
        inbox.take(message)

    async def count():
        nonlocal n_connections
        n_connections += 1

    link = MqttLink(
        BrokerAddress.parse(mqtt_broker), client_id="a", subscriptions=["t"], on_message=handler, on_connected=count
    )
    async with link:
        await link.wait_connected(WITHIN_S)
        for payload in (b"bad", b"good", b"bad", b"better"):
            await link.publish("t", payload)
        assert await inbox.payloads(2) == [b"good", b"better"]
        assert link.connected
    assert n_connections == 1


async def test_a_goodbye_is_no_death(mqtt_broker):
    """The last will is for a session that ends without one."""
    inbox = Inbox()
    async with connected(mqtt_broker, "watcher", inbox, ["will", "t"]) as watcher:
        async with connected(mqtt_broker, "a", last_will=lambda: LastWill("will", b"dead")):
            pass
        await watcher.publish("t", b"after")
        assert (await inbox.next()).payload == b"after"


DYING = """
import asyncio, sys
from broker.address import BrokerAddress
from broker.link import LastWill, MqttLink

async def main():
    link = MqttLink(
        BrokerAddress.parse(sys.argv[1]), client_id="dying", subscriptions=[], on_message=print,
        last_will=lambda: LastWill("will", b"dead"),
    )
    async with link:
        await link.wait_connected(10)
        print("connected", flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""


async def test_the_last_will_is_published_and_retained(mqtt_broker):
    """After SIGKILL those who watch are told, and those who come later too."""
    inbox, later = Inbox(), Inbox()
    async with connected(mqtt_broker, "watcher", inbox, ["will"]), asyncio.timeout(2 * WITHIN_S):
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", DYING, mqtt_broker, stdout=subprocess.PIPE, cwd=REPOSITORY
        )
        while await process.stdout.readline() != b"connected\n":
            assert not process.stdout.at_eof()
        process.kill()
        await process.communicate()
        assert (await inbox.next()).payload == b"dead"
        async with connected(mqtt_broker, "later", later, ["will"]):
            assert await later.next() == InboundMessage("will", b"dead", retained=True)


# --- over TLS -------------------------------------------------------------------------------------------------


@pytest.fixture
def tls_server(tmp_path):
    """A real Mosquitto with TLS and passwords, which the test may stop, kill and start again."""
    try:
        server = ProvisionedMosquitto(tmp_path, "passwords")
    except MissingError as error:
        pytest.skip(f"Mosquitto: {error}")
    server.start()
    yield server
    server.stop()


async def test_messages_arrive_in_order_over_tls(tls_server):
    """Also many at once: what OpenSSL has read already does not wait for the next packet to come."""
    address, topic, inbox = tls_server.service("operator").address, "foltr/doctor/x", Inbox()
    sent = [f"message {i}".encode() for i in range(300)] + [bytes(MAX_MESSAGE_BYTES), b"last"]
    async with connected(address, "a", inbox, [topic]) as link:
        await asyncio.gather(*(link.publish(topic, payload) for payload in sent))
        assert await inbox.payloads(len(sent)) == sent


async def test_nagle_is_off_over_tls(tls_server):
    """The option reaches the socket below."""
    async with connected(tls_server.service("operator").address) as link:
        connection = link._client._client.socket()
        assert connection.version() == "TLSv1.3"
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0


async def test_it_comes_back_over_tls(tls_server):
    """After the broker was killed, and the reason of the outage is forgotten."""
    async with connected(tls_server.service("operator").address, timeout_s=1.0) as link:
        tls_server.kill()
        with pytest.raises(UnavailableError):
            await publish_until_it_fails(link)
        tls_server.start()
        await link.wait_connected(WITHIN_S)
        assert link._cause is None


@pytest.mark.parametrize("n_steps", [0, 1, 3, 10, 30])
async def test_it_can_be_left_at_any_moment_over_tls(tls_server, n_steps):
    """Before the handshake, in the middle of it, or after."""
    async with asyncio.timeout(WITHIN_S):
        async with link_to(tls_server.service("operator").address, topics=["t"]):
            for _ in range(n_steps):
                await asyncio.sleep(0.001)


async def test_leaving_in_the_middle_of_a_handshake_leaves_none_behind(tls_server, monkeypatch):
    """A slow network finishes it when nobody wants it any more: the connection is ended, not begun."""
    monkeypatch.setattr("broker.link._GOODBYE_S", 0.1)
    reached, released, ended = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def hold(reader, writer):
        hello = await reader.read(1000)
        reached.set()
        await released.wait()
        back, forth = await asyncio.open_connection("127.0.0.1", tls_server.port)
        forth.write(hello)

        async def pump(source, sink):
            while data := await source.read(10_000):
                sink.write(data)
            sink.close()

        await asyncio.gather(pump(reader, forth), pump(back, writer))
        ended.set()

    server = await asyncio.start_server(hold, "127.0.0.1", 0)
    credentials = replace(tls_server.service("operator").address, port=server.sockets[0].getsockname()[1])
    async with server, asyncio.timeout(WITHIN_S):
        async with link_to(credentials):
            await reached.wait()
        released.set()
        await ended.wait()
    assert "@operator" not in tls_server.log.read_text()


async def test_a_wrong_password_is_called_one(tls_server):
    """The next step is about credentials, not about starting a broker."""
    address = replace(tls_server.service("operator").address, password="wrong")  # noqa: S106
    async with link_to(address) as link:
        with pytest.raises(
            UnavailableError, match=r"0\.2 s: it does not let this user in.*Check the user name"
        ) as caught:
            await link.wait_connected(0.2)
    assert "Start one" not in str(caught.value)


# --- when the broker goes away --------------------------------------------------------------------------------


async def publish_until_it_fails(link):
    async with asyncio.timeout(WITHIN_S):
        while True:
            await link.publish("t", b"into the void")


async def test_it_comes_back_after_the_broker_was_killed(mosquitto_server):
    """On the same port, without help: connected again, subscribed again, and told so."""
    inbox, connections = Inbox(), asyncio.Queue()

    async def on_connected():
        connections.put_nowait(time.monotonic())

    options = {"on_connected": on_connected, "timeout_s": 1.0}
    async with connected(mosquitto_server.url, "a", inbox, ["t"], **options) as link:
        await connections.get()
        mosquitto_server.kill()
        with pytest.raises(UnavailableError):
            await publish_until_it_fails(link)
        mosquitto_server.start()
        async with asyncio.timeout(WITHIN_S):
            await connections.get()
        await link.publish("t", b"back")
        payload = b""
        while payload != b"back":
            payload = (await inbox.next()).payload


async def test_what_was_queued_for_a_persistent_session_outlives_the_broker(mosquitto_server):
    """Stopped and started by its operator, the broker still has the messages and the subscription."""
    inbox = Inbox()
    async with connected(mosquitto_server.url, "federator", inbox, ["t"], persistent=True):
        pass
    async with connected(mosquitto_server.url, "device") as sender:
        await sender.publish("t", b"held")
    mosquitto_server.stop()
    mosquitto_server.start()
    async with connected(mosquitto_server.url, "federator", inbox, ["t"], persistent=True):
        assert (await inbox.next()).payload == b"held"


async def test_it_connects_when_the_broker_comes_later(mosquitto_server):
    """The order in which things are started does not matter."""
    mosquitto_server.stop()
    async with link_to(mosquitto_server.url) as link:
        with pytest.raises(UnavailableError):
            await link.wait_connected(0.3)
        mosquitto_server.start()
        await link.wait_connected(WITHIN_S)
        await link.publish("t", b"hello")


async def test_publishing_without_a_connection_fails_at_once():
    """The message names the broker and what to do; nothing is queued behind the caller's back."""
    url = f"mqtt://127.0.0.1:{free_port()}"
    link = link_to(url)
    with pytest.raises(UnavailableError, match="not connected"):
        await link.publish("t", b"x")
    async with link:
        with pytest.raises(UnavailableError, match=rf"{url}: not connected.*foltr broker run"):
            await link.publish("t", b"x")


async def test_waiting_for_a_connection_ends():
    """With the address and the time waited."""
    async with link_to(f"mqtt://127.0.0.1:{free_port()}") as link:
        with pytest.raises(UnavailableError, match=r"no connection within 0\.05 s"):
            await link.wait_connected(0.05)
        assert not link.connected
        assert link.failure is None


async def test_it_gives_up_when_told_to():
    """After the outage was as long as allowed, everyone who waits is told why, now and later."""
    failed = asyncio.Event()
    async with link_to(f"mqtt://127.0.0.1:{free_port()}", give_up_after_s=0.3, on_failed=failed.set) as link:
        async with asyncio.timeout(WITHIN_S):
            with pytest.raises(UnavailableError, match=r"gave up after 0\.3 s"):
                await link.wait_failed()
            await failed.wait()
        with pytest.raises(UnavailableError, match="gave up"):
            await link.wait_connected(60)
        assert "gave up" in str(link.failure)
        with pytest.raises(UnavailableError, match="not connected"):
            await link.publish("t", b"x")


async def test_only_one_outage_counts(mosquitto_server, monkeypatch):
    """What a link lived through before does not add up: the clock starts when the connection is lost."""
    monkeypatch.setattr("broker.link.BACKOFF_FIRST_S", 0.02)
    async with connected(mosquitto_server.url, give_up_after_s=1.0) as link:
        for _ in range(2):
            await asyncio.sleep(0.3)
            mosquitto_server.kill()
            await asyncio.sleep(0.3)
            mosquitto_server.start()
            await link.wait_connected(WITHIN_S)
        assert link.failure is None


async def test_leaving_an_outage_is_quick():
    """An application that ends does not wait for a broker that is not there."""
    async with asyncio.timeout(1):
        async with link_to(f"mqtt://127.0.0.1:{free_port()}"):
            await asyncio.sleep(0.1)


# --- servers that behave badly --------------------------------------------------------------------------------

CONNACK = b"\x20\x02\x00\x00"


def publish_packet(topic, payload):
    body = len(topic).to_bytes(2) + topic + payload
    return b"\x30" + bytes([len(body)]) + body


class FakeServer:
    """Answers each packet with what ``answers`` says for its type; None closes the connection."""

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
        for _ in range(100):
            if self.n_open == 0:
                break
            await asyncio.sleep(0.005)

    async def _serve(self, reader, writer):
        self.n_connections += 1
        self.n_open += 1
        self._writers.add(writer)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            await self._answer_all(reader, writer)
        self.n_open -= 1
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


@pytest.mark.parametrize(
    "answers",
    [
        pytest.param(SILENT, id="silent"),
        pytest.param(CLOSING, id="hangs up"),
        pytest.param(REFUSING_CONNECTION, id="refuses the connection"),
        pytest.param({1: CONNACK}, id="does not answer the subscription"),
        pytest.param({1: CONNACK, 8: None}, id="hangs up on the subscription"),
        pytest.param(REFUSING_SUBSCRIPTION, id="refuses the subscription"),
        pytest.param({1: b"HTTP/1.1 400 Bad Request\r\n\r\n"}, id="speaks HTTP"),
        pytest.param({1: b"\x00" * 100}, id="sends zeros"),
        pytest.param({1: b"\xff" * 100}, id="sends ones"),
        pytest.param({1: CONNACK, 8: b"\x90\x00"}, id="an empty answer to the subscription"),
        pytest.param({1: CONNACK, 8: b"\x30\x02\xff\xff"}, id="a message with a broken topic"),
        pytest.param({1: CONNACK, 8: b"\x30\xff\xff\xff\xff\xff"}, id="a message of impossible length"),
    ],
)
async def test_a_bad_server_is_an_outage(answers, monkeypatch):
    """Whatever listens there, the link stays alive, tries again, gives up when told to and can be left."""
    monkeypatch.setattr("broker.link.BACKOFF_FIRST_S", 0.02)
    async with FakeServer(answers) as server, asyncio.timeout(WITHIN_S):
        async with link_to(server.address, topics=["t"], timeout_s=0.1, give_up_after_s=0.25) as link:
            with pytest.raises(UnavailableError):
                await link.wait_connected(0.1)
            with pytest.raises(UnavailableError, match="gave up"):
                await link.wait_failed()
        assert server.n_connections > 1


@pytest.mark.parametrize(
    ("answers", "tls", "next_step"),
    [(CLOSING, False, "mqtts://"), (SILENT, True, "no connection"), (CLOSING, True, "mqtt://")],
)
async def test_a_server_that_speaks_something_else_is_an_outage(answers, tls, next_step):
    """TLS where there is none, or none where there is: the wait ends in time, and the message asks about it."""
    async with FakeServer(answers) as server, asyncio.timeout(2 * WITHIN_S):
        address = replace(server.address, tls=tls)
        async with link_to(address, timeout_s=5.0) as link:
            with pytest.raises(UnavailableError, match=next_step):
                await link.wait_connected(0.3)


async def fail(link):
    async with link:
        await link.wait_failed()


async def test_a_refused_subscription_says_so():
    """An operator reads that it is the ACL, not the network."""
    async with FakeServer(REFUSING_SUBSCRIPTION) as server, asyncio.timeout(WITHIN_S):
        link = link_to(server.address, topics=["t"], give_up_after_s=0.1)
        with pytest.raises(UnavailableError, match=r"refused a subscription of link \(see its ACL\)"):
            await fail(link)


async def test_an_acknowledgement_that_never_comes_ends_the_wait():
    """A broker that hangs is as good as none; the caller is told in time."""
    async with FakeServer(FRIENDLY) as server, connected(server.address, topics=["t"], timeout_s=0.2) as link:
        with pytest.raises(UnavailableError):
            async with asyncio.timeout(WITHIN_S):
                await link.publish("t", b"x")


async def test_a_lost_connection_ends_the_wait_for_an_acknowledgement():
    """The acknowledgement can no longer come: waiting on for the whole time would only delay the next attempt."""
    async with FakeServer({**FRIENDLY, 3: None}) as server, connected(server.address, topics=["t"]) as link:
        with pytest.raises(UnavailableError):
            async with asyncio.timeout(1):
                await link.publish("t", b"x")


@pytest.mark.parametrize("n_steps", range(5))
async def test_leaving_while_the_subscription_is_answered(n_steps):
    """Whenever it is left, it ends: in Python 3.11 ``asyncio.wait_for`` may swallow the cancellation.

    A message that waited in a persistent session arrives just before the answer to the subscription, and the
    one who got it may leave at that very moment.
    """
    arrived = asyncio.Event()
    answers = {1: CONNACK, 8: publish_packet(b"t", b"x") + b"\x90\x03MM\x01"}
    async with FakeServer(answers) as server:
        link = MqttLink(
            server.address, client_id="a", subscriptions=["t"], on_message=lambda _: arrived.set(), timeout_s=1.0
        )
        await link.__aenter__()
        await arrived.wait()
        for _ in range(n_steps):
            await asyncio.sleep(0)
        leaving = asyncio.create_task(link.__aexit__())
        done, _ = await asyncio.wait({leaving}, timeout=2)
        if not done:
            # End it all the same, so that the other tests are not disturbed.
            link._task.cancel()
            await leaving
        assert done, "the link cannot be left"
        assert link._task.done()
        assert not link.connected


async def test_leaving_in_the_middle_of_a_connection_leaves_none_behind():
    """The server has the connection, its answer is still to come: what was begun is ended, not forgotten.

    A forgotten session stays alive in the background: it answers pings and hands messages to a closed application.
    """
    async with FakeServer(SILENT) as server, asyncio.timeout(WITHIN_S):
        async with link_to(server.address):
            while server.n_open == 0:  # noqa: ASYNC110 (the server is another's to wait for)
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.05)
        give_up_at = time.monotonic() + 1
        while server.n_open:
            assert time.monotonic() < give_up_at, "the connection is still open"
            await asyncio.sleep(0.01)


async def test_losing_the_connection_while_a_wait_times_out():
    """Both in the same turn of the event loop: the caller is told, and the link lives on."""
    async with FakeServer(FRIENDLY) as server, connected(server.address, topics=["t"]) as link:
        publishing = asyncio.create_task(link.publish("t", b"x"))
        await asyncio.sleep(0.05)
        (wait,) = link._waits
        link._client._disconnected.set_exception(OSError("reset by peer"))
        asyncio.get_running_loop().call_soon(wait._on_timeout)
        with pytest.raises(UnavailableError):
            await publishing
        assert not link._task.done(), f"the link ended: {link._task}"
        await link.wait_connected(WITHIN_S)


@pytest.mark.parametrize("n_steps", [0, 1, 3, 10, 30])
async def test_it_can_be_left_at_any_moment(mqtt_broker, n_steps):
    """Before the connection, in the middle of it, or after."""
    async with asyncio.timeout(WITHIN_S):
        async with link_to(mqtt_broker, topics=["t"]):
            for _ in range(n_steps):
                await asyncio.sleep(0.001)


async def test_an_error_at_the_start_does_not_leave_a_dead_link(mqtt_broker):
    """What ``on_connected`` cannot publish is tried again with the next connection."""
    n_calls, done = 0, asyncio.Event()

    async def on_connected():
        nonlocal n_calls
        n_calls += 1
        if n_calls == 1:
            raise UnavailableError("no acknowledgement")
        done.set()

    async with connected(mqtt_broker, on_connected=on_connected), asyncio.timeout(WITHIN_S):
        await done.wait()
