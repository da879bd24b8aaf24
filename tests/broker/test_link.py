"""One MQTT session that keeps itself up: against real brokers, and while there is none."""

import asyncio
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from support.broker_links import Inbox, connected, link_to
from support.servers import free_port
from support.waiting import PATIENCE_S, until

from foltr.broker.address import BrokerAddress
from foltr.broker.link import InboundMessage, LastWill, MqttLink
from foltr.core.errors import UnavailableError
from foltr.core.protocol.fields import MAX_MESSAGE_BYTES

REPOSITORY = Path(__file__).parents[2]
pytestmark = pytest.mark.usefixtures("connects_again_fast")


async def test_messages_arrive_in_order(any_broker):
    """Everything published at QoS 1 comes out, as it was and in order, also many at once, and what OpenSSL has read."""
    topic, inbox = "foltr/doctor/@operator", Inbox()
    sent = [f"message {i}".encode() for i in range(300)] + [bytes(MAX_MESSAGE_BYTES), b"last"]
    async with connected(any_broker, "a", inbox, [topic]) as link:
        await asyncio.gather(*(link.publish(topic, payload) for payload in sent))
        assert await inbox.payloads(len(sent)) == sent


async def test_what_is_sent_at_most_once_arrives_in_order_while_the_connection_lasts(mqtt_broker):
    """More than a socket takes at once; and what was acknowledged before and after is not confused with it."""
    inbox = Inbox()
    sent = [f"{i:06d}".encode() + bytes(20_000) for i in range(300)]
    async with connected(mqtt_broker, "a", inbox, ["t/+"]), connected(mqtt_broker, "b") as sender:
        await sender.publish("t/x", b"before")
        for start in range(0, 300, 100):
            await sender.publish_at_most_once([("t/x", payload) for payload in sent[start : start + 100]])
        await sender.publish("t/x", b"after")
        assert await inbox.payloads(302) == [b"before", *sent, b"after"]


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


async def test_whoever_hears_something_is_connected(mqtt_broker):
    """Also of what comes with the answer to its subscriptions: it may have to be answered at once."""
    seen, inbox = [], Inbox()

    def hear(message):
        seen.append(link.connected)
        inbox.take(message)

    async with connected(mqtt_broker, "a") as sender:
        for i in range(20):
            await sender.publish(f"t/{i}", b"%d" % i, retain=True)
        link = MqttLink(
            BrokerAddress.parse(mqtt_broker), client_id="b", subscriptions=["t/+"], on_message=hear, persistent=False
        )
        async with link:
            await link.wait_connected(PATIENCE_S)
            assert {int(payload) for payload in await inbox.payloads(20)} == set(range(20))
        assert set(seen) == {True}
        for i in range(20):
            await sender.publish(f"t/{i}", b"", retain=True)


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


async def test_what_is_retained_comes_before_the_end_of_its_subscription(mqtt_broker):
    """At QoS 0 also where more waits for the session than the broker sends at once, and nothing is acknowledged yet."""
    inbox = Inbox()
    async with connected(mqtt_broker, "federator", inbox, ["t"], persistent=True):
        pass
    async with connected(mqtt_broker, "device") as sender:
        await sender.publish("round", b"newest", retain=True)
        await asyncio.gather(*(sender.publish("t", b"waits") for _ in range(1_000)))
    again = Inbox()
    async with connected(mqtt_broker, "federator", again, ["t"], persistent=True) as link:
        await link.subscribe(["round"], qos=0)
        await link.unsubscribe(["round"])
        topics = []
        while not again.empty:
            topics.append((await again.next()).topic)
        assert "round" in topics


async def test_a_filter_that_is_none_is_an_error(mosquitto_server):
    """The client library refuses it before it is sent; the connection stands."""
    async with connected(mosquitto_server.url) as link:
        with pytest.raises(UnavailableError, match="Invalid subscription filter"):
            await link.subscribe(["a/#/b"])
        assert link.connected


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
        await link.wait_connected(PATIENCE_S)
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
from foltr.broker.address import BrokerAddress
from foltr.broker.link import LastWill, MqttLink

async def main():
    link = MqttLink(
        BrokerAddress.parse(sys.argv[1]), client_id="dying", subscriptions=[], on_message=print,
        last_will=lambda: LastWill("will", b"dead"),
    )
    async with link:
        await link.wait_connected(240)
        print("connected", flush=True)
        await asyncio.sleep(600)

asyncio.run(main())
"""


async def test_the_last_will_is_published_and_retained(mqtt_broker):
    """After SIGKILL those who watch are told, and those who come later too."""
    inbox, later = Inbox(), Inbox()
    async with connected(mqtt_broker, "watcher", inbox, ["will"]), asyncio.timeout(PATIENCE_S):
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


async def test_an_error_at_the_start_does_not_leave_a_dead_link(mqtt_broker):
    """What ``on_connected`` cannot publish is tried again with the next connection."""
    n_calls, done = 0, asyncio.Event()

    async def on_connected():
        nonlocal n_calls
        n_calls += 1
        if n_calls == 1:
            raise UnavailableError("no acknowledgement")
        done.set()

    async with connected(mqtt_broker, on_connected=on_connected), asyncio.timeout(PATIENCE_S):
        await done.wait()


async def test_a_wrong_password_is_called_one(tls_server):
    """The next step is about credentials, not about starting a broker."""
    address = replace(BrokerAddress.of(tls_server.service("operator")), password="wrong")  # noqa: S106
    async with link_to(address) as link:
        await until(lambda: link.failure_kind is not None)
        with pytest.raises(UnavailableError, match=r" 0 s: it refuses this user.*Check the user name") as caught:
            await link.wait_connected(0.0)
    assert "Start one" not in str(caught.value)


async def publish_until_it_fails(link, topic):
    while True:
        await link.publish(topic, b"into the void")


@pytest.mark.parametrize("guarded", [False, True], ids=["mqtt", "mqtts"])
async def test_it_comes_back_after_the_broker_was_killed(request, guarded):
    """On the same port, without help: connected again, subscribed again, and told so."""
    server = request.getfixturevalue("tls_server" if guarded else "mosquitto_server")
    address = BrokerAddress.of(server.service("operator")) if guarded else server.url
    topic, inbox, connections = "foltr/doctor/@operator", Inbox(), asyncio.Queue()

    async def on_connected():
        connections.put_nowait(None)

    async with connected(address, "a", inbox, [topic], on_connected=on_connected) as link, asyncio.timeout(PATIENCE_S):
        await connections.get()
        server.kill()
        with pytest.raises(UnavailableError):
            await publish_until_it_fails(link, topic)
        server.start()
        await connections.get()
        await link.publish(topic, b"back")
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
        await link.wait_connected(PATIENCE_S)
        await link.publish("t", b"hello")


async def test_publishing_without_a_connection_fails_at_once():
    """The message names the broker and what to do; nothing is queued behind the caller's back."""
    url = f"mqtt://127.0.0.1:{free_port()}"
    link = link_to(url)
    with pytest.raises(UnavailableError, match="not connected"):
        await link.publish("t", b"x")
    with pytest.raises(UnavailableError, match="not connected"):
        await link.publish_at_most_once([("t", b"x"), ("t", b"y")])
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


async def test_a_connection_that_ended_at_once_ends_no_wait(monkeypatch):
    """A waiter goes on waiting for the next connection until its own time is over."""
    monkeypatch.setattr("foltr.broker.backoff.Backoff.pause_s", lambda _self: 1e6)
    async with link_to(f"mqtt://127.0.0.1:{free_port()}") as link:
        await until(lambda: link.failure_kind is not None)
        waiting = asyncio.create_task(link.wait_connected(PATIENCE_S))
        for is_up in (False, True, False):
            (link._up.set if is_up else link._up.clear)()  # noqa: SLF001 (no broker ends it so soon each time)
            for _ in range(0 if is_up else 5):
                await asyncio.sleep(0)
            assert not waiting.done()
        link._up.set()  # noqa: SLF001
        await waiting


async def test_it_gives_up_when_told_to():
    """After the outage was as long as allowed, everyone who waits is told why, now and later."""
    failed = asyncio.Event()
    async with link_to(f"mqtt://127.0.0.1:{free_port()}", give_up_after_s=0.3, on_failed=failed.set) as link:
        async with asyncio.timeout(PATIENCE_S):
            with pytest.raises(UnavailableError, match=r"gave up after 0\.3 s"):
                await link.wait_failed()
            await failed.wait()
        with pytest.raises(UnavailableError, match="gave up"):
            await link.wait_connected(60)
        assert "gave up" in str(link.failure)
        with pytest.raises(UnavailableError, match="not connected"):
            await link.publish("t", b"x")


async def test_only_one_outage_counts(mosquitto_server, clock):
    """What a link lived through before does not add up: the clock starts when the connection is lost."""
    async with connected(mosquitto_server.url, give_up_after_s=1.0) as link:
        for _ in range(2):
            clock.now += 5.0
            mosquitto_server.kill()
            await until(lambda: link.failure_kind is not None)
            clock.now += 0.9
            mosquitto_server.start()
            await link.wait_connected(PATIENCE_S)
        assert link.failure is None


async def test_leaving_an_outage_waits_for_no_broker(monkeypatch):
    """An application that ends does not wait for the next attempt, however far away it is."""
    monkeypatch.setattr("foltr.broker.backoff.Backoff.pause_s", lambda _self: 1e6)
    async with asyncio.timeout(PATIENCE_S):
        async with link_to(f"mqtt://127.0.0.1:{free_port()}") as link:
            await until(lambda: link.failure_kind is not None)
