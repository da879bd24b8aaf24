"""The access list as it is written, and who has lines of its own in it: helpers and ingest workers."""

import shutil
from dataclasses import dataclass

import pytest
from support.broker_folders import Folders

from foltr.broker.access import access_list
from foltr.broker.broker_records import REVOKED_NAME, read_record
from foltr.broker.listed_users import provision_helper, provision_worker, withdraw_worker
from foltr.broker.passwords import users
from foltr.core.errors import SettingsError, UnavailableError
from foltr.core.protocol.topics import ClientTopic


@pytest.fixture
def folders(tmp_path):
    return Folders(tmp_path)


@dataclass(frozen=True)
class Part:
    """What is let in, as whom, and where its name is kept."""

    let_in: object
    user: str
    field: str


PARTS = [Part(provision_helper, "@helper.north", "helpers"), Part(provision_worker, "@ingest.north", "workers")]


@pytest.fixture(params=PARTS, ids=["helper", "worker"])
def part(request):
    return request.param


def names_in(folders, part):
    return getattr(read_record(folders.operator), part.field)


@pytest.mark.parametrize("mode", ["passwords", "mtls"])
def test_it_is_let_in_as_itself(folders, part, mode):
    """As a user that no device can be, with lines of its own in the access list; again, it has a new way in."""
    folders.provision(mode)
    first, again = (part.let_in(folders.operator, "north") for _ in range(2))
    assert first.username == part.user
    assert (first.password, first.certificate) != (again.password, again.certificate)
    assert (folders.broker / "acl").read_text() == access_list("fed", **{part.field: ["north"]})
    assert names_in(folders, part) == ("north",)


def test_both_stay_when_the_broker_is_configured_again(folders):
    """The same command as before changes nothing, and needs no --force."""
    folders.provision()
    for let_in, name in [(provision_helper, "south"), (provision_worker, "1"), (provision_helper, "north")]:
        let_in(folders.operator, name)
    before = folders.contents()
    folders.provision()
    assert folders.contents() == before
    record = read_record(folders.operator)
    assert (record.helpers, record.workers) == (("north", "south"), ("1",))


def test_an_access_list_that_was_changed_by_hand_is_left_alone(folders, part):
    """The refusal says what to do; nobody is let in by half."""
    folders.provision()
    acl = folders.broker / "acl"
    acl.write_text(acl.read_text() + "user somebody\n")
    before = folders.contents()
    with pytest.raises(SettingsError, match=r"acl is not as .* writes it; .* --force"):
        part.let_in(folders.operator, "north")
    assert folders.contents() == before


def test_what_was_interrupted_is_done_again(folders, part):
    """The list was written, and the record not yet."""
    folders.provision()
    record = (folders.operator / "broker.json").read_text()
    part.let_in(folders.operator, "north")
    (folders.operator / "broker.json").write_text(record)
    part.let_in(folders.operator, "north")
    assert names_in(folders, part) == ("north",)


def test_a_broker_on_another_machine_is_refused(folders, part):
    """Where its files are, is said."""
    folders.provision()
    shutil.rmtree(folders.broker)
    with pytest.raises(UnavailableError, match="Run this on the broker's machine"):
        part.let_in(folders.operator, "north")


@pytest.mark.parametrize("mode", ["passwords", "mtls"])
def test_a_worker_that_is_withdrawn_leaves_nothing(folders, mode):
    """Neither a way in, nor a line of the access list, nor its name: others keep theirs, and it may come again."""
    folders.provision(mode)
    for name in ("north", "south"):
        provision_worker(folders.operator, name)
    before = (folders.broker / REVOKED_NAME).read_text() if mode == "mtls" else None
    assert withdraw_worker(folders.operator, "north")
    assert (folders.broker / "acl").read_text() == access_list("fed", workers=["south"])
    assert read_record(folders.operator).workers == ("south",)
    if mode == "mtls":
        assert (folders.broker / REVOKED_NAME).read_text() != before
    else:
        assert users(folders.broker / "passwords") >= {"@ingest.south"}
        assert "@ingest.north" not in users(folders.broker / "passwords")
    with pytest.raises(SettingsError, match="north has no access to this broker; workers with access: south"):
        withdraw_worker(folders.operator, "north")
    provision_worker(folders.operator, "north")
    assert read_record(folders.operator).workers == ("north", "south")


def test_a_withdrawal_that_was_interrupted_is_done_again(folders):
    """Behind each of its steps, the last of which is the record; a list that was changed by hand is left alone."""
    folders.provision()
    provision_worker(folders.operator, "1")
    record, acl = (folders.operator / "broker.json").read_text(), (folders.broker / "acl").read_text()
    for listed in (acl, access_list("fed")):
        withdraw_worker(folders.operator, "1")
        (folders.operator / "broker.json").write_text(record)
        (folders.broker / "acl").write_text(listed)
    (folders.broker / "acl").write_text(acl + "user somebody\n")
    before = folders.contents()
    with pytest.raises(SettingsError, match=r"acl is not as .* writes it; .* --force"):
        withdraw_worker(folders.operator, "1")
    assert folders.contents() == before


def test_patterns_are_of_a_users_own_topics():
    """All that a client writes; nothing of others; and no device reads that, or queues would fill for each."""
    lines = access_list("fed").splitlines()
    topics = set(ClientTopic) - {ClientTopic.INBOX}
    assert {f"pattern write foltr/v1/fed/clients/%u/{topic}" for topic in topics} <= set(lines)
    patterns = [line.split()[1:] for line in lines if line.startswith("pattern")]
    assert {access for access, _ in patterns} == {"read", "write"}
    written = {topic for access, topic in patterns if access == "write"}
    assert not written & {topic for access, topic in patterns if access == "read"}
    assert all("%u" in topic.split("/") for access, topic in patterns if access != "read")
    assert all("+" not in topic.partition("%u")[0] for access, topic in patterns if "clients" in topic)


def test_a_name_that_would_change_the_list_is_refused():
    """It comes from a command line and ends in a file of rights. Helpers are listed in one order."""
    for federation in ("", "a/b", "a+", "#", "a\nuser x", "a b"):
        with pytest.raises(SettingsError, match="federation"):
            access_list(federation)
    with pytest.raises(SettingsError, match="helper"):
        access_list("fed", ["a\nuser x"])
    assert access_list("fed", ["south", "north"]) == access_list("fed", ["north", "south"])
