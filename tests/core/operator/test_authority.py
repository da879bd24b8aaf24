"""The operator's folder: no serial twice, nothing half done, one operator at a time, and a key nobody sees."""

import json
import stat
import subprocess
import sys
import traceback

import pytest
from support.waiting import PATIENCE_S

from foltr.core.errors import SettingsError
from foltr.core.operator import authority, register
from foltr.core.operator import credentials as credentials_module
from foltr.core.operator import folder as folder_module
from foltr.core.operator.credentials import FEDERATOR_USER, OPERATOR_USER, BrokerAccess, read_credentials
from foltr.core.operator.folder import create_authority, is_authority, open_authority
from foltr.core.protocol.enrolment import read_enrolment, read_roster
from foltr.core.protocol.orders import LiftQuarantine, QuarantineClient, RevokeClient, SetDeadline
from foltr.core.protocol.roster import Revocation
from foltr.core.protocol.signed_orders import read_order
from foltr.core.protocol.signing import SigningKey, key_from_text, key_to_text

BROKER = BrokerAccess(broker_url="mqtt://127.0.0.1:1883")
ELSEWHERE = BrokerAccess(broker_url="mqtts://broker.example:8883", username="u", password="p")  # noqa: S106 (not one)


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "operator"


def created(folder, federation="mail", **options):
    return create_authority(folder, federation, federator=BROKER, operator=BROKER, **options)


def revoked(payload, operator, federation="mail"):
    return read_roster(payload, operator.enrolment_public_key, federation).revoked


def test_the_first_use_makes_everything(folder):
    """A key, a register, and credentials that believe that key, closed to all others; using it again keeps them."""
    with created(folder) as operator:
        assert operator.federation == "mail"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for name in ("enrolment.key", "register.json", "federator.json", "operator.json"):
        assert stat.S_IMODE((folder / name).stat().st_mode) == 0o600
    public = key_from_text("enrolment.pub", (folder / "enrolment.pub").read_text())
    federator = read_credentials(folder / "federator.json", "federator")
    mine = read_credentials(folder / "operator.json", "operator")
    assert (federator.name, mine.name) == (FEDERATOR_USER, OPERATOR_USER)
    for credentials in (federator, mine):
        assert credentials.federation == "mail"
        assert credentials.broker == BROKER
        assert credentials.enrolment_public_key == public
        assert credentials.federator_public_key == federator.key.public
    with created(folder):
        before = {path.name: path.read_bytes() for path in folder.iterdir()}
    with create_authority(folder, "mail", federator=ELSEWHERE, operator=ELSEWHERE) as operator:
        assert operator.operator.broker == BROKER
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_nothing_in_the_folder_but_the_enrolment_key_can_enrol_or_use_a_devices_key(folder):
    """The enrolment key is in its own file alone; only a device has its key: the operator can void it, not use it."""
    with created(folder) as operator:
        secret = operator.enrol("device-7", BROKER).signing_key
        operator.roster()
    key = (folder / "enrolment.key").read_text().strip()
    assert [path.name for path in folder.iterdir() if key in path.read_text(errors="replace")] == ["enrolment.key"]
    with open_authority(folder) as operator:
        assert operator.operator.key.public != operator.operator.enrolment_public_key
    assert not any(secret in path.read_text(errors="replace") for path in folder.iterdir())


def test_another_federations_folder_is_refused(folder):
    with created(folder):
        pass
    for use in (created(folder, "post"), open_authority(folder, "post")):
        with pytest.raises(SettingsError, match=r"^federation: .*'mail', not of 'post'"), use:
            pass
    with open_authority(folder, "mail"), pytest.raises(SettingsError, match="federation"):
        created(folder, "a/b").__enter__()


def test_looking_makes_no_folder_and_one_that_others_can_enter_is_refused(folder):
    """A typo in --operator is an error, not an empty authority; nobody's folder is closed without asking."""
    with pytest.raises(SettingsError, match="foltr device enrol"), open_authority(folder):
        pass
    assert not folder.exists()
    assert not is_authority(folder)
    folder.mkdir()
    folder.chmod(0o755)
    with pytest.raises(SettingsError, match="chmod 700"), created(folder):
        pass
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("n_writes", range(5))
def test_an_interrupted_start_is_resumed(folder, interrupted, n_writes):
    """Whichever file was the last that was written, the next use completes the folder."""
    modules = (credentials_module, folder_module, register)
    with interrupted(n_writes, *modules), pytest.raises(KeyboardInterrupt), created(folder):
        pass
    with created(folder) as operator:
        operator.enrol("device-7", BROKER)
        federator = read_credentials(folder / "federator.json", "federator")
        assert operator.operator.federator_public_key == federator.key.public


def test_an_enrolled_device_can_prove_it(folder):
    """Its enrolment names its key, signed by the operator it believes; a key that it keeps is in no credentials."""
    with created(folder) as operator:
        credentials = operator.enrol("device-7", ELSEWHERE)
        assert (credentials.role, credentials.name, credentials.federation) == ("device", "device-7", "mail")
        assert credentials.broker == ELSEWHERE
        assert credentials.federator_public_key == operator.operator.federator_public_key
    enrolment = read_enrolment(credentials.enrolment_bytes, credentials.enrolment_public_key, "mail", "device-7")
    assert enrolment.public_key == credentials.key.public
    assert enrolment.serial == 1
    own = SigningKey.generate()
    with open_authority(folder) as operator:
        visitor, other = operator.enrol_all(dict.fromkeys(("visitor", "other"), BROKER), kept={"visitor": own.public})
        assert operator.register.enrolled["visitor"].public_key == key_to_text(own.public)
    enrolment = read_enrolment(visitor.enrolment_bytes, visitor.enrolment_public_key, "mail", "visitor")
    assert (enrolment.public_key, visitor.signing_key) == (own.public, None)
    assert other.key.public not in (own.public, None)


def test_a_client_is_not_enrolled_twice_by_mistake(folder):
    """Nor one of several, and then none of them; nor one that was revoked, nor under a name that is none."""
    with created(folder) as operator:
        for name in ("", "a/b", "@operator"):
            with pytest.raises(SettingsError, match=r"^client: "):
                operator.enrol(name, BROKER)
        operator.enrol("device-7", BROKER)
        before = operator.register
        with pytest.raises(SettingsError, match=r"device-7 is enrolled.*--replace"):
            operator.enrol_all({"device-8": BROKER, "device-7": BROKER})
        assert operator.register == before
        operator.revoke("device-7")
        with pytest.raises(SettingsError, match=r"device-7 was revoked.*--replace"):
            operator.enrol("device-7", BROKER)


def test_a_new_key_voids_the_old_one(folder):
    """With ``replace`` the serial is higher, the key another, and the old serial in the roster; also once revoked."""
    with created(folder) as operator:
        old = operator.enrol("device-7", BROKER)
        new = operator.enrol("device-7", BROKER, replace=True)
        assert revoked(operator.roster(), operator.operator) == [Revocation(client_id="device-7", void_below=2)]
        assert old.key.public != new.key.public
        operator.revoke("device-7")
        operator.enrol("device-7", BROKER, replace=True)
        assert revoked(operator.roster(), operator.operator) == [Revocation(client_id="device-7", void_below=3)]
        assert operator.register.enrolled["device-7"].serial == 3


def test_revoking_voids_every_serial_so_far_and_raises_the_version(folder):
    """The roster says so as well as the order; a revocation is repeated without effect, and none is of a typo."""
    with created(folder) as operator:
        operator.enrol_all({"a": BROKER, "b": BROKER, "c": BROKER})
        before = read_roster(operator.roster(), operator.operator.enrolment_public_key, "mail")
        order = operator.revoke("b")
        after = read_roster(operator.roster(), operator.operator.enrolment_public_key, "mail")
    assert order.order == RevokeClient(federation="mail", client_id="b", void_below=3)
    assert before.revoked == []
    assert after.revoked == [Revocation(client_id="b", void_below=3)]
    assert after.version > before.version
    assert (before.through, after.through) == (0, order.number)
    with created(folder) as operator:
        before = operator.register
        assert operator.revoke("b") is None
        assert operator.register == before
        assert operator.orders.newest == 1
        with pytest.raises(SettingsError, match=r"'d' is not enrolled.*foltr operator roster"):
            operator.revoke("d")


def test_no_two_rosters_share_a_version(folder):
    """One version has the same bytes at any time, from any use of the folder, also in ``roster.bin``."""
    rosters = {}
    with created(folder) as operator:
        for step in (
            lambda: operator.enrol("a", BROKER),
            lambda: operator.enrol("b", BROKER),
            lambda: operator.enrol("a", BROKER, replace=True),
            lambda: operator.revoke("b"),
        ):
            step()
            rosters[operator.register.roster_version] = operator.roster()
            assert (folder / "roster.bin").read_bytes() == operator.roster()
    assert len(rosters) == 3  # enrolling somebody new changes none
    with open_authority(folder) as operator:
        assert operator.roster() == rosters[max(rosters)]


def test_a_quarantine_is_ordered_with_a_reason_and_lifted_without(folder):
    """What the federator will store and show; nothing that a terminal would obey is signed."""
    with created(folder) as operator:
        assert operator.deadline(4, 90).order == SetDeadline(federation="mail", round=4, max_time_s=90)
        signed = operator.quarantine("device-7", "it flips signs"), operator.lift_quarantine("device-7")
        key = operator.operator.enrolment_public_key
        for reason in ("", "x" * 501, "\x1b[31m"):
            with pytest.raises(SettingsError, match="reason: say why"):
                operator.quarantine("device-7", reason)
        with pytest.raises(SettingsError, match="client"):
            operator.lift_quarantine("a/b")
        operator.enrol("device-8", BROKER)
        for reason in ("copies device-8.", "device-7: it flips signs"):
            with pytest.raises(SettingsError, match=r"'device-[78]' is the name of a client.*without naming anybody"):
                operator.quarantine("device-7", reason)
        assert operator.quarantine("device-7", "device-88 is nobody")
    first, second = (read_order(order.payload, key, "mail").order for order in signed)
    assert first == QuarantineClient(federation="mail", client_id="device-7", reason="it flips signs")
    assert second == LiftQuarantine(federation="mail", client_id="device-7")


def test_the_services_learn_of_another_broker(folder):
    """Keys and all else stay; without a change nothing is written, and a file that was moved away is not made again."""
    with created(folder) as operator:
        before = read_credentials(folder / "federator.json", "federator")
        changed = operator.refresh_access(federator=ELSEWHERE, operator=ELSEWHERE)
        assert [path.name for path in changed] == ["federator.json", "operator.json"]
        assert operator.operator.broker == ELSEWHERE
        assert operator.refresh_access(federator=ELSEWHERE, operator=ELSEWHERE) == []
    after = read_credentials(folder / "federator.json", "federator")
    assert after == before.model_copy(update={"broker": ELSEWHERE})
    assert read_credentials(folder / "operator.json", "operator").broker == ELSEWHERE
    (folder / "federator.json").unlink()
    with created(folder) as operator:
        operator.enrol("b", BROKER)
        changed = operator.refresh_access(federator=BROKER, operator=BROKER)
        assert [path.name for path in changed] == ["operator.json"]
    assert not (folder / "federator.json").exists()


def test_a_register_that_cannot_be_written_enrols_nobody(folder, monkeypatch):
    """The caller gets no credentials, and the register is the one on disk."""
    with created(folder) as operator:
        before = operator.register
        monkeypatch.setattr("os.fsync", _full)
        with pytest.raises(SettingsError, match="No space left"):
            operator.enrol("a", BROKER)
        monkeypatch.undo()
        assert operator.register == before
        assert operator.enrol("a", BROKER)


def _full(_):
    raise OSError(28, "No space left on device")


def test_a_roster_that_was_not_written_is_made_again(folder, monkeypatch):
    """The register was written first: the serial is spent, and the next use repairs the rest."""
    write = authority.write_secret

    def no_roster(path, *arguments, **options):
        if path.name == "roster.bin":
            raise KeyboardInterrupt
        write(path, *arguments, **options)

    with created(folder) as operator:
        operator.enrol("a", BROKER)
        monkeypatch.setattr(authority, "write_secret", no_roster)
        with pytest.raises(KeyboardInterrupt):
            operator.revoke("a")
        monkeypatch.undo()
    with open_authority(folder) as operator:
        assert revoked(operator.roster(), operator.operator) == [Revocation(client_id="a", void_below=2)]
        assert (folder / "roster.bin").read_bytes() == operator.roster()


@pytest.mark.parametrize("name", ["register.json", "enrolment.key", "operator.json"])
def test_a_lost_file_is_no_new_authority_and_an_open_one_is_refused(folder, name):
    """New serials would start below those that devices carry, a new key would void them all."""
    with created(folder) as operator:
        operator.enrol("a", BROKER)
    (folder / name).chmod(0o644)
    with pytest.raises(SettingsError, match=f"chmod 600 .*{name}"), open_authority(folder):
        pass
    (folder / name).unlink()
    with pytest.raises(SettingsError, match=name), created(folder):
        pass
    assert not (folder / name).exists()


@pytest.mark.parametrize("text", ["", "{}", '{"federation": "mail", "salt": "", "enrolled": {"a/b": 1}}'])
def test_a_damaged_register_is_not_overwritten(folder, text):
    with created(folder):
        (folder / "register.json").write_text(text)
    with pytest.raises(SettingsError, match=r"register\.json is damaged .*backup"), created(folder):
        pass
    assert (folder / "register.json").read_text() == text


def test_keys_of_two_operators_are_not_mixed(folder, tmp_path):
    """A key from elsewhere would sign what nobody believes; it is in no text, nor in an error about its file."""
    with created(folder), created(tmp_path / "other"):
        own = (folder / "enrolment.key").read_text()
        (folder / "enrolment.key").write_text((tmp_path / "other" / "enrolment.key").read_text())
    with pytest.raises(SettingsError, match="not of one operator"), open_authority(folder):
        pass
    (folder / "enrolment.key").write_text(own)
    with created(folder) as operator:
        secret = (folder / "enrolment.key").read_text().strip()
        assert secret not in f"{operator!r} {operator.register!r} {operator.operator!r} {vars(operator)}"
    (folder / "enrolment.key").write_text(secret[:-4])
    with pytest.raises(SettingsError, match=r"enrolment\.key") as caught, open_authority(folder):
        pass
    assert secret[:20] not in "".join(traceback.format_exception(caught.value))


def test_the_second_of_two_operators_waits_and_then_is_told(folder):
    """The wait is bounded; once the first is done, the second gets in."""
    with created(folder):
        with (
            pytest.raises(SettingsError, match="in use by another foltr command"),
            open_authority(folder, lock_wait_s=0.1),
        ):
            pass
        with pytest.raises(SettingsError, match="in use"), created(folder, lock_wait_s=0.1):
            pass
    with open_authority(folder, lock_wait_s=0.1) as operator:
        assert operator.register.is_new


def test_operators_at_the_same_time_lose_nothing(folder):
    """Four processes, five enrolments each, from the very first: twenty clients with twenty serials."""
    program = """
import sys
from pathlib import Path
from foltr.core.operator.folder import create_authority
from foltr.core.operator.credentials import BrokerAccess
access = BrokerAccess(broker_url="mqtt://127.0.0.1:1883")
for i in range(5):
    with create_authority(Path(sys.argv[1]), "mail", federator=access, operator=access, lock_wait_s=240.0) as operator:
        operator.enrol(f"{sys.argv[2]}-{i}", access)
"""
    running = [subprocess.Popen([sys.executable, "-c", program, str(folder), f"operator{n}"]) for n in range(4)]
    assert [process.wait(PATIENCE_S) for process in running] == [0] * 4
    register = json.loads((folder / "register.json").read_text())
    assert len(register["enrolled"]) == 20
    assert sorted(device["serial"] for device in register["enrolled"].values()) == list(range(1, 21))
    assert register["next_serial"] == 21
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == [".lock"]
