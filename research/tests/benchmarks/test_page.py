"""The page of benchmarks: verdicts follow from figures, each of a run that there is, made once at a commit."""

from typing import Any


def record(results: Any, **changed: Any) -> dict[str, Any]:
    """What a run leaves."""
    known = {"command": "x.py", "commit": "c0ffee", "began": "2026-11-23", "seconds": 90.0, "busy": 0.01}
    return {**known, "versions": "Python 3", "has_peers": True, "results": results, **changed}


def test_a_verdict_is_computed_from_the_figure_and_the_bar(benchmark_module) -> None:
    """At most and at least; what is missed says by how much, and never by nothing."""
    bars = benchmark_module("bars")

    def verdict(figure: float, limit: float, is_least: bool) -> str:
        return str(bars.judge(bars.Bar("part", "what", limit, "ms", lambda _: figure, is_least), {}).verdict)

    assert verdict(0.5, 0.5, False) == "met"
    assert verdict(0.5001, 0.5, False) == "**missed** by 1 %"
    assert verdict(0.75, 0.5, False) == "**missed** by 50 %"
    assert verdict(1.5, 0.5, False) == "**missed**: 3.0 times the bar"
    assert verdict(50.0, 50.0, True) == "met"
    assert verdict(40.0, 50.0, True) == "**missed** by 20 %"


def test_each_bar_is_of_a_run_and_each_run_of_a_program(benchmark_module) -> None:
    """A bar whose run is misspelt would never be judged, and nobody would see it."""
    bars, bench, page = map(benchmark_module, ("bars", "bench", "bench_page"))
    asked: set[str] = set()

    class Asked(dict[str, Any]):
        def __getitem__(self, name: str) -> Any:
            asked.add(name)
            raise KeyError(name)

    judged = [bars.judge(bar, Asked()) for bar in bars.BARS]
    assert all(one.figure is None for one in judged)
    assert asked <= bench.RUNS.keys()
    assert {bar.section for bar in bars.BARS} == page.SECTIONS.keys()
    assert all((bench.HERE / run.script).is_file() for run in bench.RUNS.values())


def test_a_run_is_made_once_at_a_commit(benchmark_module) -> None:
    """Again if it failed, if the code is another, and if peers have come; not because peers have gone."""
    bench = benchmark_module("bench")
    assert bench.still_counts(record([]), "c0ffee", has_peers=True)
    assert bench.still_counts(record([]), "c0ffee", has_peers=False)
    assert not bench.still_counts(record(None), "c0ffee", has_peers=True)
    assert not bench.still_counts(record([]), "c0ffee+1", has_peers=True)
    assert not bench.still_counts(record([], has_peers=False), "c0ffee", has_peers=True)


def test_the_page_has_a_table_of_what_was_measured(benchmark_module) -> None:
    """Rules stand beside their peers by size, memory of two runs in one table; a missing run leaves no empty table."""
    sizes = {136: 1.5, 20_000: 12.0}
    rules = [{"n": 9, "d": d, "rule": "mean", "ours_ms": ms, "limit_ms": 1.0, "ratio": ms} for d, ms in sizes.items()]
    rules[0]["byzfl_ms"] = 3.0
    memory = {
        f"memory-{rule}": record([{"aggregation": rule, "dim": 136, "n": 9, "federator_mb": 7.0, "broker_mb": 2.0}])
        for rule in ("mean", "median")
    }
    machine = {"machine": {"cores": 2, "cpu": "a", "memory_gb": 4, "system": "Linux"}}
    records = {"aggregation": record({"results": rules}), **memory}
    page = str(benchmark_module("bench_page").page_of({name: one | machine for name, one in records.items()}))
    assert "| mean | 1.5 | 1 | 3 |  | 12 | 1 |  |  |" in page
    assert "| mean | 136 | 7 | 2 |\n| median | 136 | 7 | 2 |" in page
    assert "|  |\n" not in page.partition("## Learners")[2].partition("## Rules")[0]
    assert "3 runs took 4 minutes on 2026-11-23, at `c0ffee`." in page
