"""The tests that `make test-quick` leaves out, by name in ``tests/slow_tests.txt``; `make slow-tests` measures them."""

import re
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

LIST = Path(__file__).parents[1] / "slow_tests.txt"
SLOW_S = 0.35


def slow_tests() -> frozenset[str]:
    """The names, without their cases: ``tests/cli/test_main.py::test_help``."""
    return frozenset(LIST.read_text().split())


def without_case(node_id: str) -> str:
    return node_id.partition("[")[0]


def durations(output: Iterable[str]) -> dict[str, float]:
    """Seconds by name, from what pytest prints with ``--durations=0``."""
    seconds: Counter[str] = Counter()
    for line in output:
        if measured := re.match(r"([\d.]+)s (?:call|setup|teardown) +(\S.*)", line):
            seconds[without_case(measured[2].strip())] += float(measured[1])
    return seconds


def main() -> None:
    """Write the list from the output of a run, on standard input; a run that measured nothing leaves it as it is."""
    slow = sorted(name for name, seconds in durations(sys.stdin).items() if seconds >= SLOW_S)
    if not slow:
        sys.exit("no durations on standard input: run make slow-tests")
    LIST.write_text("\n".join(slow) + "\n")


if __name__ == "__main__":
    main()
