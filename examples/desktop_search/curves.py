"""Draw the results of `simulate.py`: the model's quality and the lists that people saw, beside BM25.

    python examples/desktop_search/curves.py results-*.json --out curves.png

Files that differ only by their seed become one panel: means over seeds, with bands of one standard deviation.
"""

import argparse
import json
import math
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from queries import N_DEVICES
from simulate import LONGEST_BLOCK, SEARCHES

_MODEL, _SHOWN, _LIMIT = "tab:blue", "tab:red", "0.5"
_PANEL_SIZE: Final = (4.6, 3.2)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Draw what simulate.py wrote.")
    parser.add_argument("results", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, default=Path("curves.png"))
    options = parser.parse_args(arguments)
    panels = defaultdict(list)
    for file in options.results:
        results = json.loads(file.read_text())
        panels[_title(results["settings"])].append(results)
    draw(panels).savefig(options.out, dpi=80)


def draw(panels: dict[str, list[dict[str, Any]]]) -> Figure:
    """Return a figure with a panel for each title."""
    n_columns = min(2, len(panels))
    n_rows = math.ceil(len(panels) / n_columns)
    figure = Figure(figsize=(_PANEL_SIZE[0] * n_columns, _PANEL_SIZE[1] * n_rows), layout="constrained")
    axes = [figure.add_subplot(n_rows, n_columns, i + 1) for i in range(len(panels))]
    for axis, (title, runs) in zip(axes, panels.items(), strict=True):
        _draw_panel(axis, runs)
        axis.set_title(f"{title} (seeds: {len(runs)})", fontsize="medium")
        axis.set_xlabel("searches")
        axis.set_ylabel("MRR@10 minus BM25's")
        axis.sharey(axes[0])
    axes[0].legend(loc="lower right", fontsize="small")
    return figure


def _title(settings: dict[str, Any]) -> str:
    start = "from BM25" if settings["warm_start"] else "from nothing"
    return f"{settings['clicks']} clicks, {settings['exploration']}, {start}"


def _draw_panel(axis: Axes, runs: Sequence[dict[str, Any]]) -> None:
    model = np.array([np.array(run["model_mrr_at_10_by_round"]) - run["base_mrr_at_10"] for run in runs])
    shown = np.array([run["shown_minus_base"] for run in runs])
    limit = float(np.mean([run["full_information"] - run["base_mrr_at_10"] for run in runs]))
    searches = SEARCHES * N_DEVICES
    middles = (np.arange(shown.shape[1]) + 0.5) * LONGEST_BLOCK * searches
    axis.axhline(0.0, color="black", linewidth=1, label="BM25")
    axis.axhline(limit, color=_LIMIT, linestyle="--", label="full information")
    for x, values, colour, label in (
        (np.arange(model.shape[1]) * searches, model, _MODEL, "what the model can"),
        (middles, shown, _SHOWN, "what people saw"),
    ):
        mean, deviation = values.mean(axis=0), values.std(axis=0)
        axis.plot(x, mean, color=colour, label=label)
        axis.fill_between(x, mean - deviation, mean + deviation, color=colour, alpha=0.2, linewidth=0)


if __name__ == "__main__":
    main()
