"""Growth's constants and pages follow from its cells, and the ones in the repository from growth.json."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parents[3] / "docs"


def record(kind: str, **result: Any) -> dict[str, Any]:
    """What growth.py writes of a cell."""
    machine = {"cpu": "a processor", "cores": 2, "memory_gb": 8, "system": "Linux"}
    made = {"commit": "c0ffee", "began": "2026-11-23", "seconds": 60.0, "machine": machine, "versions": "Python 3"}
    name = f"{kind}-{result.get('n')}-{result.get('dim')}"
    return {"name": name, "kind": kind, "busy": 0.0, "result": result, **made}


def made_records() -> list[dict[str, Any]]:
    """Cells of a machine that follows a law exactly."""
    records = []
    for n in (10, 100, 1000):
        for d in (46, 136, 1000):
            cost, memory = 5 + 0.2 * n + 1e-5 * n * d, {"federator": 120 + n / 100, "devices": 400.0, "broker": 9.0}
            cpu = {"federator": cost, "devices": 3 * cost, "broker": cost / 10}
            of_rounds = {"round_ms": 2 * cost, "refused": {}, "n_lost_connections": 0}
            records.append(record("rounds", n=n, dim=d, cpu_ms=cpu, memory_mb=memory, **of_rounds))
            of_crowd = dict.fromkeys(("n_rounds", "round_ms", "join_cpu_ms", "bytes_per_client", "heard_messages"), 2.0)
            of_crowd |= {"federator_cpu_ms": cost / n, "broker_cpu_ms": cost / n / 10, "broker_mb": 9.0}
            of_crowd |= {"federator_mb": 120 + n / 100, "bytes_per_update": 400 + 4.0 * d, "heard_bytes": 600 + 4.0 * d}
            records.append(record("crowd", n=n, dim=d, **of_crowd))
    for tls, n in (("tls", 1000), ("tls", 3000), ("none", 1000)):
        deliveries = [
            {"bytes": size, "cpu_ms": 0.01 + 1e-6 * size, "wall_ms": 50.0, "peak_mb": 0.0} for size in (1000, 80_000)
        ]
        of_fleet = {"connect_ms": 0.9 + 1e-4 * n if tls == "tls" else 0.1, "connected_mb": 20.0, "ping_ms": 0.003}
        records.append(record("fan-out", n=n, tls=tls, deliveries=deliveries, **of_fleet))
    visit = {"federator": 1.0, "broker": 0.5, "devices": 20.0}
    fleet = {"devices": 2000, "visits": 5000, "late": 0, "median_seconds": 9.0, "median_updates": 300.0}
    records.append(record("paced", cpu_ms_per_visit=visit, **fleet))
    return records


def test_constants_are_those_of_the_cells(benchmark_module, tmp_path: Path) -> None:
    """Also after they were written and read."""
    figures = benchmark_module("growth_figures")
    figures.write_growth(figures.Growth(made_records()), tmp_path)
    known = figures.read_growth(tmp_path).constants()
    law = (known.federator_round_ms, known.federator_update_ms, known.federator_weight_ms)
    assert law == pytest.approx((5, 0.2, 1e-5))
    assert (known.broker_delivery_ms, known.broker_byte_ms) == pytest.approx((0.01, 1e-6))
    assert (known.heard_bytes, known.heard_bytes_per_weight) == pytest.approx((600, 4))
    # Without TLS a visit was measured, and with it a sizing sheet reckons.
    assert known.broker_visit_ms == pytest.approx(0.5 + 0.9)
    assert known.broker_connect_ms_per_connection == pytest.approx(1e-4)
    assert json.loads((tmp_path / "growth.json").read_text())["constants"] == vars(known)


def test_the_pages_of_the_repository_are_those_of_its_figures(benchmark_module, tmp_path: Path) -> None:
    """After a change run: python research/benchmarks/growth.py --page."""
    page = benchmark_module("growth_page")
    for name in page.PAGES:
        shutil.copy(DOCS / name, tmp_path / name)
    page.fill_pages(benchmark_module("growth_figures").read_growth(DOCS / "growth"), tmp_path)
    for name in page.PAGES:
        assert (tmp_path / name).read_text() == (DOCS / name).read_text(), name
