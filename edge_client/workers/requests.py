"""What the processes of one store say to each other."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from foltr.core.errors import DataError, FoltrError, SettingsError, UnavailableError, UsageError
from foltr.core.logs import get_logger

if TYPE_CHECKING:
    from foltr.core.operator.credentials import Credentials

log = get_logger(__name__)

Enrolment: TypeAlias = "str | Path | Credentials | None"
"""Credentials as an application gives them."""


class Greeting(NamedTuple):
    """The first message of each process to the owner; it is answered with the owner's `Enrolment`, or a `Failure`.

    Attributes:
        terms: what all processes must agree on, by name, as text.
    """

    terms: dict[str, str]
    enrolment: Enrolment


class Request(NamedTuple):
    """A method or property of the ranker that the owner is to call; it is answered with an `Answer`, or a `Failure`."""

    name: str
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}  # noqa: RUF012 (never changed)


class Answer(NamedTuple):
    """What the owner's ranker returned."""

    value: Any


class Failure(NamedTuple):
    """What the owner's ranker raised."""

    kind: type[Exception]
    text: str


_RAISED_BY_RANKERS = (DataError, SettingsError, UsageError, UnavailableError)


def failure_of(error: Exception) -> Failure:
    """Return an error without its cause, which another process might not be able to read."""
    if isinstance(error, FoltrError):
        kinds = (kind for kind in _RAISED_BY_RANKERS if isinstance(error, kind))
        return Failure(next(kinds, FoltrError), str(error))
    log.error("answer_failed", exc_info=error)
    return Failure(RuntimeError, f"{type(error).__name__}: {error}")
