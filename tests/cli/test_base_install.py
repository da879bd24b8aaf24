"""An install with the command line alone, as a device has: each command works, or says in one line what to install."""

import sys

import pytest
from cli.forked import foltr_forked
from support.completed_process import completed

from foltr.core.extras import MODULES

OF_OTHER_EXTRAS = [module for extra, modules in MODULES.items() if extra not in ("cli", "secure") for module in modules]
WITHOUT_EXTRAS = f"sys.modules |= dict.fromkeys({OF_OTHER_EXTRAS})"
_AT = "--db sqlite:///x.sqlite"
# Beside each command the extra that it needs, if any.
NEEDED = {f"rounds list {_AT}": "federator", "broker run": "simulation", "device enrol device-7": None}
NEEDED |= {"client run --help": None}
OF_A_DATABASE = ("db upgrade", "federator run --allow-unsigned", "status", "rounds why", "device list", "models list")
OF_A_DATABASE += ("erasure list", "backup create x")
NEEDED_AT_NIGHT = {
    **{f"{words} {_AT}": "federator" for words in OF_A_DATABASE},
    **{f"{words} --data synthetic": "federator" for words in ("demo", "demo-secure", "demo-forget")},
    **{f"{words} --help": None for words in ("helper run", "erasure verify", "doctor", "erasure request")},
    **dict.fromkeys(("federator rotate-key --help", "methods", "attacks list")),
    "simulate --data synthetic --method fpdgd --clients 3 --rounds 1": None,
    "privacy plan --clients 1000 --rounds 200 --epsilon 8 --dim 136": None,
}


@pytest.mark.parametrize("needed", [NEEDED, pytest.param(NEEDED_AT_NIGHT, marks=pytest.mark.nightly)])
def test_what_a_device_needs_is_there_and_what_is_missing_is_one_line(tmp_path, needed):
    """Never a traceback; the line ends with a command that works from a checkout or a wheel."""
    for name in ("work", "said"):
        (tmp_path / name).mkdir()
    called = [(command.split(), tmp_path / "work") for command in needed]
    ended = foltr_forked(called, tmp_path / "said", first=WITHOUT_EXTRAS)
    for (command, extra), done in zip(needed.items(), ended, strict=True):
        if extra is None:
            assert done.returncode == 0, (command, done.stderr)
        else:
            assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), (command, done.stderr)
            for said in ("error: ", f"[{extra}]'", "pip install "):
                assert said in done.stderr, (command, done.stderr)


def test_an_install_for_an_application_has_no_command_line():
    """The command names the extra in one line."""
    without = f"sys.modules |= dict.fromkeys({MODULES['cli']})"
    program = f"import sys; {without}; from foltr.cli.start import main; main()"
    done = completed([sys.executable, "-c", program])
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "the command line is not installed; run: pip install " in done.stderr
    assert "[cli]'" in done.stderr
