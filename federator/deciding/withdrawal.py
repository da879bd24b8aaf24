"""Withdraws updates: one that leaves the open round, and those of a round that ended without a model.

The client's watermark goes back, so that its interactions may count later, and the client gets a notice. If it misses
that, it learns of it from the next answer: every answer has the watermark.
"""

from collections.abc import Iterator

from foltr.core.protocol.receipts import ReceiptCode, UpdateReceipt
from foltr.core.protocol.states import RoundState
from foltr.federator.deciding.decisions import Decisions
from foltr.federator.deciding.state import FederationState
from foltr.federator.round import Round


def withdraw(state: FederationState, client_id: str, decisions: Decisions, told: ReceiptCode | None) -> None:
    """Take a client's update out of the open round, if it has one; or abandon a round that has it in a set.

    Args:
        told: the reason for the client; None if it hears another way, because it will be erased.
    """
    current = state.current_round
    if current.state is RoundState.OPENING and client_id in current.contributions:
        # A helper may have to be shown all tickets again, but never an erased client's.
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
    """Move back the watermarks of all who contributed to a round without a model.

    Returns:
        their notices. These may be for every client, so each is made when it is sent: with the client's watermark by
        then, and none for a client that was forgotten meanwhile.
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
        detail=f"it no longer counts in round {number}",
        counted_through=state.members.counted_through(client_id),
    )
