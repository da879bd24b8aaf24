"""Every kind of row in the table ``events``, and its meaning; `docs/errors.md` is made from it."""

from foltr.core.protocol.explained import Explained


class EventKind(Explained):
    """What happened, with a sentence for people. A test compares the kinds with what the code writes."""

    FEDERATOR_STARTED = (
        "federator_started",
        "A federator has claimed the federation; another one of it stops at its next write.",
    )
    ROUND_RESUMED = "round_resumed", "It found an open round and goes on with it, and with the updates it had."
    CLIENT_JOINED = "client_joined", "A client joined, or is back after it was offline."
    CLIENT_ONLINE = "client_online", "A member that was offline says that it is connected."
    CLIENT_OFFLINE = "client_offline", "A member disconnected, or its connection was lost."
    CLIENT_LEFT = "client_left", "A member left; what it contributed stays."
    CLIENT_REVOKED = (
        "client_revoked",
        "A roster made a member's enrolment void; its update in the open round is withdrawn.",
    )
    UPDATE_REJECTED = "update_rejected", "An update, or a part of one, was refused; `code` says why."
    MESSAGE_REFUSED = "message_refused", "A join, leave or status was refused; `code` says why, the detail names which."
    INTAKE_FULL = "intake_full", "Messages were turned away for want of room, or because a client sent too many."
    ROSTER_ADOPTED = "roster_adopted", "A newer roster of the operator holds from now on."
    ROSTER_REFUSED = "roster_refused", "A roster was older than the one known, or not the operator's."
    POLICY_ADOPTED = "policy_adopted", "A newer policy of the operator holds from the next round on."
    POLICY_REFUSED = (
        "policy_refused",
        "A policy was not the operator's, older than the one known, or does not fit the settings; `code` says which.",
    )
    TICKET_REFUSED = (
        "ticket_refused",
        "A client was taken out of its round's sum; the detail says why. Its participation is spent.",
    )
    ROUND_ABANDONED = "round_abandoned", "A round's updates could not be made a model; the detail says why."
    MODEL_ROLLED_BACK = (
        "model_rolled_back",
        (
            "Most devices found the newest model worse than the anchor; the older model's weights are served again "
            "from now on. The detail counts, and says what to look for."
        ),
    )
    ANCHOR_MOVED = (
        "anchor_moved",
        "Most devices found the newest model better than the anchor: later ones are compared with it from now on.",
    )
    DEFENCE_RAISED = (
        "defence_raised",
        (
            "The evidence against a client became strong: it is left out of the mean from now on. Without a "
            "client: half of them look suspicious, and the fallback is used."
        ),
    )
    DEFENCE_LOWERED = (
        "defence_lowered",
        (
            "The evidence became weak: the client is counted again. Without a client: the mean is used again, "
            "or the rule could not read what it remembered, and judges all anew."
        ),
    )
    QUARANTINE_PROPOSED = (
        "quarantine_proposed",
        "A client is suspicious round after round; nothing is done to it unless you say so.",
    )
    DEADLINE_SET = "deadline_set", "The operator gave the open round another deadline."
    CLIENT_QUARANTINED = (
        "client_quarantined",
        "The operator excluded a client's updates; that in the open round is withdrawn.",
    )
    QUARANTINE_LIFTED = "quarantine_lifted", "The operator let a client's updates count again."
    PROPOSAL_DISMISSED = (
        "proposal_dismissed",
        "The operator decided against a quarantine that was proposed; what was found so far is closed.",
    )
    KEY_ROTATED = "key_rotated", "The operator gave the federator another key: it is to be started with that one."
    ORDER_REFUSED = (
        "order_refused",
        "An order was not the operator's, not the one obeyed under its number, or names another round or a stranger.",
    )
    UNLEARNING_STARTED = (
        "unlearning_started",
        "An unlearning job began; the detail has its strategy and how many steps it has.",
    )
    ERASURE_OVERDUE = (
        "erasure_overdue",
        "Somebody asked to be forgotten, and was not by the deadline: a model that learned from it may be in service.",
    )
    UNLEARNING_APPROVAL_REQUIRED = (
        "unlearning_approval_required",
        "A job would put the first model in service and waits for the operator's order; the detail says what is lost.",
    )
    RESET_ALLOWED = "reset_allowed", "The operator ordered that a job may put the first model in service."
    UNLEARNING_STEP_MISSED = (
        "unlearning_step_missed",
        "Nobody answered a step of a job before its deadline; it is asked again.",
    )
    UNLEARNING_PAUSED = (
        "unlearning_paused",
        "No device has answered for long; the job goes on with the first one that is back, or let out of quarantine.",
    )
    AUDIT_LOG_DIFFERS = (
        "audit_log_differs",
        "The log of erasures lacks an entry that was published, or has another one there: an older database, or a cut.",
    )
    UPDATES_UNDELIVERED = (
        "updates_undelivered",
        "Messages to the ingest workers' group reached none of them: somebody else is in it, or a worker hangs.",
    )
    UNLEARNING_DONE = "unlearning_done", "A model without the clients that were forgotten is in service."


# Findings of a rule; `foltr.core.aggregation` names them, and they are stored with their round.
FINDINGS = (EventKind.DEFENCE_RAISED, EventKind.DEFENCE_LOWERED, EventKind.QUARANTINE_PROPOSED)
# The effects of the operator's orders.
ORDERS = (
    EventKind.DEADLINE_SET,
    EventKind.RESET_ALLOWED,
    EventKind.CLIENT_REVOKED,
    EventKind.CLIENT_QUARANTINED,
    EventKind.QUARANTINE_LIFTED,
    EventKind.PROPOSAL_DISMISSED,
    EventKind.KEY_ROTATED,
)
