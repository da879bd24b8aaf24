"""Finds the name of every line that a process may log in the source."""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

from foltr.broker.failures import FailureKind
from foltr.core.protocol.events import EventKind

ROOMS = ("core", "foltr", "broker", "federator", "edge_client", "helper", "storage", "research/foltr_research")
LEVELS = ("debug", "info", "warning", "error", "exception")
# The values of variables that name lines, if the source alone does not show them.
_STANDS_FOR: dict[str, tuple[str, ...]] = {
    "event.kind": (),
    "kind": (),
    "cause.failure_kind": tuple(map(str, FailureKind)),
}


def find_log_lines(root: Path) -> set[str]:
    """Return the names of the log lines of the packages below ``root``, except those named after a kind of event.

    Raises:
        ValueError: a line's name cannot be determined; the message says where it is logged.
    """
    found: set[str] = set()
    for room in ROOMS:
        for path in sorted((root / room).rglob("*.py")):
            place = path.relative_to(root).as_posix()
            tree = ast.parse(path.read_text())
            for name, line in _calls(tree):
                found |= _names(name, tree, f"{place}:{line}")
    return found


def _calls(tree: ast.Module) -> Iterator[tuple[ast.expr, int]]:
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call) and node.args):
        match call.func:
            case ast.Attribute(value=ast.Name(id="log"), attr=level) if level in LEVELS:
                yield call.args[0], call.lineno
            case ast.Name(id="publish_on_change"):
                yield call.args[-1], call.lineno


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


def log_lines_table(found: set[str], words: Mapping[str, str]) -> str:
    """Return the table of the lines in ``words``, in that order.

    Raises:
        ValueError: nothing logs one of them.
    """
    if gone := sorted(words.keys() - found):
        raise ValueError(f"nothing logs these lines of docs/log_words.py any more: {', '.join(gone)}")
    rows = (f"| `{name}` | {meaning} |" for name, meaning in words.items())
    return "\n".join(["| line | meaning |", "|---|---|", *rows])
