"""Credentials: readable for their owner only, checked when they are read, and silent about their secrets."""

import base64
import json
import os
import stat
import traceback

import pytest
from pydantic import ValidationError
from support.secure_policies import policy

from foltr.core.errors import SettingsError
from foltr.core.operator.credentials import BrokerAccess, Credentials, public_key_from, read_credentials, write_secret
from foltr.core.protocol.policies import GaussianNoise
from foltr.core.protocol.signed_policies import issue_policy
from foltr.core.protocol.signing import SigningKey, key_to_text

DEVICE, OPERATOR, FEDERATOR = (SigningKey(bytes([i] * 32)) for i in range(3))
ACCESS = BrokerAccess(
    broker_url="mqtts://broker.example:8883",
    username="device-7",
    password="XPASSWORDX",  # noqa: S106 (looked for in texts)
    ca="a certificate",
    certificate="another",
    key="XPEMKEYX",
)
CREDENTIALS = Credentials(
    role="device",
    federation="mail",
    name="device-7",
    broker=ACCESS,
    signing_key=DEVICE.to_text(),
    enrolment_key=key_to_text(OPERATOR.public),
    federator_key=key_to_text(FEDERATOR.public),
    enrolment=base64.b64encode(b"an enrolment").decode(),
)
POLICY = policy().policy
SECRETS = (DEVICE.to_text(), "XPASSWORDX", "XPEMKEYX")


@pytest.fixture
def path(tmp_path):
    file = tmp_path / "device-7.json"
    write_secret(file, CREDENTIALS.model_dump_json())
    return file


def rewritten(path, **fields):
    """The file with other fields, and access to it as it should be."""
    write_secret(path, json.dumps({**json.loads(path.read_text()), **fields}), replace=True)
    return path


def test_what_was_written_is_read_back(path):
    """And a policy is carried as it was signed."""
    credentials = read_credentials(path, "device")
    assert credentials == CREDENTIALS
    assert credentials.key.public == DEVICE.public
    assert credentials.enrolment_public_key == OPERATOR.public
    assert credentials.federator_public_key == FEDERATOR.public
    assert credentials.enrolment_bytes == b"an enrolment"
    signed = issue_policy(OPERATOR, POLICY)
    rewritten(path, policy=base64.b64encode(signed.signed).decode())
    credentials = read_credentials(path, "device")
    assert credentials.policy_bytes == signed.signed
    assert credentials.signed_policy == signed
    rewritten(path, policy=None)
    assert read_credentials(path, "device").policy_bytes is read_credentials(path, "device").signed_policy is None


@pytest.mark.parametrize(
    "signed",
    [
        issue_policy(DEVICE, POLICY).signed,
        issue_policy(OPERATOR, POLICY.model_copy(update={"federation": "post"})).signed,
        issue_policy(OPERATOR, POLICY.model_copy(update={"noise": GaussianNoise(variance=1)})).signed,
        b"no message",
    ],
)
def test_credentials_with_a_policy_that_is_none_are_refused(path, signed):
    """A device that would start without its policy would be one that a federator can see into."""
    rewritten(path, policy=base64.b64encode(signed).decode())
    with pytest.raises(SettingsError, match="policy: "):
        read_credentials(path, "device")


def test_another_role_or_a_folder_is_refused(path, tmp_path):
    """A device's file starts no federator; open to others it is refused; without a private key nothing signs."""
    with pytest.raises(SettingsError, match="role device"):
        read_credentials(path, "federator")
    with pytest.raises(SettingsError, match="directory"):
        read_credentials(tmp_path, "device")
    path.chmod(0o640)
    with pytest.raises(SettingsError, match=f"chmod 600 {path}"):
        read_credentials(path, "device")
    path.chmod(0o600)
    rewritten(path, signing_key=None)
    with pytest.raises(SettingsError, match=r"no private key, which the device device-7 made itself and keeps"):
        read_credentials(path, "device")
    with pytest.raises(SettingsError, match="signing_key: it is missing"):
        _ = CREDENTIALS.model_copy(update={"signing_key": None}).key


@pytest.mark.parametrize("content", [None, b"\xff\xfe", b"{}", b"[]", b"{"])
def test_what_is_no_credentials_file_says_where_they_come_from(tmp_path, content):
    """Missing, not text, not JSON, or JSON of something else: one error with the next step."""
    file = tmp_path / "x.json"
    if content is not None:
        write_secret(file, content)
    with pytest.raises(SettingsError, match="foltr device enrol") as caught:
        read_credentials(file, "device")
    assert str(file) in str(caught.value)
    assert "()" not in str(caught.value)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"signing_key": "XSECRETX"}, "signing_key"),
        ({"signing_key": DEVICE.to_text()[:-8]}, "signing_key"),
        ({"enrolment_key": "XSECRETX"}, "enrolment_key"),
        ({"federator_key": ""}, "federator_key"),
        ({"enrolment": "XSECRETX!"}, "enrolment"),
        ({"policy": "XSECRETX!"}, "policy"),
        ({"federation": "a/b"}, "federation"),
        ({"broker": {"broker_url": "x", "pasword": "XSECRETX"}}, "broker.pasword"),
        ({"more": "XSECRETX"}, "more"),
    ],
)
def test_a_damaged_file_names_the_field_and_no_value(path, fields, named):
    """What is wrong can be found, and what is secret is not told, not even by a traceback."""
    with pytest.raises(SettingsError) as caught:
        read_credentials(rewritten(path, **fields), "device")
    assert named in str(caught.value)
    text = "".join(traceback.format_exception(caught.value))
    assert not any(secret in text for secret in (*SECRETS, "XSECRETX", DEVICE.to_text()[:-8]))


def test_a_public_key_is_read_from_the_text_or_a_file_of_it(tmp_path):
    file = tmp_path / "device.pub"
    for written in (DEVICE.public.hex(), DEVICE.public.hex().upper(), f"  {key_to_text(DEVICE.public)}\n"):
        file.write_text(written)
        assert public_key_from(str(file)) == DEVICE.public
        assert public_key_from(written.strip()) == DEVICE.public
    for text in ("", "device-7", "ab" * 31, "zz" * 32, "é" * 64, "x" * 5000, "a\0b", "."):
        with pytest.raises(SettingsError, match=r"public_key: .*64 hexadecimal digits"):
            public_key_from(text)


def test_secrets_are_in_no_text_form_and_no_validation_error():
    """A logged object shows no secret; an error names the wrong field, not its value."""
    for text in (repr(CREDENTIALS), str(CREDENTIALS), f"{CREDENTIALS}", repr([ACCESS]), str(ACCESS)):
        assert not any(secret in text for secret in SECRETS)
    assert "s3cret" not in repr(BrokerAccess(broker_url="mqtt://user:s3cret@host"))
    fields = CREDENTIALS.model_dump()
    for wrong in (
        {"signing_key": ["XSECRETX"]},
        {"broker": {**fields["broker"], "password": ["XSECRETX"]}},
        {"broker": {**fields["broker"], "key": ["XSECRETX"]}},
    ):
        with pytest.raises(ValidationError) as caught:
            Credentials.model_validate({**fields, **wrong})
        assert "XSECRETX" not in str(caught.value)


def test_a_secret_is_its_owners_alone_from_the_first_byte(tmp_path, monkeypatch):
    """0600 whatever the umask allows, in folders that are made for it; not overwritten unless that is asked for."""
    modes = []
    monkeypatch.setattr("os.fsync", lambda file: modes.append(stat.S_IMODE(os.fstat(file).st_mode)))
    path = tmp_path / "a" / "b" / "secret"
    write_secret(path, "text")
    assert modes[0] == 0o600
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_text() == "text"
    path = tmp_path / "secret"
    write_secret(path, "old")
    with pytest.raises(SettingsError, match="exists"):
        write_secret(path, "new")
    assert path.read_text() == "old"
    path.chmod(0o644)
    write_secret(path, b"new", replace=True)
    assert path.read_bytes() == b"new"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch):
    """A full disk is an error with a reason, and a place that cannot be written one with its name."""
    path = tmp_path / "secret"
    write_secret(path, "old")

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(SettingsError, match="No space left on device"):
        write_secret(path, "new", replace=True)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingsError, match="file"):
        write_secret(tmp_path / "file" / "secret", "text")
