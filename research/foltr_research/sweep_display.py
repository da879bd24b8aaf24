"""Shows a sweep while it runs: on a terminal a table with a line for each combination, else lines of finished runs."""

import sys
import threading
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Self

import numpy as np
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from foltr_research.reproductions.claims import difference_of
from foltr_research.simulation.config import SimulationConfig
from foltr_research.simulation.sweeps.sweep import SweepRow

OF_RUNS = ("seed", "fold")
"""The settings over which a mean is taken."""

# A shell's prompt, the table's heading, and the line below.
_ROWS_BESIDE = 6
_NAMED_PARAMETERS = ("parameters", "aggregation_parameters", "attack_parameters")


@dataclass
class _Combination:
    """The runs that differ in seed and fold only.

    Attributes:
        values: nDCG@10 at the end of each finished run.
        touched: when one of them was started or finished, counted in such events.
    """

    n_runs: int = 0
    n_running: int = 0
    n_failed: int = 0
    values: list[float] = field(default_factory=list)
    touched: int = 0

    @property
    def n_done(self) -> int:
        return len(self.values) + self.n_failed


class SweepDisplay(AbstractContextManager["SweepDisplay"]):
    """Follows the runs of a sweep, of which `started` and `done` tell, from any thread.

    Args:
        varied: the names of settings that differ, such as ``method`` or ``parameters.mu``.
        knows_running: whether `started` is called when a run starts; if not, the table has no such column.
        lines: print a line for each finished run without a terminal; else nothing.
    """

    def __init__(
        self,
        configs: Sequence[SimulationConfig],
        varied: Sequence[str],
        console: Console,
        *,
        knows_running: bool,
        lines: bool,
    ) -> None:
        self._console = console
        self._varied = [key for key in varied if key not in OF_RUNS]
        self._of_lines = list(varied)
        self._knows_running = knows_running
        self._lines = lines
        self._lock = threading.Lock()
        self._began = time.monotonic()
        self._n_kept = self._n_events = 0
        self._has_started = False
        self._combinations: dict[tuple[str, ...], _Combination] = {}
        for config in configs:
            self._of(config).n_runs += 1
        # What a program prints meanwhile goes above the table, but not out of a pipe.
        above = sys.stdout.isatty()
        self._live = Live(get_renderable=self.__rich__, console=console, refresh_per_second=2, redirect_stdout=above)

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def started(self, config: SimulationConfig) -> None:
        """Count a run that a worker begins."""
        with self._lock:
            if not self._has_started:
                # What was kept from before took no time.
                self._has_started, self._n_kept, self._began = True, self._n_done, time.monotonic()
            one = self._of(config)
            one.n_running += 1
            self._touch(one)

    def done(self, row: SweepRow) -> None:
        """Count a finished run, and print its error, or its line without a terminal."""
        with self._lock:
            one = self._of(row.config)
            one.n_running = max(0, one.n_running - 1)
            if row.result is None:
                one.n_failed += 1
            else:
                one.values.append(_last(row.result))
            self._touch(one)
            line = self._line(row)
        if row.error is not None if self._console.is_terminal else self._lines:
            self._console.print(line, soft_wrap=True, highlight=False, markup=False)

    @property
    def _n_done(self) -> int:
        return sum(one.n_done for one in self._combinations.values())

    def _of(self, config: SimulationConfig) -> _Combination:
        return self._combinations.setdefault(tuple(_shown(config, key) for key in self._varied), _Combination())

    def _touch(self, one: _Combination) -> None:
        self._n_events += 1
        one.touched = self._n_events

    def _line(self, row: SweepRow) -> str:
        n_runs = sum(one.n_runs for one in self._combinations.values())
        named = " ".join(f"{key.rpartition('.')[2]}={_shown(row.config, key)}" for key in self._of_lines)
        found = f"failed: {row.error}" if row.result is None else f"nDCG@10 {_last(row.result):.4f}"
        left = "" if self._console.is_terminal else self._left(n_runs)
        return f"run {self._n_done}/{n_runs}  {named}  {found}{left}"

    def _left(self, n_runs: int) -> str:
        """Say how long the other runs take if they take as long; empty while nothing is known, or under a second."""
        n_run = self._n_done - self._n_kept
        seconds = (time.monotonic() - self._began) / max(n_run, 1) * (n_runs - self._n_done)
        return "" if n_run == 0 or seconds < 1.0 else f"  about {timedelta(seconds=round(seconds))} left"

    def __rich__(self) -> RenderableType:
        with self._lock:
            return Group(self._table(), Text(self._summary()))

    def _table(self) -> Table:
        table = Table(box=None, pad_edge=False, header_style="bold")
        for key in self._varied:
            table.add_column(key.rpartition(".")[2])
        for heading in ("runs", *(("running",) if self._knows_running else ()), "done", "nDCG@10 so far"):
            table.add_column(heading, justify="right", no_wrap=True)
        for named, one in self._in_view():
            running = (str(one.n_running or "-"),) if self._knows_running else ()
            table.add_row(*named, str(one.n_runs), *running, str(one.n_done), _mean_text(one))
        return table

    def _in_view(self) -> list[tuple[tuple[str, ...], _Combination]]:
        """Return the combinations that fit the screen: those in which something happened last, in the sweep's order."""
        n_rows = max(3, self._console.height - _ROWS_BESIDE)
        newest = sorted(self._combinations, key=lambda named: self._combinations[named].touched, reverse=True)
        shown = set(newest[:n_rows])
        return [(named, one) for named, one in self._combinations.items() if named in shown]

    def _summary(self) -> str:
        n_runs = sum(one.n_runs for one in self._combinations.values())
        n_failed = sum(one.n_failed for one in self._combinations.values())
        n_hidden = len(self._combinations) - len(self._in_view())
        parts = [f"{self._n_done} of {n_runs} runs done"]
        if self._knows_running:
            parts.append(f"{sum(one.n_running for one in self._combinations.values())} running")
        if n_failed:
            parts.append(f"{n_failed} failed")
        if n_hidden:
            parts.append(f"{n_hidden} more lines")
        elapsed = timedelta(seconds=int(time.monotonic() - self._began))
        return f"{', '.join(parts)}, {elapsed}{',' if (left := self._left(n_runs)) else ''}{left}"


def _mean_text(one: _Combination) -> str:
    failed = f" ({one.n_failed} failed)" if one.n_failed else ""
    if not one.values:
        return f"-{failed}"
    found = difference_of(np.array(one.values, np.float64))
    interval = f" ± {found.margin():.4f}" if found.n > 1 else ""
    return f"{found.mean:.4f}{interval}{failed}"


def _last(result: dict[str, Any]) -> float:
    return float(result["ndcg_at_10"][-1]["value"])


def _shown(config: SimulationConfig, key: str) -> str:
    """Return the value of a setting, or of a named parameter, as in ``parameters.mu``."""
    name, _, parameter = key.partition(".")
    value = getattr(config, name)
    value = value.get(parameter) if parameter and name in _NAMED_PARAMETERS else value
    return "+".join(map(str, value)) if isinstance(value, tuple | list) else str(value)
