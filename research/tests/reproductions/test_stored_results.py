"""The page of stored results counts the verdicts of its reports."""

import re
import runpy
import shutil
from collections import Counter

import pytest
from cli.commands import PROJECT

from foltr_research.reproductions.claims import Status

RESULTS = PROJECT / "research/results"
METHODS = PROJECT / "docs/methods.md"
LOUD = "navigational clicks, loud"
ROW = re.compile(r"^\| \[[^]]*\]\((?P<page>[^)]*)\).* \| (\d+) \| (\d+) \| (\d+) \|$", re.MULTILINE)
ROWS = {found["page"]: found.groups()[1:] for found in ROW.finditer((RESULTS / "README.md").read_text("utf-8"))}


def test_every_stored_report_has_a_row():
    """And every row a report."""
    assert {str(page.relative_to(RESULTS)) for page in RESULTS.glob("*/*.md")} == ROWS.keys()


@pytest.mark.parametrize("page", ROWS)
def test_a_row_counts_the_verdicts_of_its_report(page):
    """As does the line above the report's claims."""
    text = (RESULTS / page).read_text("utf-8")
    found = Counter(re.findall(r"^\d+\. \*\*(.*?)\*\*: ", text, re.MULTILINE))
    assert [int(one) for one in ROWS[page]] == [found[status] for status in Status]
    numbers = ", ".join(f"{found[status]} {status}" for status in Status if found[status])
    assert f"\n{found.total()} claims: {numbers}.\n" in text


def tables(page):
    """(heading, rows) of each table of a page; the rows are lines."""
    heading, found = "", []
    for block in re.split(r"\n{2,}", (RESULTS / page).read_text("utf-8")):
        if block.startswith("|"):
            found.append((heading, block.strip().splitlines()))
        elif block.startswith(("#", "**")):
            heading = block.strip("#* \n")
    return found


@pytest.mark.parametrize("page", ["privacy.md", "robustness.md"])
def test_a_page_that_collects_tables_has_those_of_the_reports(page):
    """Each table under a heading that names the data stands in a report on that data, line by line."""
    collected = [(heading, rows) for heading, rows in tables(page) if re.match(r"[\w-]+: ", heading)]
    assert len(collected) >= 6
    for heading, rows in collected:
        reports = RESULTS.glob(f"*/{heading.split(':')[0]}.md")
        assert any(rows == found for report in reports for _, found in tables(report)), heading


def test_the_ways_to_forget_are_as_short_as_in_the_reports():
    """`short` on the page is the mean of the reports' differences over click models; all are rounded to 0.001."""
    found = {data: tables(f"unlearning/{data}.md") for data in ("MSLR-sample", "MQ2008")}
    collected = [(heading, rows) for heading, rows in tables("unlearning.md") if rows[0].startswith("| way | short, ")]
    assert len(collected) == 8
    for heading, rows in collected:
        for column, data in enumerate(found, start=2):
            report = next(rows for title, rows in found[data] if title == heading)
            short = {row.split("|")[1]: re.findall(r"\(([+-][\d.]+) ±", row) for row in report[2:]}
            for row in rows[2:]:
                cells = row.split("|")
                each = [float(one) for one in short[cells[1]]]
                assert float(cells[column].split()[0]) == pytest.approx(sum(each) / len(each), abs=0.0011), row


def rows_under(page, heading):
    """The cells of each row of the first table under a heading, without the head."""
    rows = next(rows for found, rows in tables(page) if found == heading)
    return [row.strip("| ").split(" | ") for row in rows[2:]]


def test_personal_weights_rank_as_the_page_of_methods_says():
    """Its table has the means of the stored report."""
    heading = "Final nDCG@10 of each client's ranker by its own labels"
    clicks = ("perfect", "navigational", "informational")
    found = {
        (population, method, click): cell.split()[0]
        for population, method, *cells in rows_under("remedy/synthetic-intents.md", heading)
        for click, cell in zip(clicks, cells, strict=True)
    }
    rows = re.findall(
        r"^\| (agreement \S+|nobody differs), (\w+) \| (.*) \|$", METHODS.read_text("utf-8"), re.MULTILINE
    )
    assert len(rows) == 4
    for population, click, cells in rows:
        key = population.replace("nobody differs", "no difference")
        methods = ("personal", "FPDGD", "FedProx", "FedPer", "local")
        assert cells.split(" | ") == [found[key, method, click] for method in methods]


def test_what_aware_attackers_leave_is_what_the_reports_say():
    """Behind each arrow stand the least mean and worst seed of both click models."""
    rows = [row.strip("| ").split(" | ") for heading, rows in tables("robustness.md") for row in rows if " → " in row]
    assert len(rows) == 16
    for attack, data, *cells in rows:
        report = (RESULTS / f"robustness-aware/{data}.md").read_text("utf-8")
        both = re.findall(rf"^\| {re.escape(attack)} \| (?:own data|sight) \| (.*) \|$", report, re.MULTILINE)
        for cell, *of_clicks in zip(cells, *(one.split(" | ")[:4] for one in both), strict=True):
            means, worst = zip(*(re.findall(r"[\d.]+", one) for one in of_clicks), strict=True)
            assert cell.split(" → ")[1] == f"{min(map(float, means))} ({min(map(float, worst))})", (attack, data)


def test_clients_that_differ_cost_and_keep_what_the_reports_say():
    """The table of all four types has the reports' costs and shares, and the worst of each rule's attacks."""
    pages = ("robustness-types/MSLR-sample.md", "robustness-type-1/synthetic-intents.md")
    costs = [row for page in pages for row in rows_under(page, "What a rule costs if nobody attacks")]
    kept = [row for page in pages for row in rows_under(page, "What a rule keeps if one in five attacks")]
    rows = rows_under("robustness.md", "All four types, with one attacker in five")
    assert len(rows) == 7
    for kind, clicks, *cells in rows:
        cost = [cell for row in costs if row[:2] == [kind, clicks] for cell in (row[4], row[6])]
        worst = [
            min(float(row[column].split()[0]) for row in kept if row[:2] == [kind, clicks]) for column in (3, 4, 5)
        ]
        assert cells == [*cost, *(f"{one} %" for one in worst)], (kind, clicks)


def test_kept_lists_tell_as_much_as_the_page_of_erasure_says():
    """It has the shares of federations in which a loud canary is detected: MSLR-sample, then MQ2008."""
    text = " ".join((PROJECT / "docs/erasure.md").read_text("utf-8").split())
    for way, name in (("fed_eraser, log", "fed_eraser"), ("long steps, log", "relearn")):
        reports = [rows_under(f"unlearning-canary/{data}.md", LOUD) for data in ("MSLR-sample", "MQ2008")]
        told = [round(100 * float(row[2].split()[0])) for rows in reports for row in rows if row[0] == way]
        assert re.search(rf"in {told[0]} and {told[1]} % (of the federations )?after `{name}`", text), told


def test_a_new_report_takes_the_place_of_the_former(tmp_path):
    """On its page, in the count of verdicts and on the pages that collect tables; another data set gets a row."""
    keep = runpy.run_path(str(PROJECT / "research/benchmarks/keep_reports.py"))["keep"]
    stored, made = tmp_path / "results", tmp_path / "out/thesis-6.2"
    (stored / "thesis-6.2").mkdir(parents=True)
    made.mkdir(parents=True)
    for name in ("MQ2008.md", "MQ2008.json"):
        shutil.copy(RESULTS / "thesis-6.2" / name, stored / "thesis-6.2" / name)
    text = (RESULTS / "thesis-6.2/MQ2008.md").read_text("utf-8")
    table = re.search(r"(?:^\|[^\n]*\n)+", text, re.MULTILINE)[0]
    (stored / "README.md").write_text((RESULTS / "README.md").read_text("utf-8"))
    (stored / "page.md").write_text(f"Collected:\n\n{table}\nEnd.\n")
    new = text.replace("1. **confirmed**", "1. **not confirmed**").replace(table, table.replace("0.", "1."))
    (made / "report.md").write_text(new.replace("## Setting", "![a figure](a.png)\n\n## Setting"))
    record = (RESULTS / "thesis-6.2/MQ2008.json").read_text("utf-8")
    (made / "report.json").write_text(record)
    assert keep(made / "report.md", stored) == "thesis-6.2/MQ2008.md"
    assert (stored / "thesis-6.2/MQ2008.md").read_text("utf-8") == new
    assert (stored / "page.md").read_text() == f"Collected:\n\n{table.replace('0.', '1.')}\nEnd.\n"
    found = {row["page"]: row.groups()[1:] for row in ROW.finditer((stored / "README.md").read_text("utf-8"))}
    assert found == {**ROWS, "thesis-6.2/MQ2008.md": ("2", "1", "0")}
    (made / "report.json").write_text(record.replace("MQ2008/Fold1", "MQ2009/Fold1"))
    assert keep(made / "report.md", stored) == "thesis-6.2/MQ2009.md"
    assert "(thesis-6.2/MQ2009.md)" in (stored / "README.md").read_text("utf-8")
