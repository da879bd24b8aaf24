"""The generated parts of docs/growth.md and docs/sizing.md: tables of growth.py's figures, between named comments."""

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path

from bench_page import BUSY, machines_of
from growth_figures import COSTS, Growth, Size
from growth_law import Law, bends, is_ordinary
from sizing import Plan, advice, sheet_table
from tables import distinct, table, table_of

sys.path.append(str(Path(__file__).parents[2] / "docs"))
from filled import fill


def fill_pages(growth: Growth, docs: Path) -> None:
    """Rewrite the generated parts of both pages; other text stays."""
    for name, parts in PAGES.items():
        page = docs / name
        text = page.read_text()
        for part, write in parts.items():
            text = fill(text, part, write(growth))
        page.write_text(text)


def laws_table(growth: Growth) -> str:
    """Return the cost of a round by the law. All lines except the first are CPU time."""
    rows = []
    for name, (_, what, _) in COSTS.items():
        law = growth.law(name)
        terms = (law.round, 1e3 * law.update, 1e6 * law.weight)
        rows.append((what, *terms, f"{law.error:.0%}", _bends_of(law, growth.costs(name))))
    titles = ("cost", "a round, ms", "an update, µs", "a weight of an update, ns", "error", "measured beside the law")
    return table(titles, rows)


def _bends_of(law: Law, costs: Mapping[Size, float]) -> str:
    """Describe the largest deviations from the law: at sizes it is not fitted to, and those off by a quarter."""
    found = bends(law, list(costs), list(costs.values()))
    beyond = {size: cost / law(*size) for size, cost in costs.items() if not is_ordinary(*size)}
    shown = sorted(found | beyond, key=lambda size: abs((found | beyond)[size] - 1), reverse=True)[:4]
    return ", ".join(f"{n:,} x {d:,}: {(found | beyond)[n, d]:.2f}" for n, d in shown)


def grid(growth: Growth, name: str) -> str:
    """Return a cost per update in ms, by n and d, with the law's forecast in brackets; bold if a quarter off."""
    costs, law = growth.costs(name), growth.law(name)

    def entry(size: Size) -> str:
        if size not in costs:
            return ""
        ratio = costs[size] / law(*size)
        text = f"{costs[size] / size[0]:.3g} ({ratio:.2f})"
        return f"**{text}**" if not 0.8 <= ratio <= 1.25 else text

    return _by_size(costs, entry)


def stragglers_table(growth: Growth) -> str:
    """Return rounds with refused devices, by receipt code, or lost connections."""
    rows = []
    for cell in growth.results("rounds"):
        refused = ", ".join(f"`{code}` {n:,}" for code, n in cell["refused"].items())
        if refused or cell["n_lost_connections"]:
            rows.append((f"{cell['n']:,} x {cell['dim']:,}", refused, f"{cell['n_lost_connections']:,}"))
    titles = ("n x d", "updates refused in all rounds, by code", "connections lost and made again")
    return table(titles, rows) if rows else "No update was refused, and no connection lost, in any of them."


def memory_grid(growth: Growth) -> str:
    """Return peak resident megabytes: federator and Mosquitto in rounds of real devices, and a device's part."""
    cells = {(cell["n"], cell["dim"]): cell["memory_mb"] for cell in growth.results("rounds")}
    return _by_size(cells, lambda size: " / ".join(_megabytes(cells, size)) if size in cells else "")


def _megabytes(cells: Mapping[Size, Mapping[str, float]], size: Size) -> Iterable[str]:
    yield from (f"{cells[size][name]:.0f}" for name in ("federator", "broker", "devices"))


def _by_size(costs: Iterable[Size], entry: Callable[[Size], str]) -> str:
    sizes = sorted(costs)
    dims = sorted({d for _, d in sizes})
    rows = [(f"{n:,}", *(entry((n, d)) for d in dims)) for n in distinct(n for n, _ in sizes)]
    return table(("n", *(f"d = {d:,}" for d in dims)), rows)


def fan_out_table(growth: Growth) -> str:
    """Return the cost to Mosquitto of connections, and of announcements to all of them."""
    rows = []
    for cell in growth.results("fan-out"):
        row = {
            "connections": cell["n"],
            "TLS": "with passwords" if cell["tls"] == "tls" else "none",
            "to connect, ms": cell["connect_ms"],
            "memory, kB": 1e3 * cell["connected_mb"] / cell["n"],
            "a keepalive, µs": 1e3 * cell["ping_ms"],
        }
        row |= {f"{one['bytes']:,} bytes to one, µs": 1e3 * one["cpu_ms"] for one in cell["deliveries"]}
        last = cell["deliveries"][-1]
        row[f"{last['bytes']:,} bytes to all: longest wait, s"] = 1e-3 * last["wall_ms"]
        rows.append(row | {"memory meanwhile, MB": last["peak_mb"]})
    return table_of(rows)


def paced_table(growth: Growth) -> str:
    """Return the cost of a visit for devices that take turns."""
    rows = []
    for cell in growth.results("paced"):
        row = {"devices": cell["devices"], "visits": cell["visits"], "late": cell["late"]}
        row |= {"a round, s": cell["median_seconds"], "updates in it": cell["median_updates"]}
        rows.append(row | {f"CPU ms a visit: {name}": ms for name, ms in cell["cpu_ms_per_visit"].items()})
    return table_of(rows)


def profiles_table(growth: Growth, process: str) -> str:
    """Return the processor time of a process by size: functions by their own share."""
    cells = growth.results("profile")
    places = distinct(place for cell in cells for place, _ in cell["profiles"][process]["functions"])
    shares = [dict(map(tuple, cell["profiles"][process]["functions"])) for cell in cells]
    rows = [
        (f"`{place}`", *(f"{of[place]:.0%}" if place in of else "" for of in shares))
        for place in sorted(places, key=lambda place: -max(of.get(place, 0.0) for of in shares))
    ]
    return table(("function", *(f"{cell['n']:,} x {cell['dim']:,}" for cell in cells)), rows)


def runs_text(growth: Growth) -> str:
    """Describe the machine, times, commits and background load."""
    records = growth.records
    lines = [f"- {line}" for line in machines_of(records)]
    lines += [f"- {line}." for line in distinct(record["versions"] for record in records)]
    commits = ", ".join(f"`{commit}`" for commit in distinct(record["commit"] for record in records))
    minutes = sum(record["seconds"] for record in records) / 60
    lines.append(f"- {len(records)} cells of {commits}, in {minutes:.0f} minutes, on {records[0]['began']}.")
    busy = [record["name"] for record in records if record["busy"] > BUSY]
    if busy:
        names = ", ".join(f"`{name}`" for name in busy) if len(busy) < 6 else f"{len(busy)} of them"
        lines.append(f"- **The machine was not idle** before {names}: times are too long.")
    return "\n".join(lines)


def sheets_text(growth: Growth) -> str:
    """Return sheets of four fleets, with rounds of 500 updates every ten minutes."""
    known = growth.constants()
    parts = []
    for devices, dim in ((10_000, 136), (100_000, 136), (1_000_000, 136), (1_000_000, 20_000)):
        plan = Plan(devices, dim)
        parts.append(f"**{devices:,} devices, {dim:,} weights**")
        parts.append(sheet_table(plan, known))
        parts.append("\n".join(f"- {line}" for line in advice(plan, known)))
    return "\n\n".join(filter(None, parts))


def constants_table(growth: Growth) -> str:
    return table(
        ("constant", "value"), [(f"`{name}`", f"{value:.4g}") for name, value in asdict(growth.constants()).items()]
    )


PAGES: dict[str, dict[str, Callable[[Growth], str]]] = {
    "growth.md": {
        "laws": laws_table,
        "wall": lambda growth: grid(growth, "wall"),
        "federator": lambda growth: grid(growth, "federator"),
        "crowd": lambda growth: grid(growth, "crowd-federator"),
        "devices": lambda growth: grid(growth, "devices"),
        "stragglers": stragglers_table,
        "memory": memory_grid,
        "fan-out": fan_out_table,
        "paced": paced_table,
        "profile-federator": lambda growth: profiles_table(growth, "federator"),
        "profile-devices": lambda growth: profiles_table(growth, "devices"),
        "runs": runs_text,
    },
    "sizing.md": {"sheets": sheets_text, "constants": constants_table},
}
