"""What a provisioned broker lets each user do, tried on a real Mosquitto: with passwords and with certificates."""

import asyncio
import contextlib

import pytest
from integration.tcp_proxy import TcpProxy
from support.broker_links import Inbox, connected, link_to
from support.servers import ProvisionedMosquitto
from support.waiting import PATIENCE_S, until

from foltr.broker.access import DEVICE_WRITES
from foltr.broker.address import BrokerAddress
from foltr.broker.certificates import create_authority, issue_client
from foltr.broker.link import LastWill
from foltr.broker.listed_users import provision_helper
from foltr.broker.provision import reload_broker
from foltr.broker.users import withdraw_user
from foltr.core.protocol.topics import Topics

ROOT, TOPICS = "foltr/v1/fed", Topics("fed")
# What the federator tells everybody, and what the operator does.
PUBLIC = [
    *(TOPICS.model, TOPICS.model_chunk(3), TOPICS.anchor, TOPICS.anchor_chunk(3), TOPICS.evaluation, TOPICS.pace),
    *(TOPICS.round, TOPICS.federator_status, TOPICS.audit_head, f"{ROOT}/unlearning/1"),
]
OF_THE_OPERATOR = [TOPICS.roster, TOPICS.policy, TOPICS.schema, TOPICS.authorities, TOPICS.operator_key]


@pytest.fixture(scope="module", params=["passwords", "mtls"])
def server(request, tmp_path_factory):
    """One broker for the module, with two devices and both services."""
    server = ProvisionedMosquitto(tmp_path_factory.mktemp("mosquitto"), request.param)
    server.mode = request.param
    server.refuses = "refuses our client certificate" if server.mode == "mtls" else "refuses this user"
    server.start()
    one, two = server.enrol("device-1", "device-2")
    server.users = {
        "device-1": one,
        "device-2": two,
        "federator": server.service("federator"),
        "operator": server.service("operator"),
    }
    server.users |= {name: provision_helper(server.operator_dir, name) for name in ("north", "south")}
    reload_broker(server.operator_dir)
    yield server
    server.stop()


async def topics_until(heard, last):
    """The topics of the messages that arrive, up to the first one on ``last``, which is left out."""
    arrived = []
    async with asyncio.timeout(PATIENCE_S):
        while (message := await heard.inbox.next()).topic != last:
            arrived.append(message.topic)
    return arrived


def changed(access, **fields):
    """How a user reaches the broker, but for these fields."""
    return access.model_copy(update=fields)


@contextlib.asynccontextmanager
async def session(server, user, *topics, client_id="some-client", **options):
    """One user's link, and where its messages go."""
    credentials, inbox = server.users[user] if isinstance(user, str) else user, Inbox()
    async with connected(BrokerAddress.of(credentials), client_id, inbox, topics, **options) as link:
        link.inbox = inbox
        yield link


async def is_refused(credentials, expected=""):
    """Wait until a user hears why it is not let in; it never is."""
    async with link_to(BrokerAddress.of(credentials), topics=["#"]) as link:
        # In TLS 1.3 the end of a connection may overtake the alert that says why: the next attempt hears it.
        await until(lambda: link.connected or (link.failure_kind is not None and expected in str(link.outage)))
        assert not link.connected


async def test_who_is_not_a_user_is_refused(server):
    """And hears why: a stranger, a wrong password, certificates of another authority and of the broker itself."""
    device = changed(server.users["device-1"], password=None)
    nobody = changed(device, username=None, certificate=None, key=None)
    await is_refused(nobody, "asks for a client certificate" if server.mode == "mtls" else server.refuses)
    forged = issue_client(create_authority("another"), "device-1")
    await is_refused(changed(device, certificate=forged.certificate_pem, key=forged.key_pem), server.refuses)
    certificate, key = ((server.broker_dir / name).read_text() for name in ("server.crt", "server.key"))
    await is_refused(changed(device, certificate=certificate, key=key), server.refuses)
    if server.mode == "mtls":  # no password counts
        async with session(server, changed(device, password="wrong")):  # noqa: S106
            return
    for password in ("wrong", "", server.users["device-2"].password):
        await is_refused(changed(device, password=password), server.refuses)


async def test_nothing_is_said_in_the_clear(server):
    """The port of the TLS listener takes nothing else."""
    url = server.url.replace("mqtts://", "mqtt://")
    await is_refused(changed(server.users["device-1"], broker_url=url, ca=None, certificate=None, key=None))


async def test_an_enrolled_user_gets_in_while_the_broker_runs(server):
    """The others stay connected meanwhile; so does a user who is let in again."""
    async with session(server, "federator") as federator:
        (new,) = server.enrol("device-new")
        async with session(server, new, f"{ROOT}/clients/device-new/inbox") as device:
            await federator.publish(f"{ROOT}/clients/device-new/inbox", b"x")
            assert await topics_until(device, f"{ROOT}/clients/device-new/inbox") == []
        assert federator.connected


async def test_a_withdrawn_user_is_out(server):
    """With passwords: at once, from a session that stands as well. With certificates: from the next handshake on."""
    (gone,) = server.enrol("device-gone")
    async with session(server, gone) as device:
        told = withdraw_user(server.operator_dir, "device-gone")
        assert reload_broker(server.operator_dir)
        assert told
        if server.mode == "passwords":
            await until(lambda: not device.connected)
    await is_refused(gone, server.refuses)
    async with session(server, "device-1"):
        pass


async def test_no_client_throws_another_out(server):
    """Whatever MQTT client id it comes with: a session belongs to its user."""
    inbox = f"{ROOT}/clients/device-1/inbox"
    async with session(server, "device-1", inbox, client_id="device-1") as victim:
        for client_id in ("device-1", "@federator"):
            async with session(server, "device-2", client_id=client_id):
                pass
        async with session(server, "federator") as federator:
            await federator.publish(inbox, b"x")
        assert await topics_until(victim, inbox) == []
        assert victim.connected


async def test_a_user_is_one_session(server):
    """The price of that: a second connection of the same user ends the first."""
    async with session(server, "device-1", client_id="a") as first, session(server, "device-1", client_id="b"):
        await until(lambda: not first.connected)
        await first.__aexit__()


async def test_a_device_speaks_on_its_own_topics(server):
    """On every one of them, and the operator reads it all."""
    own = [f"{ROOT}/clients/device-1/{name}" for name in DEVICE_WRITES]
    async with session(server, "operator", f"{ROOT}/#") as operator, session(server, "device-1") as device:
        for topic in own:
            await device.publish(topic, b"x")
        assert await topics_until(operator, own[-1]) == own[:-1]


async def test_a_device_speaks_nowhere_else(server):
    """Not for another device, the federator or the operator; it is not told, the message just goes no further."""
    forbidden = [
        *(f"{ROOT}/clients/device-2/{name}" for name in (*DEVICE_WRITES, "inbox")),
        *PUBLIC,
        f"{ROOT}/clients/device-1/inbox",
        f"{ROOT}/clients/device-1/join/more",
        f"{ROOT}/clients/device-1/anything",
        f"{ROOT}/clients/device-10/join",
        *OF_THE_OPERATOR,
        TOPICS.kept_enrolments,
        TOPICS.operator,
        "foltr/v1/other/clients/device-1/join",
        "foltr/v1/other/model",
        "foltr/doctor/device-2",
        "foltr/doctor/@operator",
        # A retained message for each topic: any number of its own would be any amount of the broker's memory.
        "foltr/doctor/device-1",
        "foltr/doctor/device-1/x",
    ]
    last = f"{ROOT}/clients/device-1/leave"
    async with (
        session(server, "operator", f"{ROOT}/#", "foltr/doctor/@operator") as operator,
        session(server, "device-1") as device,
    ):
        for topic in forbidden:
            await device.publish(topic, b"x", retain=True)
        await device.publish(last, b"x")
        assert await topics_until(operator, last) == []


@pytest.mark.parametrize("topic", [f"{ROOT}/clients/device-2/status", f"{ROOT}/model"])
async def test_a_last_will_is_no_way_around(server, topic):
    """It is published by the broker, and still with the rights of the one who left it."""
    last, options = f"{ROOT}/clients/device-1/status", {"last_will": lambda: LastWill(topic, b"forged")}
    async with (
        TcpProxy(server.port) as proxy,
        session(server, "operator", f"{ROOT}/#", "foltr/doctor/@operator") as operator,
    ):
        user = changed(server.users["device-1"], broker_url=f"mqtts://127.0.0.1:{proxy.port}")
        async with link_to(BrokerAddress.of(user), "dying", **options) as link:
            await until(lambda: link.connected or link.failure_kind is not None)
            proxy.drop()
            await until(lambda: not link.connected)
        async with session(server, user, last_will=lambda: LastWill(last, b"lost")):
            proxy.drop()
            assert await topics_until(operator, last) == []
        async with session(server, "federator") as federator:
            await federator.publish(last, b"", retain=True)


async def test_a_device_hears_what_is_for_it(server):
    """The public topics, retained ones when it comes, and its inbox."""
    async with session(server, "federator") as federator, session(server, "operator") as operator:
        for topic in PUBLIC:
            await federator.publish(topic, b"x", retain=True)
        for topic in OF_THE_OPERATOR:
            await operator.publish(topic, b"x", retain=True)
        inbox = f"{ROOT}/clients/device-1/inbox"
        async with session(server, "device-1", *PUBLIC[:-1], *OF_THE_OPERATOR, f"{ROOT}/unlearning/+", inbox) as device:
            await federator.publish(inbox, b"x")
            assert sorted(await topics_until(device, inbox)) == sorted([*PUBLIC, *OF_THE_OPERATOR])
        for topic in PUBLIC:
            await federator.publish(topic, b"", retain=True)
        for topic in OF_THE_OPERATOR:
            await operator.publish(topic, b"", retain=True)


async def test_the_operator_brings_a_devices_wish_to_be_forgotten_and_nothing_else_of_it(server):
    """Its signature is what counts; and what is retained there, the federator clears."""
    wish = f"{ROOT}/clients/device-1/forget"
    others = [f"{ROOT}/clients/device-1/{name}" for name in (*DEVICE_WRITES, "inbox") if name != "forget"]
    async with (
        session(server, "federator", f"{ROOT}/clients/+/+") as federator,
        session(server, "operator") as operator,
    ):
        for topic in (*others, wish):
            await operator.publish(topic, b"x")
        assert await topics_until(federator, wish) == []


async def test_the_federator_does_its_work(server):
    """It hears every device and the operator, and is heard."""
    heard = [f"{ROOT}/clients/device-1/{name}" for name in DEVICE_WRITES]
    filters = [f"{ROOT}/clients/+/{name}" for name in DEVICE_WRITES]
    async with (
        session(server, "federator", *filters, f"{ROOT}/roster", f"{ROOT}/policy", f"{ROOT}/operator") as federator,
        session(server, "device-1") as device,
        session(server, "operator", *PUBLIC) as operator,
    ):
        for topic in heard:
            await device.publish(topic, b"x")
        await operator.publish(f"{ROOT}/roster", b"x")
        assert sorted(await topics_until(federator, f"{ROOT}/roster")) == sorted(heard)
        for topic in (f"{ROOT}/policy", f"{ROOT}/operator"):
            await operator.publish(topic, b"x")
            assert await topics_until(federator, topic) == []
        for topic in PUBLIC:
            await federator.publish(topic, b"x")
        assert await topics_until(operator, PUBLIC[-1]) == PUBLIC[:-1]


async def test_the_federator_clears_what_a_client_left(server):
    """What was retained, by right or not, is gone for whoever comes later."""
    topics = [f"{ROOT}/clients/device-1/{name}" for name in DEVICE_WRITES]
    async with session(server, "federator") as federator, session(server, "device-1") as device:
        for topic in topics:
            await device.publish(topic, b"x", retain=True)
            await federator.publish(topic, b"", retain=True)
        async with session(server, "operator", *topics, "foltr/doctor/@operator") as operator:
            await operator.publish("foltr/doctor/@operator", b"x")
            assert await topics_until(operator, "foltr/doctor/@operator") == []


async def test_the_services_keep_to_their_own(server):
    """The federator does not speak for the operator; the operator makes no models and does not speak for a device."""
    last = TOPICS.operator
    async with (
        session(server, "operator", f"{ROOT}/#", "foltr/doctor/@operator") as operator,
        session(server, "federator", f"{ROOT}/clients/+/updates") as federator,
    ):
        for topic in (*OF_THE_OPERATOR, TOPICS.operator):
            await federator.publish(topic, b"forged")
        for topic in (*PUBLIC, f"{ROOT}/clients/device-1/inbox", f"{ROOT}/clients/device-1/updates"):
            await operator.publish(topic, b"forged")
        await operator.publish(last, b"x")
        assert await topics_until(operator, last) == []
        assert federator.inbox.empty


async def test_a_helper_does_its_work(server):
    """It hears the operator and what the federator asks it; and is heard by the federator alone."""
    kinds = ("policy", "roster", "roster/chunks/0", "federator-key", "authorities", "operator-key", "kept-enrolments")
    said = [f"{ROOT}/{each}" for each in kinds]
    filters = [f"{ROOT}/roster/chunks/+" if each.endswith("/0") else each for each in said]
    asked, answered = f"{ROOT}/helpers/north/requests", f"{ROOT}/helpers/north/answers"
    async with (
        session(server, "north", *filters, asked) as helper,
        session(server, "federator", f"{ROOT}/helpers/+/answers") as federator,
        session(server, "operator") as operator,
        session(
            server, "device-1", *(each for each in filters if not each.endswith("enrolments")), f"{ROOT}/round"
        ) as device,
    ):
        for topic in said:
            await operator.publish(topic, b"x")
        assert await topics_until(helper, said[-1]) == said[:-1]
        await federator.publish(asked, b"x")
        assert await topics_until(helper, asked) == []
        await helper.publish(answered, b"x")
        assert await topics_until(federator, answered) == []
        await federator.publish(f"{ROOT}/round", b"x")
        assert set(await topics_until(device, f"{ROOT}/round")) == set(said) - {f"{ROOT}/kept-enrolments"}


async def test_nobody_speaks_for_a_helper_or_asks_it_but_the_federator(server):
    """Neither a device nor the other helper; and none hears what is asked of another one."""
    asked, answered = f"{ROOT}/helpers/north/requests", f"{ROOT}/helpers/north/answers"
    status = f"{ROOT}/helpers/north/status"
    async with (
        session(server, "north", asked) as helper,
        session(server, "federator", f"{ROOT}/helpers/+/answers", f"{ROOT}/helpers/+/status") as federator,
        session(server, "south", f"{ROOT}/helpers/south/requests", f"{ROOT}/round") as other,
        session(server, "device-1") as device,
    ):
        for stranger in (other, device):
            for topic in (asked, answered, status, f"{ROOT}/policy", f"{ROOT}/round"):
                await stranger.publish(topic, b"forged")
        await helper.publish(asked, b"forged")
        await federator.publish(asked, b"x")
        assert await topics_until(helper, asked) == []
        assert helper.inbox.empty
        await helper.publish(status, b"x")
        assert await topics_until(federator, status) == []
        await helper.publish(answered, b"x")
        assert await topics_until(federator, answered) == []
        assert federator.inbox.empty
        await federator.publish(f"{ROOT}/round", b"x")
        assert await topics_until(other, f"{ROOT}/round") == []


async def test_a_helper_alone_says_and_hears_what_it_has_committed_itself_to(server):
    """Its own commitment comes back to it after a restart; nobody else writes there, and no other helper reads it."""
    own = f"{ROOT}/helpers/north/commitment"
    async with session(server, "south", f"{ROOT}/round") as other, session(server, "device-1") as device:
        for stranger in (other, device):
            await stranger.publish(own, b"forged")
        async with session(server, "north", own) as helper:
            await helper.publish(own, b"x")
            assert await topics_until(helper, own) == []
            assert helper.inbox.empty
        async with session(server, "federator") as federator:
            await federator.publish(own, b"forged")
            await federator.publish(f"{ROOT}/round", b"x")
        assert await topics_until(other, f"{ROOT}/round") == []


async def test_the_operator_reads_the_counters(server):
    """Among them how many messages were dropped."""
    async with session(server, "operator", "$SYS/broker/version") as operator:
        assert await topics_until(operator, "$SYS/broker/version") == []
