"""A sweep is its runs: each is what it would be alone, and none is run twice on the same data by the same program."""

import json
import os
import socket
import sys
from types import SimpleNamespace

import pytest

from foltr.core.aggregation.round_report import RuleResult
from foltr.core.errors import DataError, SettingsError, UnavailableError
from foltr_research.simulation.config import GENERATED_DATA, SimulationConfig
from foltr_research.simulation.fingerprints import Program, data_fingerprint
from foltr_research.simulation.sweeps.sweep import check_sweep, config_digest, grid, run_config, run_sweep

BASE = SimulationConfig(clients=3, interactions=2, rounds=2)


class Ran(list):
    """Cannot be copied, so that what it holds is no part of the program that holds it."""

    __reduce_ex__ = None


@pytest.fixture
def counted(monkeypatch):
    """The configurations that are really run."""
    ran = Ran()
    monkeypatch.setattr(
        "foltr_research.simulation.sweeps.sweep.run_config", lambda config: ran.append(config) or run_config(config)
    )
    return ran


@pytest.fixture
def letor(tmp_path):
    """A folder with a data set of two features."""
    folder = tmp_path / "data" / "Fold1"
    folder.mkdir(parents=True)
    for name in ("train.txt", "test.txt"):
        (folder / name).write_text("".join(f"{i % 3} qid:{1 + i // 6} 1:{i} 2:{i * i % 5}\n" for i in range(12)))
    return folder


def told(row):
    """A result without its times."""
    return {key: value for key, value in row.result.items() if key not in {"seconds", "interactions_per_second"}}


def alone(config):
    return json.loads(json.dumps(run_config(config).outcome()))


def test_the_grid_is_every_combination():
    """Fields and parameters of methods, rules and attacks, each beside those that are set, and once; the rest stays."""
    configs = grid(
        BASE.changed(parameters={"serp_length": 5}), {"seed": [1, 2], "parameters.learning_rate": ["0.1", 1]}
    )
    assert [(config.seed, config.parameters) for config in configs] == [
        (seed, {"learning_rate": rate, "serp_length": 5}) for seed in (1, 2) for rate in (0.1, 1)
    ]
    assert {config.rounds for config in configs} == {2}
    base = BASE.changed(attack="lie", attack_parameters={"knowledge": "full"}, aggregation="trimmed-mean")
    configs = grid(base, {"attackers": ["0", "1"], "attack_parameters.z": ["auto", "1"]})
    assert [(config.attackers, config.attack_parameters) for config in configs] == [
        (attackers, {"knowledge": "full", "z": z}) for attackers in (0, 1) for z in ("auto", 1)
    ]
    varied = grid(base, {"aggregation_parameters.beta": ["1"]})
    assert varied[0].aggregation_parameters == {"beta": 1}
    assert len(grid(BASE, {"parameters.mu": [0.1, 1], "method": ["fpdgd", "fedprox"]})) == 4
    assert [config.seed for config in grid(BASE, {"seed": [2, 1, 2, "1"]})] == [2, 1]


@pytest.mark.parametrize(
    ("vary", "words"),
    [
        ({"sede": [1]}, "no field or parameter has this name"),
        ({"seed": []}, "at least one"),
        ({"seed": ["x"]}, "seed:"),
        ({"parameters.foo": [1]}, "foo: .*fields are data, .*; parameters: fpdgd has .*learning_rate"),
        ({"parameters.mu": [1], "method": ["fpdgd", "foltr-es"]}, "mu: .*fpdgd has .*; foltr-es has "),
        ({"method": ["fpdgd", "fpgdd"]}, "unknown 'fpgdd'; known are fpdgd"),
    ],
)
def test_a_wrong_grid_is_one_line(vary, words):
    """A key that does not exist, without values, or with a wrong one."""
    with pytest.raises(SettingsError, match=words):
        grid(BASE, vary)


def test_a_sweep_of_which_nothing_can_run_is_refused():
    """What is wrong with its first run; one that can be run is enough."""
    wrong = [BASE.changed(clicks="prefect"), BASE.changed(data="synthetic-intents")]
    with pytest.raises(SettingsError, match="prefect"):
        check_sweep(wrong)
    with pytest.raises(SettingsError, match="add --population type1"):
        check_sweep(wrong[1:])
    check_sweep([*wrong, BASE])
    check_sweep([])


def test_runs_equal_single_runs(tmp_path):
    """In this process or in two: each row is what the configuration gives alone; equal configurations run once."""
    configs = grid(BASE, {"method": ["fpdgd", "foltr-es"], "seed": [1, 2]})
    seen = []
    rows = run_sweep([*configs, configs[0]], folder=tmp_path, on_done=seen.append)
    assert [row.config for row in rows] == configs
    assert seen == rows
    assert [told(row) for row in rows] == [alone(config) for config in configs]
    pytest.importorskip("joblib")
    configs = grid(BASE, {"clicks": ["perfect", "navigational"], "seed": [1, 2]})
    rows = run_sweep(configs, jobs=2)
    assert [told(row) for row in rows] == [alone(config) for config in configs]


def test_validation_queries_are_those_of_vali_txt(letor):
    """Instead of the test queries, with the same training; a data set without them has an error that says so."""
    config = BASE.changed(data=str(letor))
    with pytest.raises(DataError, match=r"no validation queries \(vali\.txt\)"):
        run_config(config.changed(evaluate_on="validation"))
    with pytest.raises(DataError, match="no validation queries"):
        run_config(BASE.changed(evaluate_on="validation"))
    reversed_grades = (
        (letor / "test.txt").read_text().replace("2 qid", "x").replace("0 qid", "2 qid").replace("x", "0 qid")
    )
    (letor / "vali.txt").write_text(reversed_grades)
    test, validation = run_config(config), run_config(config.changed(evaluate_on="validation"))
    assert test.weights.tolist() == validation.weights.tolist()
    assert test.ndcg_at_10 != validation.ndcg_at_10
    assert validation.data["description"].endswith("validation queries")


def test_an_interrupted_sweep_goes_on(tmp_path, counted):
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
    counted.clear()
    rows = run_sweep(configs, folder=tmp_path)
    assert [config.seed for config in counted] == [1, 3]
    assert [told(row) for row in rows] == [alone(config) for config in configs]


def test_a_run_on_other_data_is_run_again(tmp_path, letor, counted):
    """As long as its files are the same it is kept; a file that changed, or only was written again, tells."""
    config = BASE.changed(data=str(letor.parent))
    kept = tmp_path / "runs"
    for _ in range(2):
        assert run_sweep([config], folder=kept)[0].error is None
    assert counted == [config]
    with (letor / "train.txt").open("a") as file:
        file.write("1 qid:9 1:1 2:1\n")
    run_sweep([config, BASE], folder=kept)
    assert counted == [config, config, BASE]
    os.utime(letor / "test.txt", ns=(1, 1))
    run_sweep([config, BASE], folder=kept)
    assert counted == [config, config, BASE, config]


def test_a_run_of_another_program_is_run_again(tmp_path, counted, monkeypatch):
    """Also one that was kept before programs were told apart."""
    run_sweep([BASE], folder=tmp_path)
    another = Program("another", ())
    monkeypatch.setattr("foltr_research.simulation.sweeps.sweep.programs_of", lambda configs: [another] * len(configs))
    for _ in range(2):
        run_sweep([BASE], folder=tmp_path)
    assert counted == [BASE] * 2
    path = tmp_path / f"{config_digest(BASE)}.json"
    content = json.loads(path.read_text())
    del content["program"], content["data"]
    path.write_text(json.dumps(content))
    run_sweep([BASE], folder=tmp_path)
    assert counted == [BASE] * 3


def test_an_attack_that_nobody_makes_is_run_once(tmp_path, counted):
    """Without attackers all attacks are one run, whose result each has; a wrong attack has its own error."""
    base = BASE.changed(clients=5, aggregation="median")
    configs = grid(base, {"attack": ["lie", "scaled", "unknown"], "attackers": [0, 2]})
    for _ in range(2):
        rows = run_sweep(configs, folder=tmp_path)
        assert [row.config for row in rows] == configs
        assert [row.error is None for row in rows] == [True] * 4 + [False] * 2
        assert [told(row) for row in rows[:4]] == [alone(config) for config in configs[:4]]
    right = [(config.attack, config.attackers) for config in counted if config.attack != "unknown"]
    assert right == [("lie", 0), ("lie", 2), ("scaled", 2)]


def test_backends_that_are_not_there(monkeypatch):
    """One line for a backend that is unknown or not installed; Ray's says what opens a cluster that wants a token."""
    with pytest.raises(SettingsError, match="known are loky, dask, ray"):
        run_sweep([BASE], backend="spark")
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(SettingsError, match=r"pip install .*\[ray\]"):
        run_sweep([BASE], backend="ray")

    def refuse(address, **_):
        raise ConnectionError(f"Failed to connect to Ray cluster at {address}")

    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(init=refuse))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        with pytest.raises(UnavailableError, match="RAY_AUTH_MODE=token"):
            run_sweep([BASE], backend="ray", scheduler=address)


@pytest.mark.parametrize(
    ("backend", "package", "extra", "scheme"), [("dask", "distributed", "sweeps", "tcp://"), ("ray", "ray", "ray", "")]
)
def test_a_scheduler_that_does_not_answer(unused_tcp_port, backend, package, extra, scheme):
    """Told in one line after a bounded wait: Ray by itself tries for minutes."""
    pytest.importorskip(package, reason=f"it is in the extra {extra!r}")
    with pytest.raises(UnavailableError, match="cannot be reached"):
        run_sweep([BASE], backend=backend, scheduler=f"{scheme}127.0.0.1:{unused_tcp_port}")


def test_a_folder_is_told_by_place_and_files(tmp_path, monkeypatch):
    """Another file, size, time or place is other data; the same folder by another path is the same."""
    (tmp_path / "Fold1").mkdir()
    (tmp_path / "Fold1" / "train.txt").write_text("1")
    found = [data_fingerprint(str(tmp_path))]
    assert data_fingerprint(str(tmp_path / "Fold1" / "..")) == found[0]
    (tmp_path / "rows.csv").write_text("results are no data")
    assert data_fingerprint(str(tmp_path)) == found[0]
    (tmp_path / "Fold1" / "train.txt").write_text("12")
    found.append(data_fingerprint(str(tmp_path)))
    os.utime(tmp_path / "Fold1" / "train.txt", ns=(1, 1))
    found.append(data_fingerprint(str(tmp_path)))
    (tmp_path / "test.txt").write_text("")
    found.append(data_fingerprint(str(tmp_path)))
    monkeypatch.chdir(tmp_path)
    found.extend((data_fingerprint("Fold1"), data_fingerprint("nowhere")))
    assert len(set(found)) == len(found)
    assert data_fingerprint(str(tmp_path / "nowhere")) == data_fingerprint("nowhere")


@pytest.mark.parametrize("name", [*GENERATED_DATA, "mslr-sample"])
def test_what_the_program_makes_has_no_files(name):
    """Nothing is looked up, not even a folder of that name."""
    assert data_fingerprint(name) == ""


def test_a_patched_rule_is_another_program(tmp_path, counted, monkeypatch):
    """A rule that is replaced, or calls something else, is run again; its result is not that of the rule's name."""
    config = BASE.changed(aggregation="krum", byzantine=0)
    own = run_sweep([config], folder=tmp_path)[0]

    def first_row(rows, m):
        return picked(rows, m)

    def picked(rows, _m):
        return RuleResult(rows[0])

    monkeypatch.setattr("foltr.core.aggregation.rules.krum", first_row)
    patched = run_sweep([config], folder=tmp_path)[0]
    assert told(patched)["weights_norm"] != told(own)["weights_norm"]
    run_sweep([config], folder=tmp_path)
    assert counted == [config] * 2

    def picked(rows, _m):  # noqa: F811 (a plug-in's helper that was changed)
        return RuleResult(rows[1])

    run_sweep([config], folder=tmp_path)
    run_sweep([BASE], folder=tmp_path)
    assert counted == [config] * 3 + [BASE]
    monkeypatch.undo()
    assert told(run_sweep([config], folder=tmp_path)[0]) == told(own)


def test_a_worker_without_the_patch_refuses(monkeypatch):
    """A process that imports the original would keep its result under the patch's name."""
    pytest.importorskip("joblib")
    monkeypatch.setattr("foltr.core.aggregation.coordinates.weighted_mean", lambda *_: None)
    monkeypatch.setattr("foltr.core.aggregation.rules.median", lambda *_, **__: None)
    rows = run_sweep(grid(BASE, {"seed": [1, 2]}), jobs=2)
    assert all("lacks a plug-in" in row.error for row in rows)
