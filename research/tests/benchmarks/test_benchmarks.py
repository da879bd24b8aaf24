"""The benchmarks still run against today's code, and what they print and write can be read. No figure is judged."""

import json
import re
import shutil
from pathlib import Path

import pytest
from cli.commands import program_process
from support.waiting import PATIENCE_S

pytest.importorskip("psutil", reason="the benchmarks need the extra bench")

BENCHMARKS = Path(__file__).parents[3] / "research/benchmarks"
pytestmark = pytest.mark.skipif(
    shutil.which("mosquitto") is None and shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin") is None,
    reason="the benchmarks need Mosquitto",
)
# By program: its arguments, and the places in its results at which there are figures, and words in what it prints.
SMALL = {
    "aggregation": ("--sizes 20x30 --repeats 1 --no-peers", "results/0/ours_ms results/0/limit_ms", ""),
    "learners": ("--scale 0.01 --repeats 1", "rows/0/ratio rows/5/ours_per_s neural_product_us ndcg/ratio", ""),
    "norm_proof": ("--dims 136 --helpers 2 --repeats 1", "results/0/helper_numpy_ms results/0/client_ms", "NumPy"),
    "round_overhead": ("--clients 3 --rounds 3", "0/bare_ms 1/device_cpu_ms 2/per_update_ms", "TLS and access"),
    "secure_round": ("--clients 6 --rounds 3 --turns 1", "trusted/median_s secure/cpu_ms/helper north", "may take 1.5"),
    "secure_sum": ("--clients 5,60 --dims 136 --helpers 2 --repeats 1", "results/1/clients", "client ms"),
    "start_up": ("--repeats 1", "help_s rank_ms federator_s import_parts/foltr federator_parts/sqlalchemy", ""),
    "workers": ("--workers 1 --clients 10 --rounds 3", "0/workers_cpu_ms 0/most_leader_per_s", ""),
}


def run(name: str, *arguments: object, fails: bool = False) -> str:
    """What a benchmark prints; it must end well, or badly. The processes that it starts itself are fresh ones."""
    done = program_process(BENCHMARKS / f"{name}.py", *arguments, timeout_s=2 * PATIENCE_S)
    assert (done.returncode != 0) == fails, done.stdout[-2000:] + done.stderr[-4000:]
    return done.stdout


@pytest.mark.parametrize("name", SMALL)
def test_figures_are_measured_written_and_printed(tmp_path, name):
    """Every one of those named is above zero."""
    arguments, places, words = SMALL[name]
    assert words in run(name, *arguments.split(), "--json", tmp_path / "results.json")
    results = json.loads((tmp_path / "results.json").read_text())
    for place in places.replace("helper north", "helper_north").split():
        found = results
        for key in place.replace("helper_north", "helper north").split("/"):
            found = found[int(key) if isinstance(found, list) else key]
        assert found > 0, place


def test_memory_and_reading_are_printed():
    """Bytes for each update, and memory; the speed of reading, from the cache too, and memory relative to the array."""
    printed = run("footprint", "--clients", 3, "--rounds", 2, "--dims", 5)
    assert re.search(r"^ +5 +6 +[\d,]+ +\d+ +\d+$", printed, re.MULTILINE)
    printed = run("reading", "--megabytes", 2, "--repeats", 1)
    assert re.search(r"reading: [\d.]+ s, \d+ MB/s; again, from the cache: [\d.]+ ms", printed)
    assert re.search(r"peak while reading: [\d.]+ x the array", printed)


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


def test_growth_measures_the_cells_that_are_named(tmp_path):
    """Rounds of a crowd and connections, as rounds of devices are run above; what was measured is kept."""
    names = ["crowd-50-46", "fan-out-20-tls"]
    printed = run("growth", "--quick", "--folder", tmp_path, *names)
    assert "8 of 10 cells are left" in printed
    assert "nothing was written yet: 0 rounds make no law" in printed
    crowd, fan_out = (json.loads((tmp_path / f"{name}.json").read_text())["result"] for name in names)
    assert crowd["heard_messages"] >= 2
    assert min(crowd["heard_bytes"], crowd["bytes_per_update"]) > 4 * 46
    assert [one["bytes"] for one in fan_out["deliveries"]] == [1000, 20_000, 80_000]


def test_round_overhead_profiles_over_client_certificates(tmp_path):
    """The federator and two processes of devices each leave a profile; those of the first two are printed."""
    folder = tmp_path / "profiles"
    printed = run(
        *("round_overhead", "--tls", "mtls", "--clients", 3, "--rounds", 3, "--fleets", 2, "--profile", folder)
    )
    for said in ("profile federator-3:", "profile devices-3-0:", "signed+mtls:"):
        assert said in printed
    assert {path.name for path in folder.iterdir()} == {"federator-3", "devices-3-0", "devices-3-1"}


def test_soak_loses_nothing_while_clients_come_and_go(tmp_path):
    """Groups are killed, leave and come back; the checks pass on what the broker said and the database holds."""
    file = tmp_path / "results.json"
    options = ("--clients", 6, "--groups", 3, "--minutes", 0.12, "--churn-every", 2, "--pace", 0.2)
    assert "all checks passed" in run("soak", *options, "--json", file)
    results = json.loads(file.read_text())
    assert results["failures"] == []
    assert results["updates"] == results["receipts"]["accepted"] > 0
    assert results["departures"].keys() == {"killed", "replaced", "rejoined"}


def test_load_tells_latencies_and_where_it_stopped(tmp_path):
    """Low rates: everything is accepted, and each step has its percentiles."""
    printed = run("load", "--rates", 5, 10, "--seconds", 1, "--json", tmp_path / "results.json")
    assert re.search(r"saturates: |not saturated: ", printed)
    steps = json.loads((tmp_path / "results.json").read_text())["steps"]
    assert [(step["n_accepted"], step["n_unanswered"]) for step in steps] == [(5, 0), (10, 0)][: len(steps)]
    assert all(0 < step["latency_ms"]["p50"] <= step["latency_ms"]["max"] for step in steps)


def test_many_are_forgotten_while_rounds_go_on():
    """Every client that asked gets its notice."""
    small = ("--gigabytes", 0.001, "--devices", 20, "--leaving", 4, "--sybils", 2, "--seconds", PATIENCE_S)
    printed = run("forgetting", *small)
    assert "6 of 6" in printed
    assert int(re.search(r"ended meanwhile +(\d+)", printed)[1]) > 0


def test_each_part_of_a_long_history_has_its_figures(database_url, tmp_path):
    """Updates are answered in every part, two clients are forgotten, and old bodies go; a second run fills nothing."""
    file = tmp_path / "results.json"
    # Twice the rounds that retention keeps, so that it finds old ones at once.
    small = ("--updates", 4000, "--clients", 20, "--seconds", 1, "--leaving", 2, "--folder", tmp_path, "--json", file)
    where = ("--db", database_url) if database_url.startswith("postgresql") else ()
    run("histories", *small, *where)
    results = json.loads(file.read_text())
    assert (results["n_updates"], results["n_rounds"]) == (4000, 200)
    assert results["queries"].keys() >= {"status", "rounds show", "device show", "erasure list"}
    assert all(results[part]["answered"]["n"] > 0 for part in ("serving", "forgetting", "retention"))
    assert len(results["forgetting"]["told_s"]) == 2
    assert results["retention"]["n_thinned"] > 0
    run("histories", *small, *where, "--only", "sizes")
    assert json.loads(file.read_text())["n_updates"] == 4000
