"""The state machine of an erasure: how a client that asked to be forgotten comes to be so.

Theory of operation. One transaction takes a client out of the federation: from then on nobody reads what is stored of
it. That goes a few rounds at a time, or whoever has sent much would hold everybody up: the erasure is ``erasing`` until
the last row is gone, and ``erased`` then, at once where there is little. The data key lies outside the database and
goes next. A client that no model in service has learned from is forgotten with that: ``done``. What a model has learned
has to be unlearned first: the erasure is ``waiting`` until a job takes it up, together with all others that wait, and
it is ``unlearning`` as long as that job is open. A job that fails gives its erasures back, for the next one; where its
model goes into service they are ``done``.

The rows are the state: storage changes them in the transactions in which these events happen. An event that a state
does not allow raises ProtocolViolationError and changes nothing.
"""

from enum import StrEnum
from typing import Final

from foltr.core.errors import ProtocolViolationError
from foltr.core.protocol.explained import Explained


class ErasureState(StrEnum):
    ERASING = "erasing"
    ERASED = "erased"
    WAITING = "waiting"
    UNLEARNING = "unlearning"
    DONE = "done"


class ErasureEvent(StrEnum):
    ROWS_DELETED = "rows_deleted"
    LEFT_TO_A_JOB = "left_to_a_job"
    NOTHING_TO_UNLEARN = "nothing_to_unlearn"
    JOB_BEGUN = "job_begun"
    JOB_FAILED = "job_failed"
    MODEL_REPLACED = "model_replaced"


TRANSITIONS: dict[tuple[ErasureState, ErasureEvent], ErasureState] = {
    (ErasureState.ERASING, ErasureEvent.ROWS_DELETED): ErasureState.ERASED,
    (ErasureState.ERASED, ErasureEvent.LEFT_TO_A_JOB): ErasureState.WAITING,
    (ErasureState.ERASED, ErasureEvent.NOTHING_TO_UNLEARN): ErasureState.DONE,
    (ErasureState.WAITING, ErasureEvent.JOB_BEGUN): ErasureState.UNLEARNING,
    (ErasureState.UNLEARNING, ErasureEvent.JOB_FAILED): ErasureState.WAITING,
    (ErasureState.UNLEARNING, ErasureEvent.MODEL_REPLACED): ErasureState.DONE,
}


class ForgetState(Explained):
    """How far a client's wish to be forgotten is: the one word that the SDK, the command line and the HTTP API say.

    A device has the first two to itself. The others are what the federation says; after a restore from a backup it may
    say an earlier one again.
    """

    ASKED = "asked", "the wish is kept on the device; no broker has taken it yet"
    SENT = "sent", "the broker has the wish; the federation has not answered"
    ERASING = "erasing", "the client is out of the federation; its rows and its data key are being deleted"
    FORGETTING = "forgetting", "all that was stored is deleted; a model without the client is still being made"
    FORGOTTEN = "forgotten", "all that was stored is deleted, and no model in service has learned from the client"


# Of these something of the client is stored still, a row or its data key.
UNTIL_ERASED: Final = ErasureState.ERASING, ErasureState.ERASED

# What the rows say, in a person's words: nothing is erased before the last row and the data key are gone.
FORGET_STATE: Final[dict[ErasureState, ForgetState]] = {
    ErasureState.ERASING: ForgetState.ERASING,
    ErasureState.ERASED: ForgetState.ERASING,  # the rows are gone, and the data key goes next
    ErasureState.WAITING: ForgetState.FORGETTING,
    ErasureState.UNLEARNING: ForgetState.FORGETTING,
    ErasureState.DONE: ForgetState.FORGOTTEN,
}


class Requester(StrEnum):
    """Who asked for an erasure. A message on the client's own topic is the device's only where messages are signed."""

    DEVICE = "device"
    OPERATOR = "operator"


# What a receipt names in the place of a strategy where no model had learned from the client.
NOTHING_UNLEARNED: Final = "none"


def following(state: ErasureState, event: ErasureEvent) -> ErasureState:
    """The state after an event; ProtocolViolationError where the state does not allow it."""
    found = TRANSITIONS.get((state, event))
    if found is None:
        raise ProtocolViolationError(f"an erasure is {state}: {event} is not allowed")
    return found
