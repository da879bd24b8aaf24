"""Runs of a sweep whose workers die: on Dask and Ray others take them over, to the same bits, and none is lost."""

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from cli.commands import environment
from support.waiting import PATIENCE_S, wait_until

from foltr.core.errors import UnavailableError
from foltr_research.simulation.config import SimulationConfig
from foltr_research.simulation.sweeps.executors import executed
from foltr_research.simulation.sweeps.sweep import grid, run_config, run_sweep

# Half a second each, so that a worker dies in the middle of one.
CONFIGS = grid(SimulationConfig(clients=10, interactions=10, rounds=30), {"seed": [1, 2, 3, 4]})
TIMES = {"seconds", "interactions_per_second"}


@pytest.fixture(scope="module")
def alone():
    """What the runs give in one process."""
    return [json.loads(json.dumps(run_config(config).outcome())) for config in CONFIGS]


def without_times(result):
    return {key: value for key, value in result.items() if key not in TIMES}


def ends_its_worker(values):
    """A run that takes all memory, say, where its number is 2."""
    if values["number"] == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return str(values["number"]), values, None


def failed(values, cause):
    return str(values["number"]), None, cause


NUMBERS = [{"number": number} for number in (1, 2, 3)]


def test_a_dask_worker_dies(alone):
    """Killed in the middle of the sweep: each run is a row once, to the same bits as in one process."""
    distributed = pytest.importorskip("distributed", reason="Dask is in the extra 'sweeps'")
    killed, seen = [], []

    def kill_one(row):
        seen.append(row)
        if not killed:
            killed.append(cluster.workers[0].pid)
            os.kill(killed[0], signal.SIGKILL)

    with distributed.LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        host="127.0.0.1",
        scheduler_kwargs={"dashboard": False, "dashboard_address": "127.0.0.1:0"},
    ) as cluster:
        rows = run_sweep(CONFIGS, backend="dask", scheduler=cluster.scheduler_address, on_done=kill_one)
        assert killed
    assert [without_times(row.result) for row in rows] == alone
    assert len(seen) == len(CONFIGS)


def test_a_run_that_ends_dask_workers_is_told_and_the_others_go_on():
    """It is given to another worker, and where that dies, too, it is to blame."""
    pytest.importorskip("distributed", reason="Dask is in the extra 'sweeps'")
    import dask

    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 1}),
        executed(NUMBERS, ends_its_worker, failed, jobs=1, backend="dask", scheduler=None) as outcomes,
    ):
        found = {digest: (result, error) for digest, result, error in outcomes}
    assert (found["1"][0], found["3"][0]) == ({"number": 1}, {"number": 3})
    assert found["2"][0] is None
    assert found["2"][1].startswith("KilledWorker: ")


def test_a_process_of_this_machine_dies():
    """One line, and what was finished before is kept."""
    pytest.importorskip("joblib")
    with (
        executed(NUMBERS, ends_its_worker, failed, jobs=2, backend="loky", scheduler=None) as outcomes,
        pytest.raises(UnavailableError, match="give fewer --jobs"),
    ):
        list(outcomes)


ENDED = """
import os, sys, time
from pathlib import Path
from foltr_research.simulation.sweeps.executors import executed

def run(values):
    Path(sys.argv[1], str(os.getpid())).touch()
    time.sleep(0.1)
    return str(values["number"]), values, None

if __name__ == "__main__":
    numbers = [{"number": number} for number in range(100_000)]
    with executed(numbers, run, None, jobs=2, backend="loky", scheduler=None) as outcomes:
        list(outcomes)
"""


def test_workers_end_with_a_sweep_that_is_killed(tmp_path):
    """Nobody else would end them: they would wait for runs, with their memory, for good."""
    pytest.importorskip("joblib")
    seen = tmp_path / "workers"
    seen.mkdir()
    (tmp_path / "sweep.py").write_text(ENDED)
    sweep = subprocess.Popen([sys.executable, tmp_path / "sweep.py", seen], env=environment())
    wait_until(lambda: len(list(seen.iterdir())) == 2)
    sweep.kill()
    sweep.wait(PATIENCE_S)
    wait_until(lambda: not any(Path("/proc", one.name).exists() for one in seen.iterdir()))


def test_a_ray_worker_dies(tmp_path, alone):
    """The command, one of whose workers is killed: the same bits, each run once."""
    pytest.importorskip("ray", reason="Ray is in the extra 'ray'")
    command = [
        sys.executable,
        "-c",
        "from foltr.cli.main import main; main()",
        "sweep",
        "--backend",
        "ray",
        "--jobs",
        "2",
    ]
    options = ["--clients", "10", "--interactions", "10", "--rounds", "30", "--seeds", "1,2,3,4", "--out", "rows.csv"]
    sweep = subprocess.Popen(
        [*command, *options],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        os.kill(worker_below(sweep.pid), signal.SIGKILL)
        output, _ = sweep.communicate(timeout=PATIENCE_S)
    finally:
        sweep.kill()
    assert sweep.returncode == 0, output
    kept = [json.loads(path.read_text()) for path in (tmp_path / "rows.csv.runs").glob("*.json")]
    kept.sort(key=lambda one: one["config"]["seed"])
    assert [without_times(one["result"]) for one in kept] == alone
    assert output.count("\nrun ") == len(CONFIGS)


def worker_below(pid):
    """Wait for a process of Ray that carries out a run, started below ``pid``."""
    found = []

    def is_there():
        parents, busy = {}, []
        for folder in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
                if (folder / "cmdline").read_bytes().startswith(b"ray::_outcome"):
                    busy.append(int(folder.name))
        for one in busy:
            above = one
            while above in parents and above != pid:
                above = parents[above]
            if above == pid:
                found.append(one)
        return bool(found)

    wait_until(is_there, "no worker of Ray carries out a run")
    return found[0]
