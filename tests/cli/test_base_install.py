"""An install without extras, as a device has: each command works, or says in one line what to install."""

import subprocess
import sys

import pytest
from cli.commands import environment

from foltr.extras import MODULES

WITHOUT_EXTRAS = f"""
import sys
for module in {[module for modules in MODULES.values() for module in modules]}:
    sys.modules[module] = None
sys.argv[0] = "foltr"
from foltr.cli.main import main
main()
"""


def foltr_without_extras(*arguments, cwd):
    return subprocess.run(
        [sys.executable, "-c", WITHOUT_EXTRAS, *arguments],
        env=environment(),
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        ("db upgrade --db sqlite:///x.sqlite", "federator"),
        ("federator run --allow-unsigned --db sqlite:///x.sqlite", "federator"),
        ("rounds list --db sqlite:///x.sqlite", "federator"),
        ("status --db sqlite:///x.sqlite", "federator"),
        ("rounds why --db sqlite:///x.sqlite", "federator"),
        ("clients list --db sqlite:///x.sqlite", "federator"),
        ("models list --db sqlite:///x.sqlite", "federator"),
        ("erasures list --db sqlite:///x.sqlite", "federator"),
        ("demo --data synthetic", "federator"),
        ("demo --secure --data synthetic", "federator"),
        ("demo --forget --data synthetic", "federator"),
        ("broker run", "simulation"),
    ],
)
def test_what_is_missing_is_one_line(tmp_path, command, extra):
    """Never a traceback; the line ends with a command that works from a checkout or a wheel."""
    done = foltr_without_extras(*command.split(), cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: ")
    assert f"[{extra}]'" in line
    assert "pip install " in line


@pytest.mark.parametrize(
    "command",
    [
        "enrol device-7",
        "methods",
        "attacks",
        "simulate --data synthetic --method fpdgd --clients 3 --rounds 1",
        "privacy plan --clients 1000 --rounds 200 --epsilon 8 --dim 136",
    ],
)
def test_what_a_device_needs_is_there(tmp_path, command):
    """The base install is what a device needs, and whoever enrols it."""
    done = foltr_without_extras(*command.split(), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
