"""The units in systemd/: systemd finds nothing wrong with them, and what they start is a command with these flags."""

import configparser
import re
import shlex
import shutil

import pytest
from cli.commands import PROJECT, foltr
from support.completed_process import completed

UNITS = sorted((PROJECT / "systemd").glob("*.service"))


def read_unit(path) -> configparser.ConfigParser:
    """The unit's sections; systemd's keys are told apart by case."""
    unit = configparser.ConfigParser(interpolation=None)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read(path)
    return unit


def test_systemd_takes_the_units(tmp_path):
    """With a program in the place of /opt/foltr/bin/foltr, which is not on this machine."""
    analyse = shutil.which("systemd-analyze")
    if analyse is None:
        pytest.skip("no systemd-analyze (Debian: apt-get install systemd)")
    for path in UNITS:
        copy = tmp_path / path.name
        copy.write_text(path.read_text().replace("/opt/foltr/bin/foltr", "/bin/true"))
        done = completed([analyse, "verify", str(copy)])
        assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_what_a_unit_starts_exists():
    """The command and each of its flags; what it writes to is a folder that the unit has."""
    assert len(UNITS) == 5
    for path in UNITS:
        service = read_unit(path)["Service"]
        program, *words = shlex.split(service["ExecStart"])
        assert program == "/opt/foltr/bin/foltr"
        helped = foltr(*words[:2], "--help").stdout
        flags = [word for word in words if word.startswith("--")]
        assert [flag for flag in flags if flag not in helped] == [], path
        for folder, kind in re.findall(r"/(var/lib|run)/([\w@%-]+)", service["ExecStart"]):
            directory = {"var/lib": "StateDirectory", "run": "RuntimeDirectory"}[folder]
            assert service[directory] == kind, path
        assert service["RestartPreventExitStatus"] == "2"
        assert service["User"].startswith("foltr")
