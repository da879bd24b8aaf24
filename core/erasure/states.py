"""The state machine of an erasure: from the client's request to its end.

Theory of operation. One transaction takes a client out of the federation: from then on nobody reads its stored data.
That is deleted a few rounds at a time, because a client with much data would otherwise block everybody. The erasure is
``erasing`` until the last row is gone, and then ``erased``, at once for little data. The data key lies outside the
database and goes next. If no model in service has learned from the client, it is then forgotten: ``done``. What a model
has learned must be unlearned first: the erasure is ``waiting`` until a job takes it up, together with all other waiting
ones, and it is ``unlearning`` while that job is open. A job that fails gives its erasures back to the next one; when
its model goes into service they are ``done``.

The rows are the state: storage changes them in the transactions in which these events happen. An event that a state
does not allow raises ProtocolViolationError and changes nothing.
"""

from enum import StrEnum
from typing import Final

from foltr.core.errors import ProtocolViolationError
from foltr.core.protocol.described_enum import DescribedEnum


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


class ForgetState(DescribedEnum):
    """The progress of a client's wish to be forgotten; the SDK, the command line and the HTTP API use these words.

    A device sets the first two itself. The others come from the federation; after a restore it may go back to an
    earlier one.
    """

    ASKED = "asked", "the device keeps the request; no broker has it yet"
    SENT = "sent", "the broker has the request; the federation has not answered"
    ERASING = "erasing", "the client has left the federation; its rows and its data key are being deleted"
    FORGETTING = "forgetting", "all that was stored is deleted; a model without the client is still being made"
    FORGOTTEN = "forgotten", "all that was stored is deleted, and no model in service has learned from the client"


# In these states some of the client's data is still stored, a row or its data key.
UNTIL_ERASED: Final = ErasureState.ERASING, ErasureState.ERASED

# The state for people: nothing counts as erased before the last row and the data key are gone.
FORGET_STATE: Final[dict[ErasureState, ForgetState]] = {
    ErasureState.ERASING: ForgetState.ERASING,
    ErasureState.ERASED: ForgetState.ERASING,  # the rows are gone; the data key goes next
    ErasureState.WAITING: ForgetState.FORGETTING,
    ErasureState.UNLEARNING: ForgetState.FORGETTING,
    ErasureState.DONE: ForgetState.FORGOTTEN,
}


class Requester(StrEnum):
    """Who asked for an erasure. A message on the client's topic is surely the device's only if messages are signed."""

    DEVICE = "device"
    OPERATOR = "operator"


# A receipt names this instead of a strategy if no model had learned from the client.
NOTHING_UNLEARNED: Final = "none"


def next_state(state: ErasureState, event: ErasureEvent) -> ErasureState:
    """Return the state after an event; ProtocolViolationError if the state does not allow it."""
    found = TRANSITIONS.get((state, event))
    if found is None:
        raise ProtocolViolationError(f"an erasure is {state}: {event} is not allowed")
    return found
