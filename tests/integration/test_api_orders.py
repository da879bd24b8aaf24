"""Orders that were signed elsewhere and posted to the HTTP API: a real broker, federator and server."""

import asyncio
import base64
import io
import logging
from urllib.parse import urlencode

import numpy as np
import pytest
import structlog
from cli.commands import foltr
from integration.deployment import DIM, FEDERATION, client_name, on
from integration.oracle import power_learner
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
from foltr.edge_client.client import EdgeClient
from foltr.edge_client.options import Experiment
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


async def test_an_order_that_nobody_answers_is_said_to_wait(server, tmp_path, monkeypatch):
    """The broker has it, and holds it for the federator."""
    monkeypatch.setattr("foltr.api.orders._ANSWER_S", 0.2)
    with open_authority(tmp_path / "operator", FEDERATION) as authority:
        order = authority.deadline(1, 500.0)
    answer = await server.post("/api/v1/orders", server.token(Role.OPERATOR), content=order.payload)
    assert (answer.status_code, answer.json()["reply"]) == (202, None)
    assert "not answered yet" in answer.json()["detail"]


async def test_another_command_of_the_operator_ends_no_order(server, mosquitto_server, tmp_path, monkeypatch):
    """One user is one session at a broker: `foltr status --watch` begins a new one every few seconds."""
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


async def joined(deployment):
    """Have a device join, and go away again; its credentials."""
    access = deployment.devices[0]
    async with EdgeClient(access, store=":memory:", experiment=Experiment(learner=power_learner(0), seed=0)) as client:
        await client.next_round(after=0, timeout_s=PATIENCE_S)

        async def is_stored():
            return await get_client(deployment.database, FEDERATION, access.name) is not None

        await until(is_stored, "it has not joined")
    return access


async def test_a_participant_brings_its_devices_wish_and_is_forgotten(deployment, server):
    """As its page does; the device's key stays where it is, and no wish of anybody else is taken."""
    deployment.start_federator(10, "--min-clients", "5", "--max-clients", "5", max_time_s=600.0)
    await deployment.serves()
    access = await joined(deployment)
    mine = server.token(Role.PARTICIPANT, access.name)
    topic = Topics(FEDERATION).client(access.name, ClientTopic.FORGET)
    wish = Forget(federation=FEDERATION, client_id=access.name)
    signed = encode(wish, topic, 0, access.key)
    wrong = {
        "malformed": b"x",
        "bad_signature": encode(wish, topic, 0, SigningKey.generate()),
        "client_mismatch": encode(Forget(federation=FEDERATION, client_id="other"), topic, 0, access.key),
        "wrong_federation": encode(Forget(federation="other", client_id=access.name), topic, 0, access.key),
    }
    for code, content in wrong.items():
        answer = await server.post("/api/v1/me/forget", mine, content=content)
        assert (answer.status_code, answer.json()["code"]) == (400, code)
    for role in (Role.VIEWER, Role.OPERATOR):
        assert (await server.post("/api/v1/me/forget", server.token(role), content=signed)).status_code == 403
    nobody = server.token(Role.PARTICIPANT, "nobody")
    assert (await server.post("/api/v1/me/forget", nobody, content=signed)).status_code == 404
    assert await get_client(deployment.database, FEDERATION, access.name) is not None
    cookie = {"Cookie": f"{COOKIE}={mine}"}
    form = await server.get("/", headers=cookie)
    assert 'action="/forget"' in form.text
    bad = await server.post("/forget", content="wish=%21%21", headers=cookie)
    assert (bad.status_code, "not the line" in bad.text) == (400, True)
    line = urlencode({"wish": base64.b64encode(signed).decode() + "\n"})
    page = await server.post("/forget", content=line, headers=cookie)
    assert (page.status_code, "was forgotten on" in page.text) == (200, True)
    me = (await server.get("/api/v1/me", mine)).json()
    assert (me["client"], me["erasure"]["requested_by"]) == (None, "device")
    again = await server.post("/api/v1/me/forget", mine, content=signed)
    assert (again.status_code, again.json()["state"]) == (202, "forgotten")


async def test_a_wish_that_is_not_obeyed_yet_is_said_to_wait(deployment, server, monkeypatch):
    """The broker keeps it for a federator that is off."""
    monkeypatch.setattr("foltr.api.erasure_requests._LOOKS", 2)
    deployment.start_federator(10, "--min-clients", "5", "--max-clients", "5", max_time_s=600.0)
    await deployment.serves()
    access = await joined(deployment)
    deployment.federator.terminate()
    await deployment.exit_code()
    topic = Topics(FEDERATION).client(access.name, ClientTopic.FORGET)
    signed = encode(Forget(federation=FEDERATION, client_id=access.name), topic, 0, access.key)
    answer = await server.post("/api/v1/me/forget", server.token(Role.PARTICIPANT, access.name), content=signed)
    assert (answer.status_code, answer.json()["state"]) == (202, "sent")
    deployment.start_federator(10, "--min-clients", "5", "--max-clients", "5", max_time_s=600.0)

    async def forgotten():
        return await get_client(deployment.database, FEDERATION, access.name) is None

    await until(forgotten, "the wish is lost")


async def test_a_forgotten_participant_gets_its_receipt(deployment, server, tmp_path):
    """With the token that it had; its name is in no list, metric or line of log, nor in the file of tokens."""
    log = io.StringIO()
    by_default = structlog.make_filtering_bound_logger(logging.INFO)
    structlog.configure(wrapper_class=by_default, logger_factory=structlog.PrintLoggerFactory(log))
    quorum = ("--min-clients", "5", "--max-clients", "5")
    deployment.start_federator(10, *quorum, max_time_s=600.0, FOLTR_LOG_LEVEL="info")
    await deployment.serves()
    name = client_name(0)
    access = deployment.devices[0]
    async with EdgeClient(access, store=":memory:", experiment=Experiment(learner=power_learner(0), seed=0)) as client:
        await client.next_round(after=0, timeout_s=PATIENCE_S)
        client.record_clicks(client.rank(np.ones((1, DIM), np.float32)), [0])
        assert not (await client.wait_settled(PATIENCE_S)).is_pending
    mine, viewer = server.token(Role.PARTICIPANT, name), server.token(Role.VIEWER)
    with open_authority(tmp_path / "operator", FEDERATION) as authority:
        order = authority.forget(name)
    known = await server.get(f"/api/v1/clients/{name}", viewer)
    assert known.json()["client"]["client_id"] == name
    scraped = [(await server.get("/metrics", viewer)).text]
    answer = await server.post("/api/v1/orders", server.token(Role.OPERATOR), content=order.payload)
    assert answer.json()["reply"] == "obeyed"
    assert await get_client(deployment.database, FEDERATION, name) is None
    me = (await server.get("/api/v1/me", mine)).json()
    assert (me["client"], me["erasure"]["requested_by"]) == (None, "operator")

    async def signed():
        return (await server.get("/api/v1/me/receipt", mine)).status_code == 200

    await until(signed, "no receipt")
    receipt = tmp_path / "receipt.jws"
    receipt.write_text((await server.get("/api/v1/me/receipt", mine)).text)
    key = tmp_path / "operator" / "federator.json"
    checked = foltr("erasure", "verify", receipt, "--key", key)
    assert checked.returncode == 0, checked.stderr
    for path in ("clients", "rounds", "erasures", "audit", "orders", "jobs"):
        assert name not in (await server.get(f"/api/v1/{path}", viewer)).text, path
    refused = await server.get(f"/api/v1/clients/{name}", viewer)
    assert (refused.status_code, name in refused.text) == (404, False)
    assert name not in server.served.tokens.path.read_text()
    scraped.append((await server.get("/metrics", viewer)).text)
    assert "foltr_clients" in scraped[0]
    logged = log.getvalue() + deployment.said()
    assert ("order_forwarded" in logged, "federator_started" in logged) == (True, True)
    assert [line for line in (*scraped, *logged.splitlines()) if name in line] == []
