"""The benchmark of an erasure, small: the name is in no file afterwards, and nobody waited long."""

import re
from pathlib import Path

from cli.commands import program_process

BENCHMARK = Path(__file__).parents[3] / "research/benchmarks" / "erasure.py"


def test_the_name_is_in_no_file_and_updates_went_on() -> None:
    """Tables, indexes, log and free pages are searched as bytes; the bound is loose enough for a busy machine."""
    done = program_process(BENCHMARK, "--gigabytes", "0.01", "--clients", "1000", timeout_s=100)
    assert done.returncode == 0, done.stderr
    printed = done.stdout
    assert "the name is in foltr.sqlite" in printed
    assert re.search(r"GB searched: the name is in no file$", printed.strip())
    longest = re.search(r"no update was stored for +(\d+) ms", printed)
    assert longest is not None
    assert int(longest[1]) < 5000
