"""``foltr helper enrol`` and ``foltr helper``: from an operator's folder to keys for a policy."""

import json
import stat

from cli.commands import foltr, start, stop

from foltr.core.operator.credentials import read_credentials
from foltr.core.operator.folder import open_authority
from foltr.core.operator.helper_keys import helper_keys_text, read_helper_keys
from foltr.core.protocol.signing import SigningKey, key_to_text


def ran(*words, cwd, expected=0, **more):
    done = foltr(*words, cwd=cwd, code=expected, **more)
    return done.stdout if expected == 0 else done.stderr


def enrolled(folder, name="north", *more):
    ran("helper", "enrol", name, "--federation", "mail", *more, cwd=folder)
    return read_credentials(folder / f"{name}.json", "helper")


def test_a_helper_is_enrolled_with_a_file_of_its_own(tmp_path):
    """The first command makes the operator's folder, too; the key is noted there, and nobody else reads the file."""
    credentials = enrolled(tmp_path)
    assert (credentials.role, credentials.name, credentials.federation) == ("helper", "north", "mail")
    assert credentials.enrolment is None
    assert stat.S_IMODE((tmp_path / "north.json").stat().st_mode) == 0o600
    with open_authority(tmp_path / "foltr-operator") as authority:
        assert authority.register.helpers == {"north": key_to_text(credentials.key.public)}
        assert authority.operator.key.public != credentials.key.public
        assert authority.register.enrolled == {}


def test_a_helper_is_enrolled_once(tmp_path):
    """Another key only if it is asked for; the operator's keys stay what they are; of no name nothing is made."""
    assert "is not a name" in ran("helper", "enrol", "a/b", cwd=tmp_path, expected=2)
    assert list(tmp_path.iterdir()) == []
    before = enrolled(tmp_path)
    assert "--replace" in ran("helper", "enrol", "north", "--out", "other.json", cwd=tmp_path, expected=2)
    assert not (tmp_path / "other.json").exists()
    after = enrolled(tmp_path, "north", "--replace")
    assert after.key.public != before.key.public
    assert after.enrolment_key == before.enrolment_key


def test_a_helpers_keys_are_for_a_policy(tmp_path):
    """Each call makes another sealing key; the signing key is the one it was enrolled with."""
    credentials = enrolled(tmp_path)
    keys = ("helper", "keys", "--credentials", "north.json")
    (tmp_path / "first.keys").write_text(ran(*keys, cwd=tmp_path))
    ran(*keys, "--out", "second.keys", cwd=tmp_path)
    first, second = (read_helper_keys(tmp_path / f"{name}.keys") for name in ("first", "second"))
    assert first.name == second.name == "north"
    assert first.signing_key == second.signing_key == credentials.key.public
    assert first.sealing_key != second.sealing_key
    assert ".keys exists" in ran(*keys, "--out", "second.keys", cwd=tmp_path, expected=2)


def test_a_policy_takes_the_keys_of_the_helpers_that_were_enrolled(tmp_path):
    """Keys of the same name by somebody else are refused: they would open what devices seal."""
    for name in ("north", "south"):
        enrolled(tmp_path, name)
        ran("helper", "keys", "--credentials", f"{name}.json", "--out", f"{name}.keys", cwd=tmp_path)
    (tmp_path / "forged.keys").write_text(
        helper_keys_text("north", SigningKey.generate(), bytes(range(32)), [bytes(range(1, 33))])
    )
    said = ran("policy", "new", "--helper", "forged.keys", "--helper", "south.keys", cwd=tmp_path, expected=2)
    assert "not the keys of the north that was enrolled here" in said
    ran("policy", "new", "--helper", "north.keys", "--helper", "south.keys", cwd=tmp_path)
    # Who is enrolled from now on has the policy from the start.
    assert enrolled(tmp_path, "east").signed_policy is not None


def test_a_helper_needs_its_own_credentials(tmp_path):
    """None at all, or a device's, are refused in words."""
    ran("device", "enrol", "device-1", cwd=tmp_path)
    another = ("--credentials", "device-1.json")
    for command in ("run", "keys"):
        assert "foltr helper enrol" in ran("helper", command, cwd=tmp_path, expected=2), command
        assert "for the role device" in ran("helper", command, *another, cwd=tmp_path, expected=2), command


def test_a_helper_runs_at_a_broker_with_an_access_list(guarded_broker, tmp_path):
    """It is enrolled while the broker runs, gets in as itself, and makes keys while it runs."""
    told = ran("helper", "enrol", "north", "--operator", guarded_broker.operator_dir, "--json", cwd=tmp_path)
    assert json.loads(told)["broker_to_reload"] is False
    process = start("helper", "run", "--credentials", "north.json", cwd=tmp_path)
    try:
        assert any("broker_connected" in line for line in process.stdout)
        ran("helper", "keys", "--credentials", "north.json", cwd=tmp_path)
    finally:
        code, _ = stop(process)
    assert code == 0
