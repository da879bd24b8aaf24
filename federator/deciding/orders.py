"""Decides on what the operator publishes: rosters of revoked enrolments, and orders.

Both are signed. A roster is not taken twice by its version, an order by its nonce, which rises.
"""

import math

from federator.clock import to_datetime
from federator.deciding.decisions import Decisions
from federator.deciding.erasure import forget
from federator.deciding.state import FederationState
from federator.deciding.withdrawal import withdraw
from federator.reading import OperatorSpoke
from foltr.erasure.states import Requester
from foltr.errors import MessageError
from foltr.protocol.enrolment import read_order
from foltr.protocol.orders import ForgetClient, LiftQuarantine, QuarantineClient, SetDeadline
from foltr.protocol.receipts import ReceiptCode
from foltr.protocol.states import RoundState
from storage.records import DeadlineChange, MembershipChange, NewEvent, QuarantineChange


def decide_operator(state: FederationState, spoken: OperatorSpoke, now: float, decisions: Decisions) -> None:
    """Adopt a roster or obey an order; nobody is answered, so a refusal is an event."""
    try:
        if spoken.what == "roster":
            _adopt_roster(state, spoken.payload, now, decisions)
        else:
            _obey(state, spoken.payload, now, decisions)
    except MessageError as error:
        kind = "roster_refused" if spoken.what == "roster" else "order_refused"
        number = state.current_round.number
        decisions.note(NewEvent(to_datetime(now), kind, error.detail, error.code, round=number))


def _adopt_roster(state: FederationState, payload: bytes, now: float, decisions: Decisions) -> None:
    adoption = state.members.adopt_roster(payload)
    if adoption is None:
        return
    roster, revoked = adoption
    at, current = to_datetime(now), state.current_round
    decisions.roster = (roster.version, payload)
    decisions.note(NewEvent(at, "roster_adopted", f"version {roster.version}, {len(roster.revoked)} revoked"))
    for client_id in revoked:
        decisions.membership.append(MembershipChange(client_id, "revoked", at))
        decisions.note(NewEvent(at, "client_revoked", client_id=client_id, round=current.number))
        withdraw(state, client_id, decisions, ReceiptCode.REVOKED)


def _obey(state: FederationState, payload: bytes, now: float, decisions: Decisions) -> None:
    if state.plan.enrolment_key is None:
        raise MessageError(ReceiptCode.NOT_ENROLLED, "this federator knows no enrolment key to check an order with")
    order, nonce = read_order(payload, state.plan.enrolment_key, state.federation)
    if isinstance(order, ForgetClient):
        # Valid for ever, as no name is used again once it is obeyed: it may have been printed and kept.
        forget(state, order.client_id, now, Requester.OPERATOR, decisions)
        return
    if nonce <= state.operator_nonce:
        raise MessageError(ReceiptCode.REPLAYED, f"an order of nonce {nonce}; {state.operator_nonce} was seen")
    match order:
        case SetDeadline():
            _set_deadline(state, order, now, decisions)
        case QuarantineClient():
            _quarantine(state, order, now, decisions)
        case LiftQuarantine():
            _lift_quarantine(state, order, now, decisions)
    state.operator_nonce = decisions.operator_nonce = nonce


def _quarantine(state: FederationState, order: QuarantineClient, now: float, decisions: Decisions) -> None:
    client_id, at, current = order.client_id, to_datetime(now), state.current_round
    if state.members.is_named_in(order.reason):
        # It is stored as it is, and nobody looks for names in it when a client is to be forgotten.
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
