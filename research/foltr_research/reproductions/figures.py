"""Figures of an experiment: a panel per click model (or another label), means over seeds with bands of one standard
deviation. Drawn without pyplot, which would keep global state."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from foltr.core.errors import UnavailableError
from foltr.core.extras import install_command
from foltr_research.reproductions.outcomes import METRICS, Labels, Results

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_DOTS_PER_INCH = 72
_PANEL_SIZE = (4.2, 3.1)
_LEGEND_LINE = 0.24
_STYLES = ("-", "--", ":", "-.")


@dataclass(frozen=True)
class Figure:
    """One metric over the rounds.

    Attributes:
        file: its name.
        metric: a key of `METRICS`.
        curves: the labels that distinguish its curves; the first sets the colour, the second the dashes.
        panels: the label with a column of panels for each value.
        rows: the label with a row of panels for each value.
        x: rounds, or interactions of all clients together.
        shared_y: whether the panels of a row share a scale.
        kind: curves over time, or bars of the final values.
        where: labels of the runs shown.
    """

    file: str
    metric: str
    curves: tuple[str, ...]
    panels: str = "clicks"
    rows: str | None = None
    x: Literal["rounds", "interactions"] = "rounds"
    shared_y: bool = True
    title: str = ""
    y_label: str | None = None
    kind: Literal["curves", "bars"] = "curves"
    where: Labels = field(default_factory=dict)


def require_matplotlib() -> None:
    """Raise UnavailableError, naming what to install, without matplotlib."""
    try:
        import matplotlib as mpl
    except ImportError as error:
        raise UnavailableError(
            f"figures need matplotlib; install it with: {install_command('figures', 'foltr-research')}"
        ) from error
    del mpl


def draw(figure: Figure, results: Results, path: Path) -> None:
    """Write one figure as PNG.

    Raises:
        UnavailableError: matplotlib is not installed.
    """
    require_matplotlib()
    from matplotlib.figure import Figure as Canvas

    chosen = results.select(figure.where)
    columns, rows = chosen.labels(figure.panels), chosen.labels(figure.rows) if figure.rows else ("",)
    names = [name for name, _ in _curves(figure, chosen)]
    legend_columns = max(1, min(len(names), len(columns) * 2))
    legend_inches = _LEGEND_LINE * (-(-len(names) // legend_columns) + 1)
    width, height = _PANEL_SIZE[0] * len(columns), _PANEL_SIZE[1] * len(rows) + legend_inches
    canvas = Canvas(figsize=(width, height), layout="constrained")
    axes = canvas.subplots(
        len(rows), len(columns), sharex=True, sharey="row" if figure.shared_y else False, squeeze=False
    )
    for i, row in enumerate(rows):
        for j, column in enumerate(columns):
            labels = {figure.panels: column} | ({figure.rows: row} if figure.rows else {})
            _panel(axes[i][j], figure, chosen.select(labels), chosen)
            axes[i][j].set_title(f"{column}, {row}" if figure.rows else column, fontsize=10)
        axes[i][0].set_ylabel(figure.y_label or METRICS[figure.metric].label)
    if figure.kind == "curves":
        _spread_out(axes, figure, chosen)
        for axis in axes[-1]:
            axis.set_xlabel("round" if figure.x == "rounds" else "interactions of all clients")
    handles = {
        label: handle for axis in axes.flat for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    if figure.kind == "curves" and len(handles) > 1:
        canvas.legend(
            list(handles.values()), list(handles), loc="outside lower center", ncols=legend_columns, fontsize=8
        )
    canvas.suptitle(figure.title or METRICS[figure.metric].label, fontsize=11)
    canvas.savefig(path, format="png", dpi=_DOTS_PER_INCH)


def _panel(axis: "Axes", figure: Figure, there: Results, everywhere: Results) -> None:
    if figure.kind == "bars":
        _bars(axis, figure, there)
    else:
        _lines(axis, figure, there, everywhere)
    axis.grid(alpha=0.3)
    axis.spines[["top", "right"]].set_visible(False)


def _lines(axis: "Axes", figure: Figure, there: Results, everywhere: Results) -> None:
    colours = everywhere.labels(figure.curves[0])
    dashes = everywhere.labels(figure.curves[1]) if len(figure.curves) > 1 else ()
    for name, labels in _curves(figure, there):
        runs = there.select(labels)
        curve = runs.curve(figure.metric)
        config = runs.outcomes[0].config
        scale = 1 if figure.x == "rounds" else (config.participants or config.clients) * config.interactions
        place = colours.index(labels[figure.curves[0]])
        second = labels.get(figure.curves[1]) if dashes else None
        # There are ten colours. Without a second label, dashes distinguish the next ten.
        dash = place // 10 if not dashes else 0 if second is None else dashes.index(second)
        colour, style = f"C{place % 10}", _STYLES[dash % len(_STYLES)]
        axis.plot(curve.rounds * scale, curve.mean, color=colour, linestyle=style, linewidth=1.3, label=name)
        if np.any(curve.sd > 0):
            low, high = curve.mean - curve.sd, curve.mean + curve.sd
            axis.fill_between(curve.rounds * scale, low, high, color=colour, alpha=0.12, linewidth=0)


def _spread_out(axes: NDArray[np.object_], figure: Figure, results: Results) -> None:
    """Limit the axis to curves without their first points: the untrained ranker would squeeze all others together."""
    for i, row in enumerate(results.labels(figure.rows) if figure.rows else ("",)):
        there = results.select({figure.rows: row} if figure.rows else {})
        panels = [there.select({figure.panels: column}) for column in results.labels(figure.panels)]
        values = [_learned(figure, panel) for panel in panels]
        for axis, own in zip(axes[i], values, strict=True):
            shown = np.concatenate(values) if figure.shared_y else own
            if len(shown):
                low, high = float(shown.min()), float(shown.max())
                margin = max(0.08 * (high - low), 0.005)
                axis.set_ylim(low - margin, high + margin)


def _learned(figure: Figure, panel: Results) -> NDArray[np.float64]:
    """Return the values of a panel's mean curves without their first points."""
    curves = [panel.select(labels).curve(figure.metric).mean[1:] for _, labels in _curves(figure, panel)]
    values = np.concatenate(curves) if curves else np.empty(0)
    return values[~np.isnan(values)]


def _bars(axis: "Axes", figure: Figure, there: Results) -> None:
    named = _curves(figure, there)
    means = [there.select(labels).mean(figure.metric) for _, labels in named]
    spreads = [there.select(labels).sd(figure.metric) for _, labels in named]
    places = np.arange(len(named))
    axis.errorbar(means, places, xerr=spreads, fmt="o", markersize=4, capsize=2, color="C0")
    axis.set_yticks(places, [name for name, _ in named], fontsize=8)
    axis.set_ylabel("")


def _curves(figure: Figure, results: Results) -> list[tuple[str, dict[str, str]]]:
    """Return each curve's legend and labels. A run may lack some of them."""
    found: dict[str, dict[str, str]] = {}
    for one in results:
        labels = {key: one.labels[key] for key in figure.curves if key in one.labels}
        found.setdefault(", ".join(_label(key, value) for key, value in labels.items()), labels)
    return list(found.items())


def _label(key: str, value: str) -> str:
    """Return a label; a number alone would be unclear, so its key is added."""
    return f"{key} {value}" if value[:1].isdigit() else value
