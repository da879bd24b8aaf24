"""Draw the pictures of the documentation into ``docs/pictures``: ``make pictures``.

Nothing is measured or simulated: numbers come from the tables of the stored reports (research/results), from the
desktop search's README and from docs/growth/growth.json. The same numbers give the same bytes, so a test can compare.
"""

import io
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import matplotlib as mpl
import numpy as np
from growth_figures import read_growth
from growth_law import is_ordinary
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "pictures"
RESULTS = ROOT / "research" / "results"
DESKTOP_SEARCH = ROOT / "examples" / "desktop_search" / "README.md"

# Okabe and Ito's colours, which the colour-blind can tell apart; markers differ, too.
BLUE, RED, GREEN, PURPLE, BLACK = "#0072b2", "#d55e00", "#008a66", "#a3528a", "#1f2328"
GREY, PALE = "#59636e", "#d8dee4"
CLICKS: Final = {"perfect": (BLUE, "o"), "navigational": (GREEN, "s"), "informational": (RED, "^")}
DATA_SETS = ("MQ2008", "MSLR-sample")
# nDCG@10 of round 0 of any run: an untrained linear ranker leaves documents in the data's order.
UNTRAINED: Final = {"MQ2008": 0.484, "MSLR-sample": 0.162}
WIDTH = 7.6
FONT = "DejaVu Sans"
STYLE: Any = {
    # The first makes equal bytes of equal pictures, the second keeps text small and searchable.
    "svg.hashsalt": "foltr",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.sans-serif": [FONT],
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.titleweight": "bold",
    "axes.edgecolor": GREY,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": PALE,
    "grid.linewidth": 0.6,
    "lines.markersize": 5,
}

Row = dict[str, str]


def main() -> None:
    for name, text in pictures().items():
        (FOLDER / name).write_text(text)
        print(f"docs/pictures/{name}: {len(text) / 1000:.0f} kB")


def pictures() -> dict[str, str]:
    """Return each picture's SVG by its file's name."""
    with mpl.rc_context(STYLE):
        return {f"{name}.svg": _svg(draw()) for name, draw in PICTURES.items()}


def learning() -> Figure:
    """What a new device's ranker is worth by the lists that its user has seen: shared, personal or alone."""
    page, agreement = RESULTS / "remedy" / "synthetic-intents.md", "agreement 0.5"
    lists = (0, 5, 10, 20, 50, 100)
    tables = [table(page, f"nDCG@10 on held-out queries: late, after {n} lists") for n in lists]
    lines = {
        "local": (RED, "^", "alone"),
        "FPDGD": (GREEN, "s", "shared ranker"),
        "personal": (BLUE, "o", "personal weights"),
    }
    figure, axes = _panels(3, 2.9, right=1.3)
    for axis, clicks in zip(axes, CLICKS, strict=True):
        ends = []
        for method, (colour, marker, label) in lines.items():
            cells = [number(_row(one, preferences=agreement, method=method)[clicks]) for one in tables]
            _line(axis, lists, cells, colour, marker)
            ends.append((cells[-1][0], label, colour))
        none, _ = number(_row(tables[0], preferences=agreement, method="local")[clicks])
        axis.axhline(none, color=GREY, linestyle=":", linewidth=1.2)
        axis.set(title=f"{clicks} clicks", xlabel="lists its user has seen", ylim=(0, 0.9))
    _name_lines(axes[-1], [*ends, (none, "no learning", GREY)])
    axes[0].set_ylabel("nDCG@10, held-out queries")
    return figure


def methods() -> Figure:
    """How far each method gets between no learning and full information."""
    figure, axes = _panels(2, 3.5, left=1.15, share=False)
    for axis, data in zip(axes, DATA_SETS, strict=True):
        rows = table(RESULTS / "methods" / f"{data}.md", "nDCG@10 on the test set after the last round")
        full, _ = number(_row(rows, method="lambdarank")["perfect"])
        # Each method once, with its usual ranker.
        chosen = [row for row in rows[::-1] if not row["method"].endswith((" neural", "-batch", "lambdarank"))]
        names = [row["method"] for row in chosen]
        for clicks, (colour, marker) in CLICKS.items():
            mean, spread = np.array([number(row[clicks]) for row in chosen]).T
            y = np.arange(len(names)) + {"perfect": 0.22, "navigational": 0.0, "informational": -0.22}[clicks]
            axis.errorbar(mean, y, xerr=spread, fmt=marker, color=colour, linewidth=1, markersize=4, label=clicks)
        for x, label, side in ((UNTRAINED[data], "no learning", "left"), (full, "full information", "right")):
            axis.axvline(x, color=GREY, linestyle=":", linewidth=1.2)
            axis.text(x, len(names) - 0.3, label, ha=side, color=GREY)
        axis.set_title(data, pad=18)
        axis.set(xlabel="nDCG@10 after 200 rounds", ylim=(-0.6, len(names) - 0.4))
        axis.set_yticks(range(len(names)), names)
    axes[1].tick_params(labelleft=False)
    axes[0].legend(frameon=False, title="clicks")
    return figure


def shown() -> Figure:
    """What the models of a desktop search could do, and what its users saw, beside BM25."""
    found = re.search(r"BM25 has ([\d.]+), a ranker with full information ([\d.]+)", DESKTOP_SEARCH.read_text())
    if found is None:
        raise ValueError(f"{DESKTOP_SEARCH} has no MRR@10 of BM25 and of full information")
    base, full = map(float, found.groups())
    lines = {
        "(the defaults)": (BLUE, "o", "default"),
        "`--clicks noisy`": (GREEN, "s", "default, noisy clicks"),
        "`--exploration sampling --no-gate`": (PURPLE, "D", "sampling"),
        "`--exploration sampling --no-gate --clicks noisy`": (RED, "^", "sampling, noisy clicks"),
    }
    figure, axes = _panels(2, 3.9, right=1.55)
    ends = []
    for row in table(DESKTOP_SEARCH, "Does it learn, and what do users see meanwhile?"):
        setting, *cells = row.values()
        early, late, first, last = map(number, cells)
        colour, marker, label = lines[setting]
        above = [(mean - base, spread) for mean, spread in (early, late)]
        _line(axes[0], (30, 300), above, colour, marker)
        _line(axes[1], (10.5, 290.5), (first, last), colour, marker)
        ends.append((last[0], label, colour))
    for axis, title in zip(axes, ("What the model can do", "What users saw"), strict=True):
        axis.axhline(0, color=BLACK, linewidth=1)
        axis.axhline(full - base, color=GREY, linestyle=":", linewidth=1.2)
        axis.set(title=title, xlabel="round (of 40 searches)", xlim=(0, 310), xticks=(0, 100, 200, 300))
    axes[0].text(305, -0.006, "BM25's order", ha="right", va="top")
    axes[0].text(5, full - base + 0.004, "full information", color=GREY)
    axes[0].set_ylim(-0.31, 0.14)
    _name_lines(axes[1], ends)
    axes[0].set_ylabel("MRR@10 minus BM25's")
    return figure


def privacy() -> Figure:
    """What is left of a ranker under secure sums, by epsilon and by clients of a round."""
    figure, axes = _panels(2, 3.2, gap=0.6, share=False)
    # A place right of all epsilons for sums without noise, and steps aside so that spreads do not hide each other.
    epsilons, without = (1, 2, 8), 24
    sizes = {"1000": (BLUE, "o", 0.94), "100": (GREEN, "s", 0.98), "30": (PURPLE, "D", 1.02), "10": (RED, "^", 1.06)}
    heading = "nDCG@10 on the test set after the last round, by clients a round"
    for axis, data in zip(axes, DATA_SETS, strict=True):
        rows, starts = table(RESULTS / "privacy" / f"{data}.md", heading), []
        for size, (colour, marker, aside) in sizes.items():
            noised = [number(_row(rows, noise="gaussian", ε=str(epsilon))[size]) for epsilon in epsilons]
            _line(axis, np.multiply(epsilons, aside), noised, colour, marker)
            _line(axis, [without * aside], [number(_row(rows, noise="none")[size])], colour, marker)
            starts.append((noised[0][0], f"n = {int(size):,}", colour))
        axis.set(title=f"{data}, n devices a round", xlabel="ε of 20 participations", xscale="log", xlim=(0.3, 34))
        axis.set_xticks((*epsilons, without), (*map(str, epsilons), "no noise"))
        axis.minorticks_off()
        axis.axvspan(14, 34, color=PALE, alpha=0.5, linewidth=0)
        _name_lines(axis, starts, x=0.85, side="right")
    axes[0].set_ylabel("nDCG@10 after 200 rounds")
    return figure


def growth() -> Figure:
    """A round's cost by its devices: what was measured, and the law."""
    known = read_growth(ROOT / "docs" / "growth")
    by_part = (
        ("wall", 136, BLUE, "o", "round, by the clock"),
        ("devices", 136, RED, "^", "devices, processor"),
        ("federator", 136, GREEN, "s", "federator, processor"),
        ("broker", 136, PURPLE, "D", "Mosquitto, processor"),
    )
    by_weights = (
        ("wall", 20_000, RED, "^", "20,000 weights"),
        ("wall", 5_000, GREEN, "s", "5,000 weights"),
        ("wall", 136, BLUE, "o", "136 weights"),
    )
    figure, axes = _panels(2, 3.4, left=0.85, right=1.15, gap=1.5)
    for axis, title, lines in zip(axes, ("136 weights", "By the clock"), (by_part, by_weights), strict=True):
        axis.set(title=title, xlabel="devices in the round", xscale="log", yscale="log")
        axis.set(xlim=(8, 6500), ylim=(0.4, 20_000))
        axis.set_xticks((10, 100, 1000), ("10", "100", "1,000"))
        axis.set_yticks((1, 10, 100, 1000, 10_000), ("1 ms", "10 ms", "100 ms", "1 s", "10 s"))
        axis.minorticks_off()
        ends = []
        for cost, d, colour, marker, label in lines:
            law, measured = known.law(cost), {n: ms for (n, dim), ms in known.costs(cost).items() if dim == d}
            for n, ms in measured.items():
                # Hollow: the law was not fitted to this size, so it is a forecast there.
                axis.plot(n, ms, marker, color=colour, markerfacecolor=colour if is_ordinary(n, d) else "white")
            devices = np.geomspace(10, 5000, 40)
            axis.plot(devices, [law(n, d) for n in devices], color=colour, linewidth=1.2)
            ends.append((law(5000, d), label, colour))
        _name_lines(axis, ends)
    axes[0].set_ylabel("time of a round")
    return figure


PICTURES: dict[str, Callable[[], Figure]] = {
    "learning": learning,
    "methods": methods,
    "shown": shown,
    "privacy": privacy,
    "growth": growth,
}


def table(page: Path, heading: str) -> list[Row]:
    """Return the rows of the first table below a heading, by the names of its columns.

    Raises:
        ValueError: no such heading, or no table below it.
    """
    _, _, below = page.read_text().partition(f"\n## {heading}\n")
    found = re.search(r"^\|.*(\n\|.*)*", below, re.MULTILINE)
    lines = found[0].splitlines() if found else []
    cells = [[cell.strip() for cell in line[1:-1].split("|")] for line in lines]
    if len(cells) < 3:
        raise ValueError(f"{page} has no table below {heading!r}")
    return [dict(zip(cells[0], row, strict=True)) for row in cells[2:]]


def number(cell: str) -> tuple[float, float]:
    """Return the mean and the spread of a cell such as 0.721 ± 0.002; without one the spread is 0."""
    mean, _, spread = cell.replace("\N{MINUS SIGN}", "-").partition("±")
    return float(mean), float(spread or 0)


def _row(rows: Sequence[Row], **labels: str) -> Row:
    (found,) = (row for row in rows if all(row[key] == value for key, value in labels.items()))
    return found


def _panels(
    n: int, height: float, *, left: float = 0.75, right: float = 0.2, gap: float = 0.35, share: bool = True
) -> tuple[Figure, list[Axes]]:
    """Return a white card with axes at fixed places, in inches: a layout that follows fonts would differ by machine."""
    figure = Figure(figsize=(WIDTH, height), facecolor="white")
    width = (WIDTH - left - right - gap * (n - 1)) / n
    axes: list[Axes] = []
    for i in range(n):
        place = ((left + i * (width + gap)) / WIDTH, 0.55 / height, width / WIDTH, (height - 0.95) / height)
        axes.append(figure.add_axes(place, sharey=axes[0] if share and axes else None))
        if share and i:
            axes[i].tick_params(labelleft=False)
    return figure, axes


def _line(axis: Axes, x: ArrayLike, cells: Sequence[tuple[float, float]], colour: str, marker: str) -> None:
    mean, spread = np.array(cells).T
    axis.plot(x, mean, color=colour, marker=marker)
    bars = np.stack([mean - spread, mean + spread, np.full_like(mean, np.nan)], axis=1)
    axis.plot(np.repeat(x, 3), bars.ravel(), color=colour, linewidth=1)


def _name_lines(axis: Axes, ends: Sequence[tuple[float, str, str]], x: float | None = None, side: str = "left") -> None:
    """Write each line's name beside its end, (y, name, colour), at the right edge or at x; move names apart."""
    ends = sorted(ends)
    data_to_points = axis.transData.transform([(axis.get_xlim()[1] if x is None else x, y) for y, _, _ in ends])
    places, apart = data_to_points[:, 1], 12 * axis.figure.dpi / 72
    for _ in range(200):
        missing = np.maximum(apart - np.diff(places), 0) / 2
        places[:-1] -= missing
        places[1:] += missing
    for (_, name, colour), place in zip(ends, places, strict=True):
        left, y = axis.transAxes.inverted().transform((data_to_points[0, 0], place))
        offset = 6 if side == "left" else -2
        axis.annotate(
            name, (left, y), (offset, 0), "axes fraction", "offset points", color=colour, ha=side, va="center"
        )


def _svg(figure: Figure) -> str:
    file = io.StringIO()
    figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    # Readers rarely have the font that places were computed with, and theirs is narrower.
    lines = file.getvalue().replace(f"'{FONT}', sans-serif", "system-ui, sans-serif").splitlines()
    return "".join(f"{line.rstrip()}\n" for line in lines)


if __name__ == "__main__":
    main()
