"""Checks of ``foltr doctor``: each has a name, a function that looks, and the next step if something is wrong."""

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, get_args

from foltr.core.errors import FoltrError
from foltr.core.operator.credentials import Role
from foltr.core.user_files import FileKind, read_json_file


class State(StrEnum):
    """How something is: ``problem`` must be mended, ``warning`` should be, ``absent`` is an optional part."""

    OK = "ok"
    PROBLEM = "problem"
    WARNING = "warning"
    ABSENT = "absent"


class Found(NamedTuple):
    """What a check has found, and the next step if it is another one than the check's own."""

    state: State
    detail: str
    next_step: str | None = None


class Check(NamedTuple):
    """One line of the table of checks.

    Attributes:
        look: takes what its part of the table is about; returns what it has found: one, several, or None if there is
            nothing to look at. It may be asynchronous. FoltrError is a problem, too.
        next_step: what to do about a problem or a warning.
        is_gate: after a problem the rest of the part is left out.
    """

    what: str
    look: Callable[[Any], Any]
    next_step: str = ""
    is_gate: bool = False


@dataclass(frozen=True)
class Finding:
    """One thing looked at. The detail of a problem says what to do."""

    what: str
    state: State
    detail: str


ok = partial(Found, State.OK)
absent = partial(Found, State.ABSENT)
warning = partial(Found, State.WARNING)
problem = partial(Found, State.PROBLEM)


async def run(checks: Iterable[Check], subject: object) -> list[Finding]:
    """Make the checks of one part of the table, in order, each of which may fill in what later ones need."""
    findings: list[Finding] = []
    for check in checks:
        try:
            found = check.look(subject)
            if inspect.isawaitable(found):
                found = await found
        except FoltrError as error:
            found = problem(str(error), "")  # which says what to do
        several = found if isinstance(found, list) else [] if found is None else [found]
        findings += [Finding(check.what, one.state, _with_next_step(one, check.next_step)) for one in several]
        if check.is_gate and any(one.state is State.PROBLEM for one in several):
            break
    return findings


def _with_next_step(found: Found, usual: str) -> str:
    step = usual if found.next_step is None else found.next_step
    return f"{found.detail}. {step}" if step and found.state in (State.PROBLEM, State.WARNING) else found.detail


def role_of(path: Path) -> Role:
    """Return the role the file says it is for; anything else fails in `read_credentials`, with its own words."""
    try:
        role = read_json_file(path, FileKind.CREDENTIALS)["role"]
    except (OSError, ValueError, KeyError, TypeError):
        return "device"
    return role if role in get_args(Role) else "device"
