"""``foltr doctor`` finds an access list of an older foltr, by what it lacks and by what the broker refuses."""

import pytest
from cli.commands import foltr
from cli.doctor.test_doctor import doctor
from support.servers import MissingError, ProvisionedMosquitto


@pytest.fixture
def provisioned(tmp_path):
    """What `foltr broker config --tls` has written; no broker runs."""
    try:
        return ProvisionedMosquitto(tmp_path, "passwords", federation="mail")
    except MissingError as error:
        pytest.skip(str(error))


def lines_without(acl, part: str) -> str:
    return "".join(line for line in acl.read_text().splitlines(keepends=True) if part not in line)


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
