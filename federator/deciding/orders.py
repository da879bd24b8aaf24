"""Decides on the operator's orders: each is carried out exactly once, in the order of their numbers, and answered.

An order's row is stored in one transaction with its effect, and `FederationState.last_order` is the number of the
newest row. So a repeated order is answered from its row, and one that comes too early changes nothing. An order to
forget causes an erasure, which is stored after the batch; the order's row goes with the erasure.
"""

import math
from collections.abc import Mapping
from dataclasses import replace

from foltr.core.erasure.states import Requester
from foltr.core.errors import MessageError
from foltr.core.protocol.orders import (
    AllowReset,
    AskNewest,
    DismissProposals,
    ForgetClient,
    ForgetTombstone,
    LiftQuarantine,
    OrderAnswer,
    OrderReply,
    QuarantineClient,
    RevokeClient,
    RotateEnrolmentKey,
    RotateKey,
    SetDeadline,
    VoidOrder,
    named_client,
)
from foltr.core.protocol.receipts import ReceiptCode
from foltr.core.protocol.signed_orders import SignedOrder, digest_of, read_order
from foltr.core.protocol.states import OrderOutcome, RoundState
from foltr.federator.clock import to_datetime
from foltr.federator.deciding.decisions import Decisions
from foltr.federator.deciding.erasure import forget
from foltr.federator.deciding.state import FederationState
from foltr.federator.deciding.withdrawal import withdraw
from foltr.storage.records import DeadlineChange, MembershipChange, NewEvent, NewOrder, QuarantineChange, ResetAllowed


def decide_order(
    state: FederationState, payload: bytes, stored: Mapping[int, NewOrder], now: float, decisions: Decisions
) -> None:
    """Carry out an order, or answer it again; every order gets an answer.

    Args:
        stored: those of the orders that have a row.
    """
    try:
        if state.plan.enrolment_key is None:
            raise MessageError(ReceiptCode.NOT_ENROLLED, "this federator knows no enrolment key to check an order with")
        read = read_order(payload, state.plan.enrolment_key, state.federation)
    except MessageError as error:
        _note_refused(state, error, now, decisions)
        answer(state, decisions, digest_of(payload), 0, OrderReply.UNREAD, error)
        return
    if isinstance(read, AskNewest):
        answer(state, decisions, digest_of(payload), 0, OrderReply.NEWEST, challenge=read.challenge)
    elif read.number <= state.last_order:
        known = {**stored, **{order.number: order for order in decisions.orders}}
        _answer_again(state, read, known.get(read.number), now, decisions)
    elif read.number > state.last_order + 1:
        answer(state, decisions, read.digest, read.number, OrderReply.MISSING)
    else:
        _obey(state, read, now, decisions)


def answer(
    state: FederationState,
    decisions: Decisions,
    digest: bytes,
    number: int,
    reply: OrderReply,
    error: MessageError | None = None,
    *,
    detail: str = "",
    challenge: bytes | None = None,
) -> None:
    """Tell the operator an order's outcome, once this batch is stored."""
    decisions.receipts.append(
        OrderAnswer(
            federation=state.federation,
            number=number,
            digest=digest,
            reply=reply,
            code=None if error is None else ReceiptCode(error.code),
            detail=detail if error is None else error.detail,
            challenge=challenge,
            newest=state.last_order,
            newest_digest=state.last_digest,
            roster_version=state.members.roster_version,
            newest_serial=state.members.newest_serial,
        )
    )


def answer_stored(state: FederationState, decisions: Decisions, order: NewOrder, digest: bytes | None = None) -> None:
    """Tell the operator the outcome of an order that has a row.

    Args:
        digest: of the received bytes, if they differ from the stored ones.
    """
    error = None if order.code is None else MessageError(order.code, order.detail)
    answer(
        state, decisions, digest or order.digest, order.number, OrderReply(order.outcome), error, detail=order.detail
    )


def erasure_ordered(state: FederationState, order: NewOrder, decisions: Decisions, *, was_known: bool) -> None:
    """Continue after an order to forget; its row was stored with the erasure, if the client was known."""
    row = order if was_known else unknown_to_all(order)
    state.note_order(row)
    decisions.orders.append(row)
    answer_stored(state, decisions, row)


def unknown_to_all(order: NewOrder) -> NewOrder:
    """Return the stored form of an order to forget an unknown client."""
    return order.naming_nobody().refused(
        ReceiptCode.UNKNOWN_CLIENT, "no client of this name has ever joined: nothing to forget"
    )


def _answer_again(
    state: FederationState, signed: SignedOrder, row: NewOrder | None, now: float, decisions: Decisions
) -> None:
    replaces = signed.order.replaces if isinstance(signed.order, ForgetTombstone | VoidOrder) else None
    if row is None or row.digest not in (signed.digest, replaces):
        error = MessageError(
            ReceiptCode.REPLAYED, f"order {signed.number} differs from the one known here; was its folder restored?"
        )
        _note_refused(state, error, now, decisions)
        answer(state, decisions, signed.digest, signed.number, OrderReply.DIVERGED, error)
        return
    if isinstance(signed.order, ForgetClient) and state.members.is_forgotten(signed.order.client_id):
        # Nothing changes, but the client may get its progress again, on a topic that only it may read.
        decisions.forgotten_again.append(signed.order.client_id)
    answer_stored(state, decisions, row, signed.digest)


def _obey(state: FederationState, signed: SignedOrder, now: float, decisions: Decisions) -> None:
    obeyed = NewOrder(
        number=signed.number,
        kind=signed.order.kind_name,
        payload=signed.payload,
        digest=signed.digest,
        outcome=OrderOutcome.OBEYED,
        at=to_datetime(now),
        client_id=named_client(signed.order),
    )
    try:
        row: NewOrder | None = obeyed
        match signed.order:
            case SetDeadline() as order:
                _set_deadline(state, order, now, decisions)
            case RevokeClient() as order:
                row = _revoke(state, order, obeyed, now, decisions)
            case QuarantineClient() as order:
                _quarantine(state, order, now, decisions)
            case LiftQuarantine() as order:
                _lift_quarantine(state, order, now, decisions)
            case DismissProposals() as order:
                _dismiss(state, order, now, decisions)
            case RotateKey() as order:
                _rotate(state, order, now, decisions)
            case RotateEnrolmentKey() as order:
                _rotate_operator(state, order, now, decisions)
            case AllowReset() as order:
                row = _allow_reset(state, order, obeyed, now, decisions)
            case ForgetClient() as order:
                row = _forget(state, order.client_id, order.serial, obeyed.naming_nobody(), now, decisions)
            case ForgetTombstone() as order:
                row = _forget_by_tombstone(state, order, obeyed, now, decisions)
            case VoidOrder():
                pass
    except MessageError as error:
        _note_refused(state, error, now, decisions)
        # Do not store the name from a refused order: it may be a stranger's, or a forgotten client's.
        row = obeyed.refused(error.code, error.detail)
        row = row if named_client(signed.order) is None else row.naming_nobody()
    if row is not None:
        state.note_order(row)
        decisions.orders.append(row)
        answer_stored(state, decisions, row)


def _revoke(state: FederationState, order: RevokeClient, row: NewOrder, now: float, decisions: Decisions) -> NewOrder:
    if state.members.is_forgotten(order.client_id):
        return row.naming_nobody()
    if state.members.revoke(order.client_id, order.void_below):
        note_revoked(state, order.client_id, now, decisions)
    return row


def note_revoked(state: FederationState, client_id: str, now: float, decisions: Decisions) -> None:
    """Store that a member's membership ended, and take its update out of the open round."""
    at, current = to_datetime(now), state.current_round
    decisions.membership.append(MembershipChange(client_id, "revoked", at))
    decisions.note(NewEvent(at, "client_revoked", client_id=client_id, round=current.number))
    withdraw(state, client_id, decisions, ReceiptCode.REVOKED)


def _quarantine(state: FederationState, order: QuarantineClient, now: float, decisions: Decisions) -> None:
    client_id, at, current = order.client_id, to_datetime(now), state.current_round
    if state.members.is_named_in(order.reason):
        # It is stored unchanged, and forgetting a client does not search it for names.
        raise MessageError(ReceiptCode.MALFORMED, "the reason for a quarantine names a client: say why without a name")
    if not state.members.quarantine(client_id):
        return
    decisions.quarantines.append(QuarantineChange(client_id, at, order.reason))
    decisions.note(NewEvent(at, "client_quarantined", order.reason, client_id=client_id, round=current.number))
    withdraw(state, client_id, decisions, ReceiptCode.QUARANTINED)


def _lift_quarantine(state: FederationState, order: LiftQuarantine, now: float, decisions: Decisions) -> None:
    client_id, at = order.client_id, to_datetime(now)
    if not state.members.quarantine(client_id, lifted=True):
        return
    decisions.quarantines.append(QuarantineChange(client_id, at, None))
    number = state.current_round.number
    decisions.note(NewEvent(at, "quarantine_lifted", client_id=client_id, round=number))
    client = state.members.check_known(client_id)
    # In quarantine it counted as away: a job may have paused for it.
    decisions.returned |= client.joined and client.online


def _dismiss(state: FederationState, order: DismissProposals, now: float, decisions: Decisions) -> None:
    state.members.check_known(order.client_id)
    number = state.current_round.number
    decisions.note(NewEvent(to_datetime(now), "proposal_dismissed", client_id=order.client_id, round=number))


def _rotate(state: FederationState, order: RotateKey, now: float, decisions: Decisions) -> None:
    if order.sequence <= state.key_sequence:
        raise MessageError(
            ReceiptCode.REPLAYED, f"key {order.sequence} of the federator; {state.key_sequence} is known"
        )
    state.key_sequence, state.federator_key = order.sequence, order.new_key
    decisions.note(NewEvent(to_datetime(now), "key_rotated", f"key {order.sequence}", round=state.current_round.number))


def _rotate_operator(state: FederationState, order: RotateEnrolmentKey, now: float, decisions: Decisions) -> None:
    if order.sequence <= state.operator_sequence:
        raise MessageError(
            ReceiptCode.REPLAYED, f"enrolment key {order.sequence} of the operator; {state.operator_sequence} is known"
        )
    state.operator_sequence, state.operator_key = order.sequence, order.new_key
    number, what = state.current_round.number, f"enrolment key {order.sequence}"
    decisions.note(NewEvent(to_datetime(now), "key_rotated", what, round=number))


def _allow_reset(
    state: FederationState, order: AllowReset, row: NewOrder, now: float, decisions: Decisions
) -> NewOrder:
    held = state.held_reset
    if held is None or held.job != order.job:
        waits = "none waits for an order" if held is None else f"it is job {held.job} that waits for an order"
        raise MessageError(ReceiptCode.UNKNOWN_JOB, f"unlearning job {order.job} may reset the model; {waits}")
    at, state.held_reset = to_datetime(now), None
    decisions.allowed_reset = ResetAllowed(order.job, at)
    decisions.note(NewEvent(at, "reset_allowed", held.cost, round=state.current_round.number))
    return replace(row, detail=held.cost)


def _forget(
    state: FederationState, client_id: str, serial: int, row: NewOrder, now: float, decisions: Decisions
) -> NewOrder | None:
    """Forget a client; None if the row is stored with the erasure."""
    state.members.check_serial(client_id, serial)
    forget(state, client_id, now, Requester.OPERATOR, decisions, row)
    return None if decisions.ends_batch else row


def _forget_by_tombstone(
    state: FederationState, order: ForgetTombstone, row: NewOrder, now: float, decisions: Decisions
) -> NewOrder | None:
    client_id = state.members.find_by_tombstone(order.salt, order.tombstone)
    return row if client_id is None else _forget(state, client_id, order.serial, row, now, decisions)


def _set_deadline(state: FederationState, order: SetDeadline, now: float, decisions: Decisions) -> None:
    current = state.round
    if current is None or current.state is not RoundState.COLLECTING or order.round != current.number:
        open_now = "none is open" if current is None else f"round {current.number} is {current.state}"
        raise MessageError(ReceiptCode.UNKNOWN_ROUND, f"a deadline for round {order.round}; {open_now}")
    current.set_deadline(order.max_time_s, not_before=math.nextafter(now, math.inf))
    decisions.deadline = DeadlineChange(
        order.round, to_datetime(current.opened_at), order.max_time_s, to_datetime(current.closes_at)
    )
    detail = f"{order.max_time_s:g} s after the opening"
    decisions.note(NewEvent(to_datetime(now), "deadline_set", detail, round=order.round))


def _note_refused(state: FederationState, error: MessageError, now: float, decisions: Decisions) -> None:
    number = state.current_round.number
    decisions.note(NewEvent(to_datetime(now), "order_refused", error.detail, error.code, round=number))
