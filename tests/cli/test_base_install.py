"""An install with the command line alone, as a device has: each command works, or says in one line what to install."""

import sys

import pytest
from cli.forked import foltr_forked
from support.completed_process import completed

from foltr.core.extras import MODULES

OF_OTHER_EXTRAS = [module for extra, modules in MODULES.items() if extra != "cli" for module in modules]
WITHOUT_EXTRAS = f"sys.modules |= dict.fromkeys({OF_OTHER_EXTRAS})"
# Beside the extra that each of them needs.
MISSING = {"rounds list --db sqlite:///x.sqlite": "federator", "broker run": "simulation"}
OF_A_DATABASE = (
    *("db upgrade", "federator run --allow-unsigned", "status", "rounds why", "device list", "models list"),
    "erasure list",
    "backup create x",
)
MISSING_AT_NIGHT = {
    **{f"{words} --db sqlite:///x.sqlite": "federator" for words in OF_A_DATABASE},
    **{f"{words} --data synthetic": "federator" for words in ("demo", "demo-secure", "demo-forget")},
}
THERE = ("device enrol device-7", "client run --help")
THERE_AT_NIGHT = (
    *("helper run --help", "erasure verify --help", "doctor --help", "erasure request --help", "attacks list"),
    *("federator rotate-key --help", "methods", "simulate --data synthetic --method fpdgd --clients 3 --rounds 1"),
    "privacy plan --clients 1000 --rounds 200 --epsilon 8 --dim 136",
)


def run_without_extras(commands, folder):
    """How each of them ended, by what was called."""
    (folder / "work").mkdir()
    (folder / "said").mkdir()
    called = [(command.split(), folder / "work") for command in commands]
    done = foltr_forked(called, folder / "said", first=WITHOUT_EXTRAS)
    return dict(zip(commands, done, strict=True))


@pytest.mark.parametrize("missing", [MISSING, pytest.param(MISSING_AT_NIGHT, marks=pytest.mark.nightly)])
def test_what_is_missing_is_one_line(tmp_path, missing):
    """Never a traceback; the line ends with a command that works from a checkout or a wheel."""
    for command, done in run_without_extras(missing, tmp_path).items():
        assert done.returncode == 2, (command, done.stderr)
        assert len(done.stderr.splitlines()) == 1, (command, done.stderr)
        assert done.stderr.startswith("error: "), (command, done.stderr)
        assert f"[{missing[command]}]'" in done.stderr, (command, done.stderr)
        assert "pip install " in done.stderr, (command, done.stderr)


@pytest.mark.parametrize("there", [THERE, pytest.param(THERE_AT_NIGHT, marks=pytest.mark.nightly)])
def test_what_a_device_needs_is_there(tmp_path, there):
    """With the command line alone, for a device and for who enrols it."""
    for command, done in run_without_extras(there, tmp_path).items():
        assert done.returncode == 0, (command, done.stderr)


def test_an_install_for_an_application_has_no_command_line():
    """The command names the extra in one line."""
    without = f"sys.modules |= dict.fromkeys({MODULES['cli']})"
    program = f"import sys; {without}; from foltr.cli.start import main; main()"
    done = completed([sys.executable, "-c", program])
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "the command line is not installed; run: pip install " in done.stderr
    assert "[cli]'" in done.stderr
