"""What is known of an audit log outside of its database shows a log that was cut."""

import json

from cli.commands import foltr
from cli.erasure.test_audit import KEY_TEXT, logged
from support.erasure_database import tampered
from support.erasure_receipts import KEY
from support.message_publisher import publish_once
from support.servers import free_port

from foltr.core.operator.credentials import BrokerAccess
from foltr.core.protocol.audit_heads import AuditHead
from foltr.core.protocol.codec import encode
from foltr.core.protocol.signing import SigningKey
from foltr.core.protocol.topics import Topics

TOPIC = Topics("mail").audit_head


def head(seq: int, hash_: str, at: float = 1_000.0) -> AuditHead:
    return AuditHead(federation="mail", seq=seq, hash=bytes.fromhex(hash_), at=at)


def publish(url: str, said: AuditHead, key: SigningKey | None = KEY) -> None:
    publish_once(BrokerAccess(broker_url=url), "federator", TOPIC, encode(said, TOPIC, 1, key), retain=True)


def ask(folder, *arguments: str, code: int | None = None):
    return foltr("erasure", "log-head", "--federation", "mail", "--key", KEY_TEXT, *arguments, cwd=folder, code=code)


def audit(folder, *arguments: str, code: int | None = None):
    return foltr(
        "erasure", "verify-log", "--db", "sqlite:///foltr.sqlite", "--key", KEY_TEXT, *arguments, cwd=folder, code=code
    )


def test_what_is_no_entry_is_one_line(tmp_path):
    """With what prints one."""
    for wrong in ("5", "five:" + "ab" * 32, "5:" + "zz" * 32, "9" * 19 + ":" + "ab" * 32):
        assert "foltr erasure log-head" in audit(tmp_path, "--entry", wrong, code=2).stderr, wrong


def test_a_head_that_another_has_signed_is_none(tmp_path, mosquitto_server):
    """On a broker without access control anybody may retain anything; a broker without a head is said, too."""
    broker = ("--broker", mosquitto_server.url)
    said = ask(tmp_path, *broker, code=3).stderr
    assert "start the federator, and if it runs, renew the broker's access list" in said
    hashes = logged(tmp_path, 2)
    publish(mosquitto_server.url, head(9, "ab" * 32), SigningKey(bytes(32)))
    done = audit(tmp_path, *broker, code=0)
    assert "was not compared: the broker" in done.stdout
    assert "has no head of the audit log signed with this key" in done.stdout
    ask(tmp_path, *broker, code=3)
    # The federator's own is compared, as are entries that were noted; the log may have grown since.
    noted = ("--entry", f"2:{hashes[1]}")
    publish(mosquitto_server.url, head(1, hashes[0]))
    done = audit(tmp_path, *broker, *noted, code=0)
    assert ("The head at the broker" in done.stdout, "matches entry 1" in done.stdout) == (True, True)
    assert "What was noted matches entry 2." in done.stdout
    assert " ".join(noted) in done.stdout
    # Its chain is whole where the end was cut: what is known of it elsewhere is missed.
    publish(mosquitto_server.url, head(2, hashes[1]))
    tampered(tmp_path, "DELETE FROM audit_log WHERE seq = 2")
    for witness, said in (
        (broker, "the head at the broker"),
        (noted, "what was noted names entry 2, but the log ends with entry 1"),
        (("--entry", f"1:{'ab' * 32}"), "what was noted names entry 1, but the entry there has another hash"),
    ):
        assert said in audit(tmp_path, *witness, code=1).stderr


def test_the_head_is_printed_to_be_kept(tmp_path, mosquitto_server):
    """As verify-log takes it later."""
    publish(mosquitto_server.url, head(7, "ab" * 32))
    done = ask(tmp_path, "--broker", mosquitto_server.url, code=0)
    assert "The audit log of mail ends with entry 7, says the broker" in done.stdout
    assert f"foltr erasure verify-log --entry 7:{'ab' * 32}" in done.stdout
    told = json.loads(ask(tmp_path, "--broker", mosquitto_server.url, "--json").stdout)
    assert told == {"federation": "mail", "entry": 7, "hash": "ab" * 32}


def test_a_broker_that_is_away_is_said(tmp_path):
    """With exit code 3 where it was asked for, and beside the rest where the database is what counts."""
    logged(tmp_path, 1)
    nowhere = f"mqtt://127.0.0.1:{free_port()}"
    for options in (("--broker", nowhere), ()):
        ask(tmp_path, *options, code=3)
    done = audit(tmp_path, "--broker", nowhere, code=0)
    assert "What the federator has published was not compared" in done.stdout
