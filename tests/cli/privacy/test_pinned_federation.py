"""Whether a federation is secure is chosen when the operator's folder is made, and signed of each device."""

import pytest
from cli.commands import foltr
from cli.privacy.test_policy import keys_of
from support.servers import free_port

from foltr.core.operator.credentials import read_credentials
from foltr.core.protocol.policies import NEW_POLICY
from foltr.core.protocol.states import Privacy


def enrol(folder, *arguments, whom="device"):
    where = ("--federation", "mail", "--broker", f"mqtt://127.0.0.1:{free_port()}")
    is_new = not (folder / "foltr-operator").exists()
    return foltr(whom, "enrol", *arguments, *(where if is_new else ()), cwd=folder)


def test_devices_of_a_secure_folder_are_pinned(tmp_path):
    """Before there is a policy, and all that are enrolled later; helpers and services carry no enrolment."""
    assert enrol(tmp_path, "device-1", "--privacy", "secure").returncode == 0
    assert enrol(tmp_path, "device-2").returncode == 0
    assert enrol(tmp_path, "device-1", "--replace", "--privacy", "secure").returncode == 0
    for name in ("device-1", "device-2"):
        assert read_credentials(tmp_path / f"{name}.json", "device").is_pinned
    operator, federator = (
        read_credentials(tmp_path / "foltr-operator" / f"{role}.json", role) for role in ("operator", "federator")
    )
    assert operator.privacy is federator.privacy is Privacy.SECURE


def test_devices_of_a_trusted_folder_are_not(tmp_path):
    """A folder is trusted unless told otherwise; a policy, or an enrolment, for the other kind is refused."""
    assert enrol(tmp_path, "device-1").returncode == 0
    assert not read_credentials(tmp_path / "device-1.json", "device").is_pinned
    assert enrol(tmp_path, "device-2", "--privacy", "trusted").returncode == 0
    for done in (enrol(tmp_path, "x", "--privacy", "secure"), foltr("policy", "new", *keys_of(tmp_path), cwd=tmp_path)):
        assert done.returncode == 2
        assert "was made for a trusted federation" in done.stderr
        assert "foltr device enrol NAME --privacy secure --operator FOLDER" in done.stderr
    assert not (tmp_path / "x.json").exists()


def test_a_folder_that_begins_with_a_helper_is_secure(tmp_path):
    """Who enrols helpers first, in either order of the documented commands, makes no trusted federation by it."""
    assert enrol(tmp_path, "north", whom="helper").returncode == 0
    assert enrol(tmp_path, "device-1").returncode == 0
    assert read_credentials(tmp_path / "device-1.json", "device").is_pinned


@pytest.mark.parametrize(("made", "asked"), [("secure", "trusted"), ("trusted", "secure")])
def test_a_federator_of_the_other_kind_is_refused_at_start(tmp_path, made, asked):
    """Before it reaches a broker or a database; the operator's choice is in its credentials."""
    assert enrol(tmp_path, "device-1", "--privacy", made).returncode == 0
    credentials = ("--credentials", "foltr-operator/federator.json", "--db", "sqlite:///mail.sqlite")
    done = foltr("federator", "run", *credentials, "--privacy", asked, cwd=tmp_path, code=2)
    assert f"{asked} was given" in done.stderr
    assert f"made {made}" in done.stderr
    assert not (tmp_path / "mail.sqlite").exists()


def test_a_federator_follows_its_credentials_where_it_is_told_nothing(tmp_path):
    """Of a secure federation it asks for the policy, and does not start as a trusted one."""
    assert enrol(tmp_path, "device-1", "--privacy", "secure").returncode == 0
    credentials = ("--credentials", "foltr-operator/federator.json", "--db", "sqlite:///mail.sqlite")
    done = foltr("federator", "run", *credentials, cwd=tmp_path, code=2)
    assert f"`{NEW_POLICY}`" in " ".join(done.stderr.split())
