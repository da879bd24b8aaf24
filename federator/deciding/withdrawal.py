"""Takes back what counts: an update that leaves the open round, and those of a round that ended without a model.

The client's watermark goes back to where it was, so that its interactions may count later, and the client is told. Who
does not hear of it learns it from the next answer, which has the watermark as every answer does.
"""

from collections.abc import Iterator

from foltr.core.protocol.receipts import ReceiptCode, UpdateReceipt
from foltr.core.protocol.states import RoundState
from foltr.federator.deciding.decisions import Decisions
from foltr.federator.deciding.state import FederationState
from foltr.federator.round import Round


def withdraw(state: FederationState, client_id: str, decisions: Decisions, told: ReceiptCode | None) -> None:
    """Take a client's update out of the open round, if it has one there; or give up a round that has it in a set.

    Args:
        told: why, as the client is told; None where it is told otherwise, as it is to be erased.
    """
    current = state.current_round
    if current.state is RoundState.OPENING and client_id in current.contributions:
        # A helper may have to be shown all tickets again: nobody's who is erased.
        decisions.breaks_set |= told is None or not current.is_left_out(client_id)
        return
    withdrawn = current.withdraw(client_id)
    if withdrawn is None:
        return
    state.members.move_watermark(client_id, withdrawn.after)
    decisions.withdraw(current.number, client_id, withdrawn)
    if told is not None:
        decisions.receipts.append(_taken_back(state, client_id, withdrawn.update_id, told, current.number))


def take_back_round(state: FederationState, abandoned: Round) -> Iterator[UpdateReceipt]:
    """Move back the watermarks of all who contributed to a round that has no model.

    Returns:
        what they are told. They may be all clients there are, so a notice is made when it is asked for: with the
        watermark that the client has by then, and none for a client that was forgotten meanwhile.
    """
    for client_id, recorded in abandoned.contributions.items():
        if state.members.counted_through(client_id) is not None:
            state.members.move_watermark(client_id, recorded.after)
    return (
        _taken_back(state, client_id, recorded.update_id, ReceiptCode.ROUND_ABANDONED, abandoned.number)
        for client_id, recorded in abandoned.contributions.items()
        if state.members.counted_through(client_id) is not None
    )


def _taken_back(
    state: FederationState, client_id: str, update_id: str, code: ReceiptCode, number: int
) -> UpdateReceipt:
    return UpdateReceipt(
        federation=state.federation,
        client_id=client_id,
        update_id=update_id,
        code=code,
        detail=f"it counts no more in round {number}",
        counted_through=state.members.counted_through(client_id),
    )
