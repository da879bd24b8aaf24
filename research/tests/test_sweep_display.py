"""A sweep in progress: a table on a terminal, a line for each finished run elsewhere, nothing from Python."""

import io
import sys

import pytest
from cli.commands import foltr_fresh
from rich.console import Console
from support.waiting import PATIENCE_S

import foltr_research as fr
from foltr_research.simulation.config import SimulationConfig
from foltr_research.simulation.sweeps.sweep import SweepRow, grid, run_sweep
from foltr_research.sweep_display import SweepDisplay

BASE = SimulationConfig(clients=3, interactions=2, rounds=2)
VARIED = {"parameters.mu": [0.1, 0.5], "clicks": [["perfect", "poison"]], "seed": [1, 2, 3]}
CONFIGS = grid(BASE.changed(method="fedprox"), VARIED)


def console_of(*, is_terminal: bool, height: int = 30) -> Console:
    return Console(file=io.StringIO(), force_terminal=is_terminal, width=100, height=height, color_system=None)


def finished(config: SimulationConfig, value: float) -> SweepRow:
    return SweepRow(config, {"ndcg_at_10": [{"round": 0, "value": 0.1}, {"round": 2, "value": value}]}, None)


def shown(display: SweepDisplay, height: int = 30) -> list[list[str]]:
    """The words of each line that a terminal would have now."""
    console = console_of(is_terminal=True, height=height)
    console.print(display)
    return [line.split() for line in console.file.getvalue().splitlines()]


@pytest.fixture
def display():
    return SweepDisplay(CONFIGS, list(VARIED), console_of(is_terminal=False), knows_running=True, lines=True)


def test_the_table_has_what_runs_is_done_and_the_means_so_far(display):
    """A line for each combination; the mean over its seeds, with the 95 % interval once there are two."""
    for config in CONFIGS[:3]:
        display.started(config)
    assert shown(display)[:3] == [
        ["mu", "clicks", "runs", "running", "done", "nDCG@10", "so", "far"],
        ["0.1", "perfect+poison", "3", "3", "0", "-"],
        ["0.5", "perfect+poison", "3", "-", "0", "-"],
    ]
    display.done(finished(CONFIGS[0], 0.5))
    assert shown(display)[1] == ["0.1", "perfect+poison", "3", "2", "1", "0.5000"]
    display.done(finished(CONFIGS[1], 0.6))
    display.done(SweepRow(CONFIGS[2], None, "no data"))
    # 12.706 of Student's t with one degree of freedom, times 0.05.
    assert shown(display)[1] == ["0.1", "perfect+poison", "3", "-", "3", "0.5500", "±", "0.6353", "(1", "failed)"]
    assert shown(display)[3][:9] == ["3", "of", "6", "runs", "done,", "0", "running,", "1", "failed,"]


def test_a_run_that_was_kept_says_nothing_of_the_time_left(display, monkeypatch):
    """Only runs that were started are counted on."""
    now = [100.0]
    monkeypatch.setattr("foltr_research.sweep_display.time.monotonic", lambda: now[0])
    for config in CONFIGS[:3]:
        display.done(finished(config, 0.5))
    assert "left" not in shown(display)[-1]
    display.started(CONFIGS[3])
    now[0] += 60.0
    display.done(finished(CONFIGS[3], 0.5))
    assert shown(display)[-1][-3:] == ["about", "0:02:00", "left"]


def test_a_long_table_shows_where_something_happens():
    """Of more combinations than fit, those with the newest runs, in their order; the others are counted."""
    varied = {"parameters.mu": [number / 100 for number in range(1, 21)], "seed": [1]}
    configs = grid(BASE.changed(method="fedprox"), varied)
    many = SweepDisplay(configs, list(varied), console_of(is_terminal=True, height=10), knows_running=False, lines=True)
    for config in (configs[17], configs[3], configs[11]):
        many.done(finished(config, 0.5))
    lines = shown(many, height=10)
    assert lines[0][:3] == ["mu", "runs", "done"]
    assert {"0.04", "0.12", "0.18"} <= {line[0] for line in lines}
    assert "16 more lines" in " ".join(lines[-1])


@pytest.mark.parametrize("lines", [True, False])
def test_without_a_terminal_a_finished_run_is_one_line_at_most(lines):
    """A failed one has its error in it; from Python nothing is printed."""
    console = console_of(is_terminal=False)
    with SweepDisplay(CONFIGS, list(VARIED), console, knows_running=True, lines=lines) as display:
        display.started(CONFIGS[0])
        display.done(finished(CONFIGS[0], 0.5))
        display.done(SweepRow(CONFIGS[1], None, "no data"))
    expected = [
        "run 1/6  mu=0.1 clicks=perfect+poison seed=1  nDCG@10 0.5000",
        "run 2/6  mu=0.1 clicks=perfect+poison seed=2  failed: no data",
    ]
    assert console.file.getvalue().splitlines() == (expected if lines else [])


@pytest.mark.parametrize("jobs", [1, 2])
def test_each_run_is_started_once(jobs):
    """One process begins none before it has finished the one before."""
    started, most = [], 0
    n_done = 0

    def done(_row):
        nonlocal n_done, most
        most = max(most, len(started) - n_done)
        n_done += 1

    run_sweep(CONFIGS, jobs=jobs, on_start=started.append, on_done=done)
    assert sorted(map(repr, started)) == sorted(map(repr, CONFIGS))
    assert jobs > 1 or most == 1


def test_python_on_a_terminal_shows_the_table(monkeypatch, capsys):
    """On standard error; elsewhere nothing, neither there nor on standard output."""
    settings = {"clients": 3, "interactions": 2, "rounds": 2}
    fr.sweep({"seed": [1, 2]}, **settings)
    assert capsys.readouterr() == ("", "")
    screen = io.StringIO()
    monkeypatch.setattr(screen, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    fr.sweep({"clicks": ["perfect", "poison"], "seed": [1, 2]}, **settings)
    assert "4 of 4 runs done" in screen.getvalue()
    assert capsys.readouterr().out == ""


def test_the_command_prints_a_line_for_each_run(tmp_path):
    """Into a pipe, beside what it says at the beginning and the end."""
    words = ("--clients", "3", "--rounds", "2", "--seeds", "1-3", "--jobs", "2", "--out", "s.csv")
    done = foltr_fresh("sweep", *words, cwd=tmp_path, timeout_s=PATIENCE_S)
    assert done.returncode == 0, done.stdout + done.stderr
    told = [line for line in done.stdout.splitlines() if line.startswith("run ")]
    assert [line.partition("  ")[0] for line in told] == ["run 1/3", "run 2/3", "run 3/3"]
    assert not [line for line in done.stdout.splitlines() if "so far" in line]
