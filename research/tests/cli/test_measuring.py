"""``--metric``, ``--runs`` and ``--choose-by`` as a user sees them."""

import csv
import json
import sys

import pytest

from foltr.cli import main

SMALL = ("--clients", "3", "--interactions", "2", "--rounds", "3", "--eval-every", "2")


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    """Runs a command in an empty folder; returns its exit code and all it printed."""
    monkeypatch.chdir(tmp_path)
    for variable in ("FOLTR_DATASET", "FOLTR_SEED", "FOLTR_AGGREGATION", "FOLTR_BYZANTINE"):
        monkeypatch.delenv(variable, raising=False)

    def run(*words: str) -> tuple[int, str]:
        monkeypatch.setattr(sys, "argv", ["foltr", *words])
        with pytest.raises(SystemExit) as ended:
            main.main()
        printed = capsys.readouterr()
        return int(ended.value.code or 0), printed.out + printed.err

    return run


def rows_of(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def test_metrics_are_on_the_screen_and_in_every_file(command, tmp_path):
    """The same last values; the run's files have them by query."""
    metric = ("--metric", "ndcg@5,maxrr", "--runs", "runs", "--json", "r.json", "--out", "r.csv")
    code, printed = command("simulate", *SMALL, *metric)
    assert code == 0, printed
    result = json.loads((tmp_path / "r.json").read_text())
    for name in ("ndcg@5", "maxrr"):
        last = result["metrics"][name][-1]["value"]
        assert f"{name}: {result['metrics'][name][0]['value']:.4f} before, {last:.4f} after" in printed
        assert float(rows_of(tmp_path / "r.csv")[-1][name]) == last
        by_query = [float(row[name]) for row in rows_of(tmp_path / "runs" / "test.csv")]
        assert sum(by_query) / len(by_query) == pytest.approx(last)


def test_runs_that_cannot_be_written_are_one_line_before_the_work(command, tmp_path):
    """A file in place of the folder, and a method without a shared ranker."""
    (tmp_path / "file").write_text("")
    for words, said in (
        (("--runs", "file"), "file is a file; expected a folder"),
        (("--runs", "runs", "--method", "fpdgd-personal"), "with fpdgd-personal each client has its own ranker"),
    ):
        code, printed = command("simulate", *SMALL, *words)
        assert code == 2
        assert said in printed
        assert "round 0" not in printed


def test_a_sweep_chooses_on_validation_queries_and_measures_on_test_queries(command, tmp_path):
    """All seeds of the chosen learning rate, for each click model; a second sweep finds all runs."""
    folder = tmp_path / "data"
    folder.mkdir()
    for name in ("train", "vali", "test"):
        lines = (f"{i * 7 % 5 // 2} qid:{1 + i // 6} 1:{i % 6} 2:{i * i % 5}\n" for i in range(60))
        (folder / f"{name}.txt").write_text("".join(lines))
    vary = ("--vary", "learning-rate=0.01,0.1", "--vary", "clicks=perfect,poison", "--seeds", "1,2")
    words = ("sweep", *SMALL, "--data", "data", *vary, "--choose-by", "validation", "--out", "s.csv")
    for _ in range(2):
        code, printed = command(*words)
        assert code == 0, printed
        assert "8 runs, kept in" in printed
        assert "Chosen by validation queries; now on test queries:" in printed
        assert "4 runs, kept in" in printed
        rows = rows_of(tmp_path / "s.csv")
        tested = {(row["clicks"], row["seed"]) for row in rows if row["evaluate_on"] == "test"}
        assert tested == {(clicks, seed) for clicks in ("perfect", "poison") for seed in ("1", "2")}
        rates = {(row["clicks"], row["parameters"]) for row in rows if row["evaluate_on"] == "test"}
        assert len(rates) == 2
        assert len(list((tmp_path / "s.csv.runs").glob("*.json"))) == 12
