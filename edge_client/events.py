"""What an application may hear of as it happens: a model, an answer, the end of its membership."""

from collections.abc import Callable
from dataclasses import dataclass

from foltr.logs import get_logger

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
class GateChanged:
    """Lists come from the model from here on, or from the application's own order again (`foltr.learning.gate`)."""

    is_open: bool


@dataclass(frozen=True)
class Forgotten:
    """The federation has erased this client, and so has the device."""


Event = ModelInUse | UpdateAnswered | Connected | GateChanged | Forgotten
"""An event is told in the thread that the device runs in."""

Observer = Callable[[Event], None]


def quiet(observer: Observer | None) -> Observer:
    """Return an observer that harms nobody: what goes wrong in the application's is in the log."""

    def tell(event: Event) -> None:
        if observer is None:
            return
        try:
            observer(event)
        except Exception:
            log.exception("observer_failed", what=type(event).__name__)

    return tell
