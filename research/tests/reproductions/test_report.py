"""What a report and its figures say is what the results say."""

import csv
import json
import sys
from dataclasses import replace

import pytest
from made_results import by_method, results

from foltr.core.errors import SettingsError, UnavailableError
from foltr_research.reproductions.claims import Claim, Status, higher, not_testable
from foltr_research.reproductions.experiment import Experiment, Section, Table
from foltr_research.reproductions.figures import Figure, draw, require_matplotlib
from foltr_research.reproductions.report import table_markdown, write_report

pytest.importorskip("matplotlib", reason="figures are drawn by matplotlib, in the extra figures")

A, B = {"method": "a"}, {"method": "b"}
EXPERIMENT = Experiment(
    name="made-1",
    title="two methods",
    source="a paper, Figure 1",
    setting="a hundred clients.",
    grid=lambda _scale, _data: [],
    seeds={"quick": 3, "full": 5},
    figures=(Figure("offline.png", "offline", ("method",)),),
    tables=(Table("Final nDCG@10", "offline", ("method",)),),
    claims=(
        Claim("a is better", "Figure 1", "a above b", higher("offline", A, B)),
        Claim("b is better", "Figure 1", "b above a", higher("offline", B, A)),
        Claim("c is fast", "Figure 2", "none", not_testable("there is no c")),
    ),
    published=("a 0.5",),
    differences=("the weather",),
)


@pytest.fixture
def made():
    return by_method(a=[0.50, 0.52, 0.54], b=[0.40, 0.40, 0.40])


def test_report_has_each_claim_with_its_verdict_and_numbers(made, tmp_path):
    """Confirmed, not confirmed and not testable stand beside each other, with the criterion and what was found."""
    verdicts = write_report(EXPERIMENT, made, tmp_path, scale="quick", n_seeds=3)
    assert [verdict.status for _, verdict in verdicts] == [Status.CONFIRMED, Status.NOT_CONFIRMED, Status.NOT_TESTABLE]
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "3 claims: 1 confirmed, 1 not confirmed, 1 not testable here." in text
    assert "1. **confirmed**: a is better (Figure 1)\n   - Criterion: a above b.\n   - Found: perfect +0.120 ±" in text
    assert "2. **not confirmed**: b is better" in text
    assert "Found: there is no c." in text
    for said in ("a hundred clients.", "9 of 10 test queries", "3 seeds each", "the weather", "a 0.5", "offline.png"):
        assert said in text
    assert (tmp_path / "offline.png").is_file()


def test_table_cells_are_mean_and_deviation(made):
    """Mean 0.52 and deviation sqrt((0.02² + 0 + 0.02²) / 2); a reference without ε has a row of its own."""
    assert "| a | 0.520 ± 0.020 |" in table_markdown(EXPERIMENT.tables[0], made)
    made = results(
        {
            (("method", "a"), ("ε", "1"), ("clicks", "perfect")): [0.4, 0.4],
            (("method", "a"), ("clicks", "perfect")): [0.6, 0.6],
        }
    )
    lines = table_markdown(Table("T", "offline", ("method", "ε")), made).splitlines()
    assert lines[2:] == ["| a | 1 | 0.400 ± 0.000 |", "| a | - | 0.600 ± 0.000 |"]


def test_cells_are_marked_against_a_baseline_of_the_same_place(tmp_path):
    """With p corrected for the comparisons of the table; the baseline itself, and cells without one, have no marker."""
    finals = {
        ("a", "perfect"): [0.50, 0.51, 0.52, 0.50],
        ("a", "poison"): [0.41, 0.38, 0.43, 0.40],
        ("b", "perfect"): [0.40, 0.41, 0.42, 0.41],
        ("b", "poison"): [0.40, 0.40, 0.40, 0.40],
        ("c", "perfect"): [0.37, 0.36, 0.39, 0.35],
    }
    made = results({(("method", name), ("clicks", clicks)): values for (name, clicks), values in finals.items()})
    table = Table("T", "offline", ("method",), baseline=B)
    lines = table_markdown(table, made).splitlines()
    assert lines[2:] == [
        "| a | 0.508 ± 0.010 ▲ | 0.405 ± 0.021 |",
        "| b | 0.410 ± 0.008 | 0.400 ± 0.000 |",
        "| c | 0.368 ± 0.017 ▽ | - |",
    ]
    write_report(replace(EXPERIMENT, tables=(table,)), made, tmp_path, scale="quick", n_seeds=4)
    text = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "above and below b, by a two-sided t test, paired by seed, with Bonferroni's correction" in text


def test_metrics_that_runs_measured_have_columns_and_curves(made, tmp_path):
    """By their names, in the files and in tables; a run without one has NaN."""
    for one in made.outcomes[:3]:
        one.result["metrics"] = {"err@10": [{"round": 0, "value": 0.1}, {"round": 20, "value": 0.3}]}
    write_report(EXPERIMENT, made, tmp_path, scale="quick", n_seeds=3)
    with (tmp_path / "runs.csv").open(encoding="utf-8") as file:
        assert [row["err@10"] for row in csv.DictReader(file)] == ["0.3"] * 3 + ["nan"] * 3
    with (tmp_path / "curves.csv").open(encoding="utf-8") as file:
        points = [row["value"] for row in csv.DictReader(file) if row["metric"] == "err@10" and row["seed"] == "1"]
    assert points == ["0.1", "0.3"]
    assert "| a | 0.30 ± 0.00 |" in table_markdown(Table("T", "err@10", ("method",), where=A, digits=2), made)
    with pytest.raises(SettingsError, match="unknown 'nonsense'"):
        table_markdown(Table("T", "nonsense", ("method",)), made)


def test_runs_have_every_number_and_the_whole_configuration_without_a_path(made, tmp_path):
    """A line a run, with the data's name and not its place; sections are in the report, own numbers in files."""
    write_report(EXPERIMENT, made, tmp_path, scale="quick", n_seeds=3)
    with (tmp_path / "runs.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 6
    assert rows[0]["offline"] == "0.5"
    configuration = json.loads(rows[0]["configuration"])
    assert configuration["data"] == "made"
    assert configuration["rounds"] == 20
    with (tmp_path / "curves.csv").open(encoding="utf-8") as file:
        points = [row for row in csv.DictReader(file) if row["metric"] == "offline" and row["seed"] == "1"]
    assert [(row["round"], row["value"]) for row in points[:3]] == [("0", "0.2"), ("10", "0.35"), ("20", "0.5")]
    section = Section("S", lambda found: f"{len(found)} runs")
    numbers = {"s.csv": lambda found: [["runs"], [str(len(found))]]}
    write_report(replace(EXPERIMENT, sections=(section,), numbers=numbers), made, tmp_path, scale="quick", n_seeds=3)
    assert "## S\n\n6 runs" in (tmp_path / "report.md").read_text(encoding="utf-8")
    assert (tmp_path / "s.csv").read_text(encoding="utf-8") == "runs\n6\n"


pytest.importorskip("matplotlib", reason="figures are drawn by matplotlib, in the extra figures")

SMALL = 60_000


@pytest.mark.parametrize("kind", ["curves", "bars"])
@pytest.mark.parametrize("metric", ["offline", "shown", "max_rr"])
def test_draws_a_small_png(tmp_path, kind, metric):
    """One file, a PNG of at most 60 kB."""
    made, before = by_method(a=[0.5, 0.6, 0.55], b=[0.4, 0.41, 0.42], c=[0.3]), "matplotlib.pyplot" in sys.modules
    draw(Figure("x.png", metric, ("method",), kind=kind), made, tmp_path / "x.png")
    written = (tmp_path / "x.png").read_bytes()
    assert written.startswith(b"\x89PNG")
    assert len(written) < SMALL
    assert ("matplotlib.pyplot" in sys.modules) == before, "a long sweep must not collect figures"


def test_draws_rows_and_several_labels(tmp_path):
    """Panels for a second label, dashes for the curves' second one, and curves that lack it."""
    made = results(
        {
            (("method", "a"), ("ε", epsilon), ("clicks", clicks), ("ranker", ranker)): [0.4, 0.5]
            for epsilon in ("1", "2")
            for clicks in ("perfect", "informational")
            for ranker in ("linear", "neural")
        }
    )
    reference = results({(("method", "b"), ("clicks", "perfect"), ("ranker", "linear")): [0.3, 0.2]})
    both = type(made)((*made.outcomes, *reference.outcomes), made.data)
    figure = Figure("x.png", "offline", ("method", "ε"), rows="ranker", x="interactions", title="t")
    draw(figure, both, tmp_path / "x.png")
    assert (tmp_path / "x.png").stat().st_size < SMALL


def test_without_matplotlib_the_extra_is_named(monkeypatch):
    """One line that says what to install."""
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UnavailableError, match=r"pip install .*\[figures\]"):
        require_matplotlib()
