"""An operator's folder gets another enrolment key in place, wherever that is interrupted."""

import base64
from contextlib import suppress

import pytest

from foltr.core.errors import SettingsError
from foltr.core.operator import credentials as credentials_module
from foltr.core.operator import enrolment_rotation, register
from foltr.core.operator.credentials import BrokerAccess, read_credentials
from foltr.core.operator.enrolment_rotation import begin_rotation
from foltr.core.operator.folder import create_authority, open_authority
from foltr.core.operator.register import read_enrolment_key
from foltr.core.protocol.enrolment import read_enrolment, read_federator_key, read_roster
from foltr.core.protocol.orders import OrderAnswer, OrderReply
from foltr.core.protocol.states import Privacy
from foltr.core.protocol.topics import Topics

BROKER = BrokerAccess(broker_url="mqtt://127.0.0.1:1883")


@pytest.fixture
def folder(tmp_path):
    with create_authority(tmp_path / "operator", "mail", federator=BROKER, operator=BROKER) as authority:
        authority.enrol("device-0", BROKER)
    return tmp_path / "operator"


def begin(authority):
    return begin_rotation(authority.folder, authority.register, authority.orders, authority.operator)


def obeyed(authority, signed):
    """The federator has done as the order says."""
    fields = {"number": signed.number, "digest": signed.digest, "reply": OrderReply.OBEYED, "newest": signed.number}
    authority.record_answer(signed, OrderAnswer(federation="mail", **fields), b"")


def rotate(folder):
    """As the command does: order, and open the folder anew; the federator has obeyed."""
    with open_authority(folder) as authority:
        signed = begin(authority)
    with open_authority(folder) as authority:
        obeyed(authority, signed)
    return signed


def is_whole(folder, devices):
    """Whether everybody believes the newest key, and every device is enrolled still."""
    with open_authority(folder) as authority:
        key = read_enrolment_key(folder).public
        messages = dict(authority.unpublished())
        assert read_roster(authority.roster(), key, "mail").version == authority.register.roster_version
        newest = [device.with_succession(messages[Topics("mail").operator_key]) for device in devices]
    federator = read_credentials(folder / "federator.json", "federator")
    assert {each.enrolment_public_key for each in (federator, *newest)} == {key}
    for device in newest:
        shown = base64.b64decode(device.enrolment)
        assert read_enrolment(shown, federator.operator_keys, "mail", device.name).public_key == device.key.public
    assert list(folder.glob("*next*")) == []


def test_devices_of_every_key_stay_enrolled(folder):
    """Over two rotations; and what the register says of them is what they carry."""
    devices = []
    for i in (1, 2):
        with open_authority(folder) as authority:
            devices.append(authority.enrol(f"device-{i}", BROKER))
        rotate(folder)
        is_whole(folder, devices)


def test_pinned_devices_stay_enrolled_and_pinned(tmp_path):
    """The pin is part of what is kept; those that are enrolled with the new key have it, too."""
    folder = tmp_path / "operator"
    secure = {"federator": BROKER, "operator": BROKER, "privacy": Privacy.SECURE}
    with create_authority(folder, "mail", **secure) as authority:
        before = authority.enrol("device-1", BROKER)
    rotate(folder)
    with open_authority(folder) as authority:
        after = authority.enrol("device-2", BROKER)
        succession = dict(authority.unpublished())[Topics("mail").operator_key]
        assert read_credentials(folder / "federator.json", "federator").privacy is Privacy.SECURE
        assert authority.operator.privacy is Privacy.SECURE
    is_whole(folder, [before])
    assert before.is_pinned
    assert before.with_succession(succession).is_pinned
    assert after.is_pinned


def test_who_was_revoked_or_replaced_is_not_kept(folder):
    with open_authority(folder) as authority:
        revoked = authority.enrol("device-1", BROKER)
        replaced = authority.enrol("device-2", BROKER)
        authority.enrol("device-2", BROKER, replace=True)
        order = authority.revoke("device-1")
        obeyed(authority, order)
    rotate(folder)
    keys = read_credentials(folder / "federator.json", "federator").operator_keys
    for device in (revoked, replaced):
        with pytest.raises(Exception, match="not one of this client"):
            read_enrolment(base64.b64decode(device.enrolment), keys, "mail", device.name)


@pytest.mark.parametrize("n_writes", range(8))
def test_it_is_completed_wherever_it_was_interrupted(folder, interrupted, n_writes):
    """Opening the folder again is all it takes; nothing is signed by a key that is lost."""
    with open_authority(folder) as authority:
        devices = [authority.enrol("device-1", BROKER)]
        begin(authority)
    modules = (credentials_module, enrolment_rotation, register)
    with interrupted(n_writes, *modules), suppress(KeyboardInterrupt), open_authority(folder):
        pass
    is_whole(folder, devices)


def test_interrupted_before_the_order_nothing_has_changed(folder):
    """The next key waits; it is taken up by the command that is given again."""
    before = read_enrolment_key(folder).public
    with open_authority(folder) as authority:
        begin(authority)
    (order,) = (folder / "orders").glob("*.order")
    order.unlink()
    with open_authority(folder) as authority:
        assert authority.operator.enrolment_public_key == before
        waiting = (folder / "enrolment-next.key").read_text()
        begin(authority)
    with open_authority(folder):
        assert (folder / "enrolment.key").read_text() == waiting


def test_what_is_unanswered_comes_first(folder):
    """The new key would not sign it; and the federator's file has to be there, as it is to believe the new key."""
    with open_authority(folder) as authority:
        authority.deadline(1, 10.0)
        with pytest.raises(SettingsError, match="unanswered"):
            begin(authority)
        (folder / "federator.json").rename(folder / "elsewhere.json")
        with pytest.raises(SettingsError, match="federator"):
            begin(authority)


def test_a_file_that_is_not_the_newest_federators_is_refused_before_anything_is_ordered(folder, tmp_path):
    """Once it is ordered the folder cannot be opened without that file."""
    elsewhere = tmp_path / "elsewhere"
    with create_authority(elsewhere, "mail", federator=BROKER, operator=BROKER):
        pass
    path = folder / "federator.json"
    former = path.read_bytes()
    with open_authority(folder) as authority:
        order = authority.rotate_federator_key(BROKER)
        obeyed(authority, order)
    newest = path.read_bytes()
    for wrong, mode in (((elsewhere / "federator.json").read_bytes(), 0o600), (former, 0o600), (newest, 0o644)):
        path.write_bytes(wrong)
        path.chmod(mode)
        with open_authority(folder) as authority, pytest.raises(SettingsError, match=r"federator\.json"):
            begin(authority)
    path.chmod(0o600)
    rotate(folder)
    is_whole(folder, [])


def test_the_federators_key_is_rotated_before_and_after(folder):
    """What the former key stated counts still, and the file of the next federator key keeps who is enrolled."""
    with open_authority(folder) as authority:
        device = authority.enrol("device-1", BROKER)
        order = authority.rotate_federator_key(BROKER)
        obeyed(authority, order)
    rotate(folder)
    federator = read_credentials(folder / "federator.json", "federator")
    statement = (folder / "federator-key.bin").read_bytes()
    assert read_federator_key(statement, federator.operator_keys, "mail").new_key == federator.federator_public_key
    with open_authority(folder) as authority:
        authority.rotate_federator_key(BROKER)
    is_whole(folder, [device])
