"""Who enrols itself, and the desk, at a real Mosquitto: what they may say and hear, and when they are let in."""

import asyncio
import contextlib
from datetime import timedelta

import pytest
from support.broker_links import Inbox, link_to
from support.servers import ProvisionedMosquitto
from support.waiting import PATIENCE_S, until

from foltr.broker import revocations
from foltr.broker.address import BrokerAddress
from foltr.broker.broker_records import read_access
from foltr.broker.provision import reload_broker
from foltr.broker.users import provision_service, provision_tokens, withdraw_tokens
from foltr.core.protocol.topics import Topics

TOPICS = Topics("fed")
ONE, TWO = "0123456789abcdef", "fedcba9876543210"
DAY = timedelta(days=1)


@pytest.fixture(scope="module", params=["passwords", "mtls"])
def server(request, tmp_path_factory):
    """One broker for the module, with two tokens, a device and the desk."""
    server = ProvisionedMosquitto(tmp_path_factory.mktemp("mosquitto"), request.param)
    server.mode = request.param
    server.start()
    server.users = dict(provision_tokens(server.operator_dir, [ONE, TWO], DAY)) | {
        "desk": provision_service(server.operator_dir, "desk"),
        "device": server.enrol("till-1")[0],
        "operator": server.service("operator"),
    }
    reload_broker(server.operator_dir)
    yield server
    server.stop()


@contextlib.asynccontextmanager
async def session(credentials, *topics):
    """A user's link, and where its messages go."""
    inbox = Inbox()
    async with link_to(BrokerAddress.of(credentials), "some-client", inbox, topics) as link:
        await link.wait_connected(PATIENCE_S)
        link.inbox = inbox
        yield link


async def refusal(credentials):
    """Why a user is not let in, once the broker has read its files again, which it does when it gets to it."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            async with link_to(BrokerAddress.of(credentials), "some-client") as link:
                await until(lambda each=link: each.connected or each.failure_kind is not None)
                if not link.connected:
                    return str(link.outage)
            await asyncio.sleep(0.05)


async def topics_until(link, last):
    """The topics of what is said while this user listens, up to the first message on ``last``, which is left out."""
    arrived = []
    async with asyncio.timeout(PATIENCE_S):
        while (message := await link.inbox.next()).topic != last:
            arrived += [] if message.retained else [message.topic]
    return arrived


async def test_a_token_asks_the_desk_and_hears_the_answer(server):
    """Nobody else hears either; what each may subscribe to is tried in test_subscriptions.py."""
    async with (
        session(server.users["desk"], TOPICS.enrolment_requests, TOPICS.desk_head) as desk,
        session(server.users[ONE], TOPICS.enrolment_answer(ONE)) as asking,
        session(server.users[TWO], f"{TOPICS.root}/model", TOPICS.enrolment_answer(TWO)) as other,
        session(server.users["device"], f"{TOPICS.root}/model") as device,
    ):
        await asking.publish(TOPICS.enrolment_request(ONE), b"question")
        assert (await desk.inbox.next()).payload == b"question"
        await desk.publish(TOPICS.enrolment_answer(ONE), b"answer")
        assert (await asking.inbox.next()).payload == b"answer"
        await desk.publish(TOPICS.desk_head, b"head", retain=True)
        assert (await desk.inbox.next()).topic == TOPICS.desk_head
        await desk.publish(TOPICS.enrolment_answer(TWO), b"last")
        assert await topics_until(other, TOPICS.enrolment_answer(TWO)) == []
        assert device.inbox.empty


async def test_a_token_can_say_nothing_but_its_request(server):
    """Neither for another token, nor an answer, nor what a service says; nor can a device ask for a token."""
    forbidden = (
        TOPICS.enrolment_request(TWO),
        TOPICS.enrolment_answer(ONE),
        TOPICS.desk_head,
        TOPICS.operator,
        f"{TOPICS.root}/model",
        f"{TOPICS.root}/clients/till-1/join",
    )
    async with session(server.users["desk"], TOPICS.enrolment_requests, TOPICS.desk_head) as desk:
        async with session(server.users["operator"], f"{TOPICS.root}/#") as operator:
            async with session(server.users["device"]) as device:
                await device.publish(TOPICS.enrolment_request(ONE), b"forged")
            async with session(server.users[ONE]) as asking:
                for topic in forbidden:
                    await asking.publish(topic, b"forged", retain=True)
                await asking.publish(TOPICS.enrolment_request(ONE), b"mine")
            assert await topics_until(operator, TOPICS.enrolment_request(ONE)) == []
        assert await topics_until(desk, TOPICS.enrolment_request(ONE)) == []


async def test_a_token_that_is_of_no_use_is_not_let_in(server):
    """A password is taken out where the token is not open; a certificate is listed when it is revoked."""
    gone = provision_tokens(server.operator_dir, ["00000000000000aa"], DAY)["00000000000000aa"]
    reload_broker(server.operator_dir)
    async with session(gone):
        pass
    assert withdraw_tokens(server.operator_dir, ["00000000000000aa"], [ONE, TWO])
    reload_broker(server.operator_dir)
    expected = "refuses our client certificate" if server.mode == "mtls" else "refuses this user"
    assert expected in await refusal(gone)
    async with session(server.users[ONE]):
        pass
    assert not withdraw_tokens(server.operator_dir, [], [ONE, TWO])


def test_revoked_tokens_cost_the_broker_one_list_and_no_second_look(server, monkeypatch):
    """With certificates: a list for each would keep the folder from everybody for minutes, again at each look."""
    if server.mode == "passwords":
        pytest.skip("the password file is written once")
    tokens, signed = [f"00000000000001{i:02d}" for i in range(20)], []
    provision_tokens(server.operator_dir, tokens, DAY)
    issue = revocations.issue_revocations
    monkeypatch.setattr(revocations, "issue_revocations", lambda *given: signed.append(1) or issue(*given))
    assert withdraw_tokens(server.operator_dir, tokens, [ONE, TWO])
    assert len(signed) == 1
    assert not withdraw_tokens(server.operator_dir, tokens, [ONE, TWO])


def test_the_desk_keeps_its_access(server):
    """It is written with the broker's configuration, and once: another command does not lock it out."""
    path = server.operator_dir / "desk.broker.json"
    before = path.read_bytes()
    assert provision_service(server.operator_dir, "desk") == read_access(path) == server.users["desk"]
    assert path.read_bytes() == before


async def test_a_desk_whose_file_is_gone_gets_other_access(server):
    """By password the former one is void at once; with certificates it lasts until it ends."""
    former = provision_service(server.operator_dir, "desk")
    (server.operator_dir / "desk.broker.json").unlink()
    server.users["desk"] = provision_service(server.operator_dir, "desk")
    reload_broker(server.operator_dir)
    assert server.users["desk"] != former
    async with session(server.users["desk"]):
        pass
    if server.mode == "passwords":
        assert "refuses this user" in await refusal(former)
