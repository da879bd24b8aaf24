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
