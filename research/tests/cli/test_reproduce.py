"""``foltr reproduce`` as a user runs it."""

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
