"""Answers messages that cannot be decided on: they broke the protocol, came in parts, or were too many."""

from collections.abc import Sequence

from foltr.broker.buffer import RefusedSender
from foltr.core.protocol.receipts import LONGEST_RETRY_S, ErasureNotice, MembershipReceipt, ReceiptCode, UpdateReceipt
from foltr.core.protocol.topics import ClientTopic
from foltr.federator.clock import to_datetime
from foltr.federator.deciding.decisions import Decisions, Receipt
from foltr.federator.deciding.state import FederationState
from foltr.federator.reading import ChunkAnswer, RefusedMessage
from foltr.storage.records import NewEvent


def decide_refused(state: FederationState, refused: RefusedMessage, at: float, decisions: Decisions) -> None:
    """Note a message that broke the protocol, and answer if its topic's sender waits for an answer."""
    decisions.note(_event(state, refused, at))
    receipt = _receipt(state, refused)
    if receipt is not None:
        decisions.receipts.append(receipt)


def _event(state: FederationState, refused: RefusedMessage, at: float) -> NewEvent:
    client_id, newest = refused.client_id, state.current_round.number
    named = None if state.members.is_forgotten(client_id) else client_id  # must not be stored again
    number = newest if refused.round is None else min(refused.round, newest + 1)
    if refused.topic in (ClientTopic.UPDATES, ClientTopic.CHUNKS):
        return NewEvent(to_datetime(at), "update_rejected", refused.detail, refused.code, named, number)
    detail = f"{refused.topic}: {refused.detail}"
    return NewEvent(to_datetime(at), "message_refused", detail, refused.code, named, number)


def _receipt(state: FederationState, refused: RefusedMessage) -> Receipt | None:
    federation, client_id, code, detail = state.federation, refused.client_id, refused.code, refused.detail
    counted_through = state.members.counted_through(client_id)
    match refused.topic:
        case ClientTopic.STATUS | ClientTopic.UNLEARNING:
            return None  # no sender waits for it
        case ClientTopic.UPDATES | ClientTopic.CHUNKS:
            return UpdateReceipt(
                federation=federation,
                client_id=client_id,
                # By digest only: the sender has not proved to be this client.
                update_id=None,
                payload_digest=refused.payload_digest,
                code=code,
                detail=detail,
                counted_through=counted_through,
            )
        case ClientTopic.FORGET:
            return ErasureNotice(federation=federation, client_id=client_id, code=code, detail=detail)
        case _:
            return MembershipReceipt(
                federation=federation,
                client_id=client_id,
                code=code,
                payload_digest=refused.payload_digest,
                counted_through=counted_through,
                detail=detail,
            )


def answer_part(state: FederationState, answer: ChunkAnswer, at: float, decisions: Decisions) -> None:
    """Tell a client which chunks of a large update are missing, or that the federator has no room for it now."""
    if answer.code is not ReceiptCode.INCOMPLETE:  # incomplete: not a refusal but progress of a large update
        number = state.current_round.number
        decisions.note(
            NewEvent(to_datetime(at), "update_rejected", answer.detail, answer.code, answer.client_id, number)
        )
    decisions.receipts.append(
        UpdateReceipt(
            federation=state.federation,
            client_id=answer.client_id,
            update_id=None,
            payload_digest=answer.payload_digest,
            code=answer.code,
            detail=answer.detail,
            missing=answer.missing,
            counted_through=state.members.counted_through(answer.client_id),
            retry_after_s=answer.retry_after_s,
        )
    )


def answer_turned_away(
    state: FederationState, senders: Sequence[RefusedSender], n_messages: int, now: float, decisions: Decisions
) -> None:
    """Note all messages that did not fit the intake in one event, and answer each known sender ``busy``."""
    if not n_messages:
        return
    worst = max(senders, key=lambda sender: sender.n_messages, default=None)
    named = worst.sender if worst is not None and state.members.is_known(worst.sender) else None
    detail = f"{n_messages} messages were dropped{_worst(worst, named)}"
    number = state.current_round.number
    decisions.note(NewEvent(to_datetime(now), "intake_full", detail, ReceiptCode.BUSY, named, number))
    decisions.receipts += [
        UpdateReceipt(
            federation=state.federation,
            client_id=sender.sender,
            update_id=None,
            code=ReceiptCode.BUSY,
            detail=f"the intake is full ({sender.cause})",
            counted_through=state.members.counted_through(sender.sender),
            retry_after_s=min(sender.retry_after_s, LONGEST_RETRY_S),
        )
        for sender in senders
        if state.members.joined(sender.sender)
    ]


def _worst(worst: RefusedSender | None, named: str | None) -> str:
    """Describe the sender that was refused most often; the event has its name, but never a stranger's."""
    if worst is None:
        return ""
    who = "unknown clients" if named is None else "this client"
    return f"; most from {who}: {worst.n_messages} ({worst.cause})"
