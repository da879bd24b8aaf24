"""Every kind of row in the table ``events``, and what it means; `docs/errors.md` is made from it."""

from enum import StrEnum

from foltr.protocol.receipts import ReceiptCode


class EventKind(StrEnum):
    """What happened. A test compares these with the kinds that the code writes."""

    FEDERATOR_STARTED = "federator_started"
    ROUND_RESUMED = "round_resumed"
    CLIENT_JOINED = "client_joined"
    CLIENT_ONLINE = "client_online"
    CLIENT_OFFLINE = "client_offline"
    CLIENT_LEFT = "client_left"
    CLIENT_REVOKED = "client_revoked"
    UPDATE_REJECTED = "update_rejected"
    MESSAGE_REFUSED = "message_refused"
    INTAKE_FULL = "intake_full"
    ROSTER_ADOPTED = "roster_adopted"
    ROSTER_REFUSED = "roster_refused"
    ROUND_ABANDONED = "round_abandoned"
    DEFENCE_RAISED = "defence_raised"
    DEFENCE_LOWERED = "defence_lowered"
    QUARANTINE_PROPOSED = "quarantine_proposed"
    DEADLINE_SET = "deadline_set"
    CLIENT_QUARANTINED = "client_quarantined"
    QUARANTINE_LIFTED = "quarantine_lifted"
    ORDER_REFUSED = "order_refused"
    UNLEARNING_STARTED = "unlearning_started"
    UNLEARNING_STEP_MISSED = "unlearning_step_missed"
    UNLEARNING_PAUSED = "unlearning_paused"
    UNLEARNING_DONE = "unlearning_done"


MEANINGS: dict[EventKind, str] = {
    EventKind.FEDERATOR_STARTED: "A federator has claimed the federation; another one of it stops at its next write.",
    EventKind.ROUND_RESUMED: "It found an open round and goes on with it, and with the updates it had.",
    EventKind.CLIENT_JOINED: "A client joined, or is back after it was offline.",
    EventKind.CLIENT_ONLINE: "A member that was offline says that it is connected.",
    EventKind.CLIENT_OFFLINE: "A member disconnected, or its connection was lost.",
    EventKind.CLIENT_LEFT: "A member left; what it contributed stays.",
    EventKind.CLIENT_REVOKED: "A roster made a member's enrolment void; its update in the open round is withdrawn.",
    EventKind.UPDATE_REJECTED: "An update, or a part of one, was refused; `code` says why.",
    EventKind.MESSAGE_REFUSED: "A join, leave or status was refused; `code` says why, the detail names which.",
    EventKind.INTAKE_FULL: "Messages were turned away for want of room, or because a client sent too many.",
    EventKind.ROSTER_ADOPTED: "A newer roster of the operator holds from now on.",
    EventKind.ROSTER_REFUSED: "A roster was older than the one known, or not the operator's.",
    EventKind.ROUND_ABANDONED: "A round's updates could not be made a model; the detail says why.",
    EventKind.DEFENCE_RAISED: "The evidence against a client became strong: it is left out of the mean from now on. "
    "Without a client: half of them look suspicious, and the fallback is used.",
    EventKind.DEFENCE_LOWERED: "The evidence became weak: the client is counted again. Without a client: the mean "
    "is used again, or the rule could not read what it remembered, and judges all anew.",
    EventKind.QUARANTINE_PROPOSED: "A client is suspicious round after round; nothing is done to it unless you say so.",
    EventKind.DEADLINE_SET: "The operator gave the open round another deadline.",
    EventKind.CLIENT_QUARANTINED: "The operator excluded a client's updates; that in the open round is withdrawn.",
    EventKind.QUARANTINE_LIFTED: "The operator let a client's updates count again.",
    EventKind.UNLEARNING_STARTED: "An unlearning job began; the detail has its strategy and how many steps it has.",
    EventKind.UNLEARNING_STEP_MISSED: "Nobody answered a step of a job before its deadline; it is asked again.",
    EventKind.UNLEARNING_PAUSED: "No device has answered for long; the job goes on with the first one that is back.",
    EventKind.UNLEARNING_DONE: "A model without the clients that were forgotten is in service.",
    EventKind.ORDER_REFUSED: "An order was not the operator's, was seen before, or names another round or a stranger.",
}

# What a rule finds out; `foltr.aggregation` names them, and they are stored with the round they were found in.
FINDINGS = (EventKind.DEFENCE_RAISED, EventKind.DEFENCE_LOWERED, EventKind.QUARANTINE_PROPOSED)
# What an order of the operator's has done.
ORDERS = (EventKind.DEADLINE_SET, EventKind.CLIENT_QUARANTINED, EventKind.QUARANTINE_LIFTED)

_UPDATE, _MESSAGE, _ROSTER, _ORDER = (
    EventKind.UPDATE_REJECTED,
    EventKind.MESSAGE_REFUSED,
    EventKind.ROSTER_REFUSED,
    EventKind.ORDER_REFUSED,
)
# Which events may carry a receipt's code; one without is told to the device and leaves no row.
EVENTS_OF: dict[ReceiptCode, tuple[EventKind, ...]] = {
    ReceiptCode.ACCEPTED: (),
    ReceiptCode.DUPLICATE: (_UPDATE,),
    ReceiptCode.ALREADY_CONTRIBUTED: (_UPDATE,),
    ReceiptCode.LATE: (_UPDATE,),
    ReceiptCode.STALE: (_UPDATE,),
    ReceiptCode.UNKNOWN_ROUND: (_UPDATE, _ORDER),
    ReceiptCode.UNKNOWN_CLIENT: (_UPDATE, _MESSAGE, _ORDER),
    ReceiptCode.CLIENT_MISMATCH: (_UPDATE, _MESSAGE),
    ReceiptCode.WRONG_FEDERATION: (_UPDATE, _MESSAGE, _ROSTER, _ORDER),
    ReceiptCode.MALFORMED: (_UPDATE, _MESSAGE, _ROSTER, _ORDER),
    ReceiptCode.WRONG_SHAPE: (_UPDATE,),
    ReceiptCode.OUT_OF_RANGE: (_UPDATE,),
    ReceiptCode.NOT_FINITE: (_UPDATE,),
    ReceiptCode.TOO_LARGE: (_UPDATE, _MESSAGE, _ROSTER, _ORDER),
    ReceiptCode.UNSUPPORTED_VERSION: (_UPDATE, _MESSAGE, _ROSTER, _ORDER),
    ReceiptCode.BAD_SIGNATURE: (_UPDATE, _MESSAGE, _ROSTER, _ORDER),
    ReceiptCode.NOT_ENROLLED: (_MESSAGE, _ROSTER, _ORDER),
    ReceiptCode.REVOKED: (_UPDATE, _MESSAGE),
    ReceiptCode.QUARANTINED: (_UPDATE,),
    ReceiptCode.REPLAYED: (_UPDATE, _MESSAGE, _ROSTER, _ORDER),
    ReceiptCode.NOT_SELECTED: (_UPDATE,),
    ReceiptCode.INCOMPLETE: (),
    ReceiptCode.FORGETTING: (),
    ReceiptCode.FORGOTTEN: (_UPDATE, _MESSAGE),
    ReceiptCode.BUSY: (EventKind.INTAKE_FULL, _UPDATE),
    ReceiptCode.JOINED: (),
    ReceiptCode.LEFT: (),
}
