"""Decides who is to be forgotten. What is stored of it is erased afterwards, and the outcome is fed back.

A member is forgotten at once: nothing of it counts any more, not even in the same batch. Of a stranger only storage
knows whether there is anything to erase. So its request ends the batch, and `FederationState.erasure_stored` comes
before the next decision.
"""

from foltr.core.erasure.states import Requester
from foltr.core.errors import MessageError
from foltr.core.protocol.receipts import ErasureNotice, ReceiptCode
from foltr.federator.clock import to_datetime
from foltr.federator.deciding.decisions import Decisions, ErasureWanted
from foltr.federator.deciding.state import FederationState
from foltr.federator.deciding.withdrawal import withdraw
from foltr.federator.reading import ErasureAsked
from foltr.storage.records import NewEvent, NewOrder


def decide_erasure(
    state: FederationState, request: ErasureAsked, at: float, strangers_left: int, decisions: Decisions
) -> None:
    """Forget a client that asks for it.

    Args:
        strangers_left: so many names that nobody has may be looked for in the database; each takes a reading of it.
    """
    client_id, members = request.client_id, state.members
    try:
        # Who was forgotten has no key any more that the request could be checked with.
        is_known = members.is_forgotten(client_id) or members.check_forget(client_id, request.signed)
        if not is_known and strangers_left <= 0:
            raise MessageError(ReceiptCode.BUSY, "too many unknown clients ask to be forgotten; ask again")
    except MessageError as error:
        _refuse(state, client_id, error, at, decisions)
    else:
        forget(state, client_id, at, Requester.DEVICE, decisions)


def forget(
    state: FederationState,
    client_id: str,
    at: float,
    by: Requester,
    decisions: Decisions,
    order: NewOrder | None = None,
) -> None:
    """End a client's membership, and have all that is stored of it erased.

    Args:
        order: the operator's order for it; one that finds the client forgotten already is the caller's to store.
    """
    members = state.members
    if members.is_forgotten(client_id):
        # The answer goes to a topic that only the client may read, and says nothing that it had not been told.
        decisions.forgotten_again.append(client_id)
        return
    is_stranger = not members.is_known(client_id)
    decisions.erasures.append(ErasureWanted(client_id, members.pseudonym(client_id), at, by, is_stranger, order))
    if not is_stranger:
        withdraw(state, client_id, decisions, told=None)
        members.forget(client_id)


def _refuse(state: FederationState, client_id: str, error: MessageError, at: float, decisions: Decisions) -> None:
    code, number = ReceiptCode(error.code), state.current_round.number
    # A stranger's name is not written down because it asked that nothing be known of it.
    named = client_id if state.members.is_known(client_id) else None
    decisions.note(NewEvent(to_datetime(at), "message_refused", f"forget: {error.detail}", code, named, number))
    decisions.receipts.append(
        ErasureNotice(federation=state.federation, client_id=client_id, code=code, detail=error.detail)
    )
    decisions.refused_forgets.append(client_id)
