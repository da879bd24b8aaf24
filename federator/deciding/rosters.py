"""Decides on the operator's roster, a snapshot of the log of orders: it brings up to date whoever has missed some."""

from federator.clock import to_datetime
from federator.deciding.decisions import Decisions
from federator.deciding.erasure import forget
from federator.deciding.orders import note_revoked
from federator.deciding.state import FederationState
from foltr.erasure.states import Requester
from foltr.errors import MessageError
from storage.records import NewEvent


def decide_roster(state: FederationState, payload: bytes, now: float, decisions: Decisions) -> None:
    """Adopt a newer roster; nobody is answered, so a refusal is an event."""
    at, number = to_datetime(now), state.current_round.number
    try:
        adoption = state.members.adopt_roster(payload)
    except MessageError as error:
        decisions.note(NewEvent(at, "roster_refused", error.detail, error.code, round=number))
        return
    if adoption is None:
        return
    roster = adoption.roster
    decisions.roster = (roster.version, payload)
    decisions.note(NewEvent(at, "roster_adopted", f"version {roster.version}, {len(roster.revoked)} revoked"))
    for client_id in adoption.revoked:
        note_revoked(state, client_id, now, decisions)
    for client_id in adoption.forgotten:
        forget(state, client_id, now, Requester.OPERATOR, decisions)
