"""Decides on the operator's publications besides orders: a newer policy, and a newer roster.

A policy that fits holds from the next round on. A roster is a snapshot of the log of orders, in case some were missed.
"""

from foltr.core.erasure.states import Requester
from foltr.core.errors import MessageError, SettingsError
from foltr.core.protocol.receipts import ReceiptCode
from foltr.core.protocol.signed_policies import SignedPolicy, read_policy
from foltr.core.protocol.states import RoundState
from foltr.federator.clock import to_datetime
from foltr.federator.deciding.decisions import Decisions
from foltr.federator.deciding.erasure import forget
from foltr.federator.deciding.orders import note_revoked
from foltr.federator.deciding.state import FederationState
from foltr.storage.records import DeadlineChange, NewEvent
from foltr.storage.sum_records import PolicyRecord

UNDER_WAY_S = 10.0
"""How long updates still count that devices made before they received a newer policy, seconds."""


def decide_policy(state: FederationState, payload: bytes, now: float, decisions: Decisions) -> None:
    """Adopt a newer policy. It gets no answer, so a refusal is an event. The open round ends soon, under its policy."""
    at, number = to_datetime(now), state.current_round.number
    try:
        policy = _newer(state, payload)
    except MessageError as error:
        decisions.note(NewEvent(at, "policy_refused", error.detail, error.code, round=number))
        return
    if policy is None:
        return
    state.policy = policy
    version = policy.policy.version
    decisions.policy = PolicyRecord(policy.hash, version, policy.signed, at)
    decisions.note(NewEvent(at, "policy_adopted", f"version {version}, from round {number + 1} on", round=number))
    _close_soon(state, now, decisions)


def _close_soon(state: FederationState, now: float, decisions: Decisions) -> None:
    """End the open round soon: devices that know the newer policy no longer send to it."""
    current = state.round
    if current is None or current.state is not RoundState.COLLECTING or current.closes_at <= now + UNDER_WAY_S:
        return
    current.set_deadline(now + UNDER_WAY_S - current.opened_at)
    max_time_s = current.policy.max_time_s
    decisions.deadline = DeadlineChange(
        current.number, to_datetime(current.opened_at), max_time_s, to_datetime(current.closes_at)
    )


def _newer(state: FederationState, payload: bytes) -> SignedPolicy | None:
    """Read a policy to adopt; None if it is known, or this federation uses none."""
    known, enrolment_key = state.policy, state.plan.enrolment_key
    if known is None or enrolment_key is None or payload == known.signed:
        return None
    policy = read_policy(payload, enrolment_key, state.federation)
    version, newest = policy.policy.version, known.policy.version
    if version <= newest:
        raise MessageError(ReceiptCode.REPLAYED, f"policy {version} is not above the one known, {newest}")
    try:
        state.plan.check_policy(policy.policy)
    except SettingsError as error:
        raise MessageError(ReceiptCode.WRONG_SHAPE, f"policy {version}: {error}") from error
    return policy


def decide_roster(state: FederationState, payload: bytes, now: float, decisions: Decisions) -> None:
    """Adopt a newer roster. It gets no answer, so a refusal is an event."""
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
