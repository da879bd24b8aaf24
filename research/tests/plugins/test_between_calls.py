"""What changes between two calls in one process: the next result is of what is there now."""

import importlib
import sys

import numpy as np
import pytest
from cli.commands import foltr_fresh
from support.waiting import PATIENCE_S

import foltr_research as fr
from foltr.core.errors import DataError, SettingsError
from foltr_research.simulation.plugins import held

SMALL = {"clients": 4, "interactions": 2, "rounds": 2}


class Centred(fr.Method):
    """Its step centres the features that it is shown, in place."""

    def learn(self, weights, seen, rng):
        seen.features[:] = 0.5
        return super().learn(weights, seen, rng)


class Queries:
    """Makes data, of which it can say something else the next time."""

    __name__ = "queries"

    def __init__(self):
        self.relevant = 0

    def __call__(self):
        features = np.random.default_rng(1).random((60, 3))
        return features, features[:, self.relevant] > 0.6, np.arange(60) // 6


def curve(**settings):
    return fr.simulate(**settings, **SMALL).curve.values.tolist()


def test_a_method_that_changes_the_data_in_place_is_refused():
    """Alone and in a sweep; the runs after it learn from the data as it was."""
    before = curve()
    with pytest.raises(DataError, match="method: Centred changes the features"):
        curve(method=Centred)
    assert curve() == before
    with pytest.warns(UserWarning, match="1 of 2 runs failed, first: method: Centred changes"):
        runs = fr.sweep({"method": [Centred, "fpdgd"]}, **SMALL)
    assert [row["ndcg_at_10"] for row in runs.rows if row["error"] is None] == before


def test_the_command_line_refuses_it_too(tmp_path):
    """In one line, instead of a result on data that the method has spoilt."""
    (tmp_path / "own.py").write_text(
        "import foltr_research as fr\n\n\nclass Own(fr.Method):\n    def learn(self, weights, seen, rng):\n"
        "        seen.features[:] = 0.5\n        return weights\n"
    )
    done = foltr_fresh("simulate", "--method", "own:Own", "--rounds", "1", cwd=tmp_path, timeout_s=PATIENCE_S)
    assert done.returncode == 1
    assert "error: method: own:Own changes the features that it sees in place" in done.stderr


def test_data_is_made_again_by_an_object_that_has_changed():
    """Alone and in a sweep."""
    queries = Queries()
    first = curve(data=queries)
    queries.relevant = 1
    second = curve(data=queries)
    queries.relevant = 2
    runs = fr.sweep({"seed": [1]}, data=queries, **SMALL)
    third = [row["ndcg_at_10"] for row in runs.rows]
    assert first != second != third != first
    assert curve(data=queries) == third


def test_a_metric_cannot_change_what_the_next_one_gets():
    """It is the first that fails."""

    def sorting(ranked, ideal, k):
        ranked.sort()
        return 1.0

    with pytest.raises(ValueError, match="read-only"):
        fr.simulate(metrics=[sorting, "map"], **SMALL)


def test_a_module_that_was_reloaded_is_taken_as_it_is_now(tmp_path, monkeypatch):
    """By the same text."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    path = tmp_path / "reloaded_rules.py"

    def written(by):
        path.write_text(f"def scaled(updates, weights, byzantine):\n    return {by} * updates.mean(axis=0)\n")

    written(1)
    first = curve(rule="reloaded_rules:scaled")
    written(-1)
    assert curve(rule="reloaded_rules:scaled") == first
    importlib.reload(sys.modules["reloaded_rules"])
    assert curve(rule="reloaded_rules:scaled") != first


def test_a_kept_run_knows_what_a_function_reads(tmp_path):
    """Data that it loads from a file is other data if the file is another, and the same if it is not."""
    file = tmp_path / "features.npy"

    def stored(seed):
        features = np.load(file) + seed
        return features, features[:, 0] > seed + 0.6, np.arange(60) // 6

    def kept(number):
        np.save(file, np.random.default_rng(number).random((60, 3)))
        before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("runs/*.json")}
        runs = fr.sweep({"seed": [1, 2]}, data=stored, folder=tmp_path / "runs", **SMALL)
        again = {path for path in tmp_path.glob("runs/*.json") if before.get(path) != path.stat().st_mtime_ns}
        return [row["ndcg_at_10"] for row in runs.rows], len(again)

    first, n_run = kept(1)
    assert n_run == 2
    assert kept(1) == (first, 0)
    second, n_run = kept(2)
    assert n_run == 2
    assert second != first


def test_a_name_of_an_installed_package_is_not_taken():
    """It would mean another thing from there on; what the package has under it may be handed over."""

    def trust(relevance, draws):
        return draws[:, 0] < relevance

    before = curve(clicks="trust")
    with pytest.raises(SettingsError, match="clicks: 'trust' is a name of the package foltr-research; give yours"):
        fr.simulate(clicks=trust, **SMALL)
    assert curve(clicks="trust") == before
    assert curve(clicks=held("clicks", "trust")) == before
