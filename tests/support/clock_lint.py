"""No test's verdict hangs on a clock: ``python tests/support/clock_lint.py`` names each line that might.

A test waits for what happens (`support.waiting`), with a limit that only a hang reaches. So a test neither sleeps above
50 ms, nor gives up on anything below 10 s, nor reads a clock. A line that must says why, by one of `REASONS`, in a
comment of its own: ``# clock: away``.
"""

import ast
import re
import sys
from pathlib import Path

LONGEST_SLEEP_S = 0.05
SHORTEST_LIMIT_S = 10.0
LIMITS = re.compile(r"^(\w+_)?(timeout|patience|within)(_s)?$", re.IGNORECASE)
CLOCKS = {"monotonic", "perf_counter", "process_time", "thread_time"}
REASONS = {
    "away": "a process, a broker or a lease is gone for longer than its own limit; a slow machine only makes it longer",
    "runs out": "the limit is what the test is about, and it runs out however slow the machine is",
    "silence": "nothing may come meanwhile; a slow machine can make the test see less, never fail it",
    "stand-in": "a peer that the test ends, so it may last",
    "patience": "the one limit that only a hang reaches",
    "measures": "a nightly test of a benchmark, which measures and judges no absolute time",
}


def faults_in(source: str) -> list[tuple[int, str]]:
    """Each line of a Python source that may hang a verdict on a clock, with what is wrong with it."""
    lines = source.splitlines()
    found = []
    for node in ast.walk(ast.parse(source)):
        wrong = _wrong(node)
        if wrong is None:
            continue
        said = {
            match[1].strip()
            for line in lines[node.lineno - 1 : node.end_lineno]
            if (match := re.search(r"# clock: ([^#(]*)", line))
        }
        if not said:
            found.append((node.lineno, wrong))
        elif not said <= REASONS.keys():
            found.append((node.lineno, f"no reason of the list: {', '.join(sorted(said - REASONS.keys()))}"))
    return found


def _wrong(node: ast.AST) -> str | None:
    if isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name == "sleep" and node.args and (_seconds(node.args[0]) or 0.0) > LONGEST_SLEEP_S:
            return f"sleeps {_seconds(node.args[0]):g} s: wait for what happens"
        whose = node.func.value if isinstance(node.func, ast.Attribute) else None
        # A simulated clock is none: `time` itself, or a function of it, is one.
        if name in CLOCKS and (whose is None or (isinstance(whose, ast.Name) and whose.id == "time")):
            return f"reads a clock ({name}): judge what happened, not when"
        given = node.args[:1] if name == "timeout" else node.args[1:2] if name == "wait_for" else []
        if name == "settings" and any(keyword.arg == "deadline" for keyword in node.keywords):
            return "gives each example of a property a deadline: conftest.py has said that none has one"
        if any(_is_short(value) for value in given):
            return f"gives up below {SHORTEST_LIMIT_S:g} s: take PATIENCE_S of support.waiting"
    if isinstance(node, ast.keyword) and node.arg is not None and LIMITS.match(node.arg) and _is_short(node.value):
        return f"{node.arg} is below {SHORTEST_LIMIT_S:g} s: take PATIENCE_S of support.waiting"
    if isinstance(node, ast.Assign) and _is_short(node.value):
        names = [target.id for target in node.targets if isinstance(target, ast.Name) and LIMITS.match(target.id)]
        if names:
            return f"{names[0]} is below {SHORTEST_LIMIT_S:g} s: take PATIENCE_S of support.waiting"
    return None


def _is_short(value: ast.expr) -> bool:
    seconds = _seconds(value)
    return seconds is not None and 0.0 < seconds < SHORTEST_LIMIT_S


def _seconds(value: ast.expr) -> float | None:
    if isinstance(value, ast.Constant) and isinstance(value.value, int | float) and not isinstance(value.value, bool):
        return float(value.value)
    return None


def main() -> int:
    """Name the faults of all tests, or of the files given; 1 if there are any."""
    root = Path(__file__).parents[2]
    chosen = [Path(name) for name in sys.argv[1:]] or sorted(
        path for folder in ("tests", "research/tests") for path in (root / folder).rglob("*.py")
    )
    n_faults = 0
    for path in chosen:
        for line, wrong in faults_in(path.read_text()):
            print(f"{path}:{line}: {wrong}")  # noqa: T201
            n_faults += 1
    return 1 if n_faults else 0


if __name__ == "__main__":
    sys.exit(main())
