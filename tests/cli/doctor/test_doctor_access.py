"""``foltr doctor`` finds an access list of an older foltr, by what it lacks and by what the broker refuses."""

import pytest
from cli.commands import foltr
from cli.doctor.test_doctor import doctor
from servers import MissingError, ProvisionedMosquitto

from foltr.broker.address import BrokerAddress
from foltr.cli.doctor.checks import Found, State
from foltr.cli.doctor.checks_broker import Visit, list_found


@pytest.fixture
def provisioned(tmp_path):
    """What `foltr broker config --tls` has written; no broker runs."""
    try:
        return ProvisionedMosquitto(tmp_path, "passwords", federation="mail")
    except MissingError as error:
        pytest.skip(str(error))


def looked(provisioned) -> Found:
    visit = Visit(BrokerAddress.parse("mqtt://127.0.0.1"), "mail", None, provisioned.operator_dir)
    found = list_found(visit)
    assert found is not None
    return found


def lines_without(acl, part: str) -> str:
    return "".join(line for line in acl.read_text().splitlines(keepends=True) if part not in line)


def test_an_access_list_that_lacks_a_newer_topic_is_found(provisioned):
    """By its lines, and nothing else is."""
    acl = provisioned.broker_dir / "acl"
    whole = acl.read_text()
    assert looked(provisioned).state is State.OK
    for lacks in ("/authorities", "/operator-key", "/kept-enrolments", "/tokens/", "/clients/+/forget"):
        acl.write_text(lines_without(acl, lacks))
        found = looked(provisioned)
        assert (found.state, lacks in found.detail, "/anchor" in found.detail) == (State.WARNING, True, False), lacks
        acl.write_text(whole)


def test_a_line_of_another_user_does_not_count(provisioned):
    """The federator may write a device's wish to clear it; that the operator may bring one is another line."""
    acl = provisioned.broker_dir / "acl"
    head, operators = acl.read_text().rsplit("user @operator", 1)
    kept = "".join(line for line in operators.splitlines(keepends=True) if "/forget" not in line)
    acl.write_text(f"{head}user @operator{kept}")
    assert "topic write foltr/v1/mail/clients/+/forget`" in looked(provisioned).detail


def test_an_operator_elsewhere_is_told_by_the_broker_what_it_lacks(provisioned):
    """Its folder need not know where the list is: the broker refuses what it does not have."""
    acl, enrolled = provisioned.broker_dir / "acl", ("--operator", provisioned.operator_dir)
    assert foltr("device", "enrol", "device-7", *enrolled, "--out-dir", provisioned.folder).returncode == 0
    operator = str(provisioned.operator_dir / "operator.json")
    found = []
    for lacks, code in (("nothing", 0), ("/operator-key", 1)):
        acl.write_text(lines_without(acl, lacks))
        provisioned.start()
        try:
            found.append(doctor("--credentials", operator, expected=code)["access list"])
        finally:
            provisioned.stop()
    assert found[0][0] == "ok"
    state, detail = found[1]
    assert (state, "may not write foltr/v1/mail/operator-key" in detail) == ("problem", True)
    assert "foltr broker config --force" in detail
