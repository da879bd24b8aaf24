"""The page of stored results counts the verdicts of its reports."""

import re
from collections import Counter

import pytest
from cli.commands import PROJECT

from foltr_research.reproductions.claims import Status

RESULTS = PROJECT / "research/results"
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
