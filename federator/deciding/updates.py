"""Decides whether an update counts: by its sender, what is stored, and its round."""

from collections.abc import Mapping
from dataclasses import replace

from foltr.core.errors import MessageError
from foltr.core.protocol.receipts import ReceiptCode, UpdateReceipt
from foltr.core.protocol.states import Pacing, RoundState
from foltr.federator.clock import to_datetime
from foltr.federator.deciding.decisions import Decisions
from foltr.federator.deciding.state import FederationState
from foltr.federator.deciding.tickets import check_ticket
from foltr.federator.reading import ReceivedUnlearningUpdate, ReceivedUpdate
from foltr.federator.round import Record, Reject
from foltr.storage.records import NewEvent, NewUpdate, StoredUpdate


def decide_update(
    state: FederationState,
    reading: ReceivedUpdate,
    at: float,
    stored: Mapping[tuple[str, str], StoredUpdate],
    decisions: Decisions,
) -> None:
    """Record an update or refuse it, with a receipt.

    Args:
        stored: what is stored already, by (client_id, update_id).
    """
    offer = reading.header
    before = stored.get((offer.client_id, offer.update_id))
    if before is not None and (before.round, offer.client_id) in decisions.withdrawn:
        before = None
    if before is not None and _was_abandoned(state, before.round):
        before = replace(before, counts=False)
    decision = _decision(state, reading, at, before)
    code, detail = ReceiptCode.ACCEPTED, ""
    if isinstance(decision, Record):
        state.members.move_watermark(offer.client_id, offer.through)
        decisions.updates.append(_row(state, reading, at))
    else:
        code, detail = decision.code, decision.detail
        # The round that the message names, if the database can have it.
        number = min(offer.round, state.current_round.number + 1)
        decisions.note(NewEvent(to_datetime(at), "update_rejected", detail, code, offer.client_id, number))
    decisions.receipts.append(_receipt(state, reading, code, detail))


def _decision(
    state: FederationState, reading: ReceivedUpdate, at: float, stored: StoredUpdate | None
) -> Record | Reject:
    offer, members = reading.header, state.members
    try:
        members.check_sender(offer.client_id, reading.signed)
    except MessageError as error:
        return Reject(ReceiptCode(error.code), error.detail)
    counted_through = members.counted_through(offer.client_id) or 0
    if stored is None and (refused := _refused_ticket(state, reading)) is not None:
        return refused
    decision = outdated(state, reading, stored) or state.current_round.decide(
        offer, at, counted_through=counted_through, stored=stored
    )
    return put_off(state, decision) if isinstance(decision, Reject) else decision


def _refused_ticket(state: FederationState, reading: ReceivedUpdate) -> Reject | None:
    """Return why every helper would refuse an update's ticket, as far as known without asking."""
    current, key = state.current_round, state.members.public_key(reading.header.client_id)
    if current.terms is None or key is None or reading.header.round != current.number:
        return None
    try:
        check_ticket(reading, current.terms, key, state.federation)
    except MessageError as error:
        return Reject(ReceiptCode(error.code), error.detail)
    return None


def _was_abandoned(state: FederationState, number: int) -> bool:
    """Whether a round ended without a model after the stored updates were looked up."""
    return state.ended is not None and (state.ended.number, state.ended.state) == (number, RoundState.ABANDONED)


def outdated(state: FederationState, reading: ReceivedUpdate, stored: StoredUpdate | None) -> Reject | None:
    """Whether it was trained on an outdated model: with other weights, or replaced by others.

    After a restore from a backup a version may have other weights. Buffered rounds take updates of older models, but
    none from before an unlearned one, or on one that was rolled back.
    """
    current, offer, base = state.current_round, reading.header, reading.header.base_version
    recorded = current.contributions.get(offer.client_id)
    is_recorded = recorded is not None and recorded.update_id == offer.update_id
    if stored is not None or is_recorded or offer.round > current.number:
        return None
    if state.model_hashes.get(base, reading.base_hash) != reading.base_hash:
        return Reject(ReceiptCode.STALE, f"trained on a model {base} of other weights than this federation's")
    if current.policy.pacing is not Pacing.BUFFERED:
        return None
    if any(restored.takes_back(base) for restored in state.restored):
        return Reject(ReceiptCode.STALE, f"trained on model {base}, which was rolled back since")
    if base >= state.oldest_base:
        return None
    return Reject(ReceiptCode.STALE, f"trained on model {base}; {state.oldest_base} was unlearned since")


def put_off(state: FederationState, refusal: Reject) -> Reject:
    """The refusal, or ``busy`` if the same update may count soon and need not be learned again."""
    # Also after the last round: the plan may be extended.
    is_buffered = state.current_round.policy.pacing is Pacing.BUFFERED
    if is_buffered and refusal.code in (ReceiptCode.LATE, ReceiptCode.ALREADY_CONTRIBUTED):
        return Reject(ReceiptCode.BUSY, f"{refusal.detail}; the next one may take it")
    return refusal


def _row(state: FederationState, reading: ReceivedUpdate, at: float) -> NewUpdate:
    offer = reading.header
    recorded = state.current_round.contributions[offer.client_id]
    return NewUpdate(
        round=state.current_round.number,
        client_id=offer.client_id,
        update_id=offer.update_id,
        base_version=offer.base_version,
        n_interactions=reading.n_interactions,
        covers_after=recorded.after,
        covers_through=offer.through,
        encoding=reading.encoding,
        body=reading.body,
        received_at=to_datetime(at),
        cohort=recorded.cohort,
        position=recorded.position,
        ticket=reading.ticket,
        vote=_vote(state, reading),
        # Drop it from devices that an earlier federator asked.
        evaluation=reading.evaluation if state.plan.asks_for_evaluation else None,
    )


def _vote(state: FederationState, reading: ReceivedUpdate) -> int | None:
    """Return an update's vote on the newest model; None if it is about another anchor than this round's."""
    vote, anchor = reading.vote, state.anchor
    return None if vote is None or anchor is None or vote.anchor_version != anchor.version else vote.value


def _receipt(state: FederationState, reading: ReceivedUpdate, code: ReceiptCode, detail: str) -> UpdateReceipt:
    offer = reading.header
    return UpdateReceipt(
        federation=state.federation,
        client_id=offer.client_id,
        # Anybody can send an unsigned message; naming the update would make its owner drop the genuine one.
        update_id=None if code is ReceiptCode.BAD_SIGNATURE else offer.update_id,
        # Identifies the bytes of an update: a device that is enrolled again signs it again.
        payload_digest=reading.digest,
        code=code,
        detail=detail,
        counted_through=state.members.counted_through(offer.client_id),
    )


def decide_unlearned(
    state: FederationState, reading: ReceivedUnlearningUpdate, at: float, decisions: Decisions
) -> None:
    """Take what a member learned in a step of an unlearning job; the job decides whether the step is open."""
    try:
        state.members.check_sender(reading.client_id, reading.signed)
    except MessageError as error:
        code, number = ReceiptCode(error.code), state.current_round.number
        detail = f"unlearning: {error.detail}"
        decisions.note(NewEvent(to_datetime(at), "message_refused", detail, code, reading.client_id, number))
    else:
        decisions.unlearned.append(reading.update)
