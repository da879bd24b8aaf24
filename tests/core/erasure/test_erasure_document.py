"""docs/erasure.md does what it says: its officer's commands run as they stand there; its fields are a receipt's."""

import asyncio
import json
import re
import sys
from typing import Literal, get_args, get_origin

import pytest
from cli.commands import PROJECT, environment
from cli.erasure.test_receipts import write_credentials
from cli.snippets import blocks
from support.completed_process import completed
from support.erasure_database import DONE, NAME, WAITING, made_erasures, pseudonym_of
from support.erasure_receipts import KEY
from support.foltr_program import prepared_foltr
from support.waiting import PATIENCE_S

from foltr.broker.address import BrokerAddress
from foltr.broker.link import MqttLink
from foltr.core.erasure.receipt import MAX_RECEIPT_BYTES, ErasureReceipt
from foltr.core.protocol.codec import encode
from foltr.core.protocol.signing import key_to_text
from foltr.core.protocol.topics import Topics
from foltr.federator.publishing.audit_heads import head_of
from foltr.storage.database import Database
from foltr.storage.erasure.audit_log import find_audit_entry
from foltr.storage.erasure.erasures import find_erasure

DOCUMENT = "docs/erasure.md"
TEXT = (PROJECT / DOCUMENT).read_text(encoding="utf-8")


async def published(folder, broker_url: str) -> None:
    """The head of the log, at a broker, as the federator retains it there."""
    async with await Database.connect(f"sqlite:///{folder}/foltr.sqlite") as db:
        head = head_of(NAME, await find_audit_entry(db, NAME))
    topic = Topics(NAME).audit_head
    link = MqttLink(BrokerAddress.parse(broker_url), client_id="federator", subscriptions=(), on_message=print)
    async with link:
        await link.wait_connected(PATIENCE_S)
        await link.publish(topic, encode(head, topic, 1, KEY), retain=True)


@pytest.fixture
def desk(tmp_path, mosquitto_server):
    """An officer's folder: the database to look into, the key, an operator's and a device's file; and a broker."""
    asyncio.run(made_erasures(f"sqlite:///{tmp_path}/foltr.sqlite"))
    asyncio.run(published(tmp_path, mosquitto_server.url))
    (tmp_path / "federator.pub").write_text(key_to_text(KEY.public))
    (tmp_path / "foltr-operator").mkdir()
    write_credentials(tmp_path / "foltr-operator/operator.json", "operator", mosquitto_server.url)
    write_credentials(tmp_path / "device-7.json", "device")
    with prepared_foltr(tmp_path / "bin/foltr"):
        yield tmp_path


def test_the_commands_of_the_document_run(desk):
    """In order, in a shell, pipes and all; the key that an operator hands out is the one that verifies."""
    variables = environment()
    variables["PATH"] = f"{desk / 'bin'}:{variables['PATH']}"
    outputs = []
    walk_through = blocks(f"{DOCUMENT}#forget-a-client", "sh")
    for block in [one for one in blocks(DOCUMENT, "sh") if one not in walk_through]:
        done = completed(["bash", "-euc", block], cwd=desk, env=variables)
        assert done.returncode == 0, f"{block}\n{done.stdout}\n{done.stderr}"
        outputs.append(done.stdout)
    officer, plain, as_json, of_a_device, log = outputs
    for words in (
        f"{pseudonym_of(WAITING)}  requested",
        f"Erasure of {pseudonym_of(DONE)} in mail",
        f"for the client with the pseudonym {pseudonym_of(DONE)}",
        "The signature is valid",
        "The table of erasures agrees with it: 4 in all, 2 done.",
    ):
        assert words in officer
    assert pseudonym_of(DONE) in plain
    assert json.loads(as_json)["receipt"]["n_updates"] == 1
    assert pseudonym_of(DONE) in of_a_device
    assert "erasure_completed" in log
    assert "has 11 entries" in log
    assert "matches entry 4" in log
    assert "The audit log of mail ends with entry 11, says the broker" in log


async def write_receipt(folder) -> str:
    """The stored receipt in a file, as the commands of the document get it; its text."""
    async with await Database.connect(f"sqlite:///{folder}/foltr.sqlite") as db:
        row = await find_erasure(db, NAME, pseudonym_of(DONE))
    (folder / "receipt.jws").write_text(f"{row.receipt}\n")
    return row.receipt


def test_a_receipt_can_be_checked_without_foltr(desk):
    """The document's few lines, with no more than two libraries, in a process that has no foltr; a forgery fails."""
    text = asyncio.run(write_receipt(desk))
    (program,) = blocks(DOCUMENT, "python")
    assert "foltr" not in re.sub(r'"foltr-erasure\+jws"', "", program)

    def run():
        return completed([sys.executable, "-I", "-c", program], cwd=desk)

    done = run()
    assert done.returncode == 0, done.stderr
    assert ErasureReceipt(**json.loads(done.stdout)).pseudonym == pseudonym_of(DONE)
    (desk / "receipt.jws").write_text(text.replace(".", ".A", 1))
    assert run().returncode != 0


def test_the_table_has_every_field_in_order():
    """And no other; those that may be null say so, those of few words name them all; each strategy is explained."""
    rows = dict(re.findall(r"^\| `([a-z_]+)` \| (.+) \|$", TEXT, flags=re.MULTILINE))
    fields = ErasureReceipt.model_fields
    assert list(rows) == list(fields)
    for name, words in rows.items():
        annotation = fields[name].annotation
        assert ("null" in words) == (type(None) in get_args(annotation)), name
        if get_origin(annotation) is Literal and name != "version":
            assert all(f"`{choice}`" in words for choice in get_args(annotation)), name
    assert f"{MAX_RECEIPT_BYTES // 1024} kB" in TEXT
    for strategy in get_args(ErasureReceipt.model_fields["strategy"].annotation):
        assert f"\n- `{strategy}`: " in TEXT
