"""What was seen of an audit log outside of its database is noted, and shows a log that was cut."""

import json
from contextlib import closing

import pytest
from cli.commands import foltr
from cli.erasure.test_audit import KEY_TEXT, OTHER_KEY, logged, write_receipt
from made_erasures import tampered
from publishing import publish_once
from receipts import KEY, RECEIPT

from foltr.core.erasure.receipt import sign_receipt
from foltr.core.operator.credentials import BrokerAccess
from foltr.core.protocol.audit_heads import AuditHead
from foltr.core.protocol.codec import encode
from foltr.core.protocol.signing import SigningKey
from foltr.core.protocol.topics import Topics
from foltr.edge_client.store.store import DeviceStore
from foltr.edge_client.store.store_file import Kept

TOPIC = Topics("mail").audit_head
NOTED = "foltr-noted.json"


def head(seq: int, hash_: str, at: float = 1_000.0) -> AuditHead:
    return AuditHead(federation="mail", seq=seq, hash=bytes.fromhex(hash_), at=at)


def publish(url: str, said: AuditHead, key: SigningKey | None = KEY) -> None:
    publish_once(BrokerAccess(broker_url=url), "federator", TOPIC, encode(said, TOPIC, 1, key), retain=True)


def heard(folder, *said: AuditHead, contradicted: AuditHead | None = None) -> None:
    """The store of a device that heard these, the last one against another."""
    with closing(
        DeviceStore(folder / "device.sqlite", client_id="device-7", federation="mail", max_interactions=10)
    ) as store:
        for one in said:
            kept = {Kept.AUDIT_HEAD: encode(one, TOPIC, 1, KEY)}
            if contradicted is not None:
                before = encode(contradicted, TOPIC, 1, KEY)
                kept |= {Kept.AUDIT_HEAD_BEFORE: before, Kept.AUDIT_HEAD_AFTER: kept[Kept.AUDIT_HEAD]}
            store.keep(kept)


def ask(folder, *arguments: str):
    return foltr("erasure", "log-head", "--federation", "mail", "--key", KEY_TEXT, *arguments, cwd=folder)


def audit(folder, *arguments: str):
    return foltr("erasure", "verify-log", "--db", "sqlite:///foltr.sqlite", "--key", KEY_TEXT, *arguments, cwd=folder)


def noted(folder) -> list[tuple[int, str]]:
    return [(entry["seq"], entry["hash"]) for entry in json.loads((folder / NOTED).read_text())["entries"]]


def refused(done, *words: str) -> None:
    assert done.returncode == 1, done.stdout
    assert done.stderr.startswith("error: audit log: ")
    assert done.stderr.count("\n") == 1
    for one in words:
        assert one in done.stderr


def cut(folder, seq: int) -> None:
    """The log's end is gone, as somebody does it who may write the database."""
    tampered(folder, f"DELETE FROM audit_log WHERE seq >= {seq}")  # noqa: S608 (a number)


# --- receipts ---------------------------------------------------------------------------------------------------


def test_a_receipt_that_was_verified_is_remembered(tmp_path):
    """So a log that was cut since is found without it, by who has the same file and key."""
    hashes = logged(tmp_path, 5)
    write_receipt(tmp_path, audit_seq=5, audit_hash=hashes[4])
    for _ in range(2):
        assert foltr("erasure", "verify", "receipt.jws", "--key", KEY_TEXT, cwd=tmp_path).returncode == 0
    assert noted(tmp_path) == [(5, hashes[4])]
    done = audit(tmp_path)
    assert done.returncode == 0, done.stderr
    assert f"What was noted in {NOTED} is in it: 1 in all." in done.stdout
    cut(tmp_path, 5)
    found = f"the receipt of {RECEIPT.pseudonym}, as noted in {NOTED}, names entry 5, and the log ends with entry 4"
    refused(audit(tmp_path), found)
    told = json.loads(audit(tmp_path, "--json").stdout)
    assert told["verified"] is False
    assert found in told["reason"]


def test_what_another_key_has_signed_is_another_log(tmp_path):
    """Federations of one name are many; and without a key nothing that was noted is looked at."""
    hashes = logged(tmp_path, 2)
    write_receipt(tmp_path, audit_seq=2, audit_hash="ab" * 32)
    assert foltr("erasure", "verify", "receipt.jws", "--key", KEY_TEXT, cwd=tmp_path).returncode == 0
    refused(audit(tmp_path), "the entry there has another hash")
    arguments = ("erasure", "verify-log", "--db", "sqlite:///foltr.sqlite")
    assert foltr(*arguments, cwd=tmp_path).returncode == 0
    assert foltr(*arguments, "--key", OTHER_KEY, cwd=tmp_path).returncode == 0
    assert len(hashes) == 2


def test_two_receipts_of_two_logs_contradict_each_other(tmp_path):
    """Both are signed, which is said; and that one federator has signed both."""
    for number, name in enumerate(("one.jws", "two.jws")):
        receipt = RECEIPT.model_copy(update={"audit_hash": f"{number}a" * 32, "pseudonym": f"{number:032x}"})
        (tmp_path / name).write_text(sign_receipt(receipt, KEY))
    assert foltr("erasure", "verify", "one.jws", "--key", KEY_TEXT, cwd=tmp_path).returncode == 0
    done = foltr("erasure", "verify", "two.jws", "--key", KEY_TEXT, cwd=tmp_path)
    assert done.returncode == 0
    assert f"But the receipt of {0:032x} is signed with the same key and names entry 2 with another hash" in done.stdout
    told = json.loads(foltr("erasure", "verify", "two.jws", "--key", KEY_TEXT, "--json", cwd=tmp_path).stdout)
    assert (told["verified"], told["contradicts"]) == (True, [f"the receipt of {0:032x}"])


def test_what_cannot_be_noted_keeps_nobody_from_verifying(tmp_path):
    """A folder that is not there is said, and another kind of file is not written over."""
    write_receipt(tmp_path)
    command = ("erasure", "verify", "receipt.jws", "--key", KEY_TEXT, "--noted")
    done = foltr(*command, "nowhere/noted.json", cwd=tmp_path)
    assert (done.returncode, "not noted: nowhere/noted.json" in done.stderr) == (0, True)
    done = foltr(*command, "receipt.jws", cwd=tmp_path)
    assert done.returncode == 2
    assert "receipt.jws is no file of noted entries" in done.stderr
    assert (tmp_path / "receipt.jws").read_text().startswith("eyJ")


def test_several_receipts_are_checked_at_once(tmp_path):
    """Each of them has its place."""
    hashes = logged(tmp_path, 3)
    options = []
    for number in (1, 3):
        write_receipt(tmp_path, audit_seq=number, audit_hash=hashes[number - 1])
        (tmp_path / "receipt.jws").rename(tmp_path / f"{number}.jws")
        options += ["--receipt", f"{number}.jws"]
    done = audit(tmp_path, *options)
    assert done.returncode == 0, done.stderr
    assert "is entry 1, as it says" in done.stdout
    assert "is entry 3, as it says" in done.stdout
    cut(tmp_path, 3)
    refused(audit(tmp_path, *options), "names entry 3, and the log ends with entry 2")


# --- what is published ------------------------------------------------------------------------------------------


def test_the_published_head_is_compared_and_noted(tmp_path, mosquitto_server):
    """The log may have grown since; where it lacks the entry, it was cut."""
    hashes = logged(tmp_path, 5)
    publish(mosquitto_server.url, head(4, hashes[3]))
    done = audit(tmp_path, "--broker", mosquitto_server.url)
    assert done.returncode == 0, done.stderr
    assert "The head at the broker" in done.stdout
    assert "is entry 4, as it says" in done.stdout
    assert noted(tmp_path) == [(4, hashes[3])]
    cut(tmp_path, 4)
    found = "names entry 4, and the log ends with entry 3"
    refused(audit(tmp_path, "--broker", mosquitto_server.url), "the head at the broker", found)
    # The federator starts again on what is left, and publishes that.
    publish(mosquitto_server.url, head(3, hashes[2]))
    refused(audit(tmp_path, "--broker", mosquitto_server.url), f"as noted in {NOTED}", found)


def test_a_head_that_another_has_signed_is_none(tmp_path, mosquitto_server):
    """On a broker without access control anybody may retain anything; that is said, and nothing is noted."""
    logged(tmp_path, 2)
    publish(mosquitto_server.url, head(9, "ab" * 32), SigningKey(bytes(32)))
    done = audit(tmp_path, "--broker", mosquitto_server.url)
    assert done.returncode == 0, done.stderr
    assert "was not compared: the broker" in done.stdout
    assert "has no head of the audit log that the key's holder has signed" in done.stdout
    assert not (tmp_path / NOTED).exists()
    assert ask(tmp_path, "--broker", mosquitto_server.url).returncode == 3


def test_a_broker_without_a_head_is_said(tmp_path, mosquitto_server):
    """With both causes: no federator that publishes it, and an access list that does not let it be written."""
    done = ask(tmp_path, "--broker", mosquitto_server.url)
    assert done.returncode == 3
    assert "start the federator, and if it runs, renew the broker's access list" in done.stderr


def test_a_head_that_goes_back_is_told(tmp_path, mosquitto_server):
    """Whoever asks now and then needs no database to see it."""
    publish(mosquitto_server.url, head(7, "ab" * 32))
    done = ask(tmp_path, "--broker", mosquitto_server.url)
    assert done.returncode == 0, done.stderr
    assert "The audit log of mail ends with entry 7" in done.stdout
    publish(mosquitto_server.url, head(5, "cd" * 32))
    refused(ask(tmp_path, "--broker", mosquitto_server.url), "it ends with entry 5", "has entry 7", "it was cut")
    publish(mosquitto_server.url, head(7, "ef" * 32))
    refused(ask(tmp_path, "--broker", mosquitto_server.url), "entry 7 has the hash", "written anew")
    publish(mosquitto_server.url, head(0, "00" * 32))
    refused(ask(tmp_path, "--broker", mosquitto_server.url), "it ends with entry 0")


def test_a_broker_that_is_away_is_said(tmp_path, unused_tcp_port):
    """With exit code 3 where it was asked for, and beside the rest where the database is what counts."""
    logged(tmp_path, 1)
    nowhere = f"mqtt://127.0.0.1:{unused_tcp_port}"
    assert ask(tmp_path, "--broker", nowhere).returncode == 3
    done = audit(tmp_path, "--broker", nowhere)
    assert done.returncode == 0, done.stderr
    assert "What the federator has published was not compared" in done.stdout
    assert ask(tmp_path).returncode == 3


# --- what a device has heard ------------------------------------------------------------------------------------


def test_a_device_is_a_witness(tmp_path):
    """Its newest head is noted; and a log without that was cut."""
    hashes = logged(tmp_path, 5)
    heard(tmp_path, head(3, hashes[2]), head(5, hashes[4]))
    done = ask(tmp_path, "--store", "device.sqlite")
    assert done.returncode == 0, done.stderr
    assert "ends with entry 5, says the device device-7: written 1970-01-01 00:16:40 UTC" in done.stdout
    assert audit(tmp_path).returncode == 0
    cut(tmp_path, 5)
    refused(audit(tmp_path), "the device device-7, as noted")


def test_a_device_that_saw_a_cut_has_the_evidence(tmp_path):
    """Two signed messages, also where the log has grown beyond both since."""
    heard(tmp_path, head(5, "cd" * 32), contradicted=head(7, "ab" * 32))
    heard(tmp_path, head(9, "ef" * 32))
    done = ask(tmp_path, "--store", "device.sqlite", "--json")
    refused(done, "the device device-7 heard of entry 7, and later that the log ends with 5")
    assert sorted(noted(tmp_path)) == [(5, "cd" * 32), (7, "ab" * 32), (9, "ef" * 32)]
    assert json.loads(done.stdout)["whole"] is False


def test_a_device_that_is_behind_is_no_news(tmp_path):
    """It was off; what was noted since may well be above what it heard."""
    heard(tmp_path, head(5, "ab" * 32))
    assert ask(tmp_path, "--store", "device.sqlite").returncode == 0
    (tmp_path / "device.sqlite").unlink()
    heard(tmp_path, head(3, "cd" * 32))
    assert ask(tmp_path, "--store", "device.sqlite").returncode == 0


@pytest.mark.parametrize("wrong", ["none", "empty", "another key"])
def test_a_store_that_has_nothing_to_say_is_refused(tmp_path, wrong: str):
    """With what to do."""
    if wrong != "none":
        heard(tmp_path, *([] if wrong == "empty" else [head(1, "ab" * 32)]))
    key = OTHER_KEY if wrong == "another key" else KEY_TEXT
    done = foltr("erasure", "log-head", "--store", "device.sqlite", "--key", key, cwd=tmp_path)
    assert done.returncode == (2 if wrong == "none" else 1)
    assert "store: " in done.stderr
    assert not (tmp_path / NOTED).exists()
