"""The benchmark of many who are forgotten at once, small: everybody is told, rounds go on, and no update waits long."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[3] / "research/benchmarks" / "forgetting.py"
SMALL = ("--gigabytes", "0.02", "--devices", "40", "--leaving", "10", "--sybils", "3", "--seconds", "60")


@pytest.mark.undisturbed
@pytest.mark.slow
@pytest.mark.timeout(200)
def test_updates_are_answered_while_many_are_forgotten() -> None:
    """The bound is loose enough for a busy machine."""
    command = [sys.executable, str(BENCHMARK), *SMALL]
    printed = subprocess.run(command, capture_output=True, text=True, timeout=150, check=True).stdout
    assert "13 of 13" in printed
    longest, n_rounds = (
        re.search(r"forgotten .*?(\d+) ms at most", printed),
        re.search(r"ended meanwhile +(\d+)", printed),
    )
    assert longest is not None
    assert n_rounds is not None
    assert int(longest[1]) < 5000
    assert int(n_rounds[1]) > 0
