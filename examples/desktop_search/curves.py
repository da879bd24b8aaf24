"""Draw what `simulate.py` wrote: what the model can and what people saw, both beside BM25.

    python examples/desktop_search/curves.py results-*.json --out curves.png

Files with the same clicks become one panel: means over their seeds, with bands of one standard deviation.
"""

import argparse
import json
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
        panels[results["settings"]["clicks"]].append(results)
    draw(panels).savefig(options.out, dpi=80)


def draw(panels: dict[str, list[dict[str, Any]]]) -> Figure:
    """Return a figure with a panel for each kind of clicks."""
    figure = Figure(figsize=(_PANEL_SIZE[0] * len(panels), _PANEL_SIZE[1]), layout="constrained")
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    for axis, (clicks, runs) in zip(axes, sorted(panels.items()), strict=True):
        _draw_panel(axis, runs)
        axis.set_title(f"{clicks} clicks, seeds: {len(runs)}")
        axis.set_xlabel("searches")
    axes[0].set_ylabel("MRR@10 minus BM25's")
    axes[-1].legend(loc="lower right", fontsize="small")
    return figure


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
