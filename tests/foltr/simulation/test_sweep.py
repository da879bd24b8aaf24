"""A sweep is its runs: wherever they run, each is what it would be alone, and none is run twice."""

import json

import pytest

from foltr.errors import SettingsError, UnavailableError
from foltr.simulation.config import SimulationConfig
from foltr.simulation.sweep import config_digest, grid, rows_of_sweep, run_config, run_sweep

BASE = SimulationConfig(clients=3, interactions=2, rounds=2)


def told(row):
    """A result without its times."""
    return {key: value for key, value in row.result.items() if key not in {"seconds", "interactions_per_second"}}


def alone(config):
    return json.loads(json.dumps(run_config(config).outcome()))


def test_the_grid_is_every_combination():
    """Fields and parameters of the method; what is not varied stays."""
    configs = grid(
        BASE.changed(parameters={"serp_length": 5}), {"seed": [1, 2], "parameters.learning_rate": ["0.1", 1]}
    )
    assert [(config.seed, config.parameters) for config in configs] == [
        (seed, {"learning_rate": rate, "serp_length": 5}) for seed in (1, 2) for rate in (0.1, 1)
    ]
    assert {config.rounds for config in configs} == {2}


@pytest.mark.parametrize(
    ("vary", "words"),
    [({"sede": [1]}, "nothing of this name"), ({"seed": []}, "at least one"), ({"seed": ["x"]}, "seed:")],
)
def test_a_wrong_grid_is_one_line(vary, words):
    """A key that does not exist, without values, or with a wrong one."""
    with pytest.raises(SettingsError, match=words):
        grid(BASE, vary)


def test_runs_equal_single_runs(tmp_path):
    """In this process: each row is what the configuration gives alone; equal configurations run once."""
    configs = grid(BASE, {"method": ["fpdgd", "foltr-es"], "seed": [1, 2]})
    seen = []
    rows = run_sweep([*configs, configs[0]], folder=tmp_path, on_done=seen.append)
    assert [row.config for row in rows] == configs
    assert seen == rows
    assert [told(row) for row in rows] == [alone(config) for config in configs]


@pytest.mark.slow
def test_processes_give_the_same_rows():
    """Two processes: the same results as one after the other here."""
    pytest.importorskip("joblib")
    configs = grid(BASE, {"clicks": ["perfect", "navigational"], "seed": [1, 2]})
    rows = run_sweep(configs, jobs=2)
    assert [told(row) for row in rows] == [alone(config) for config in configs]


@pytest.mark.slow
def test_a_cluster_gives_the_same_rows():
    """Dask on this machine, both a cluster of its own and one that exists, and the same results."""
    distributed = pytest.importorskip("distributed", reason="Dask is in the extra 'research'")
    configs = grid(BASE, {"seed": [1, 2, 3]})
    expected = [alone(config) for config in configs]
    assert [told(row) for row in run_sweep(configs, jobs=2, backend="dask")] == expected
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=1, host="127.0.0.1", dashboard_address=None
    ) as cluster:
        rows = run_sweep(configs, backend="dask", scheduler=cluster.scheduler_address)
    assert [told(row) for row in rows] == expected


def test_a_failed_run_is_a_row():
    """The others go on, and the table says what went wrong."""
    configs = [BASE, BASE.changed(method="fedper"), BASE.changed(data="/nowhere")]
    rows = run_sweep(configs)
    assert rows[0].error is None
    assert "choose ranker = neural" in rows[1].error
    assert "/nowhere" in rows[2].error
    tidy = rows_of_sweep(rows)
    assert [row["error"] is None for row in tidy] == [True, True, False, False]
    assert tidy[2]["method"] == "fedper"


def test_an_interrupted_sweep_goes_on(tmp_path, monkeypatch):
    """What was finished is not run again; what failed is."""
    configs = grid(BASE, {"seed": [1, 2, 3]})

    def interrupt(row):
        if row.config.seed == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_sweep(configs, folder=tmp_path, on_done=interrupt)
    kept = sorted(path.stem for path in tmp_path.glob("*.json"))
    assert kept == sorted(config_digest(config) for config in configs[:2])
    (tmp_path / f"{config_digest(configs[0])}.json").write_text("{ cut off")
    ran = []
    monkeypatch.setattr(
        "foltr.simulation.sweep.run_config", lambda config: ran.append(config.seed) or run_config(config)
    )
    rows = run_sweep(configs, folder=tmp_path)
    assert ran == [1, 3]
    assert [told(row) for row in rows] == [alone(config) for config in configs]


def test_backends_that_are_not_there():
    """One line for an unknown backend, one that is not installed, and a scheduler that does not answer."""
    with pytest.raises(SettingsError, match="known are loky, dask, ray"):
        run_sweep([BASE], backend="spark")
    with pytest.raises(SettingsError, match="pip install ray"):
        run_sweep([BASE], backend="ray")


@pytest.mark.slow
def test_a_scheduler_that_does_not_answer(unused_tcp_port):
    """Told in one line after a bounded wait."""
    pytest.importorskip("distributed", reason="Dask is in the extra 'research'")
    with pytest.raises(UnavailableError, match="cannot be reached"):
        run_sweep([BASE], backend="dask", scheduler=f"tcp://127.0.0.1:{unused_tcp_port}")
