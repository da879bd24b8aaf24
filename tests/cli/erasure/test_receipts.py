"""``foltr erasure verify``: right ones pass, wrong ones say why, and exit codes differ."""

import hashlib
import json
import subprocess

import pytest
from cli.commands import FOLTR, environment, foltr
from support.erasure_receipts import KEY, NOTHING_TAUGHT, RECEIPT

from foltr.core.erasure.receipt import sign_receipt
from foltr.core.operator.credentials import BrokerAccess, Credentials, write_secret
from foltr.core.protocol.signing import SigningKey, key_to_text

KEY_TEXT = key_to_text(KEY.public)
OTHER_KEY = key_to_text(SigningKey(bytes(32)).public)
FINGERPRINT = hashlib.sha256(KEY.public).hexdigest()
SIGNED = sign_receipt(RECEIPT, KEY)


def write_credentials(path, role: str, broker_url: str = "mqtt://localhost:1883") -> None:
    """A process's file, in which the federator's key is public."""
    device = SigningKey(bytes([7] * 32))
    credentials = Credentials(
        role=role,
        federation="mail",
        name="device-7",
        broker=BrokerAccess(broker_url=broker_url),
        signing_key=(KEY if role == "federator" else device).to_text(),
        enrolment_key=OTHER_KEY,
        federator_key=KEY_TEXT,
    )
    write_secret(path, credentials.model_dump_json())


@pytest.fixture
def folder(tmp_path):
    """A receipt, as an editor or a mail may leave it, and the federator's key in each form there is."""
    (tmp_path / "receipt.jws").write_text(f"\n  {SIGNED}\r\n\n")
    (tmp_path / "federator.pub").write_text(KEY_TEXT + "\n")
    for role in ("device", "operator", "federator"):
        write_credentials(tmp_path / f"{role}.json", role)
    return tmp_path


def verify(folder, *arguments: str, code: int | None = None):
    return foltr("erasure", "verify", *arguments, cwd=folder, code=code)


def test_a_receipt_is_verified_with_the_key_in_any_form(folder):
    """As text, in a file, and in the credentials of any process; as JSON it has every field and the key."""
    for key in (KEY_TEXT, "federator.pub", "device.json", "operator.json", "federator.json"):
        done = verify(folder, "receipt.jws", "--key", key, "--json", code=0)
        identified = {"verified": True, "federator_key": KEY_TEXT, "key_fingerprint": FINGERPRINT}
        assert json.loads(done.stdout) == {**identified, "receipt": RECEIPT.model_dump()}, key
        assert done.stderr == "", key


def test_a_receipt_is_put_in_words(folder):
    """All that it says, and whose key signed it."""
    words = verify(folder, "receipt.jws", "--key", KEY_TEXT).stdout
    assert f"the client with the pseudonym {RECEIPT.pseudonym}" in words
    assert "Requested by the device 2026-01-02T03:04:05.678900Z, erased 2026-01-02T03:04:06.000000Z" in words
    assert "40 updates of 39 rounds, 7 events; the key that encrypted them was destroyed" in words
    assert (
        "Model 44, made without the client (fed_eraser, 4 rounds replayed, coverage 90%), replaced model 41." in words
    )
    assert "weights are deleted: 41." in words
    assert "ndcg_at_10 0.41, relative_distance 0.02" in words
    assert f"entry 2, hash {RECEIPT.audit_hash}" in words
    assert f"the holder of the key {KEY_TEXT} signed this text" in words
    nothing = RECEIPT.model_copy(update={**NOTHING_TAUGHT, "key_destroyed": False})
    (folder / "nothing.jws").write_text(sign_receipt(nothing, KEY))
    words = verify(folder, "nothing.jws", "--key", KEY_TEXT).stdout
    assert "no key was destroyed." in words
    assert "No model had learned from it, so nothing was unlearned." in words
    assert "Model" not in words


def test_a_receipt_is_read_from_standard_input(folder):
    """For `-`."""
    command = [*FOLTR, "erasure", "verify", "-", "--key", "federator.pub"]
    with (folder / "receipt.jws").open("rb") as receipt:
        done = subprocess.run(command, cwd=folder, env=environment(), stdin=receipt, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert RECEIPT.pseudonym.encode() in done.stdout


def test_what_is_no_receipt_is_refused_with_the_reason(folder):
    """Exit code 1, one line on standard error, and the same for a program, with the key it was checked with."""
    for text, why in (
        (sign_receipt(RECEIPT, SigningKey(bytes(32))), "not this key's"),
        (" \n", "receipt.jws is empty"),
        ("\ufeff" + SIGNED, "begins with a byte order mark (BOM)"),
        (f"{SIGNED[:76]}\n{SIGNED[76:152]}\r\n {SIGNED[152:]}\n", "has line breaks, but a receipt is one line"),
        (json.dumps(RECEIPT.model_dump()), "is JSON, perhaps what a command printed"),
        (KEY_TEXT, "is not a receipt, which is one line of three texts with dots between"),
        (f"{SIGNED}\n{SIGNED}", "is not a receipt, which is one line of three texts"),
        ("é", "not the text of a receipt"),
        (SIGNED.encode("utf-16"), "byte order mark"),  # as a shell of Windows writes it
        ("A" * 70_000, "more than 65536"),
    ):
        (folder / "receipt.jws").write_bytes(text if isinstance(text, bytes) else text.encode())
        done = verify(folder, "receipt.jws", "--key", KEY_TEXT, "--json", code=1)
        assert done.stderr.startswith("error: receipt: "), text
        assert why in done.stderr, text
        assert done.stderr.count("\n") == 1, text
        told = json.loads(done.stdout)
        assert done.stderr == f"error: {told.pop('reason')}\n", text
        assert told == {"verified": False, "federator_key": KEY_TEXT, "key_fingerprint": FINGERPRINT}, text


def test_wrong_usage_is_told_from_a_wrong_receipt(folder):
    """Exit code 2 says that the receipt was not checked; the message says where to find the key."""
    files = {"other.json": '{"role": []}', "ca.pem": "-----BEGIN CERTIFICATE-----\n", "id.pub": "ssh-ed25519 AAAA\n"}
    for name, text in (files | {"empty.pub": "", "enrolment.pub": OTHER_KEY}).items():
        (folder / name).write_text(text)
    write_credentials(folder / "open.json", "device")
    (folder / "open.json").chmod(0o644)
    for file, key, why in (
        ("nowhere.jws", KEY_TEXT, "receipt: nowhere.jws: No such file"),
        ("/dev/zero", KEY_TEXT, "it is a device, not a file"),
        ("receipt.jws", "nowhere.pub", "key: nowhere.pub: No such file"),
        ("receipt.jws", "receipt.jws", "key: receipt.jws is a receipt, not base64 text of 32 bytes"),
        ("receipt.jws", "ca.pem", "key: ca.pem is a PEM file: a key or certificate of TLS"),
        ("receipt.jws", "id.pub", "key: id.pub is an SSH key"),
        ("receipt.jws", "empty.pub", "key: empty.pub holds no key"),
        ("receipt.jws", "enrolment.pub", "is the enrolment key, which signs no receipts"),
        ("receipt.jws", "other.json", "key: other.json is no credentials file"),
        ("receipt.jws", "open.json", "chmod 600"),
    ):
        done = verify(folder, file, "--key", key, "--json", code=2)
        assert why in done.stderr, file
        if key != KEY_TEXT and "chmod" not in why:
            assert "`federator_key` in the credentials file of every device" in done.stderr, file
            assert "foltr-operator/operator.json" in done.stderr, file
        told = json.loads(done.stdout)
        assert (told["verified"], told["reason"]) == (False, done.stderr.removeprefix("error: ").rstrip("\n")), file
        assert told["federator_key"] == (KEY_TEXT if key == KEY_TEXT else None), file
    # A receipt cannot vouch for itself.
    assert "--key" in verify(folder, "receipt.jws", code=2).stderr
