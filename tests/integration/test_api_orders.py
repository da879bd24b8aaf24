"""Orders that were signed elsewhere and posted to the HTTP API: a real broker, federator and server."""

import asyncio
import base64
from urllib.parse import urlencode

import pytest
import structlog
from cli.commands import foltr
from integration.deployment import FEDERATION, on
from integration.users import contribute_once, oracle_device
from support.api_server import asked
from support.message_publisher import publish_once
from support.waiting import PATIENCE_S, until

from foltr.api.access import COOKIE
from foltr.api.tokens import Role
from foltr.broker.address import BrokerAddress
from foltr.broker.link import MqttLink
from foltr.core.operator.credentials import OPERATOR_USER, BrokerAccess, read_credentials
from foltr.core.operator.enrolment_rotation import begin_rotation
from foltr.core.operator.folder import open_authority
from foltr.core.protocol.codec import encode
from foltr.core.protocol.membership import Forget
from foltr.core.protocol.orders import SetDeadline
from foltr.core.protocol.signed_orders import issue_order
from foltr.core.protocol.signing import SigningKey
from foltr.core.protocol.topics import ClientTopic, Topics
from foltr.storage.orders import list_orders
from foltr.storage.queries import get_client

N_CLIENTS = 1
pytestmark = [on("sqlite")]


@pytest.fixture
async def server(deployment, tmp_path, monkeypatch):
    """One that waits for broker and federator as long as the tests do."""
    for name in ("_CONNECT_S", "_ANSWER_S"):
        monkeypatch.setattr(f"foltr.api.orders.{name}", PATIENCE_S)
    monkeypatch.setattr("foltr.api.erasure_requests._LOOKS", int(PATIENCE_S / 0.25))
    credentials = read_credentials(deployment.operator_file, "operator")
    async with asked(deployment.database_url, tmp_path, FEDERATION, credentials=credentials) as running:
        yield running


async def test_a_signed_order_is_handed_on_and_obeyed_once(deployment, server, tmp_path):
    """However often it is posted; the server holds no key that could sign another."""
    deployment.start_federator(10)
    await deployment.serves()
    with open_authority(tmp_path / "operator", FEDERATION) as authority:
        order = authority.deadline(1, 500.0)
    operator = server.token(Role.OPERATOR)
    for _ in range(2):
        answer = (await server.post("/api/v1/orders", operator, content=order.payload)).json()
        assert (answer["number"], answer["reply"]) == (1, "obeyed")
    rows = (await server.get("/api/v1/orders", operator)).json()["items"]
    assert [(row["number"], row["kind"], row["outcome"]) for row in rows] == [(1, "set_deadline", "obeyed")]
    assert rows[0]["digest"] == order.digest.hex()


async def test_what_the_operator_has_not_signed_goes_nowhere(deployment, server, tmp_path):
    """400 in words; nothing of it reaches the broker or the database."""
    operator = server.token(Role.OPERATOR)
    wish = SetDeadline(federation=FEDERATION, round=1, max_time_s=500.0)
    strange = issue_order(SigningKey.generate(), wish, 1).payload
    with open_authority(tmp_path / "operator", FEDERATION) as authority:
        question, signed = authority.question(bytes(16)), authority.deadline(1, 500.0).payload
    changed = signed[:-1] + bytes([signed[-1] ^ 1])
    for content in (b"", b"x", strange, question, changed):
        answer = await server.post("/api/v1/orders", operator, content=content)
        assert (answer.status_code, answer.json()["code"] in {"malformed", "bad_signature"}) == (400, True)
    foreign = {"Origin": "http://elsewhere.example"}
    posted = await server.post("/api/v1/orders", operator, content=signed, headers=foreign)
    assert posted.status_code == 403
    assert await list_orders(deployment.database, FEDERATION) == []


async def test_an_order_of_a_newer_enrolment_key_is_handed_on(server, mosquitto_server, tmp_path, monkeypatch):
    """Where the broker tells of it: the server runs with what it was started with."""
    monkeypatch.setattr("foltr.api.orders._ANSWER_S", 0.2)
    folder = tmp_path / "operator"
    with open_authority(folder, FEDERATION) as authority:
        rotation = begin_rotation(folder, authority.register, authority.orders, authority.operator)
    with open_authority(folder, FEDERATION) as authority:
        succession = dict(authority.unpublished())[Topics(FEDERATION).operator_key]
        order = authority.deadline(1, 500.0)
    assert order.number == rotation.number + 1
    operator = server.token(Role.OPERATOR)
    assert (await server.post("/api/v1/orders", operator, content=order.payload)).status_code == 400
    access = BrokerAccess(broker_url=mosquitto_server.url)
    topic = Topics(FEDERATION).operator_key
    await asyncio.to_thread(publish_once, access, "somebody", topic, succession, retain=True)
    answer = await server.post("/api/v1/orders", operator, content=order.payload)
    assert (answer.status_code, answer.json()["number"]) == (202, order.number)
    # Of what the former key has signed only this one counts.
    answer = await server.post("/api/v1/orders", operator, content=rotation.payload)
    assert answer.status_code == 202


async def test_an_order_that_nobody_answers_is_said_to_wait(server, mosquitto_server, tmp_path, monkeypatch):
    """Whatever other command of the operator ends its session meanwhile: the broker has it for the federator."""
    monkeypatch.setattr("foltr.api.orders._ANSWER_S", 2.0)
    monkeypatch.setattr("foltr.api.orders._SEND_AGAIN_S", 0.1)
    with open_authority(tmp_path / "operator", FEDERATION) as authority:
        order = authority.deadline(1, 500.0)
    posted = server.post("/api/v1/orders", server.token(Role.OPERATOR), content=order.payload)
    address, heard, topic = BrokerAddress.parse(mosquitto_server.url), [], Topics(FEDERATION).operator
    async with MqttLink(address, client_id="ear", subscriptions=[topic], on_message=heard.append) as ear:
        await ear.wait_connected(PATIENCE_S)
        posting = asyncio.create_task(posted)
        await until(lambda: bool(heard), "no order came")
        other = MqttLink(address, client_id=OPERATOR_USER, subscriptions=[], on_message=print, persistent=False)
        async with other:
            await other.wait_connected(PATIENCE_S)
        answer = await posting
    assert (answer.status_code, answer.json()["reply"]) == (202, None)
    assert "not answered yet" in answer.json()["detail"]


def start(deployment):
    """Start a federator whose rounds nobody fills."""
    quorum = ("--min-clients", "5", "--max-clients", "5")
    deployment.start_federator(10, *quorum, max_time_s=600.0, FOLTR_LOG_LEVEL="info")


@pytest.fixture
async def participant(deployment, server):
    """A device that has sent an update, and is off; its credentials, and its token."""
    start(deployment)
    await deployment.serves()
    access = deployment.devices[0]
    async with oracle_device(access) as client:
        await contribute_once(client)
    return access, server.token(Role.PARTICIPANT, access.name)


def wish_of(access):
    """A device's signed wish to be forgotten."""
    topic = Topics(FEDERATION).client(access.name, ClientTopic.FORGET)
    return encode(Forget(federation=FEDERATION, client_id=access.name), topic, 0, access.key)


async def test_no_wish_of_anybody_else_is_taken(deployment, server, participant):
    """Nor one that is none, or that the device's key did not sign; and only a participant brings one."""
    access, mine = participant
    topic = Topics(FEDERATION).client(access.name, ClientTopic.FORGET)
    wrong = {
        "malformed": b"x",
        "bad_signature": wish_of(access.model_copy(update={"signing_key": SigningKey.generate().to_text()})),
        "client_mismatch": encode(Forget(federation=FEDERATION, client_id="other"), topic, 0, access.key),
        "wrong_federation": encode(Forget(federation="other", client_id=access.name), topic, 0, access.key),
    }
    for code, content in wrong.items():
        answer = await server.post("/api/v1/me/forget", mine, content=content)
        assert (answer.status_code, answer.json()["code"]) == (400, code)
    for token, status in (
        (server.token(Role.VIEWER), 403),
        (server.token(Role.OPERATOR), 403),
        (server.token(Role.PARTICIPANT, "nobody"), 404),
    ):
        assert (await server.post("/api/v1/me/forget", token, content=wish_of(access))).status_code == status
    assert await get_client(deployment.database, FEDERATION, access.name) is not None


async def test_a_participant_brings_its_devices_wish_and_gets_its_receipt(deployment, server, participant, tmp_path):
    """On its page, with the token that it had; afterwards its name is in no list, metric, log or file of tokens."""
    access, mine = participant
    viewer = server.token(Role.VIEWER)
    assert access.name in (await server.get("/api/v1/clients", viewer)).text
    cookie = {"Cookie": f"{COOKIE}={mine}"}
    form = await server.get("/", headers=cookie)
    assert 'action="/forget"' in form.text
    bad = await server.post("/forget", content="wish=%21%21", headers=cookie)
    assert (bad.status_code, "not the line" in bad.text) == (400, True)
    line = urlencode({"wish": base64.b64encode(wish_of(access)).decode() + "\n"})
    with structlog.testing.capture_logs() as lines:
        page = await server.post("/forget", content=line, headers=cookie)
    assert (page.status_code, "was forgotten on" in page.text) == (200, True)
    me = (await server.get("/api/v1/me", mine)).json()
    assert (me["client"], me["erasure"]["requested_by"]) == (None, "device")
    again = await server.post("/api/v1/me/forget", mine, content=wish_of(access))
    assert (again.status_code, again.json()["state"]) == (202, "forgotten")

    async def signed():
        return (await server.get("/api/v1/me/receipt", mine)).status_code == 200

    await until(signed, "no receipt")
    receipt = tmp_path / "receipt.jws"
    receipt.write_text((await server.get("/api/v1/me/receipt", mine)).text)
    checked = foltr("erasure", "verify", receipt, "--key", tmp_path / "operator" / "federator.json")
    assert checked.returncode == 0, checked.stderr
    for path in ("clients", "rounds", "erasures", "audit", "orders", "jobs"):
        assert access.name not in (await server.get(f"/api/v1/{path}", viewer)).text, path
    logged = deployment.said() + "".join(str(line) for line in lines if line["log_level"] != "debug")
    assert ("erasure_request_forwarded" in logged, "federator_started" in logged) == (True, True)
    for text in (logged, (await server.get("/metrics", viewer)).text, server.served.tokens.path.read_text()):
        assert access.name not in text


async def test_a_wish_that_is_not_obeyed_yet_is_said_to_wait(deployment, server, participant, monkeypatch):
    """The broker keeps it for a federator that is off."""
    monkeypatch.setattr("foltr.api.erasure_requests._LOOKS", 2)
    access, mine = participant
    deployment.federator.terminate()
    await deployment.exit_code()
    answer = await server.post("/api/v1/me/forget", mine, content=wish_of(access))
    assert (answer.status_code, answer.json()["state"]) == (202, "sent")
    start(deployment)

    async def forgotten():
        return await get_client(deployment.database, FEDERATION, access.name) is None

    await until(forgotten, "the wish is lost")
