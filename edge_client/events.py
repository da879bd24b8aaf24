"""Events that an application may observe: a model, an answer, a cut log, the end of its membership."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from foltr.core.erasure.states import ForgetState
from foltr.core.logs import get_logger

log = get_logger(__name__)


@dataclass(frozen=True)
class ModelInUse:
    """Lists are ranked by another global model from here on.

    Attributes:
        version: None if the model was withdrawn, and none is in use until another arrives.
    """

    version: int | None


@dataclass(frozen=True)
class UpdateAnswered:
    """The federation has answered an update.

    Attributes:
        code: e.g. ``accepted``; docs/errors.md has all codes.
    """

    code: str


@dataclass(frozen=True)
class Connected:
    """The broker was reached: the first time, or again."""


@dataclass(frozen=True)
class Resting:
    """The device has disconnected until its next visit (`foltr.edge_client.visits`).

    Attributes:
        until: when it connects again; None if it has left or was forgotten, and connects only on request.
    """

    until: datetime | None


@dataclass(frozen=True)
class GateChanged:
    """Lists come from the model from here on, or again in the application's order (`foltr.core.learning.gate`)."""

    is_open: bool


@dataclass(frozen=True)
class ForgetStateChanged:
    """The wish to be forgotten has progressed; None: it was refused, and the device goes on as before."""

    state: ForgetState | None


@dataclass(frozen=True)
class Forgotten:
    """The federation has erased this client, and so has the device."""


@dataclass(frozen=True)
class AuditLogCut:
    """The federation's log of erasures was cut or rewritten: a later head is not beyond an earlier one.

    Attributes:
        before, before_at: the number of the earlier head's entry, and when that was written.
        after, after_at: of the later one; 0 and the beginning of 1970 for an empty log.
    """

    before: int
    before_at: datetime
    after: int
    after_at: datetime

    def __str__(self) -> str:
        first = f"entry {self.before} of its log of erasures ({self.before_at:%Y-%m-%d %H:%M} UTC)"
        found = "another one in its place" if self.before == self.after else f"the log ending with entry {self.after}"
        return (
            f"the federation published {first}, and later {found}: its log was cut, or restored from a backup; ask "
            "the operator (docs/erasure.md)"
        )


@dataclass(frozen=True)
class PolicyForked:
    """The operator's key has signed a policy that does not follow from the one that this device knows.

    Attributes:
        known, heard: their version numbers; the device stays under the known one.
    """

    known: int
    heard: int

    def __str__(self) -> str:
        return (
            f"policy {self.heard} does not follow from policy {self.known}, which this device keeps: it was made "
            "for this device alone, or the operator's folder was restored from a backup; ask the operator "
            "(docs/privacy.md)"
        )


Event = (
    ModelInUse
    | UpdateAnswered
    | Connected
    | Resting
    | GateChanged
    | AuditLogCut
    | PolicyForked
    | ForgetStateChanged
    | Forgotten
)
"""Observers are called with these in the thread that the device runs in."""

Observer = Callable[[Event], None]


def logging_errors_of(observer: Observer | None) -> Observer:
    """Return an observer that logs its errors instead of raising them."""

    def tell(event: Event) -> None:
        if observer is None:
            return
        try:
            observer(event)
        except Exception:
            log.exception("observer_failed", what=type(event).__name__)

    return tell
