"""``foltr reproduce`` as a user runs it."""

import json

from cli.commands import foltr


def test_list_names_every_experiment():
    """A line each, with the place in the paper."""
    done = foltr("reproduce", "list")
    assert done.returncode == 0
    for said in ("thesis-3.1 ", "thesis-3.10 ", "thesis-table-3.1 ", "methods ", "Figure 3.6"):
        assert said in done.stdout


def test_wrong_settings_are_one_line(tmp_path):
    """An unknown experiment or scale, no data, or a folder without any: what there is, and no more."""
    for arguments, said in (
        (("thesis-9.9", "--data", "synthetic"), "there is no experiment 'thesis-9.9'; known are thesis-3.1"),
        (("thesis-3.9", "--data", "synthetic", "--scale", "huge"), "scale: 'huge' is neither quick nor full"),
        (("thesis-3.9", "--data", "synthetic", "--metric", "fast"), "metric: unknown 'fast'; known are ndcg"),
        (("thesis-3.9",), "data: name a folder or a data set"),
    ):
        done = foltr("reproduce", *arguments, "--out", str(tmp_path))
        assert done.returncode == 2
        assert said in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1
    done = foltr("reproduce", "thesis-3.9", "--data", str(tmp_path), "--out", str(tmp_path / "out"))
    assert done.returncode == 1
    assert str(tmp_path) in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_file_in_place_of_the_folder_is_one_line(tmp_path):
    """Told before the first run: OUT, the kept runs or the report's place is a file."""
    for name in ("out", "runs", "thesis-3.9"):
        out = tmp_path / name if name == "out" else tmp_path / f"with-{name}"
        taken = out if name == "out" else out / name
        taken.parent.mkdir(exist_ok=True)
        taken.write_text("")
        done = foltr("reproduce", "thesis-3.9", "--data", "synthetic", "--out", str(out))
        assert done.returncode == 2
        assert f"{taken} is a file; expected a folder" in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1


def test_check_says_which_reports_are_stale(tmp_path):
    """What changed, what to type and how long it takes; the exit code tells a script."""
    record = {
        "experiment": "thesis-3.9",
        "data": "MQ2008/Fold1",
        "folds": [1],
        "files": "",
        "interactions": 9,
        "options": "--scale quick --seeds 3",
        "seconds": 150.0,
        "commit": None,
        "versions": {},
        "names": [],
        "code": {"foltr.core.gone": "0" * 16},
    }
    (tmp_path / "thesis-3.9").mkdir()
    (tmp_path / "thesis-3.9" / "report.md").write_text("# a report")
    (tmp_path / "thesis-3.9" / "report.json").write_text(json.dumps(record))
    done = foltr("reproduce", "check", str(tmp_path))
    assert done.returncode == 1
    first, second, last = done.stdout.splitlines()
    assert first.startswith("stale: thesis-3.9/report.md: its code has changed: foltr.core.")
    command = "foltr reproduce thesis-3.9 --data MQ2008 --out OUT --scale quick --seeds 3"
    assert second.strip() == f"{command}  # about 2 minutes on one core"
    assert last == "1 report, 1 stale"
    done = foltr("reproduce", "check", str(tmp_path / "nowhere"))
    assert (done.returncode, "it has no report" in done.stderr) == (2, True)
    done = foltr("reproduce", "thesis-3.9", str(tmp_path), "--data", "synthetic")
    assert (done.returncode, "use --out" in done.stderr) == (2, True)
