"""`make help` tells of every target that a person may call."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[1]


@pytest.mark.skipif(shutil.which("make") is None, reason="no make")
def test_help_lists_every_target():
    """Each with some words, at most a line of a terminal long."""
    targets = set(re.findall(r"^([a-z-]+):", (PROJECT / "Makefile").read_text(), re.MULTILINE))
    # As a person calls it, although the tests themselves are called by make.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    done = subprocess.run(
        ["make", "help"], cwd=PROJECT, env=environment, capture_output=True, text=True, timeout=60, check=True
    )
    listed = [re.fullmatch(r"make ([a-z-]+) +(\S.+)", line) for line in done.stdout.splitlines()]
    assert None not in listed
    assert {line[1] for line in listed} == targets - {"help"}
    assert max(len(line[0]) for line in listed) <= 120
