"""A broker with everything it needs: what is written, for whose eyes, and what stays when it is done again."""

import json
import os
import shutil

import pytest
from cryptography import x509
from support.broker_folders import HOSTS, Folders

from foltr.broker.address import BrokerAddress
from foltr.broker.broker_records import BrokerRecord, Mode, read_access, read_record
from foltr.broker.certificates import KeyPair, create_authority, issue_revocations, issue_server, serial_of
from foltr.broker.passwords import accepts, users
from foltr.broker.provision import reload_broker
from foltr.broker.users import provision_users, withdraw_user
from foltr.core.errors import SettingsError, UnavailableError


@pytest.fixture
def folders(tmp_path):
    return Folders(tmp_path)


def provision_user(folder, name):
    """Let one device in."""
    return provision_users(folder, [name])[name]


def test_everything_is_there(folders):
    """Nothing has to be made by hand before the broker starts."""
    record = folders.provision()
    assert set(folders.contents()) == {
        *("mosquitto.conf", "foltr_subscriptions.so", "acl", "passwords", "ca.crt", "server.crt", "server.key"),
        *("operator/ca.crt", "operator/ca.key", "operator/broker.json"),
        *("operator/federator.broker.json", "operator/operator.broker.json", "operator/desk.broker.json"),
    }
    assert (folders.broker / "data").is_dir()
    assert record == BrokerRecord("fed", "mqtts://localhost:8883", Mode.PASSWORDS, str(folders.broker))
    assert read_record(folders.operator) == record


def test_a_broker_that_keeps_its_sessions_elsewhere_is_found_there(folders, tmp_path):
    """Its pid is beside them: a record that did not say where would have nobody told."""
    record = folders.provision(data_dir=tmp_path / "elsewhere", hosts=["::1", "localhost"])
    assert record.data_dir == str(tmp_path / "elsewhere")
    assert record.broker_url == "mqtts://[::1]:8883"  # the first host's
    assert read_record(folders.operator) == record
    assert f"pid_file {tmp_path / 'elsewhere' / 'mosquitto.pid'}" in (folders.broker / "mosquitto.conf").read_text()


def test_secrets_are_for_one_pair_of_eyes(folders):
    """Keys, hashes and credentials; and nobody enters the operator's folder."""
    folders.provision()
    assert folders.operator.stat().st_mode & 0o777 == 0o700
    for path in (
        *(folders.broker / name for name in ("server.key", "passwords", "acl")),
        *(folders.operator / name for name in ("ca.key", "broker.json", "federator.broker.json")),
    ):
        assert path.stat().st_mode & 0o777 == 0o600, path
    # Who breaks into the broker can make no users.
    key = (folders.operator / "ca.key").read_text()
    assert all(key.encode() not in path.read_bytes() for path in folders.broker.rglob("*") if path.is_file())


def test_the_services_have_credentials(folders):
    """Each its own, for this broker, with its authority; they fit the credentials file of foltr."""
    folders.provision()
    federator, operator = (read_access(folders.operator / f"{name}.broker.json") for name in ("federator", "operator"))
    assert (federator.username, operator.username) == ("@federator", "@operator")
    assert federator.password != operator.password
    assert accepts(folders.broker / "passwords", "@federator", federator.password)
    assert BrokerAddress.of(federator).tls_material.ca == (folders.operator / "ca.crt").read_text()
    assert federator.password not in repr(federator)


def test_a_broker_asks_for_certificates_or_for_passwords(folders):
    """When forced the one becomes the other; the authority stays, and services get what the broker now asks for."""
    assert folders.provision(Mode.MTLS).mode is Mode.MTLS
    assert not (folders.broker / "passwords").exists()
    ca, access = (folders.operator / "ca.crt").read_text(), folders.operator / "federator.broker.json"
    federator = read_access(access)
    assert (federator.password, federator.ca) == (None, ca)
    assert federator.certificate is not None
    assert "PRIVATE" not in repr(federator)
    folders.provision(force=True)
    federator = read_access(access)
    assert (federator.certificate, federator.ca) == (None, ca)
    assert accepts(folders.broker / "passwords", "@federator", federator.password)


@pytest.mark.parametrize("access", ["passwords", "mtls"])
def test_again_changes_nothing(folders, access):
    """Keys, users, passwords and certificates: byte for byte, also when a change is forced."""
    folders.provision(access)
    provision_user(folders.operator, "device-1")
    before = folders.contents()
    folders.provision(access)
    folders.provision(access, force=True)
    assert folders.contents() == before


def test_other_hosts_renew_the_brokers_certificate_only(folders):
    """Users stay; their address is the new one."""
    folders.provision()
    before = folders.contents()
    folders.provision(hosts=["broker.example"])
    after = folders.contents()
    changed = {name for name, text in after.items() if text != before[name]}
    assert changed == {
        *("server.crt", "server.key"),
        *("operator/broker.json", "operator/federator.broker.json", "operator/operator.broker.json"),
        "operator/desk.broker.json",
    }
    kept, now = (json.loads(texts["operator/federator.broker.json"]) for texts in (before, after))
    assert now == {**kept, "broker_url": "mqtts://broker.example:8883"}


def test_a_certificate_near_its_end_is_renewed(folders):
    """A month before; the authority is the same."""
    folders.provision()
    authority = KeyPair(*((folders.operator / name).read_text() for name in ("ca.crt", "ca.key")))
    old = issue_server(authority, HOSTS, days=29)
    (folders.broker / "server.crt").write_text(old.certificate_pem)
    (folders.broker / "server.key").write_text(old.key_pem)
    folders.provision()
    assert (folders.broker / "server.crt").read_text() != old.certificate_pem
    assert (folders.operator / "ca.crt").read_text() == authority.certificate_pem


def test_a_lost_password_file_is_made_anew(folders):
    """The services' passwords still count; the devices have to be enrolled again."""
    folders.provision()
    before = read_access(folders.operator / "federator.broker.json")
    (folders.broker / "passwords").unlink()
    folders.provision()
    after = read_access(folders.operator / "federator.broker.json")
    assert accepts(folders.broker / "passwords", "@federator", after.password)
    assert (after.username, after.ca) == (before.username, before.ca)


@pytest.mark.parametrize("lost", ["ca.key", "ca.crt"])
def test_an_authority_is_never_replaced(folders, lost):
    """Not half of it, not because another folder was named, not by force: it would lock every user out."""
    folders.provision()
    (folders.operator / lost).unlink()
    before = folders.contents()
    with pytest.raises(SettingsError, match=rf"{lost}.*missing"):
        folders.provision(force=True)
    folders.operator = folders.operator.with_name("another")
    with pytest.raises(SettingsError, match=r"ca\.crt.*--operator"):
        folders.provision(force=True)
    assert {name: text for name, text in folders.contents().items() if not name.startswith("operator/")} == {
        name: text for name, text in before.items() if not name.startswith("operator/")
    }


def test_an_operators_folder_is_one_federations_and_one_brokers(folders):
    """With --force, too: taking it over would lock out every user of the other one."""
    folders.provision()
    before = folders.contents()
    with pytest.raises(SettingsError, match="belongs to the federation"):
        folders.provision(federation="other", force=True)
    first, folders.broker = folders.broker, folders.broker.with_name("another")
    with pytest.raises(SettingsError, match="--operator"):
        folders.provision(force=True)
    assert not folders.broker.exists()
    folders.broker = first
    assert folders.contents() == before


@pytest.mark.parametrize("change", [{"mode": Mode.MTLS}, {"port": 8884}])
def test_another_broker_in_its_place_must_be_asked_for(folders, change):
    """With another way in, or elsewhere, it is another broker."""
    folders.provision()
    before = folders.contents()
    with pytest.raises(SettingsError, match="--force"):
        folders.provision(**change)
    assert folders.contents() == before
    folders.provision(**change, force=True)


def test_the_operators_folder_is_not_the_brokers(folders):
    """The authority's key would be where Mosquitto is broken into first."""
    for where in (".", "inside", "inside/deeper"):
        folders.operator = folders.broker / where
        with pytest.raises(SettingsError, match="--operator"):
            folders.provision()
        assert not folders.broker.exists()


def test_a_folder_that_others_enter_is_not_taken(folders):
    """Nor closed without asking: it may be anybody's. An empty one is closed."""
    folders.operator.mkdir(mode=0o755)
    (folders.operator / "something").write_text("")
    with pytest.raises(SettingsError, match="chmod 700"):
        folders.provision()
    (folders.operator / "something").unlink()
    folders.provision()
    assert folders.operator.stat().st_mode & 0o777 == 0o700


def test_a_wrong_setting_starts_no_broker(folders):
    """There is no configuration to start one with."""
    for wrong in ({"hosts": []}, {"hosts": ["a b"]}, {"federation": "a/b"}, {"port": 0}):
        with pytest.raises(SettingsError):
            folders.provision(**wrong)
        assert not (folders.broker / "mosquitto.conf").exists(), wrong


def test_a_folder_that_cannot_be_made_is_named(folders):
    """With the options that name another."""
    folders.operator.write_text("taken")
    with pytest.raises(UnavailableError, match=r"operator.*--operator"):
        folders.provision()


def test_a_folder_without_a_record_is_said_so(folders):
    """With the command that writes one."""
    folders.operator.mkdir()
    for text in (None, "", "[]", "{}", '{"mode": "open"}'):
        if text is not None:
            (folders.operator / "broker.json").write_text(text)
        for ask in (reload_broker, read_record, lambda folder: provision_user(folder, "device-1")):
            with pytest.raises(SettingsError, match=r"broker\.json.*foltr broker config"):
                ask(folders.operator)


def test_users_come_and_go(folders):
    """One or many at a time; who comes again gets a new password, and the old one is void."""
    folders.provision()
    file = folders.broker / "passwords"
    first = provision_user(folders.operator, "device-1")
    again = provision_user(folders.operator, "device-1")
    many = provision_users(folders.operator, ["device-2", "device-3"])
    assert users(file) == {"@desk", "@federator", "@operator", "device-1", "device-2", "device-3"}
    assert not accepts(file, "device-1", first.password)
    assert accepts(file, "device-1", again.password)
    assert accepts(file, "device-3", many["device-3"].password)
    assert again.broker_url == "mqtts://localhost:8883"
    assert withdraw_user(folders.operator, "device-1")
    assert withdraw_user(folders.operator, "device-1")
    assert "device-1" not in users(file)


def listed(folder):
    """The numbers of the certificates that count no more."""
    return {entry.serial_number for entry in x509.load_pem_x509_crl((folder / "ca.crl").read_bytes())}


def test_a_certificate_is_withdrawn_by_a_list(folders):
    """Every one that the device was given, also before it was enrolled anew; what others have stays."""
    folders.provision(Mode.MTLS)
    assert listed(folders.broker) == set()
    first, other = (serial_of(provision_user(folders.operator, f"device-{n}").certificate) for n in (1, 2))
    second = serial_of(provision_user(folders.operator, "device-1").certificate)
    assert listed(folders.broker) == {first}
    assert withdraw_user(folders.operator, "device-1")
    assert withdraw_user(folders.operator, "device-1")
    assert listed(folders.broker) == listed(folders.operator) == {first, second}
    assert other not in listed(folders.broker)
    assert "device-1" not in (folders.operator / "certificates.json").read_text()
    folders.provision(Mode.MTLS)
    assert listed(folders.broker) == {first, second}
    # With a list that is out of date the broker would let nobody in.
    signed = x509.load_pem_x509_crl((folders.broker / "ca.crl").read_bytes())
    authority = x509.load_pem_x509_certificate((folders.broker / "ca.crt").read_bytes())
    assert signed.next_update_utc == authority.not_valid_after_utc
    assert signed.is_signature_valid(authority.public_key())


def test_a_list_waits_in_the_operators_folder_for_a_broker_elsewhere(folders):
    """The caller is told that the device still gets in."""
    folders.provision(Mode.MTLS)
    serial = serial_of(provision_user(folders.operator, "device-1").certificate)
    folders.broker.rename(folders.broker.with_name("elsewhere"))
    assert withdraw_user(folders.operator, "device-1") is False
    assert listed(folders.operator) == {serial}


def test_a_list_of_another_authority_is_refused(folders):
    """Nobody is forgotten silently because a file was mixed up."""
    folders.provision(Mode.MTLS)
    provision_user(folders.operator, "device-1")
    other = create_authority("another")
    (folders.operator / "ca.crl").write_text(issue_revocations(other, [1], None))
    with pytest.raises(SettingsError, match="another authority's"):
        withdraw_user(folders.operator, "device-1")


def test_no_device_gets_a_name_with_rights(folders):
    """The services' names, and what means something in a topic or in the file, are no device names."""
    folders.provision()
    before = folders.contents()
    for name in ("@operator", "@federator", "a:b", "a/b", "+", "#", "%u", "", "a\nb", "a" * 65):
        for change in (provision_user, withdraw_user):
            with pytest.raises(SettingsError, match="name"):
                change(folders.operator, name)
    assert folders.contents() == before


def test_a_user_is_let_in_at_the_brokers_machine(folders):
    """Elsewhere the password file cannot be written, and that is said."""
    folders.provision()
    shutil.rmtree(folders.broker)
    with pytest.raises(UnavailableError, match="broker's machine"):
        provision_user(folders.operator, "device-1")


def test_a_broker_that_does_not_run_is_not_told(folders):
    """Nor a process that happens to have the number it had, or the same name, or is everybody's."""
    folders.provision()
    pid_file = folders.broker / "data" / "mosquitto.pid"
    assert not reload_broker(folders.operator)
    for text in ("", "x", "0", "-1", "1", str(os.getpid()), "999999999"):
        pid_file.write_text(text)
        assert not reload_broker(folders.operator)
