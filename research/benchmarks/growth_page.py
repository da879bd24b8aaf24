"""The generated parts of docs/sizing.md: tables of growth.py's figures, between named comments."""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from bench_page import BUSY, machines_of
from growth_figures import COSTS, Growth, Size
from growth_law import Law, bends, is_ordinary
from sizing import ROWS, Plan, connected_sheet, paced_sheet
from tables import distinct, table, table_of

sys.path.append(str(Path(__file__).parents[2] / "docs"))
from filled import fill


def fill_page(growth: Growth, page: Path) -> None:
    """Rewrite the generated parts of the page; other text stays."""
    text = page.read_text()
    for part, write in PARTS.items():
        text = fill(text, part, write(growth))
    page.write_text(text)


def laws_table(growth: Growth) -> str:
    """Return the cost of a round by the law. All lines except the first are CPU time."""
    rows = []
    for name, (_, what, _) in COSTS.items():
        law = growth.law(name)
        terms = (law.round, 1e3 * law.update, 1e6 * law.weight)
        rows.append((what, *terms, f"{law.error:.0%}", _furthest(law, growth.costs(name))))
    titles = ("cost", "a round, ms", "an update, µs", "a weight of an update, ns", "error", "furthest off")
    return table(titles, rows)


def _furthest(law: Law, costs: Mapping[Size, float]) -> str:
    """Describe the largest deviation from the law, of sizes it is not fitted to and those off by a quarter."""
    found = bends(law, list(costs), list(costs.values()))
    beyond = {size: cost / law(*size) for size, cost in costs.items() if not is_ordinary(*size)}
    off = found | beyond
    if not off:
        return ""
    n, d = max(off, key=lambda size: abs(off[size] - 1))
    return f"{n:,} x {d:,}: {off[n, d]:.2f}"


def fan_out_table(growth: Growth) -> str:
    """Return the cost to Mosquitto of connections, and of announcements to all of them."""
    rows = []
    for cell in growth.results("fan-out"):
        row = {
            "connections": cell["n"],
            "TLS": "with passwords" if cell["tls"] == "tls" else "none",
            "to connect, ms": cell["connect_ms"],
            "memory, kB": 1e3 * cell["connected_mb"] / cell["n"],
        }
        last = cell["deliveries"][-1]
        row[f"{last['bytes']:,} bytes to one, µs"] = 1e3 * last["cpu_ms"]
        rows.append(row | {"to all: longest wait, s": 1e-3 * last["wall_ms"]})
    return table_of(rows)


def runs_text(growth: Growth) -> str:
    """Describe the machine, commits and background load."""
    records = growth.records
    lines = [f"- {line}" for line in machines_of(records)]
    commits = ", ".join(f"`{commit}`" for commit in distinct(record["commit"] for record in records))
    lines.append(f"- {len(records)} cells of {commits}, on {records[0]['began']}.")
    busy = [record["name"] for record in records if record["busy"] > BUSY]
    if busy:
        names = ", ".join(f"`{name}`" for name in busy) if len(busy) < 6 else f"{len(busy)} of them"
        lines.append(f"- **The machine was not idle** before {names}: times are too long.")
    return "\n".join(lines)


def sheets_table(growth: Growth) -> str:
    """Return the sheets of three fleets, connected and taking turns, as one table."""
    known = growth.constants()
    plans = [Plan(devices) for devices in (10_000, 100_000, 1_000_000)]
    sheets = [sheet(plan, known) for plan in plans for sheet in (connected_sheet, paced_sheet)]
    titles = [f"{plan.devices:,} {how}" for plan in plans for how in ("connected", "in turns")]
    return table(("", *titles), [(name, *map(row, sheets)) for name, row in ROWS.items()])


PARTS: dict[str, Callable[[Growth], str]] = {
    "laws": laws_table,
    "fan-out": fan_out_table,
    "sheets": sheets_table,
    "runs": runs_text,
}
