"""Plots of growth.py's figures as SVG: on no background, in colours that can be read on white and on dark pages."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from growth_figures import Growth

INK = "#80868f"
LINES = ("#8a6fd1", "#2f86c9", "#159a80", "#b97d10", "#d85a4f")
"""Of the least number of weights first."""
_MARKS = "osD^v"
_STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "foltr",
    "font.family": "sans-serif",
    "font.size": 11,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": INK,
    "grid.alpha": 0.35,
    "grid.linewidth": 0.5,
}
_PANEL = (4.4, 3.4)


def draw_all(growth: Growth, folder: Path) -> None:
    """Draw every plot of docs/growth.md, if matplotlib is installed; else say so."""
    try:
        import matplotlib as mpl
    except ImportError:
        print("matplotlib is not installed: no plots were drawn")
        return
    folder.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(_STYLE):
        for name, panels in PLOTS.items():
            _draw(growth, panels, folder / f"{name}.svg")


def _draw(growth: Growth, panels: Sequence["Panel"], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_PANEL[0] * len(panels), _PANEL[1] + 0.4), layout="constrained")
    for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        panel(axes, growth)
        axes.grid(visible=True)
        axes.spines[["top", "right"]].set_visible(False)
        axes.patch.set_visible(False)
    entries = {
        label: handle for axes in figure.axes for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    legend = figure.legend(
        list(entries.values()), list(entries), loc="outside lower center", ncols=min(6, len(entries)), frameon=False
    )
    legend.set_in_layout(True)
    figure.savefig(path, format="svg", transparent=True, metadata={"Date": None, "Creator": None})


Panel = Callable[[Any, Growth], None]


def by_n(cost: str, title: str, *, is_law_shown: bool = True, also: str | None = None) -> Panel:
    """Return a panel of a cost for each update over n, a line for each d, beside thin ones of the law.

    Args:
        cost, also: names in `growth_figures.COSTS`; the second is drawn with hollow marks.
    """

    def panel(axes: Any, growth: Growth) -> None:
        costs, law = growth.costs(cost), growth.law(cost)
        others = growth.costs(also) if also else {}
        for d, colour, mark in zip(_dims(growth), LINES, _MARKS, strict=False):
            sizes = sorted(n for n, dim in costs if dim == d)
            axes.plot(sizes, [costs[n, d] / n for n in sizes], mark, color=colour, markersize=5, label=f"d = {d:,}")
            if is_law_shown and sizes:
                smooth = np.geomspace(sizes[0], sizes[-1], 60)
                axes.plot(smooth, [law(n, d) / n for n in smooth], "-", color=colour, linewidth=1)
            more = sorted(n for n, dim in others if dim == d)
            axes.plot(more, [others[n, d] / n for n in more], mark, color=colour, markersize=6, fillstyle="none")
        _label(axes, title, "devices in a round", "ms for each update")

    return panel


def memory(process: str, title: str) -> Panel:
    """Return a panel of resident memory over n."""

    def panel(axes: Any, growth: Growth) -> None:
        cells = {(cell["n"], cell["dim"]): cell["memory_mb"][process] for cell in growth.results("rounds")}
        for d, colour, mark in zip(_dims(growth), LINES, _MARKS, strict=False):
            sizes = sorted(n for n, dim in cells if dim == d)
            axes.plot(
                sizes,
                [cells[n, d] for n in sizes],
                f"{mark}-",
                color=colour,
                markersize=5,
                linewidth=1,
                label=f"d = {d:,}",
            )
        _label(axes, title, "devices in a round", "MB")

    return panel


def deliveries(axes: Any, growth: Growth) -> None:
    """Draw Mosquitto's CPU time for each connection that hears an announcement, over its length."""
    for cell, colour, mark in zip(growth.results("fan-out"), LINES, _MARKS, strict=False):
        line = cell["deliveries"]
        x, y = [one["bytes"] for one in line], [1e3 * one["cpu_ms"] for one in line]
        axes.plot(x, y, f"{mark}-", color=colour, markersize=5, linewidth=1, label=_connections(cell))
    _label(axes, "Mosquitto, each delivery", "bytes of the announcement", "µs")


def waiting(axes: Any, growth: Growth) -> None:
    """Draw how much memory Mosquitto takes while an announcement is on its way, over the bytes that it sends."""
    for cell, colour, mark in zip(growth.results("fan-out"), LINES, _MARKS, strict=False):
        line = cell["deliveries"]
        x, y = [1e-6 * cell["n"] * one["bytes"] for one in line], [max(0.1, one["peak_mb"]) for one in line]
        axes.plot(x, y, f"{mark}-", color=colour, markersize=5, linewidth=1, label=_connections(cell))
    _label(axes, "Mosquitto, memory meanwhile", "MB sent to all", "MB")


def _connections(cell: dict[str, Any]) -> str:
    return f"{cell['n']:,} connected, {'TLS' if cell['tls'] == 'tls' else 'no TLS'}"


def _label(axes: Any, title: str, x: str, y: str) -> None:
    from matplotlib.ticker import LogLocator, NullLocator

    axes.set(xscale="log", yscale="log", xlabel=x, ylabel=y)
    for axis, shown in ((axes.xaxis, (1.0,)), (axes.yaxis, (1.0, 2.0, 5.0))):
        axis.set_major_locator(LogLocator(subs=shown))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter("{x:,.6g}")
    axes.set_title(title, fontsize=11)


def _dims(growth: Growth) -> Iterable[int]:
    return sorted({cell["dim"] for cell in growth.results("rounds")})


PLOTS: dict[str, Sequence[Panel]] = {
    "round": (by_n("wall", "a round, by the clock"), by_n("devices", "processor: a device")),
    "servers": (
        by_n("federator", "processor: the federator", also="crowd-federator"),
        by_n("broker", "processor: Mosquitto"),
    ),
    "memory": (memory("federator", "memory: the federator"), memory("broker", "memory: Mosquitto")),
    "fan-out": (deliveries, waiting),
}
