"""The runbook has every finding of a verdict, under its level; `test_hints.py` tries the commands that it names."""

import re

import pytest
from cli.commands import PROJECT

from foltr.core.protocol.verdicts import Level, Reason

PAGE = (PROJECT / "docs/runbook.md").read_text()


@pytest.mark.parametrize("level", [Level.DOWN, Level.DEGRADED])
def test_it_has_every_reason_in_the_order_of_a_verdict(level):
    """So a link from the page, from status and from an alert leads to its heading."""
    section = re.search(rf"^## {level}\n(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL | re.IGNORECASE)
    headings = re.findall(r"^### (\S+)$", section[1], re.MULTILINE)
    assert headings == [str(reason) for reason in Reason if reason.level is level]
