"""Code from outside the package runs as its own does, in every process, and a kept run knows it."""

import functools
import json
import re
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest
from cli.commands import foltr_fresh
from cli.snippets import blocks
from plugins import mine
from simulated import config, simulated
from support.waiting import PATIENCE_S

import foltr_research as fr
from foltr.core.errors import DataError, SettingsError
from foltr.core.methods.fpdgd import FpdgdDevice, device_of
from foltr.core.methods.spec import MethodSpec, PdgdSteps
from foltr.core.protocol.trainings import PdgdTraining
from foltr_research.simulation import plugins
from foltr_research.simulation.checkpoint import CheckpointPlan
from foltr_research.simulation.config import SimulationConfig
from foltr_research.simulation.plugins import held, plug_in
from foltr_research.simulation.sweeps.sweep import config_digest, run_config, run_sweep

SMALL = {"clients": 6, "interactions": 2, "rounds": 4, "eval_every": 2}
BASE = SimulationConfig(**SMALL)
THINGS = {
    "method": mine.Clipped,
    "aggregation": mine.half_median,
    "attack": mine.reverse,
    "clicks": mine.impatient,
    "metrics": mine.precision,
    "data": mine.forty_queries,
}
MINE = Path(mine.__file__)


def with_mine(kind):
    """A configuration with the object of one kind, and with what shows that it is used."""
    also = {
        "method": {"parameters": {"clip_norm": 0.01}},
        "aggregation": {"aggregation_parameters": {"share": 1.0}},
        "attack": {"attackers": 2, "attack_parameters": {"z": 30.0}},
    }
    return BASE.changed(**also.get(kind, {}), **{kind: plug_in(kind, THINGS[kind])})


def outcome(row):
    return {name: value for name, value in row.result.items() if name not in {"seconds", "interactions_per_second"}}


def alone(of):
    return json.loads(json.dumps(run_config(of).outcome()))


@pytest.fixture(scope="module")
def in_two_processes():
    """A run with one object of each kind, two at a time in other processes."""
    configs = {kind: with_mine(kind) for kind in THINGS}
    return dict(zip(configs, run_sweep(configs.values(), jobs=2), strict=True))


@pytest.mark.parametrize("kind", THINGS)
def test_each_kind_runs_in_other_processes(in_two_processes, kind):
    """To the bits of a run in this one, and to others than without it."""
    row = in_two_processes[kind]
    assert row.error is None
    assert outcome(row) == alone(row.config)
    plain = alone(BASE)
    if kind == "metrics":
        assert set(row.result["metrics"]) == {"precision"}
    else:
        assert row.result["weights_norm"] != plain["weights_norm"]


def test_a_method_of_pdgd_alone_equals_fpdgd():
    """The class without changes, list by list, has the bits of FPDGD in blocks; its parameters are read and checked."""

    class Same(fr.Method):
        pass

    same = fr.simulate(method=Same, learning_rate=0.2, **SMALL)
    np.testing.assert_array_equal(same.weights, fr.simulate(learning_rate=0.2, **SMALL).weights)
    with pytest.raises(SettingsError, match="Same: learning_rate"):
        fr.simulate(method=Same, learning_rate=-1, **SMALL)
    with pytest.raises(SettingsError, match="linear rankers"):
        fr.simulate(method=Same, ranker="neural", **SMALL)


@pytest.mark.parametrize("backend", ["dask", "ray"])
def test_clusters_get_the_objects(backend):
    """By value, even of a class inside a function, since their workers need not find its module."""
    pytest.importorskip("distributed" if backend == "dask" else "ray")

    class Halved(fr.Method):
        def send(self, weights, start, rng):
            return (weights + start) / 2

    configs = [BASE.changed(method=plug_in("method", Halved), clicks=plug_in("clicks", mine.impatient))]
    (row,) = run_sweep(configs, jobs=1, backend=backend)
    assert row.error is None
    assert outcome(row) == alone(configs[0])


def test_what_cannot_be_pickled_is_refused_with_its_name(tmp_path):
    """It runs in this process."""
    lock = threading.Lock()

    def locked(updates, weights, byzantine):
        with lock:
            return updates.mean(axis=0)

    of = BASE.changed(aggregation=plug_in("aggregation", locked))
    with pytest.raises(SettingsError, match=r"aggregation: locked cannot be sent to other processes .*lock"):
        run_sweep([of], jobs=2)
    assert run_sweep([of], folder=tmp_path)[0].error is None


def test_large_arrays_are_not_sent_with_every_run(monkeypatch):
    """A function that loads them is."""
    monkeypatch.setattr(plugins, "_MOST_BYTES", 1000)
    of = BASE.changed(data=plug_in("data", mine.forty_queries(1)))
    with pytest.raises(SettingsError, match=r"data: arrays-.* hand over a function"):
        run_sweep([of], jobs=2)


def test_the_command_line_takes_names_of_modules(tmp_path):
    """From the folder it is started in, also in a sweep, whose runs are kept; a wrong name is one line."""
    shutil.copy(MINE, tmp_path / "own_code.py")
    options = ["--data", "own_code:forty_queries", "--clicks", "own_code:impatient", "--metric", "own_code:precision@5"]
    options += ["--aggregation", "own_code:half_median", "--aggregation-set", "share=0.25", "--rounds", "2"]
    vary = ["--vary", "method=fpdgd,own_code:Clipped", "--vary", "attack=lie,own_code:reverse", "--attackers", "2"]
    done = foltr_fresh("sweep", *options, *vary, "--jobs", "2", "--out", "rows.csv", cwd=tmp_path, timeout_s=PATIENCE_S)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "rows.csv").read_text().count("own_code:Clipped,") == 2 * 2
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "rows.csv.runs").glob("*.json")}
    with (tmp_path / "own_code.py").open("a") as file:
        file.write("# a comment\n")
    done = foltr_fresh("sweep", *options, *vary, "--out", "rows.csv", cwd=tmp_path, timeout_s=PATIENCE_S)
    assert done.returncode == 0, done.stdout + done.stderr
    assert kept == {path: path.stat().st_mtime_ns for path in kept}
    for wrong, told in (("own_code:Cliped", "has no Cliped"), ("own_cod:Clipped", "cannot be imported")):
        done = foltr_fresh("simulate", "--method", wrong, cwd=tmp_path, timeout_s=PATIENCE_S)
        assert (done.returncode, told in done.stderr) == (2, True), done.stderr


def test_an_installed_package_names_its_objects(tmp_path, monkeypatch):
    """By an entry point of the kind's group, imported when a configuration names it."""
    shutil.copy(MINE, tmp_path / "installed_code.py")
    about = tmp_path / "installed_code-1.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: installed-code\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[foltr.methods]\nclipped-of-theirs = installed_code:Clipped\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert held("method", "clipped-of-theirs") is None
    result = fr.simulate(method="clipped-of-theirs", parameters={"clip_norm": 0.5}, **SMALL)
    assert result.rows[0]["method"] == "clipped-of-theirs"
    assert held("method", "clipped-of-theirs").__module__ == "installed_code"


def test_a_kept_run_knows_the_code(tmp_path):
    """It is repeated if a function, a value in it or an array has changed, and no other run is."""

    def is_run(of):
        path, before = tmp_path / f"{config_digest(of)}.json", None
        if path.exists():
            before = path.stat().st_mtime_ns
        assert run_sweep([of], folder=tmp_path)[0].error is None
        return path.stat().st_mtime_ns != before

    def scaled(by):
        def rule(updates, weights, byzantine):
            return by * updates.mean(axis=0)

        return rule

    for by, expected in ((1, True), (1, False), (2, True)):
        assert is_run(BASE.changed(aggregation=plug_in("aggregation", scaled(by)))) == expected

    class Own(fr.Method):
        def send(self, weights, start, rng):
            return (weights + start) / 2

    of = BASE.changed(method=plug_in("method", Own))
    assert [is_run(of), is_run(of), is_run(BASE), is_run(BASE)] == [True, False, True, False]

    class Own(fr.Method):
        part: float = 0.5

        def send(self, weights, start, rng):
            return start + self.part * (weights - start)

    plug_in("method", Own)
    assert [is_run(of), is_run(of), is_run(BASE)] == [True, False, False]

    class Own(fr.Method):
        part: float = 0.6
        send = Own.send

    plug_in("method", Own)
    assert [is_run(of), is_run(of)] == [True, False]
    rows = mine.forty_queries(1)
    of = BASE.changed(data=plug_in("data", rows))
    rows[0][0, 0] += 0.1
    other = BASE.changed(data=plug_in("data", rows))
    assert of.data != other.data


def test_a_checkpoint_knows_the_code(tmp_path):
    """It is resumed to the same bits; with other code of the same name it is refused."""
    of = config(method=plug_in("method", mine.Clipped), clicks=plug_in("clicks", mine.impatient))
    path = tmp_path / "checkpoint"
    with pytest.raises(KeyboardInterrupt):
        simulated(of, checkpoint=CheckpointPlan(path), stop=lambda: True)
    resumed = simulated(of, checkpoint=CheckpointPlan(path, resume=True))
    assert resumed.outcome() == simulated(of).outcome()

    class Clipped(mine.Clipped):
        pass

    plug_in("method", Clipped)
    with pytest.raises(DataError, match="other settings of the method"):
        simulated(of, checkpoint=CheckpointPlan(path, resume=True))


def test_a_table_of_clicks_runs_in_blocks_and_a_function_does_not():
    """Equal users have equal bits either way; where only tables are read, a function is refused."""
    table = fr.ClickModel("half", (0.0, 0.5, 0.5, 0.5, 0.5), (0.0,) * 5)

    def half(relevance, draws):
        return draws[:, 0] < 0.5 * (relevance > 0)

    half.__name__ = "half-by-function"
    blocks = simulated(config(clicks=plug_in("clicks", table)), runner="block")
    lists = config(clicks=plug_in("clicks", half))
    np.testing.assert_array_equal(blocks.weights, simulated(lists).weights)
    with pytest.raises(SettingsError, match="not run in blocks"):
        simulated(lists, runner="block")
    for method in ("pdgd", "pdgd-batch", "local"):
        with pytest.raises(SettingsError, match="half-by-function is a function"):
            simulated(lists.changed(method=method))
    with pytest.raises(SettingsError, match="probabilities for 2 grades, the data 5"):
        simulated(config(clicks=plug_in("clicks", fr.ClickModel("two", (0.0, 1.0), (0.0, 0.0)))))


class OwnTraining(PdgdTraining):
    """Settings of a `MethodSpec` from outside."""


def test_a_whole_method_may_be_handed_over():
    """With steps that blocks run; blocks would leave out another device, so that is refused."""

    def steps(training, ranker):
        return PdgdSteps(training.learning_rate, proximal=0.1)

    spec = MethodSpec(name="proximal", training=OwnTraining, device=device_of(steps), pdgd=steps)
    of = config(method=plug_in("method", spec), ranker="neural", hidden=4)
    blocks, lists = (simulated(of, runner=kind) for kind in ("block", "reference"))
    np.testing.assert_array_equal(blocks.weights, lists.weights)

    class Other(FpdgdDevice):
        pass

    def device(training, ranker, weights, version, context):
        return Other(ranker, weights, steps(training, ranker))

    spec = MethodSpec(name="proximal", training=OwnTraining, device=device, pdgd=steps)
    of = config(method=plug_in("method", spec))
    with pytest.raises(SettingsError, match=r"has pdgd, .* and a device of its own"):
        simulated(of)
    without = MethodSpec(name="proximal", training=OwnTraining, device=device)
    assert simulated(config(method=plug_in("method", without))).final_ndcg
    for training, of in ((PdgdTraining, "fpdgd"), (OwnTraining, "proximal")):
        with pytest.raises(SettingsError, match=f"{training.__name__} is the training of {of}"):
            plug_in("method", MethodSpec(name="another", training=training, device=device))


@pytest.mark.parametrize(
    ("kind", "thing", "told"),
    [
        ("method", "fpdgd", "expected a class derived from foltr_research.Method"),
        ("method", int, "expected a class"),
        ("aggregation", 3, "expected a function of updates"),
        ("aggregation", lambda *updates, kind="a": updates, "kind needs a number as default"),  # noqa: ARG005
        ("attack", None, "expected a function of an AttackedRound"),
        ("clicks", fr.ClickModel, "expected a ClickModel"),
        ("clicks", fr.ClickModel("perfect", (0.0, 1.0), (0.0, 0.0)), "'perfect' is one of foltr's"),
        ("clicks", fr.ClickModel("a,b", (0.0, 1.0), (0.0, 0.0)), "'a,b' cannot be a name"),
        ("metrics", 1.0, "expected a function of the grades"),
    ],
)
def test_what_cannot_be_of_a_kind_is_refused(kind, thing, told):
    """With what is expected."""
    with pytest.raises(SettingsError, match=told):
        plug_in(kind, thing)


def constant(value):
    """A function that returns something wrong for all arguments."""

    def wrong(*_seen):
        return value

    return wrong


@pytest.mark.parametrize(
    ("kind", "thing", "told"),
    [
        ("aggregation", constant(np.ones(3)), r"must return \(8,\) finite numbers, not \(3,\) float64"),
        ("aggregation", constant(np.full(8, np.nan)), "finite numbers"),
        ("attack", constant("x"), "must return numbers"),
        ("clicks", constant(np.ones(2)), "bool, not"),
        ("metrics", constant(float("nan")), "nan for query"),
    ],
)
def test_what_returns_something_wrong_is_named(kind, thing, told):
    """An error of the run, not a silent broadcast."""
    more = {"attackers": 2} if kind == "attack" else {}
    of = config(**{kind: plug_in(kind, thing)}, **more)
    with pytest.raises(DataError, match=told):
        simulated(of)


def test_a_step_of_the_wrong_shape_is_named():
    """Of the function that returned it."""

    class Short(fr.Method):
        def learn(self, weights, seen, rng):
            return weights[:-1]

    with pytest.raises(DataError, match=r"Short.learn must return weights \(8,\), not \(7,\) float64"):
        simulated(config(method=plug_in("method", Short)))


def test_partial_functions_and_whole_numbers():
    """A partial function has its function's name; a parameter with a whole default stays whole."""
    seen = []

    def first(updates, weights, byzantine, n=1, scale=1.0):
        seen.append((n, scale))
        return scale * updates[:n].mean(axis=0)

    of = config(
        aggregation=plug_in("aggregation", functools.partial(first, scale=0.5)), aggregation_parameters={"n": 2}
    )
    assert of.aggregation == "first"
    simulated(of)
    assert {(n, type(n), scale) for n, scale in seen} == {(2, int, 0.5)}


@pytest.mark.parametrize(
    "more",
    [
        {"privacy": "secure", "clients": 30, "participations": 4, "cohorts": 5},
        {"take_back": True},
        {"aggregation": "adaptive"},
        {"aggregation": "nnm+half_median", "aggregation_fallback": "half_median"},
        {"attack": "clicks", "attackers": 1, "clicks": "mine"},
        {"population": "type3", "clicks": ("mine", "perfect"), "clients": 4},
        {"participants": 3},
    ],
    ids=lambda more: "-".join(map(str, more)),
)
def test_own_code_meets_the_other_settings(more):
    """A method and a rule of one's own with secure sums, votes, other rules, attacks and populations."""
    plug_in("aggregation", mine.half_median)
    plug_in("clicks", fr.ClickModel("mine", (0.0, 0.2, 0.4, 0.8, 1.0), (0.0,) * 5))
    plain = {"aggregation": "half_median", "parameters": {"clip_norm": 0.5}, **SMALL}
    result = run_config(SimulationConfig(method=plug_in("method", mine.Clipped), **{**plain, **more}))
    assert np.isfinite(result.final_ndcg)


def test_the_page_shows_the_code_of_these_tests():
    """It imports only the door and NumPy, and each object has at most 20 lines."""
    *_, shown = blocks("docs/simulation.md", "python")
    assert shown == MINE.read_text()
    assert re.findall("^(?:import|from).*", shown, re.MULTILINE) == [
        "import numpy as np",
        "import foltr_research as fr",
    ]
    assert len(shown.split("\n\n\n")) == 1 + len(THINGS)
    assert max(len(one.splitlines()) for one in shown.split("\n\n\n")) <= 20
