"""docs/robustness.md does what it says, and its bounds are those of the code."""

import math
import re
import shlex

import pytest
from cli.commands import PROJECT, foltr_process
from cli.snippets import blocks
from support.waiting import PATIENCE_S

from foltr.core.aggregation import budgets, evidence, suspicion
from foltr.core.aggregation.rule_spec import PRE_STEPS, RULES

DOCUMENT = "docs/robustness.md"


def test_the_commands_of_the_document_run(tmp_path):
    """From the first to the last, without those of quarantine, which need a federation."""
    lines = "\n".join(blocks(DOCUMENT, "sh")).splitlines()
    for line in [one for one in lines if one and not one.startswith("foltr device ")]:
        done = foltr_process(*shlex.split(line)[1:], cwd=tmp_path, timeout_s=PATIENCE_S)
        assert done.returncode == 0, f"{line}\n{done.stdout}\n{done.stderr}"
    assert (tmp_path / "adaptive.json").is_file()


@pytest.mark.parametrize(
    ("kind", "fades", "bounds"),
    [
        ("alignment", evidence.ALIGNMENT_FADES, (suspicion.BEHIND, suspicion.NO_MORE_BEHIND)),
        ("drift", evidence.DRIFT_FADES, (suspicion.DRIFT, suspicion.NO_MORE_DRIFT)),
        ("length", evidence.LENGTH_FADES, (suspicion.LOG_LENGTH_ALONE, suspicion.NO_MORE_LOG_LENGTH)),
    ],
)
def test_bounds_of_the_adaptive_defence(kind, fades, bounds):
    """The table's, and for how many rounds evidence counts: a weight that fades by a hundredth sums up to a hundred."""
    lines = (PROJECT / DOCUMENT).read_text(encoding="utf-8").splitlines()
    cells = next(line for line in lines if line.startswith(f"| {kind} |")).strip("| ").split(" | ")
    assert cells[-2:] == [f"{bound:g}" for bound in bounds]
    assert cells[-3] == f"{math.floor(1 / (1 - fades) + 1e-9)} rounds"


def test_what_the_adaptive_defence_holds_against():
    """The table's means and worst seeds are those of the stored report, and so is the share of honest updates."""
    report = (PROJECT / "research/results/robustness-aware/MSLR-sample.md").read_text(encoding="utf-8")
    text = (PROJECT / DOCUMENT).read_text(encoding="utf-8")
    for known, row in (
        ("unaware", "*unaware*"),
        ("own data", "*aware with own data*"),
        ("sight", "*aware with sight*"),
    ):
        rows = [line.strip("| ").split(" | ") for line in report.splitlines() if line.startswith(f"| {known} | ")]
        cells = " | ".join(f"{mean} ({worst})" for _, _, _, mean, _, worst, _ in rows)
        assert re.search(rf"^\| {re.escape(row)}[^|]*\| {re.escape(cells)} \|$", text, re.MULTILINE), cells
    (left_out,) = re.findall(r"left out at some time; ([\d.]+ %) of all honest updates", report)
    assert f"all honest updates {left_out} were left out" in " ".join(text.split())


def test_budgets_of_the_adaptive_defence():
    """The table's, from the shortest memory to the longest; every rule is there, with or without a step before it."""
    lines = (PROJECT / DOCUMENT).read_text(encoding="utf-8").splitlines()
    begin = next(i for i, line in enumerate(lines) if line.startswith("| budget |"))
    rows = [line.strip("| ").split(" | ") for line in lines[begin + 2 : begin + 2 + len(budgets.HORIZONS)]]
    assert [row[1:] for row in rows] == [[f"{one.fade:g}", f"{one.chance:g}"] for one in budgets.HORIZONS]
    assert f"the root of {budgets.OVER_MEDIAN:g} times" in "\n".join(lines)
    text = (PROJECT / DOCUMENT).read_text(encoding="utf-8")
    for name in (*RULES, *(f"{step}+" for step in PRE_STEPS)):
        assert f"| `{name}`" in text, name
