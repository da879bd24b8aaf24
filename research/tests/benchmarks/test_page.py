"""The page of benchmarks: verdicts follow from figures, and what was not measured, failed or was disturbed is said."""

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("psutil", reason="the benchmarks need the extra bench")

BENCHMARKS = Path(__file__).parents[3] / "research/benchmarks"
MACHINE = {"cpu": "a processor", "cores": 2, "memory_gb": 8, "system": "Linux"}


@pytest.fixture
def modules(monkeypatch: pytest.MonkeyPatch) -> tuple[ModuleType, ModuleType, ModuleType]:
    monkeypatch.setattr(sys, "path", [str(BENCHMARKS), *sys.path])
    import bars
    import bench
    import bench_page as page

    return bars, bench, page


def record(results: Any, **changed: Any) -> dict[str, Any]:
    """What a run leaves."""
    known = {"command": "x.py", "commit": "c0ffee", "began": "2026-11-23", "seconds": 90.0, "busy": 0.01}
    return {**known, "machine": MACHINE, "versions": "Python 3", "has_peers": True, "results": results, **changed}


def rounds(per_update_ms: float, federator_cpu_ms: float) -> list[dict[str, Any]]:
    row = {"variant": "signed", "round_ms": 50.0, "per_update_ms": per_update_ms, "bare_ms": 0.1, "fixed_ms": 5.0}
    cpu = {"federator_cpu_ms": federator_cpu_ms, "device_cpu_ms": 0.3, "broker_cpu_ms": 0.1}
    return [{"n": n, **row, **cpu} for n in (100, 1000)]


def lines_of(page: str, what: str) -> list[str]:
    return [line for line in page.splitlines() if f"| {what} |" in line]


def test_a_verdict_is_computed_from_the_figure_and_the_bar(modules: tuple[ModuleType, ...]) -> None:
    """At most and at least; what is missed says by how much, and never by nothing."""
    bars = modules[0]

    def verdict(figure: float, limit: float, is_least: bool) -> str:
        return str(bars.judge(bars.Bar("part", "what", limit, "ms", lambda _: figure, is_least), {}).verdict)

    assert verdict(0.5, 0.5, False) == "met"
    assert verdict(0.5001, 0.5, False) == "**missed** by 1 %"
    assert verdict(0.75, 0.5, False) == "**missed** by 50 %"
    assert verdict(1.5, 0.5, False) == "**missed**: 3.0 times the bar"
    assert verdict(50.0, 50.0, True) == "met"
    assert verdict(40.0, 50.0, True) == "**missed** by 20 %"


def test_the_page_changes_its_verdict_with_the_figure(modules: tuple[ModuleType, ...]) -> None:
    """Missed bars say where the time goes, by the same run; met ones say nothing."""
    _, _, page = modules
    what = "an update of 100, signed and durable"
    (met,) = lines_of(page.page_of({"rounds": record(rounds(0.4, 0.1))}), what)
    assert "| 0.4 ms | ≤ 0.5 ms | met |  |" in met
    (missed,) = lines_of(page.page_of({"rounds": record(rounds(0.6, 0.2))}), what)
    assert "**missed** by 20 % | processor time of an update: federator 0.2 ms, device 0.3 ms" in missed


def test_without_runs_nothing_is_judged(modules: tuple[ModuleType, ...]) -> None:
    """Every bar is on the page, and none is met."""
    bars, _, page = modules
    written = page.page_of({})
    assert written.count("| not measured |") == len(bars.BARS)
    assert f"Of {len(bars.BARS)} bars 0 are met" in written
    assert "Nothing was measured yet." in written


def test_what_failed_or_was_disturbed_is_said(modules: tuple[ModuleType, ...]) -> None:
    """And that there were no peers."""
    _, _, page = modules
    records = {"rounds": record(rounds(0.4, 0.1), busy=0.6), "reading": record(None, has_peers=False)}
    written = page.page_of(records)
    assert "**The machine was not idle** before rounds" in written
    assert "**Failed**: reading." in written
    assert "(`make bench-peers`) were not there" in written
    assert "Together 3 minutes" in written


def test_each_bar_is_of_a_run_and_each_run_of_a_program(modules: tuple[ModuleType, ...]) -> None:
    """A bar whose run is misspelt would never be judged, and nobody would see it."""
    bars, bench, page = modules
    asked: set[str] = set()

    class Asked(dict[str, Any]):
        def __getitem__(self, name: str) -> Any:
            asked.add(name)
            raise KeyError(name)

    judged = [bars.judge(bar, Asked()) for bar in bars.BARS]
    assert all(one.figure is None for one in judged)
    assert asked <= bench.RUNS.keys()
    assert {bar.section for bar in bars.BARS} == page.SECTIONS.keys()
    assert all((BENCHMARKS / run.script).is_file() for run in bench.RUNS.values())


def test_a_run_is_made_once_at_a_commit(modules: tuple[ModuleType, ...]) -> None:
    """Again if it failed, if the code is another, and if peers have come; not because peers have gone."""
    _, bench, _ = modules
    assert bench.still_counts(record([]), "c0ffee", has_peers=True)
    assert bench.still_counts(record([]), "c0ffee", has_peers=False)
    assert not bench.still_counts(record(None), "c0ffee", has_peers=True)
    assert not bench.still_counts(record([]), "c0ffee+1", has_peers=True)
    assert not bench.still_counts(record([], has_peers=False), "c0ffee", has_peers=True)


def test_a_profile_says_where_the_time_goes(modules: tuple[ModuleType, ...], tmp_path: Path) -> None:
    """By folder and by function, of samples by line; and the bar that is missed says so."""
    _, bench, page = modules
    own = {"sql/schema.py Table.a: line": 3, "sql/schema.py Table.a: other": 3, "protocol/codec.py encode: line": 4}
    (tmp_path / "federator-1000").write_text(json.dumps({"own": own, "total": {}, "cpu_s": 1.0}))
    profiles = bench.profiles_in(tmp_path)
    assert profiles["federator"]["functions"] == [("sql/schema.py Table.a", 0.6), ("protocol/codec.py encode", 0.4)]
    records = {"rounds": record(rounds(0.4, 0.3)), "rounds-profile": record({"results": [], "profiles": profiles})}
    (line,) = lines_of(page.page_of(records), "the federator's processor time for one of 1,000")
    assert "| **missed**: 2.0 times the bar | in code of sql 60 %, protocol 40 % |" in line
