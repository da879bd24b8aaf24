"""Decides whether an update counts: who sent it, whether it was stored before, and what its round says."""

from collections.abc import Mapping

from federator.clock import to_datetime
from federator.deciding.decisions import Decisions
from federator.deciding.state import FederationState
from federator.reading import UnlearningAnswered, UpdateOffered
from federator.round import Offer, Record, Reject
from foltr.errors import MessageError
from foltr.protocol.receipts import ReceiptCode, UpdateReceipt
from foltr.protocol.states import Pacing
from storage.records import NewEvent, NewUpdate


def decide_update(
    state: FederationState,
    reading: UpdateOffered,
    at: float,
    stored: Mapping[tuple[str, str], int],
    decisions: Decisions,
) -> None:
    """Record an update or refuse it, and say which in a receipt.

    Args:
        stored: (client_id, update_id) to the round it counts in.
    """
    offer = reading.offer
    counted_in = stored.get((offer.client_id, offer.update_id))
    if (counted_in, offer.client_id) in decisions.withdrawn:
        counted_in = None
    decision = _decision(state, reading, at, counted_in)
    code, detail = ReceiptCode.ACCEPTED, ""
    if isinstance(decision, Record):
        decisions.updates.append(_row(state, reading, at))
    else:
        code, detail = decision.code, decision.detail
        # The round that is named, if it can be in the database.
        number = min(offer.round, state.current_round.number + 1)
        decisions.note(NewEvent(to_datetime(at), "update_rejected", detail, code, offer.client_id, number))
    decisions.receipts.append(_receipt(state.federation, reading, code, detail))


def _decision(state: FederationState, reading: UpdateOffered, at: float, counted_in: int | None) -> Record | Reject:
    offer = reading.offer
    try:
        state.members.check_sender(offer.client_id, reading.signed)
        decision: Record | Reject = outdated(state, offer, counted_in) or state.current_round.decide(
            offer, at, stored_in_round=counted_in
        )
    except MessageError as error:
        decision = Reject(ReceiptCode(error.code), error.detail)
    return final_refusal(state, decision, counted_in) if isinstance(decision, Reject) else decision


def outdated(state: FederationState, offer: Offer, counted_in: int | None) -> Reject | None:
    """Buffered rounds take updates of older models, but none that was made before an unlearned one."""
    current = state.current_round
    if counted_in is not None or offer.base_version >= state.oldest_base or offer.round > current.number:
        return None
    is_recorded = current.contributions.get(offer.client_id) == offer.update_id
    if is_recorded or current.policy.pacing is not Pacing.BUFFERED:
        return None
    return Reject(ReceiptCode.STALE, f"trained on model {offer.base_version}; {state.oldest_base} was unlearned since")


def final_refusal(state: FederationState, refusal: Reject, counted_in: int | None) -> Reject:
    """The refusal, or what to say instead where a device must not train again on what is in the update."""
    if counted_in is not None and refusal.code in (ReceiptCode.REVOKED, ReceiptCode.QUARANTINED):
        # What counted before it counts, and the device may be enrolled anew or let out again.
        return Reject(ReceiptCode.DUPLICATE, f"counted once, in round {counted_in}")
    # Also once the last round has ended: the federation may be given more.
    is_buffered = state.current_round.policy.pacing is Pacing.BUFFERED
    if is_buffered and refusal.code in (ReceiptCode.LATE, ReceiptCode.ALREADY_CONTRIBUTED):
        # The next filling would take it, or a copy of it that is still on its way.
        return Reject(ReceiptCode.BUSY, f"{refusal.detail}; the next one may take it")
    return refusal


def _row(state: FederationState, reading: UpdateOffered, at: float) -> NewUpdate:
    offer = reading.offer
    return NewUpdate(
        round=state.current_round.number,
        client_id=offer.client_id,
        update_id=offer.update_id,
        base_version=offer.base_version,
        n_interactions=reading.n_interactions,
        encoding=reading.encoding,
        body=reading.body,
        received_at=to_datetime(at),
    )


def _receipt(federation: str, reading: UpdateOffered, code: ReceiptCode, detail: str) -> UpdateReceipt:
    offer = reading.offer
    return UpdateReceipt(
        federation=federation,
        client_id=offer.client_id,
        # Anybody may have sent what is not signed; naming the update would make its owner drop the genuine one.
        update_id=None if code is ReceiptCode.BAD_SIGNATURE else offer.update_id,
        # It says which bytes of an update are meant: a device that is enrolled anew signs it once more.
        payload_digest=reading.digest,
        code=code,
        detail=detail,
    )


def decide_unlearned(state: FederationState, reading: UnlearningAnswered, at: float, decisions: Decisions) -> None:
    """Take what a member learned in a step of an unlearning job; whether the step is open is the job's to say."""
    try:
        state.members.check_sender(reading.client_id, reading.signed)
    except MessageError as error:
        code, number = ReceiptCode(error.code), state.current_round.number
        detail = f"unlearning: {error.detail}"
        decisions.note(NewEvent(to_datetime(at), "message_refused", detail, code, reading.client_id, number))
    else:
        decisions.unlearned.append(reading.update)
