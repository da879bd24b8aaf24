"""Decides on joins, leaves and statuses: `Members` says what changes; here it becomes rows and receipts."""

from foltr.core.errors import MessageError
from foltr.core.protocol.receipts import MembershipReceipt, ReceiptCode
from foltr.federator.clock import to_datetime
from foltr.federator.deciding.decisions import Decisions
from foltr.federator.deciding.members import MemberChange
from foltr.federator.deciding.state import FederationState
from foltr.federator.reading import ReceivedMembership
from foltr.storage.records import MembershipChange, NewEvent


def decide_membership(state: FederationState, claim: ReceivedMembership, at: float, decisions: Decisions) -> None:
    """Take a client's claim to be online, to join or to leave, or refuse it."""
    if not _is_answered(claim) and state.members.is_forgotten(claim.client_id):
        decisions.leftovers.append(claim.client_id)  # e.g. its last will
        return
    try:
        change = state.members.apply(claim)
    except MessageError as error:
        _refuse(state, claim, error, at, decisions)
        return
    if claim.kind == "joined":
        state.note_seen([claim.client_id], at, is_visit=True)
        decisions.returned |= state.pace is not None
    if _is_answered(claim):
        _answer(state, claim, ReceiptCode(claim.kind), decisions)
    if change is not None:
        _store(claim, change, at, decisions)


def _is_answered(claim: ReceivedMembership) -> bool:
    """Whether the sender waits for a receipt; a status may come from the broker."""
    return claim.kind in ("joined", "left")


def _refuse(
    state: FederationState, claim: ReceivedMembership, error: MessageError, at: float, decisions: Decisions
) -> None:
    code, client_id = ReceiptCode(error.code), claim.client_id
    detail, number = f"{claim.kind}: {error.detail}", state.current_round.number
    decisions.note(NewEvent(to_datetime(at), "message_refused", detail, code, client_id, number))
    if _is_answered(claim):
        newest = state.members.newest_sequence(client_id) if code is ReceiptCode.REPLAYED else None
        _answer(state, claim, code, decisions, error.detail, newest)


def _answer(
    state: FederationState,
    claim: ReceivedMembership,
    code: ReceiptCode,
    decisions: Decisions,
    detail: str = "",
    newest_sequence: int | None = None,
) -> None:
    decisions.receipts.append(
        MembershipReceipt(
            federation=state.federation,
            client_id=claim.client_id,
            code=code,
            payload_digest=claim.digest,
            newest_sequence=newest_sequence,
            counted_through=state.members.counted_through(claim.client_id),
            detail=detail,
        )
    )


def _store(claim: ReceivedMembership, change: MemberChange, at: float, decisions: Decisions) -> None:
    decisions.returned |= change.news and change.kind in ("joined", "online")
    if change.news:
        decisions.note(NewEvent(to_datetime(at), f"client_{change.kind}", client_id=claim.client_id))
    decisions.membership.append(
        MembershipChange(
            claim.client_id,
            change.kind,
            to_datetime(at),
            sequence=claim.signed.sequence,
            sdk_version=claim.sdk_version,
            public_key=change.public_key,
            enrolment_serial=change.serial,
            online=change.online,
            status_sequence=change.status_sequence,
            enrolment=change.enrolment,
        )
    )
