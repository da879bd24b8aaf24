"""Other distributions add commands; without the research package its commands say what to install."""

import itertools
from importlib.metadata import EntryPoint

import typer
from cli.commands import foltr
from cli.forked import foltr_forked

from foltr.cli import commands
from foltr.cli.commands import ENTRY_POINTS, RESEARCH

# As where the package is not installed: nothing of it can be imported, and nothing is added.
WITHOUT_RESEARCH = """
import importlib.metadata
sys.modules["foltr_research"] = None
everything = importlib.metadata.entry_points
importlib.metadata.entry_points = lambda **of: () if of.get("group") == "foltr.commands" else everything(**of)
"""

added = typer.Typer(help="Count candles.")


@added.command("light")
def light(n: int = 1) -> None:
    """Light some."""
    typer.echo(f"lit {n}")


@added.command("blow")
def blow() -> None:
    """Blow them out."""


def test_without_the_research_package_a_command_says_what_to_install(monkeypatch):
    """One line and exit code 2, for all arguments."""
    monkeypatch.setattr(commands, "entry_points", lambda **_: ())
    for name, options in itertools.product(RESEARCH, [(), ("--help",), ("run", "--nonsense", "x")]):
        done = foltr(name, *options)
        assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1), (name, options)
        assert done.stderr.startswith(f"error: foltr {name}: ")
        assert "pip install ./research" in done.stderr


def test_the_service_needs_nothing_of_the_research_package(tmp_path):
    """A demonstration runs, devices run, methods and rules are listed."""
    (tmp_path / "work").mkdir()
    (tmp_path / "said").mkdir()
    lines = ("demo --data synthetic --clients 2 --rounds 1", "methods", "federator run --help")
    called = [(line.split(), tmp_path / "work") for line in lines]
    for done in foltr_forked(called, tmp_path / "said", first=WITHOUT_RESEARCH):
        assert done.returncode == 0, (done.args, done.stderr)


def test_another_distribution_adds_a_command(monkeypatch):
    """It is listed and run; a command of the service cannot be replaced."""
    found = [EntryPoint(name, f"{__name__}:added", ENTRY_POINTS) for name in ("candles", "rounds")]
    monkeypatch.setattr(commands, "entry_points", lambda group: found if group == ENTRY_POINTS else ())
    monkeypatch.setattr(EntryPoint, "load", lambda _: added)
    assert foltr("candles", "light", "--n", "3").stdout == "lit 3\n"
    assert "Light some" in foltr("candles", "--help").stdout
    assert "deadline" in foltr("rounds", "--help").stdout
