"""``foltr doctor`` finds an access list of an older foltr, by what it lacks and by what the broker refuses."""

from cli.commands import foltr
from cli.doctor.test_doctor import doctor
from support.provisioned_broker import provisioned


def lines_without(acl, part: str) -> str:
    return "".join(line for line in acl.read_text().splitlines(keepends=True) if part not in line)


def test_an_operator_elsewhere_is_told_by_the_broker_what_it_lacks(tmp_path):
    """Its folder need not know where the list is: the broker refuses what it does not have."""
    server = provisioned(tmp_path, "passwords", "mail")
    acl, enrolled = server.broker_dir / "acl", ("--operator", server.operator_dir)
    foltr("device", "enrol", "device-7", *enrolled, "--out-dir", server.folder, code=0)
    operator = str(server.operator_dir / "operator.json")
    found = []
    for lacks, code in (("nothing", 0), ("/operator-key", 1)):
        acl.write_text(lines_without(acl, lacks))
        server.start()
        try:
            found.append(doctor("--credentials", operator, expected=code)["access list"])
        finally:
            server.stop()
    assert found[0][0] == "ok"
    state, detail = found[1]
    assert (state, "may not write foltr/v1/mail/operator-key" in detail) == ("problem", True)
    assert "foltr broker config --force" in detail
