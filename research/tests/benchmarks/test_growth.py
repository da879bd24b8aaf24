"""Growth's pages follow from its cells, and the ones in the repository from growth.json."""

import json
import re
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cli.commands import program_process

pytest.importorskip("psutil", reason="the benchmarks need the extra bench")

PROJECT = Path(__file__).parents[3]
BENCHMARKS, DOCS = PROJECT / "research/benchmarks", PROJECT / "docs"
MACHINE = {"cpu": "a processor", "cores": 2, "memory_gb": 8, "system": "Linux"}


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])
    import growth_figures as figures
    import growth_page as page

    return SimpleNamespace(figures=figures, page=page)


def record(kind: str, result: dict[str, Any], busy: float = 0.0) -> dict[str, Any]:
    """What growth.py writes of a cell."""
    name = "-".join(map(str, [kind, result.get("n", ""), result.get("dim", "")]))
    made = {"commit": "c0ffee", "began": "2026-11-23", "seconds": 60.0, "machine": MACHINE, "versions": "Python 3"}
    return {"name": name, "kind": kind, "busy": busy, "result": result, **made}


def made_records() -> list[dict[str, Any]]:
    """Cells of a machine that follows a law exactly, but for one round that takes twice as long."""
    records = []
    for n in (10, 100, 1000):
        for d in (46, 136, 1000):
            cost = 5 + 0.2 * n + 1e-5 * n * d
            cpu = {"federator": cost, "devices": 3 * cost, "broker": cost / 10}
            memory = {"federator": 120 + n / 100, "devices": 400.0, "broker": 9.0}
            wall = cost * (4 if (n, d) == (1000, 1000) else 2)
            late = {"late": 3} if n == 1000 else {}
            cell = {"n": n, "dim": d, "round_ms": wall, "cpu_ms": cpu, "memory_mb": memory}
            records.append(record("rounds", cell | {"refused": late, "n_lost_connections": 2 * len(late)}))
            crowd = {
                "n": n, "dim": d, "n_rounds": 5, "round_ms": cost, "federator_cpu_ms": cost / n,
                "broker_cpu_ms": cost / n / 10, "join_cpu_ms": 0.3, "federator_mb": 120 + n / 100, "broker_mb": 9.0,
                "bytes_per_client": 300.0, "bytes_per_update": 400 + 4.0 * d, "heard_messages": 2.0,
                "heard_bytes": 600 + 4.0 * d,
            }  # fmt: skip
            records.append(record("crowd", crowd))
    for tls, n in (("tls", 1000), ("tls", 3000), ("none", 1000)):
        deliveries = [
            {"bytes": size, "cpu_ms": 0.01 + 1e-6 * size, "wall_ms": 50.0, "peak_mb": 0.0} for size in (1000, 80_000)
        ]
        connect_ms = 0.9 + 1e-4 * n if tls == "tls" else 0.1
        fan_out = {"n": n, "tls": tls, "connect_ms": connect_ms, "connected_mb": 20.0, "ping_ms": 0.003}
        records.append(record("fan-out", fan_out | {"deliveries": deliveries}))
    visit = {"federator": 1.0, "broker": 0.5, "devices": 20.0}
    fleet = {"devices": 2000, "visits": 5000, "late": 0, "median_seconds": 9.0, "median_updates": 300.0}
    records.append(record("paced", fleet | {"cpu_ms_per_visit": visit}, busy=0.6))
    functions = [["federator/actor.py FederationActor._serve", 0.5], ["storage/arrivals.py commit_batch", 0.2]]
    profile = {"folders": [], "functions": functions}
    profiles = {"federator": profile, "devices": profile}
    records.append(record("profile", {"n": 100, "dim": 136, "profiles": profiles}))
    return records


def test_constants_are_those_of_the_cells(modules: SimpleNamespace, tmp_path: Path) -> None:
    """Also after they were written and read."""
    modules.figures.write_growth(modules.figures.Growth(made_records()), tmp_path)
    growth = modules.figures.read_growth(tmp_path)
    known = growth.constants()
    law = (known.federator_round_ms, known.federator_update_ms, known.federator_weight_ms)
    assert law == pytest.approx((5, 0.2, 1e-5))
    assert (known.broker_delivery_ms, known.broker_byte_ms) == pytest.approx((0.01, 1e-6))
    assert (known.heard_bytes, known.heard_bytes_per_weight) == pytest.approx((600, 4))
    # Without TLS a visit was measured, and with it a sizing sheet reckons.
    assert known.broker_visit_ms == pytest.approx(0.5 + 0.9)
    assert known.broker_connect_ms_per_connection == pytest.approx(1e-4)
    assert json.loads((tmp_path / "growth.json").read_text())["constants"] == vars(known)


def test_the_pages_say_what_was_measured(modules: SimpleNamespace, tmp_path: Path) -> None:
    """The law, what leaves it in bold, and that the machine was busy; what people wrote stays."""
    for name, parts in modules.page.PAGES.items():
        places = "\n".join(f"<!-- {part}:begin -->\n<!-- {part}:end -->" for part in parts)
        (tmp_path / name).write_text(f"Words.\n{places}\nMore.\n")
    modules.page.fill_pages(modules.figures.Growth(made_records()), tmp_path)
    text = (tmp_path / "growth.md").read_text()
    assert text.startswith("Words.\n")
    assert "| the federator | 5 | 200 | 10 | 0% |  |" in text
    assert re.search(r"\| 1,000 \| .* \| \*\*0\.86 \(\d\.\d\d\)\*\* \|", text)
    assert "| 1,000 x 136 | `late` 3 | 2 |" in text
    assert "| 100 x 136 | `late`" not in text
    assert "**The machine was not idle** before `paced" in text
    assert "| `federator/actor.py FederationActor._serve` | 50% |" in text
    assert "**1,000,000 devices, 136 weights**" in (tmp_path / "sizing.md").read_text()


def test_the_pages_of_the_repository_are_those_of_its_figures(modules: SimpleNamespace, tmp_path: Path) -> None:
    """After a change run: python research/benchmarks/growth.py --page."""
    for name in modules.page.PAGES:
        shutil.copy(DOCS / name, tmp_path / name)
    modules.page.fill_pages(modules.figures.read_growth(DOCS / "growth"), tmp_path)
    for name in modules.page.PAGES:
        assert (tmp_path / name).read_text() == (DOCS / name).read_text(), name


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.skipif(
    shutil.which("mosquitto", path="/usr/bin:/usr/sbin:/usr/local/sbin") is None, reason="the benchmarks need Mosquitto"
)
def test_cells_are_measured_and_the_others_are_left(tmp_path: Path) -> None:
    """Rounds of devices, rounds of a crowd and connections; what was measured is kept for the next run."""
    names = ["rounds-5-46", "crowd-50-46", "fan-out-20-tls"]
    done = program_process(BENCHMARKS / "growth.py", "--quick", "--folder", tmp_path, *names, timeout_s=200)
    assert done.returncode == 0, done.stderr
    assert "7 of 10 cells are left" in done.stdout
    assert "nothing was written yet: 1 rounds make no law" in done.stdout
    rounds, crowd, fan_out = (json.loads((tmp_path / f"{name}.json").read_text())["result"] for name in names)
    assert 0 < rounds["cpu_ms"]["federator"] < 1000 * rounds["round_ms"]
    assert crowd["heard_messages"] >= 2
    assert crowd["heard_bytes"] > 4 * 46
    assert crowd["bytes_per_update"] > 4 * 46
    assert fan_out["connect_ms"] > 0
    assert [one["bytes"] for one in fan_out["deliveries"]] == [1000, 20_000, 80_000]
