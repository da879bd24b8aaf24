"""Decides who is forgotten. The stored data is erased afterwards, and the outcome is fed back.

A member is forgotten at once: its updates no longer count, even in the same batch. For a stranger only storage knows
whether it has data to erase. So its request ends the batch, and `FederationState.note_erasure` follows.
"""

from foltr.core.erasure.states import Requester
from foltr.core.errors import MessageError
from foltr.core.protocol.receipts import ErasureNotice, ReceiptCode
from foltr.federator.clock import to_datetime
from foltr.federator.deciding.decisions import Decisions, PendingErasure
from foltr.federator.deciding.state import FederationState
from foltr.federator.deciding.withdrawal import withdraw
from foltr.federator.reading import ReceivedErasureRequest
from foltr.storage.records import NewEvent, NewOrder


def decide_erasure(
    state: FederationState, request: ReceivedErasureRequest, at: float, strangers_left: int, decisions: Decisions
) -> None:
    """Forget a client that asks for it.

    Args:
        strangers_left: how many unknown names may still be looked up in the database; each costs a query.
    """
    client_id, members = request.client_id, state.members
    try:
        # A forgotten client has no stored key by which to check the request.
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
    """End a client's membership, and have all its stored data erased.

    Args:
        order: the operator's order for it; the caller stores an order for a client that is already forgotten.
    """
    members = state.members
    if members.is_forgotten(client_id):
        # The answer goes to a topic that only the client may read, and tells it nothing new.
        decisions.forgotten_again.append(client_id)
        return
    is_stranger = not members.is_known(client_id)
    decisions.erasures.append(PendingErasure(client_id, members.pseudonym(client_id), at, by, is_stranger, order))
    if not is_stranger:
        withdraw(state, client_id, decisions, told=None)
        members.forget(client_id)


def _refuse(state: FederationState, client_id: str, error: MessageError, at: float, decisions: Decisions) -> None:
    code, number = ReceiptCode(error.code), state.current_round.number
    # A stranger's name is not stored just because it asks to be forgotten.
    named = client_id if state.members.is_known(client_id) else None
    decisions.note(NewEvent(to_datetime(at), "message_refused", f"forget: {error.detail}", code, named, number))
    decisions.receipts.append(
        ErasureNotice(federation=state.federation, client_id=client_id, code=code, detail=error.detail)
    )
    decisions.refused_forgets.append(client_id)
