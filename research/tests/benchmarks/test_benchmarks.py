"""The benchmarks still run against today's code, and what they print and write can be read. No figure is judged."""

import json
import re
import shutil
from pathlib import Path

import pytest
from cli.commands import program_process

pytest.importorskip("psutil", reason="the benchmarks need the extra bench")

BENCHMARKS = Path(__file__).parents[3] / "research/benchmarks"
pytestmark = [
    pytest.mark.slow,
    # Whole programs start, some of them five or six: beside other tests on two processors that takes its time.
    pytest.mark.timeout(240),
    pytest.mark.skipif(
        shutil.which("mosquitto") is None and shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin") is None,
        reason="the benchmarks need Mosquitto",
    ),
]


def run(name: str, *arguments: object, fails: bool = False) -> str:
    """What a benchmark prints; it must end well, or badly. The processes that it starts itself are fresh ones."""
    done = program_process(BENCHMARKS / f"{name}.py", *arguments, timeout_s=200)
    assert (done.returncode != 0) == fails, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


def test_learners_beside_plain_ones(tmp_path):
    """Each learner has our rate, the peer's and their ratio; the products of weights and documents are timed, too."""
    file = tmp_path / "results.json"
    run("learners", "--scale", 0.01, "--repeats", 1, "--json", file)
    results = json.loads(file.read_text())
    assert len(results["rows"]) == 6
    for row in results["rows"]:
        assert row["ratio"] == pytest.approx(row["ours_per_s"] / row["peer_per_s"])
    assert 0 < results["linear_product_us"] < results["neural_product_us"]
    assert results["ndcg"].keys() == {"ours_ms", "peer_ms", "ratio"}


def test_start_up_tells_what_is_imported(tmp_path):
    """Command line, device, first list and federator each have a time."""
    file = tmp_path / "results.json"
    run("start_up", "--repeats", 1, "--json", file)
    results = json.loads(file.read_text())
    assert all(results[name] > 0 for name in ("help_s", "import_s", "rank_ms", "again_ms", "federator_s"))
    assert "foltr" in results["import_parts"]
    assert "sqlalchemy" in results["federator_parts"]


def test_bench_writes_a_page(tmp_path):
    """Of a run that is named; if one has failed, the page is written all the same and the program fails."""
    options = ("--quick", "--folder", tmp_path, "--peers", tmp_path / "none")
    assert "1 of 14 runs" in run("bench", "unlearning", *options)
    record = json.loads((tmp_path / "unlearning.json").read_text())
    assert record["results"]["steps_ratio"] == pytest.approx(50 / 3)
    assert re.search(r"times fewer local steps.*\| met \|", (tmp_path / "benchmarks.md").read_text())
    (tmp_path / "unlearning.json").write_text(json.dumps({**record, "results": None}))
    assert "0 of 14 runs" in run("bench", "--page", *options, fails=True)
    assert "**Failed**: unlearning." in (tmp_path / "benchmarks.md").read_text()


def test_workers(tmp_path):
    """A federator alone and a leader with a worker each have the processor time of an update, and what it allows."""
    file = tmp_path / "results.json"
    run("workers", "--workers", 0, 1, "--clients", 20, "--rounds", 4, "--json", file)
    alone, shared = json.loads(file.read_text())
    assert (alone["n_workers"], alone["workers_cpu_ms"], alone["most_worker_per_s"]) == (0, 0, None)
    assert shared["workers_cpu_ms"] > 0
    assert shared["most_leader_per_s"] == pytest.approx(1e3 / shared["leader_cpu_ms"])


def test_footprint():
    """It names bytes for each update, and memory."""
    printed = run("footprint", "--clients", 3, "--rounds", 2, "--dims", 5)
    assert re.search(r"^ +5 +6 +[\d,]+ +\d+ +\d+$", printed, re.MULTILINE)


def test_reading():
    """It tells speed, the cost of compiling, and memory relative to the array."""
    printed = run("reading", "--megabytes", 2, "--repeats", 1)
    assert re.search(r"reading: [\d.]+ s, \d+ MB/s; again, from the cache: [\d.]+ ms", printed)
    assert re.search(r"peak while reading: [\d.]+ x the array", printed)


def test_round_overhead_compares_the_variants_and_tells_who_used_the_processor(tmp_path):
    """Unsigned, signed and TLS in one run without being asked; the file is a list, a line for each variant."""
    file = tmp_path / "results.json"
    printed = run("round_overhead", "--clients", 3, "--rounds", 3, "--json", file)
    assert len(re.findall(r"TLS and access list add [+-][\d.]+ ms per update", printed)) == 1
    rows = json.loads(file.read_text())
    assert [(row["n"], row["variant"]) for row in rows] == [(3, "unsigned"), (3, "signed"), (3, "signed+tls")]
    for row in rows:
        assert row["per_update_ms"] == pytest.approx(row["round_ms"] / row["n"])
        for name in ("bare_ms", "federator_cpu_ms", "device_cpu_ms", "broker_cpu_ms"):
            assert 0 <= row[name] < row["round_ms"], name
        assert row["fixed_ms"] is None


def test_round_overhead_profiles_over_client_certificates(tmp_path):
    """The federator and two processes of devices each leave a profile; those of the first two are printed."""
    printed = run(
        "round_overhead",
        "--tls",
        "mtls",
        "--clients",
        3,
        "--rounds",
        5,
        "--fleets",
        2,
        "--profile",
        tmp_path / "profiles",
    )
    assert "profile federator-3:" in printed
    assert "profile devices-3-0:" in printed
    assert "signed+mtls:" in printed
    assert {path.name for path in (tmp_path / "profiles").iterdir()} == {"federator-3", "devices-3-0", "devices-3-1"}


def test_secure_round_compares_with_a_trusted_one(tmp_path):
    """Both kinds of federation come to their last round, and each process's part is told."""
    file = tmp_path / "results.json"
    printed = run("secure_round", "--clients", 6, "--rounds", 3, "--turns", 1, "--json", file)
    assert re.search(r"a secure round may take 1.5 trusted ones and 0.5 s: [\d.]+ s; it takes [\d.]+ s", printed)
    results = json.loads(file.read_text())
    assert results["trusted"]["cpu_ms"].keys() == {"broker", "federator", "devices"}
    assert results["secure"]["cpu_ms"].keys() == {"broker", "federator", "devices", "helper north", "helper south"}
    for kind in ("trusted", "secure"):
        assert 0 < results[kind]["least_s"] <= results[kind]["median_s"]


def test_soak_loses_nothing_while_clients_come_and_go(tmp_path):
    """Groups are killed, leave and come back; the checks pass on what the broker said and the database holds."""
    file = tmp_path / "results.json"
    printed = run(
        *("soak", "--clients", 20, "--groups", 4, "--minutes", 0.12, "--churn-every", 2, "--pace", 0.3, "--json", file),
    )
    assert "all checks passed" in printed
    results = json.loads(file.read_text())
    assert results["failures"] == []
    assert results["rounds"]["completed"] > 1
    assert results["updates"] == results["receipts"]["accepted"] > 20
    assert results["departures"].keys() == {"killed", "replaced", "rejoined"}
    assert results["memory"].keys() == {"federator", "broker"}


def test_load_tells_latencies_and_where_it_stopped(tmp_path):
    """Two low rates: everything is accepted, and each step has its percentiles."""
    file = tmp_path / "results.json"
    printed = run("load", "--rates", 30, 60, "--seconds", 1, "--json", file)
    assert re.search(r"saturates: |not saturated: ", printed)
    steps = json.loads(file.read_text())["steps"]
    assert [step["n_accepted"] for step in steps][:2] == [30, 60]
    for step in steps:
        assert step["n_unanswered"] == 0
        assert 0 < step["latency_ms"]["p50"] <= step["latency_ms"]["p99"] <= step["latency_ms"]["max"]
