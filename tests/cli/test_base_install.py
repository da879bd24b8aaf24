"""An install without extras, as a device has: each command works, or says in one line what to install."""

from cli.forked import foltr_forked

from foltr.core.extras import MODULES

WITHOUT_EXTRAS = f"sys.modules |= dict.fromkeys({[module for modules in MODULES.values() for module in modules]})"
# Beside the extra that each of them needs.
MISSING = {
    "db upgrade --db sqlite:///x.sqlite": "federator",
    "federator run --allow-unsigned --db sqlite:///x.sqlite": "federator",
    "rounds list --db sqlite:///x.sqlite": "federator",
    "status --db sqlite:///x.sqlite": "federator",
    "rounds why --db sqlite:///x.sqlite": "federator",
    "device list --db sqlite:///x.sqlite": "federator",
    "models list --db sqlite:///x.sqlite": "federator",
    "erasure list --db sqlite:///x.sqlite": "federator",
    "demo --data synthetic": "federator",
    "demo-secure --data synthetic": "federator",
    "demo-forget --data synthetic": "federator",
    "broker run": "simulation",
}
THERE = (
    "device enrol device-7",
    "doctor --help",
    "client run --help",
    "helper run --help",
    "erasure request --help",
    "federator rotate-key --help",
    "erasure verify --help",
    "methods",
    "attacks list",
    "simulate --data synthetic --method fpdgd --clients 3 --rounds 1",
    "privacy plan --clients 1000 --rounds 200 --epsilon 8 --dim 136",
)


def run_without_extras(commands, folder):
    """How each of them ended, by what was called."""
    (folder / "work").mkdir()
    (folder / "said").mkdir()
    called = [(command.split(), folder / "work") for command in commands]
    done = foltr_forked(called, folder / "said", first=WITHOUT_EXTRAS)
    return dict(zip(commands, done, strict=True))


def test_what_is_missing_is_one_line(tmp_path):
    """Never a traceback; the line ends with a command that works from a checkout or a wheel."""
    for command, done in run_without_extras(MISSING, tmp_path).items():
        assert done.returncode == 2, (command, done.stderr)
        assert len(done.stderr.splitlines()) == 1, (command, done.stderr)
        assert done.stderr.startswith("error: "), (command, done.stderr)
        assert f"[{MISSING[command]}]'" in done.stderr, (command, done.stderr)
        assert "pip install " in done.stderr, (command, done.stderr)


def test_what_a_device_needs_is_there(tmp_path):
    """The base install is what a device needs, and whoever enrols it."""
    for command, done in run_without_extras(THERE, tmp_path).items():
        assert done.returncode == 0, (command, done.stderr)
