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
    # Who enrols helpers first, in either order of the documented commands, makes no trusted federation by it.
    another = tmp_path / "another"
    another.mkdir()
    assert enrol(another, "north", whom="helper").returncode == 0
    assert enrol(another, "device-1").returncode == 0
    assert read_credentials(another / "device-1.json", "device").is_pinned


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


@pytest.mark.parametrize(("made", "asked"), [("secure", "trusted"), ("trusted", "secure"), ("secure", None)])
def test_a_federator_of_the_other_kind_is_refused_at_start(tmp_path, made, asked):
    """Before it reaches a broker or a database; of a secure federation it asks for the policy if told nothing."""
    assert enrol(tmp_path, "device-1", "--privacy", made).returncode == 0
    options = ["--credentials", "foltr-operator/federator.json", "--db", "sqlite:///mail.sqlite"]
    options += [] if asked is None else ["--privacy", asked]
    said = " ".join(foltr("federator", "run", *options, cwd=tmp_path, code=2).stderr.split())
    for words in (f"`{NEW_POLICY}`",) if asked is None else (f"{asked} was given", f"made {made}"):
        assert words in said
    assert not (tmp_path / "mail.sqlite").exists()
