"""What docs/growth.md and docs/sizing.md have of growth.py's figures: tables, between comments that name them."""

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from growth_figures import COSTS, Growth, Size
from growth_law import Law, bends, is_ordinary
from page_text import distinct, number, table
from sizing import Plan, advice, sheet_table

sys.path.append(str(Path(__file__).parent.parent / "docs"))
from filled import fill

_BUSY = 0.1
"""A machine whose processors are used more than that by others is not idle."""


def fill_pages(growth: Growth, docs: Path) -> None:
    """Write the parts of both pages anew; what people wrote around them stays."""
    for name, parts in PAGES.items():
        page = docs / name
        text = page.read_text()
        for part, write in parts.items():
            text = fill(text, part, write(growth))
        page.write_text(text)


def laws_table(growth: Growth) -> str:
    """What a round costs by the law, in CPU time but for the first line."""
    rows = []
    for name, (_, what, _) in COSTS.items():
        law = growth.law(name)
        rows.append(
            (
                what,
                f"{law.round:.1f}",
                number(1e3 * law.update),
                number(1e6 * law.weight),
                f"{law.error:.0%}",
                _bends_of(law, growth.costs(name)),
            )
        )
    titles = ("cost", "a round, ms", "an update, µs", "a weight of an update, ns", "error", "measured beside the law")
    return table(titles, rows)


def _bends_of(law: Law, costs: Mapping[Size, float]) -> str:
    """Where it leaves the law most, of the sizes that it is not fitted to and of those that are off by a quarter."""
    found = bends(law, list(costs), list(costs.values()))
    beyond = {size: cost / law(*size) for size, cost in costs.items() if not is_ordinary(*size)}
    shown = sorted(found | beyond, key=lambda size: abs((found | beyond)[size] - 1), reverse=True)[:4]
    return ", ".join(f"{n:,} x {d:,}: {(found | beyond)[n, d]:.2f}" for n, d in shown)


def grid(growth: Growth, name: str) -> str:
    """A cost for each update in ms, by n and d, in brackets of what the law says; bold where it is a quarter off."""
    costs, law = growth.costs(name), growth.law(name)

    def entry(size: Size) -> str:
        if size not in costs:
            return ""
        ratio = costs[size] / law(*size)
        text = f"{costs[size] / size[0]:.3g} ({ratio:.2f})"
        return f"**{text}**" if not 0.8 <= ratio <= 1.25 else text

    return _by_size(costs, entry)


def stragglers_table(growth: Growth) -> str:
    """Rounds of devices some of which were refused, by the receipts' codes, or lost their connections."""
    rows = []
    for cell in growth.results("rounds"):
        refused = ", ".join(f"`{code}` {n:,}" for code, n in cell["refused"].items())
        if refused or cell["n_lost_connections"]:
            rows.append((f"{cell['n']:,} x {cell['dim']:,}", refused, f"{cell['n_lost_connections']:,}"))
    titles = ("n x d", "updates refused in all rounds, by code", "connections lost and made again")
    return table(titles, rows) if rows else "No update was refused, and no connection lost, in any of them."


def memory_grid(growth: Growth) -> str:
    """Resident megabytes at their most: federator and Mosquitto in rounds of real devices, and a device's own part."""
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
    """What connections cost Mosquitto."""
    cells = growth.results("fan-out")
    sizes = [one["bytes"] for one in cells[0]["deliveries"]]
    titles: Sequence[str] = (
        *("connections", "TLS", "to connect, ms", "memory, kB", "a keepalive, µs"),
        *(f"{size:,} bytes to one, µs" for size in sizes),
        *(f"{size:,} bytes to all: longest wait, s; memory meanwhile, MB" for size in sizes[-1:]),
    )
    rows = [
        (
            f"{cell['n']:,}",
            "with passwords" if cell["tls"] == "tls" else "none",
            f"{cell['connect_ms']:.2f}",
            f"{1e3 * cell['connected_mb'] / cell['n']:.1f}",
            number(1e3 * cell["ping_ms"]),
            *(number(1e3 * one["cpu_ms"]) for one in cell["deliveries"]),
            *(f"{1e-3 * one['wall_ms']:.2f}; {one['peak_mb']:.0f}" for one in cell["deliveries"][-1:]),
        )
        for cell in cells
    ]
    return table(titles, rows)


def paced_table(growth: Growth) -> str:
    """What a visit costs where devices take turns."""
    titles = (
        "devices",
        "visits",
        "late",
        "a round, s",
        "updates in it",
        "CPU ms a visit: federator",
        "broker",
        "device",
    )
    return table(
        titles,
        [
            (
                *(f"{one['devices']:,}", f"{one['visits']:,}", f"{one['late']:,}"),
                *(number(one["median_seconds"]), number(one["median_updates"])),
                *(f"{one['cpu_ms_per_visit'][name]:.2f}" for name in ("federator", "broker", "devices")),
            )
            for one in growth.results("paced")
        ],
    )


def profiles_table(growth: Growth, process: str) -> str:
    """Where the processor time of a process goes, by size: functions by their own share."""
    cells = growth.results("profile")
    places = distinct(place for cell in cells for place, _ in cell["profiles"][process]["functions"])
    shares = [dict(map(tuple, cell["profiles"][process]["functions"])) for cell in cells]
    rows = [
        (f"`{place}`", *(f"{of[place]:.0%}" if place in of else "" for of in shares))
        for place in sorted(places, key=lambda place: -max(of.get(place, 0.0) for of in shares))
    ]
    return table(("function", *(f"{cell['n']:,} x {cell['dim']:,}" for cell in cells)), rows)


def runs_text(growth: Growth) -> str:
    """On what machine, when, of which commits, and how busy it was."""
    records = growth.records
    machines = distinct(record["machine"] for record in records)
    lines = [
        f"- Measured on {one['cores']} cores of {one['cpu']}, {one['memory_gb']} GB, {one['system']}."
        for one in machines
    ]
    lines += [f"- {line}." for line in distinct(record["versions"] for record in records)]
    commits = ", ".join(f"`{commit}`" for commit in distinct(record["commit"] for record in records))
    minutes = sum(record["seconds"] for record in records) / 60
    lines.append(f"- {len(records)} cells of {commits}, in {minutes:.0f} minutes, on {records[0]['began']}.")
    busy = [record["name"] for record in records if record["busy"] > _BUSY]
    if busy:
        names = ", ".join(f"`{name}`" for name in busy) if len(busy) < 6 else f"{len(busy)} of them"
        lines.append(f"- **The machine was not idle** before {names}: times are too long.")
    return "\n".join(lines)


def sheets_text(growth: Growth) -> str:
    """Sheets of four fleets, rounds of 500 updates every ten minutes."""
    known = growth.constants()
    parts = []
    for devices, dim in ((10_000, 136), (100_000, 136), (1_000_000, 136), (1_000_000, 20_000)):
        plan = Plan(devices, dim)
        parts.append(f"**{devices:,} devices, {dim:,} weights**")
        parts.append(sheet_table(plan, known))
        parts.append("\n".join(f"- {line}" for line in advice(plan, known)))
    return "\n\n".join(filter(None, parts))


def constants_table(growth: Growth) -> str:
    """What the sheets are made with."""
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
