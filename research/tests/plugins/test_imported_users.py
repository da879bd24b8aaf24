"""A click model's parameters from a file of one's own, outside the package, from Python and on the command line."""

import csv
import json

import numpy as np
from cli.commands import foltr_fresh
from support.waiting import PATIENCE_S

import foltr_research as fr

# As fitted elsewhere: four ranks, five grades.
SITE = {
    "model": "UBM",
    "attraction": [0.02, 0.1, 0.3, 0.6, 0.8],
    "examination": [[0.95], [0.6, 0.9], [0.4, 0.5, 0.8], [0.2, 0.3, 0.5, 0.7]],
}
MODULE = """
import foltr_research as fr

site = fr.click_model_of("site.json", "site")
"""
SMALL = {"clients": 4, "interactions": 2, "rounds": 3, "eval_every": 3}


def test_users_of_a_file_learn_like_those_of_its_values(tmp_path):
    """A run by the file is one by the dictionary, and another than by the usual UBM."""
    path = tmp_path / "site.json"
    path.write_text(json.dumps(SITE))
    by_file, by_values = (fr.simulate(clicks=fr.click_model_of(one, "site"), **SMALL) for one in (path, SITE))
    np.testing.assert_array_equal(by_file.weights, by_values.weights)
    assert (by_file.weights != fr.simulate(clicks="ubm", **SMALL).weights).any()
    assert by_file.rows[0]["clicks"] == "site"


def test_the_command_line_takes_them_by_a_module(tmp_path):
    """Two at a time in other processes, for methods of the service and for prpo."""
    (tmp_path / "site.json").write_text(json.dumps(SITE))
    (tmp_path / "users.py").write_text(MODULE)
    options = ["--clicks", "users:site", "--clients", "4", "--rounds", "2", "--vary", "method=fpdgd,fedips,prpo"]
    done = foltr_fresh("sweep", *options, "--jobs", "2", "--out", "rows.csv", cwd=tmp_path, timeout_s=PATIENCE_S)
    assert done.returncode == 0, done.stdout + done.stderr
    with (tmp_path / "rows.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["method"] for row in rows} == {"fpdgd", "fedips", "prpo"}
    assert not any(row["error"] for row in rows)


def test_kept_runs_know_the_parameters(tmp_path):
    """A sweep's run is repeated after the file has changed, and not before."""
    path = tmp_path / "site.json"
    results = []
    for continuation in (0.9, 0.9, 0.1):
        values = {"model": "DBN", "attraction": SITE["attraction"], "satisfaction": [0.0] * 5}
        path.write_text(json.dumps({**values, "continuation": continuation}))
        before = {one: one.stat().st_mtime_ns for one in tmp_path.glob("runs/*.json")}
        done = fr.sweep({"seed": [1]}, clicks=fr.click_model_of(path, "site"), folder=tmp_path / "runs", **SMALL)
        after = {one: one.stat().st_mtime_ns for one in tmp_path.glob("runs/*.json")}
        results.append((before == after, done.runs[0].result["weights_norm"]))
    assert [kept for kept, _ in results] == [False, True, False]
    assert results[0][1] == results[1][1] != results[2][1]
