"""Commands with a credentials file from before a rotation believe what the broker retains of the keys since."""

import asyncio
import json
import shutil
import time
import uuid
from types import SimpleNamespace

import pytest
from cli.commands import foltr
from cli.doctor.test_doctor import announcement
from support.erasure_receipts import RECEIPT
from support.message_publisher import publish_once

from foltr.cli.history.heartbeat import receive_status
from foltr.cli.settings import Settings
from foltr.core.erasure.receipt import sign_receipt
from foltr.core.operator.credentials import BrokerAccess, read_credentials
from foltr.core.operator.enrolment_rotation import begin_rotation
from foltr.core.operator.folder import create_authority, open_authority
from foltr.core.protocol.audit_heads import AuditHead
from foltr.core.protocol.codec import encode
from foltr.core.protocol.heartbeat import FederatorStatus
from foltr.core.protocol.orders import OrderAnswer, OrderReply
from foltr.core.protocol.signing import key_to_text
from foltr.core.protocol.topics import Topics


def answered(authority, order):
    """As by a federator that obeys it."""
    said = {"number": order.number, "digest": order.digest, "newest": order.number, "reply": OrderReply.OBEYED}
    authority.record_answer(order, OrderAnswer(federation=authority.federation, **said), b"")


@pytest.fixture
def rotated(mqtt_broker, tmp_path):
    """A federation with both keys rotated, two files from before, and a broker that has nothing of the operator."""
    federation, folder = f"mail-{uuid.uuid4().hex[:8]}", tmp_path / "operator"
    access, topics = BrokerAccess(broker_url=mqtt_broker), Topics(federation)
    with create_authority(folder, federation, federator=access, operator=access) as authority:
        device = authority.enrol("device-1", access)
    (tmp_path / "device-1.json").write_text(device.model_dump_json())
    shutil.copy(folder / "operator.json", tmp_path / "old-operator.json")
    for path in tmp_path.glob("*.json"):
        path.chmod(0o600)
    with open_authority(folder) as authority:
        order = begin_rotation(authority.folder, authority.register, authority.orders, authority.operator)
    with open_authority(folder) as authority:
        answered(authority, order)
        answered(authority, authority.rotate_federator_key(access))
        messages = dict(authority.unpublished())
    key = read_credentials(folder / "federator.json", "federator").key
    assert key.public != device.federator_public_key

    def retain(topic, payload):
        publish_once(access, "somebody", topic, payload, retain=True)

    alive = {"online": True, "at": time.time(), "interval_s": 30.0, "software_version": "1"}
    for topic, said in (
        (topics.round, announcement(3, time.time(), federation=federation)),
        (topics.audit_head, AuditHead(federation=federation, seq=7, hash=bytes(32), at=1_000.0)),
        (topics.federator_status, FederatorStatus(federation=federation, **alive)),
    ):
        retain(topic, encode(said, topic, 1, key))
    return SimpleNamespace(
        folder=tmp_path,
        topics=topics,
        key=key,
        statement=lambda: retain(topics.federator_key, messages[topics.federator_key]),
        succession=lambda: retain(topics.operator_key, messages[topics.operator_key]),
    )


def found(rotated, file, what, expected):
    done = foltr("doctor", "--credentials", file, "--json", cwd=rotated.folder, code=expected)
    return [(each["state"], each["detail"]) for each in json.loads(done.stdout) if each["what"] == what]


def test_an_old_file_is_enough(rotated):
    """For `foltr erasure log-head`, what `foltr status` asks the broker, and the doctor of a device."""
    rotated.statement()
    rotated.succession()
    for file in ("device-1.json", "old-operator.json"):
        head = foltr("erasure", "log-head", "--credentials", file, "--json", cwd=rotated.folder, code=0)
        assert json.loads(head.stdout)["entry"] == 7, file
        heard = asyncio.run(receive_status(Settings(credentials=str(rotated.folder / file)), rotated.topics.federation))
        assert heard.status.online, file
    assert found(rotated, "device-1.json", "enrolment key", 0) == []
    assert found(rotated, "device-1.json", "federation", 0)[0][0] == "ok"


def test_a_broker_that_says_nothing_of_it_is_told_with_what_to_do(rotated):
    """As where its access list is an older one. A receipt is verified by the newest key, as the operator has it."""
    rotated.statement()
    head = foltr("erasure", "log-head", "--credentials", "device-1.json", cwd=rotated.folder, code=3)
    ((state, detail),) = found(rotated, "device-1.json", "enrolment key", 1)
    heard = asyncio.run(
        receive_status(Settings(credentials=str(rotated.folder / "device-1.json")), rotated.topics.federation)
    )
    for said in (head.stderr, detail, heard.unreachable):
        assert "foltr operator publish" in said
    assert state == "warning"
    (rotated.folder / "receipt.jws").write_text(sign_receipt(RECEIPT, rotated.key))
    for key, code in (("device-1.json", 1), (key_to_text(rotated.key.public), 0), ("operator/federator.json", 0)):
        foltr("erasure", "verify", "receipt.jws", "--key", key, cwd=rotated.folder, code=code)
