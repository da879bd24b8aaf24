"""``foltr doctor`` finds an access list of an older foltr, by what it lacks and by what the broker refuses."""

import pytest
from cli.commands import foltr
from cli.doctor.test_doctor import doctor
from servers import MissingError, ProvisionedMosquitto

from foltr.cli.doctor.checks import State
from foltr.cli.doctor.checks_access import list_findings


@pytest.fixture
def provisioned(tmp_path):
    """What `foltr broker config --tls` has written; no broker runs."""
    try:
        return ProvisionedMosquitto(tmp_path, "passwords", federation="mail")
    except MissingError as error:
        pytest.skip(str(error))


def lines_without(acl, part: str) -> str:
    return "".join(line for line in acl.read_text().splitlines(keepends=True) if part not in line)


def test_an_access_list_that_lacks_a_newer_topic_is_found(provisioned):
    """With what that costs, and nothing of what it does not."""
    acl = provisioned.broker_dir / "acl"
    whole = acl.read_text()
    assert [found.state for found in list_findings(provisioned.operator_dir)] == [State.OK]
    for lacks, cost in (
        ("/authorities", "do not hear of another certificate authority"),
        ("/operator-key", "nobody hears that the enrolment key was rotated"),
        ("/kept-enrolments", "helpers refuse all devices once the enrolment key was rotated"),
        ("/tokens/", "no device can enrol itself with a one-time token"),
        ("/clients/+/forget", "cannot hand on a device's wish"),
    ):
        acl.write_text(lines_without(acl, lacks))
        (found,) = list_findings(provisioned.operator_dir)
        assert (found.state, cost in found.detail) == (State.WARNING, True), lacks
        assert "none votes" not in found.detail
        assert "foltr broker config --force" in found.detail
        acl.write_text(whole)


def test_a_line_of_another_user_does_not_count(provisioned):
    """The federator may write a device's wish to clear it; that the operator may bring one is another line."""
    acl = provisioned.broker_dir / "acl"
    head, operators = acl.read_text().rsplit("user @operator", 1)
    kept = "".join(line for line in operators.splitlines(keepends=True) if "/forget" not in line)
    acl.write_text(f"{head}user @operator{kept}")
    (found,) = list_findings(provisioned.operator_dir)
    assert "cannot hand on a device's wish" in found.detail


def test_an_operator_elsewhere_is_told_by_the_broker_what_it_lacks(provisioned):
    """Its folder need not know where the list is: the broker refuses what it does not have."""
    acl, enrolled = provisioned.broker_dir / "acl", ("--operator", provisioned.operator_dir)
    assert foltr("device", "enrol", "device-7", *enrolled, "--out-dir", provisioned.folder).returncode == 0
    operator = str(provisioned.operator_dir / "operator.json")
    found = []
    for lacks in ("nothing", "/operator-key"):
        acl.write_text(lines_without(acl, lacks))
        provisioned.start()
        try:
            found.append(doctor("--credentials", operator)["operator-key"])
        finally:
            provisioned.stop()
    assert found[0][0] == "ok"
    state, detail = found[1]
    assert state == "warning"
    assert "after `foltr operator rotate-key` all wait in vain" in detail
    assert "foltr broker config --force" in detail
