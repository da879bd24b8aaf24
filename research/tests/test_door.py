"""``import foltr_research as fr``: what the commands run, in a line or two of Python."""

import builtins
import math
import subprocess
import sys

import matplotlib as mpl
import numpy as np
import pytest
from cli.commands import environment
from cli.snippets import blocks, run_python
from plugins import mine

import foltr_research as fr
from foltr.core.errors import FoltrError, SettingsError, UnavailableError
from foltr_research.simulation.config import SimulationConfig
from foltr_research.simulation.sweeps.sweep import SweepRow, run_config

SMALL = {"clients": 3, "interactions": 2, "rounds": 4, "eval_every": 2}


@pytest.fixture
def axes():
    """Axes that no window shows."""
    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots()
    yield axes
    plt.close(figure)


@pytest.fixture
def without_pandas(monkeypatch):
    real = builtins.__import__

    def refuse(name, *more):
        if name == "pandas":
            raise ImportError(name)
        return real(name, *more)

    monkeypatch.setattr(builtins, "__import__", refuse)


def test_a_run_is_that_of_its_configuration(axes):
    """Parameters of the method stand beside the fields; curve, weights and rows are those of the result."""
    result = fr.simulate(method="fedprox", mu=0.5, clicks=["perfect", "poison"], metrics="mrr@10", **SMALL)
    config = SimulationConfig(
        method="fedprox", parameters={"mu": 0.5}, clicks=("perfect", "poison"), metrics=("mrr@10",), **SMALL
    )
    alone = run_config(config)
    assert result.details.config == config
    assert result.details.outcome() == alone.outcome()
    np.testing.assert_array_equal(result.weights, alone.weights)
    assert result.curve.rounds.tolist() == [0, 2, 4]
    assert list(zip(*result.curve, strict=True)) == list(alone.ndcg_at_10)
    assert [row["round"] for row in result.rows] == [0, 2, 4]
    (line,) = result.plot(axes).lines
    np.testing.assert_array_equal(line.get_ydata(), result.curve.values)
    assert line.get_label() == "fedprox"
    assert repr(result) == f"Result(fedprox, round 4: nDCG@10 {result.curve.values[-1]:.4f})"


def test_a_metric_of_ones_own_has_a_cut_off():
    """With its number; without one there is no limit."""

    def cut(ranked, ideal, k):  # noqa: ARG001
        return k

    result = fr.simulate(metrics=[(cut, 5), cut], **SMALL)
    assert result.details.metrics["cut@5"][-1][1] == 5.0
    assert result.details.metrics["cut"][-1][1] > 10_000


def test_each_round_is_told():
    """With the weights of then, the newest metrics and the round; the last are the result's."""
    told = []
    result = fr.simulate(on_round=lambda weights, metrics: told.append((weights, metrics)), metrics="err", **SMALL)
    assert [metrics["round"] for _, metrics in told] == [0, 1, 2, 3, 4]
    assert not told[0][0].any()
    np.testing.assert_array_equal(told[-1][0], result.weights)
    assert not np.array_equal(told[-2][0], told[-1][0])
    last = told[-1][1]
    assert last["ndcg_at_10"] == last["ndcg@10"] == result.curve.values[-1]
    assert 0 < last["err"] < 1
    assert last["interactions"] == 24


def test_a_stopped_run_is_resumed(tmp_path):
    """From the checkpoint, after an error of one's own in a round."""
    path = tmp_path / "checkpoint"

    def stop(_weights, metrics):
        if metrics["round"] == 101:
            raise KeyboardInterrupt

    long = {**SMALL, "rounds": 102, "eval_every": 51}
    with pytest.raises(KeyboardInterrupt):
        fr.simulate(on_round=stop, checkpoint=path, **long)
    rounds = []
    resumed = fr.simulate(
        on_round=lambda _, metrics: rounds.append(metrics["round"]), checkpoint=path, resume=True, **long
    )
    assert rounds == [100, 101, 102]
    np.testing.assert_array_equal(resumed.weights, fr.simulate(**long).weights)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"z": 2.0}, "z: no setting or parameter .*those of a rule go into aggregation_parameters, of an attack into"),
        ({"learing_rate": 1}, "learing_rate: no setting or parameter has this name; did you mean learning_rate"),
        ({"round": 1}, "did you mean rounds"),
        ({"method": "fedprox", "nu": 1}, "parameters of the method: serp_length, learning_rate, mu"),
        ({"method": "fpgdd"}, "unknown 'fpgdd'"),
        ({"rounds": 0}, "rounds: .*greater than or equal to 1"),
        ({"rule": "medan"}, "unknown rule 'medan'"),
        ({"attack": "lie"}, "lie needs attackers"),
        ({"population": "type1"}, "needs intents"),
        ({"clip_norm": 1.0}, "clip_norm: only for secure sums"),
        ({"on_round": 5}, "on_round: expected a function of weights and metrics, not 5"),
        ({"resume": True}, "resume: it needs checkpoint"),
        ({"checkpoint": "no-folder/state"}, "checkpoint: .*the folder no-folder does not exist"),
    ],
)
def test_a_wrong_setting_is_one_line(settings, told):
    """With the nearest name."""
    with pytest.raises(SettingsError, match=told) as refused:
        fr.simulate(**settings)
    assert "\n" not in str(refused.value)


def test_a_parameter_that_secure_sums_have_too_is_the_methods():
    """Unless sums are secure."""
    result = fr.simulate(method=mine.Clipped, clip_norm=0.5, **SMALL)
    assert result.details.config.parameters == {"clip_norm": 0.5}
    with pytest.raises(SettingsError, match="learning_rate"):
        fr.simulate(method=mine.Clipped, clip_norm=0.5, learning_rate=-1, privacy="secure", **SMALL)


def test_a_sweep_is_its_runs(axes):
    """Each row is that of the run alone; means, intervals and lines are over seeds, by what differs."""
    vary = {"method": ["fpdgd", mine.Clipped], "learning_rate": [0.1, 0.3], "seed": range(1, 4)}
    done = fr.sweep(vary, rule="median", **SMALL)
    assert done.varied == ("method", "parameters.learning_rate")
    assert len(done.runs) == 12
    config = SimulationConfig(aggregation="median", parameters={"learning_rate": 0.3}, seed=2, **SMALL)
    assert [row["ndcg_at_10"] for row in done.rows if (row["seed"], row["method"]) == (2, "fpdgd")][3:] == [
        value for _, value in run_config(config).ndcg_at_10
    ]
    table = done.table()
    rows = table if isinstance(table, list) else table.to_dict("records")
    assert len(rows) == 4 * 3
    assert list(rows[0]) == ["method", "learning_rate", "round", "mean", "low", "high", "n"]
    values = [
        row["ndcg_at_10"]
        for row in done.rows
        if (row["method"], row["parameters"], row["round"]) == ("Clipped", '{"learning_rate": 0.3}', 4)
    ]
    (row,) = [row for row in rows if (row["method"], row["learning_rate"], row["round"]) == ("Clipped", 0.3, 4)]
    mean = sum(values) / 3
    # Student's t with two degrees of freedom, two-sided at 95 %.
    width = 4.302653 * math.sqrt(sum((value - mean) ** 2 for value in values) / 2 / 3)
    assert row["n"] == 3
    assert (row["mean"], row["low"], row["high"]) == pytest.approx((mean, mean - width, mean + width))
    drawn = done.plot(ax=axes, by="method")
    assert [line.get_label() for line in drawn.lines] == ["fpdgd", "Clipped"]
    assert len(drawn.collections) == 2
    assert [line.get_label() for line in done.plot(ax=axes, by="rule").lines[2:]] == ["median"]
    with pytest.raises(SettingsError, match="no such column; did you mean ndcg_at_10"):
        done.table(value="ndcg_at_1")
    with pytest.raises(SettingsError, match="value: data: it has no numbers, but 'synthetic'"):
        done.table(value="data")
    with pytest.raises(SettingsError, match="metod: no such setting; did you mean method"):
        done.table(by="metod")


def test_an_attack_that_nobody_makes_is_no_further_run():
    """Listed under several attacks, it adds nothing to a mean over them."""
    vary = {"attack": ["lie", "sign-flip"], "attackers": [0, 1], "seed": [1, 2]}
    runs = fr.sweep(vary, **SMALL)
    unattacked, attacked = (
        {row["n"] for row in runs.means(by="attackers") if row["attackers"] == number} for number in (0, 1)
    )
    assert (unattacked, attacked) == ({2}, {4})
    assert {row["n"] for row in runs.means(by=["attack", "attackers"])} == {2}
    honest = fr.sweep({"seed": [1, 2]}, **SMALL).means()
    names = ("mean", "low", "high", "n")
    ours = [row for row in runs.means(by="attackers") if row["attackers"] == 0]
    assert [[row[name] for name in names] for row in ours] == [[row[name] for name in names] for row in honest]


def test_runs_without_a_metric_are_left_out_of_its_means():
    """Where metrics are varied; a name that no run has is none."""
    runs = fr.sweep({"metrics": ["err", "map"]}, **SMALL)
    assert {row["metrics"] for row in runs.means(value="err")} == {"err"}
    with pytest.raises(SettingsError, match="value: mrr: no such column"):
        runs.means(value="mrr")


def test_one_run_has_no_interval(axes):
    """And is drawn without a band."""
    done = fr.sweep({"clicks": ["perfect", ("perfect", "poison")]}, **SMALL)
    table = done.table()
    rows = table if isinstance(table, list) else table.to_dict("records")
    assert {row["clicks"] for row in rows} == {"perfect", "perfect+poison"}
    assert not done.plot(ax=axes).collections


def test_runs_that_fail_are_warned_of_and_left_out():
    """The others have their means; without any success the message has the errors."""

    def refuse(updates, weights, byzantine):  # noqa: ARG001
        raise ValueError("own mistake")

    with pytest.warns(UserWarning, match="1 of 2 runs failed, first: ValueError: own mistake"):
        done = fr.sweep({"rule": ["median", refuse]}, **SMALL)
    assert {row["n"] for row in _rows(done.table())} == {1}
    assert {row["aggregation"] for row in _rows(done.table())} == {"median"}
    assert _rows(done.table(by="rule")) == _rows(done.table(by="aggregation"))
    failed = fr.Sweep((), [SweepRow(SimulationConfig(), None, "own mistake")])
    with pytest.raises(FoltrError, match="no run has ndcg_at_10; the errors: own mistake"):
        failed.table()


def _rows(table):
    return table if isinstance(table, list) else table.to_dict("records")


@pytest.mark.parametrize(
    ("vary", "settings", "told"),
    [
        ({"rounds": [2, 3]}, {"rounds": 2}, "rounds: set and varied"),
        ({"learning_rate": [1]}, {"learning_rate": 2}, "learning_rate: set and varied"),
        ({"seed": 3}, {}, r"seed: to vary it give a list of values, e\.g\. \[3\], not 3"),
        ({"method": "fpdgd"}, {}, r"method: to vary it give a list of values, e\.g\. \['fpdgd'\]"),
        ({"sede": [1]}, {}, "sede: no setting or parameter has this name; did you mean seed"),
        ({"seed": []}, {}, "at least one value"),
        ({"seed": [1]}, {"jobs": 0}, "jobs: 0; expected a whole number from 1"),
        ({"aggregation_parameters.x": [1]}, {"rule": "median"}, "has no parameter 'x'"),
    ],
)
def test_a_wrong_sweep_is_refused(vary, settings, told):
    """Before anything runs."""
    with pytest.raises(SettingsError, match=told):
        fr.sweep(vary, **settings)


def test_two_objects_of_one_name_are_refused():
    """The second would take the place of the first."""

    def made(by):
        def rule(updates, weights, byzantine):  # noqa: ARG001
            return by * updates.mean(axis=0)

        return rule

    with pytest.raises(SettingsError, match="two different objects are called rule"):
        fr.sweep({"rule": [made(1), made(2)]}, **SMALL)
    one, two = made(1), made(2)
    two.__name__ = "twice"
    done = fr.sweep({"rule": [one, two], "data": [mine.forty_queries(1), mine.forty_queries(2)]}, **SMALL)
    assert len({row.result["weights_norm"] for row in done.runs}) == 4


@pytest.mark.usefixtures("without_pandas")
def test_data_frames():
    """Without pandas it says what to do, and the table is rows."""
    done = fr.sweep({"seed": [1]}, **SMALL)
    assert [row["round"] for row in done.table()] == [0, 2, 4]
    with pytest.raises(UnavailableError, match="pip install pandas"):
        done.to_pandas()


def test_data_frames_of_pandas():
    """Rows and means as frames, if it is installed."""
    pd = pytest.importorskip("pandas", reason="it is no dependency")
    done = fr.sweep({"seed": [1, 2]}, **SMALL)
    assert isinstance(done.table(), pd.DataFrame)
    assert len(done.to_pandas()) == 6
    assert fr.simulate(**SMALL).to_pandas()["round"].tolist() == [0, 2, 4]


def test_the_page_runs(tmp_path):
    """docs/simulation.md in a program of its own, with two processes."""
    code, *_ = blocks("docs/simulation.md", "python")
    (tmp_path / "page.py").write_text(f"{code}\nprint(len(table), rounds.tolist(), len(ndcg))")
    # What starts processes for itself cannot be forked from one with everything imported.
    done = subprocess.run(
        [sys.executable, "page.py"], cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False
    )
    assert done.stdout == "6 [0, 10, 20] 3\n", done.stderr


def test_the_page_replays_a_log(tmp_path):
    """The block of docs/simulation.md on logged clicks: updates are late, and the curve is by time."""
    _, code, _ = blocks("docs/simulation.md", "python")
    small = code.replace("users=100, share=0.2", "users=20, share=0.1").replace("min_clients=10", "min_clients=2")
    shown = run_python(f"{small}\nprint(late.mean_staleness, len(times), len(models), len(ndcg))", tmp_path)
    staleness, *lengths = shown.split()
    assert float(staleness) > 0
    assert len(set(lengths)) == 1


def test_the_door_has_what_it_names():
    """And nothing else."""
    assert dir(fr) == sorted(fr.__all__)
    assert all(hasattr(fr, name) for name in fr.__all__)
    assert not hasattr(fr, "simulat")
