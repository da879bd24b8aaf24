"""What an application may hear of as it happens: a model, an answer, a log that was cut, the end of its membership."""

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
        version: None where the model was withdrawn, and none is in use until one comes.
    """

    version: int | None


@dataclass(frozen=True)
class UpdateAnswered:
    """The federation has answered an update.

    Attributes:
        code: what it says, e.g. ``accepted``; docs/errors.md has all of them.
    """

    code: str


@dataclass(frozen=True)
class Connected:
    """The broker was reached, for the first time or again."""


@dataclass(frozen=True)
class Resting:
    """The device has disconnected until its next visit, as its federation asks (`foltr.edge_client.visits`).

    Attributes:
        until: when it comes again; None where it has left, or was forgotten, and comes only if it is called.
    """

    until: datetime | None


@dataclass(frozen=True)
class GateChanged:
    """Lists come from the model from here on, or from the application's own order again
    (`foltr.core.learning.gate`)."""

    is_open: bool


@dataclass(frozen=True)
class ForgetStateChanged:
    """The wish to be forgotten has come further; None: it was refused, and the device goes on as before."""

    state: ForgetState | None


@dataclass(frozen=True)
class Forgotten:
    """The federation has erased this client, and so has the device."""


@dataclass(frozen=True)
class AuditLogCut:
    """The federation's log of erasures was cut or rewritten: it ended with one entry, and later does not go beyond it.

    Attributes:
        before, before_at: the number of the entry that was published first, and when that was written.
        after, after_at: of the one that was published later; 0 and the beginning of 1970 of an empty log.
    """

    before: int
    before_at: datetime
    after: int
    after_at: datetime

    def __str__(self) -> str:
        first = f"entry {self.before} of its log of erasures ({self.before_at:%Y-%m-%d %H:%M} UTC)"
        found = "another one in its place" if self.before == self.after else f"the log ending with entry {self.after}"
        return (
            f"the federation published {first}, and later {found}: it was cut, or restored from a backup; ask the "
            "operator (docs/erasure.md)"
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
            f"there is a policy {self.heard} that does not follow from policy {self.known}, under which this device "
            "stays: it was made for this device alone, or the operator's folder was restored from a backup; ask the "
            "operator (docs/privacy.md)"
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
"""An event is told in the thread that the device runs in."""

Observer = Callable[[Event], None]


def quiet(observer: Observer | None) -> Observer:
    """Return an observer whose errors are logged, and raised to nobody."""

    def tell(event: Event) -> None:
        if observer is None:
            return
        try:
            observer(event)
        except Exception:
            log.exception("observer_failed", what=type(event).__name__)

    return tell
