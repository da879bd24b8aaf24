"""Growth's law, constants and page follow from its cells, and those in the repository from growth.json."""

import json
import shutil
from itertools import product
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


def test_the_page_of_the_repository_is_that_of_its_figures(benchmark_module, tmp_path: Path) -> None:
    """After a change run: python research/benchmarks/growth.py --page."""
    page = Path(shutil.copy(DOCS / "sizing.md", tmp_path))
    growth = benchmark_module("growth_figures").read_growth(DOCS / "growth")
    benchmark_module("growth_page").fill_page(growth, page)
    assert page.read_text() == (DOCS / "sizing.md").read_text()


SIZES = list(product((10, 100, 1000, 3000), (46, 1000, 20_000)))


def test_a_law_is_found_exactly(benchmark_module) -> None:
    """The fit finds the law that made the rounds; a cost that falls by chance has no coefficient."""
    law = benchmark_module("growth_law")
    costs = [6 + 0.3 * n + 2e-5 * n * d * (1 if n * d <= 5_000_000 else 2) for n, d in SIZES]
    found = law.fit_law(SIZES, costs)
    assert (found.round, found.update, found.weight) == pytest.approx((6, 0.3, 2e-5))
    assert found.error == pytest.approx(0, abs=1e-9)
    assert found(1000, 136) == pytest.approx(6 + 300 + 2.72)
    law = benchmark_module("growth_law")
    found = law.fit_law(SIZES, [1 + 0.1 * n * (1.01 if d == 46 else 1) for n, d in SIZES])
    assert found.weight == 0
    assert found.update == pytest.approx(0.1, rel=0.02)


def test_where_it_bends(benchmark_module) -> None:
    """Sizes whose cost is off by more than a quarter, upwards or downwards, with how much."""
    law = benchmark_module("growth_law")
    costs = {(n, d): 6 + 0.3 * n for n, d in SIZES}
    found = law.fit_law(list(costs), list(costs.values()))
    costs[3000, 46] *= 2
    costs[3000, 1000] *= 0.5
    costs[1000, 46] *= 1.2
    bends = law.bends(found, list(costs), list(costs.values()))
    assert bends == {(3000, 46): pytest.approx(2), (3000, 1000): pytest.approx(0.5)}


def test_too_few_rounds_make_no_law_and_points_a_line(benchmark_module) -> None:
    """Two sizes, or more beyond what it is fitted to; a line is exact on one, and never below 0 at 0."""
    law = benchmark_module("growth_law")
    with pytest.raises(ValueError, match="2 rounds"):
        law.fit_law([(10, 46), (100, 46)], [1, 2])
    with pytest.raises(ValueError, match="0 rounds"):
        law.fit_law([(3000, 46)] * 5, [1] * 5)
    with pytest.raises(ValueError, match="1 points"):
        law.fit_line([3, 3], [1, 2])
    law = benchmark_module("growth_law")
    assert law.fit_line([1, 10, 100], [5, 14, 104]) == pytest.approx((4, 1))
    at_zero, slope = law.fit_line([1, 2], [1, 5])
    assert at_zero == 0
    assert slope > 0


def test_each_round_has_the_fixed_cost_of_its_variant(benchmark_module) -> None:
    """From the lines of the same variant alone; one size says nothing."""
    law = benchmark_module("growth_law")
    assert law.fit_line([10, 100, 1000], [10, 46, 1.1 * 406])[0] == pytest.approx(6, abs=0.5)
    measured = benchmark_module("round_overhead")

    def line(n: int, variant: str, fixed_ms: float) -> object:
        of = dict.fromkeys(("federator_cpu_ms", "device_cpu_ms", "broker_cpu_ms", "bare_ms"), 0.1)
        return measured.Measured(n=n, variant=variant, round_ms=fixed_ms + n, per_update_ms=1.0, n_rounds=3, **of)

    lines = [line(n, variant, fixed_ms) for n in (3, 5) for variant, fixed_ms in (("unsigned", 6.0), ("signed", 8.0))]
    assert [one.fixed_ms for one in measured.with_fixed_costs(lines)] == pytest.approx([6.0, 8.0, 6.0, 8.0])
    assert measured.with_fixed_costs([line(3, "signed", 8.0)])[0].fixed_ms is None
