"""Finds every line that a process may log in the source: its name, level and process."""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from foltr.broker.failures import FailureKind
from foltr.core.protocol.events import EventKind

ROOMS = ("core", "foltr", "broker", "federator", "edge_client", "helper", "storage", "research/foltr_research")
LEVELS = ("debug", "info", "warning", "error", "exception")
# By path prefix; the first match counts. Lines of shared code belong to each process that logs them.
WHO = {
    "federator": "federator",
    "helper": "helper",
    "edge_client": "device",
    "foltr/api": "API",
    "foltr/cli/federator": "federator",
    "foltr/cli/helper": "helper",
    "foltr/cli/api": "API",
    "foltr/cli/client": "device",
    "foltr/cli/fleet": "device",
    "research/foltr_research/cli": "device",
    "foltr/cli/operator": "desk",
    "core/operator": "desk",
    "foltr/operations/enrolment_desk": "desk",
    "": "each",
}
# The values of variables that name lines, if the source alone does not show them.
_STANDS_FOR: dict[str, tuple[str, ...]] = {
    "event.kind": (),
    "kind": (),
    "cause.failure_kind": tuple(map(str, FailureKind)),
}


@dataclass
class LogLine:
    """One name of a log line, with its levels and processes."""

    levels: set[str] = field(default_factory=set)
    who: set[str] = field(default_factory=set)


def find_log_lines(root: Path) -> dict[str, LogLine]:
    """Return the log lines of the packages below ``root`` by name, except those named after a kind of event.

    Raises:
        ValueError: a line's name cannot be determined; the message says where it is logged.
    """
    found: dict[str, LogLine] = {}
    for room in ROOMS:
        for path in sorted((root / room).rglob("*.py")):
            place = path.relative_to(root).as_posix()
            who = next(process for beginning, process in WHO.items() if place.startswith(beginning))
            tree = ast.parse(path.read_text())
            for level, name, line in _calls(tree):
                for event in _names(name, tree, f"{place}:{line}"):
                    one = found.setdefault(event, LogLine())
                    one.levels.add("error" if level == "exception" else level)
                    one.who.add(who)
    return found


def _calls(tree: ast.Module) -> Iterator[tuple[str, ast.expr, int]]:
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args):
        match call.func:
            case ast.Attribute(value=ast.Name(id="log"), attr=level) if level in LEVELS:
                yield level, call.args[0], call.lineno
            case ast.Name(id="publish_on_change"):
                yield from ((level, call.args[-1], call.lineno) for level in ("warning", "debug"))


def _names(node: ast.expr, tree: ast.Module, place: str) -> set[str]:
    match node:
        case ast.Constant(value=str(value)):
            return {value}
        case ast.IfExp(body=body, orelse=otherwise):
            return _names(body, tree, place) | _names(otherwise, tree, place)
        case ast.Attribute(value=ast.Name(id="EventKind"), attr=attr):
            return {str(EventKind[attr])}
        case _ if (written := ast.unparse(node)) in _STANDS_FOR:
            return set(_STANDS_FOR[written])
        case ast.Name(id="delayed"):
            return set()  # its callers are examined
        case ast.Name(id=name) if values := _assigned(name, tree):
            return set().union(*(_names(value, tree, place) for value in values))
    raise ValueError(f"{place}: log lines are named by a literal, not by {ast.unparse(node)}")


def _assigned(name: str, tree: ast.Module) -> list[ast.expr]:
    targets = (
        node for node in ast.walk(tree) if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
    )
    return [one.value for one in targets if ast.unparse(one.targets[0]) == name]


def log_lines_table(found: Mapping[str, LogLine], words: Mapping[str, str]) -> str:
    """Return the table of the lines in ``words``, in that order.

    Raises:
        ValueError: nothing logs one of them.
    """
    if gone := sorted(words.keys() - found.keys()):
        raise ValueError(f"nothing logs these lines of docs/log_words.py any more: {', '.join(gone)}")
    lines = ["| line | who: level | meaning |", "|---|---|---|"]
    for name, meaning in words.items():
        one = found[name]
        levels = ", ".join(level for level in LEVELS if level in one.levels)
        lines.append(f"| `{name}` | {', '.join(sorted(one.who))}: {levels} | {meaning} |")
    return "\n".join(lines)
